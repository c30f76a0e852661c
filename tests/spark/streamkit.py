"""Streaming scenarios as lists of steps: append, expect, stop, restart, expect.

A scenario runs one query over one topic. What each micro-batch held is collected by batch number, so a batch that Spark runs
again after a restart replaces its first try, as an idempotent sink would do it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from raftlake import Client

QUERY_TIMEOUT_S = 90


@dataclass(frozen=True)
class Append:
    """Values to append; without a partition, one after another in partition 0, 1, ... in turn."""

    values: list[str]
    partition: int | None = None


@dataclass(frozen=True)
class Start:
    """Begin or restart the query. `available_now`: and wait until it has ended by itself."""

    available_now: bool = False
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stop:
    pass


@dataclass(frozen=True)
class Expect:
    """All that was appended and is due, and only that, in any order."""

    values: list[str]


@dataclass(frozen=True)
class ExpectBatches:
    """How many rows the batches held so far, those without rows left out."""

    sizes: list[int]


@dataclass(frozen=True)
class ExpectBatchesOf:
    """How many rows a batch holds at most, and one at least more than half as many: control records are among the offsets, and
    each new leader writes one."""

    rows_max: int


@dataclass(frozen=True)
class Do:
    """Anything else: kill a node, make a topic."""

    action: Callable[[], object]


Step = Append | Start | Stop | Expect | ExpectBatches | ExpectBatchesOf | Do


class Scenario:
    def __init__(self, spark: SparkSession, client: Client, topic: str, checkpoint: Path, **options: str) -> None:
        self.spark = spark
        self.client = client
        self.topic = topic
        self.checkpoint = checkpoint
        servers = ",".join(map(str, client.config.bootstrap))
        self.options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest", **options}
        self.batches: dict[int, list[tuple[str, int, int, str]]] = {}
        self.query: StreamingQuery | None = None
        self._appended = 0

    def run(self, *steps: Step) -> None:
        try:
            for step in steps:
                self._run(step)
        finally:
            self._stop()

    def values(self) -> list[str]:
        return sorted(value for rows in self.batches.values() for *_, value in rows)

    def _run(self, step: Step) -> None:
        match step:
            case Append(values, partition):
                self._append(values, partition)
            case Start():
                self._start(step)
            case Stop():
                self._stop()
            case Expect(values):
                if self.query is not None and self.query.isActive:
                    self._process_all(len(values))
                assert self.values() == sorted(values), self.query and self.query.exception()
                self._require_each_offset_once()
            case ExpectBatches(sizes):
                assert [len(rows) for _, rows in sorted(self.batches.items()) if rows] == sizes
            case ExpectBatchesOf(rows_max):
                assert rows_max / 2 < max(len(rows) for rows in self.batches.values()) <= rows_max
            case Do(action):
                action()

    def _append(self, values: list[str], partition: int | None) -> None:
        count = len(self.client.partitions(self.topic))
        for value in values:
            self.client.append(self.topic, value, partition=self._appended % count if partition is None else partition)
            self._appended += 1

    def _start(self, step: Start) -> None:
        frame = self.spark.readStream.format("raftlake").options(**{**self.options, **step.options}).load()
        writer = frame.writeStream.foreachBatch(self._collect).option("checkpointLocation", str(self.checkpoint))
        if step.available_now:
            self.query = writer.trigger(availableNow=True).start()
            assert self.query.awaitTermination(QUERY_TIMEOUT_S)
        else:
            self.query = writer.start()

    def _stop(self) -> None:
        if self.query is not None:
            self.query.stop()
            self.query = None

    def _collect(self, frame: DataFrame, batch: int) -> None:
        rows: list[Any] = frame.select("topic", "partition", "offset", "value").collect()
        self.batches[batch] = [(row.topic, row.partition, row.offset, bytes(row.value).decode()) for row in rows]

    def _process_all(self, count: int) -> None:
        """Wait for what was appended: a query from latest may still have its first, empty batch before it."""
        query = self.query
        assert query is not None
        deadline = time.monotonic() + QUERY_TIMEOUT_S
        _process_available(query)
        while len(self.values()) < count and query.isActive and time.monotonic() < deadline:
            _process_available(query)

    def _require_each_offset_once(self) -> None:
        positions = [row[:3] for rows in self.batches.values() for row in rows]
        assert len(positions) == len(set(positions))


def _process_available(query: StreamingQuery) -> None:
    """`processAllAvailable`, which waits without a limit: a query that is stuck would hold up the whole run."""
    with ThreadPoolExecutor(1) as pool:
        processed = pool.submit(query.processAllAvailable)
        try:
            processed.result(QUERY_TIMEOUT_S)
        except TimeoutError:
            # This ends the wait, too.
            query.stop()
            raise AssertionError(f"not within {QUERY_TIMEOUT_S} s: a query processes all that is available") from None
