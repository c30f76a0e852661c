"""A query in real-time mode from a topic of its own to another one, for tests of its rows and of its batches."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from connectorkit import JAVA
from visiblekit import visible
from waitkit import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from raftlake import Client

#: Spark's shortest batch of real-time mode, and one that no test lives to see the end of.
SHORT, LONG = "5 seconds", "30 minutes"
#: For batches of five seconds on a busy machine.
WAIT_S = 60
#: Slots of the session of the tests.
SLOTS = 2
SCHEME = "raftlake://"


class Flow:
    """A query from a topic of its own to another one."""

    def __init__(
        self, spark: SparkSession, client: Client, directory: Path, partitions: int = SLOTS, checkpoint: str | None = None
    ) -> None:
        name = uuid.uuid4().hex[:8]
        self.spark, self.client = spark, client
        self.checkpoint = str(directory / "checkpoint") if checkpoint is None else checkpoint
        self.before, self.after = f"before-{name}", f"after-{name}"
        client.create_topic(self.before, partitions)
        client.create_topic(self.after, 2)
        self.values: list[str] = []
        self._numbers = itertools.count()
        self.query: StreamingQuery | None = None

    def start(
        self, lasts: str | None = SHORT, sink: Mapping[str, str] = MappingProxyType({}), **options: str
    ) -> StreamingQuery:
        """`lasts`: a batch of real-time mode; None: micro-batches, until all is read. `options` of the source have `__` for a
        dot."""
        servers = {"kafka.bootstrap.servers": ",".join(map(str, self.client.config.bootstrap))}
        named = {"startingOffsets": "earliest", **{name.replace("__", "."): value for name, value in options.items()}}
        reader = self.spark.readStream.format(JAVA).options(**servers, **named).option("subscribe", self.before)
        writer = reader.load().select("key", "value").writeStream.format(JAVA).options(**servers).option("topic", self.after)
        writer = writer.options(**sink).option("checkpointLocation", self.checkpoint).outputMode("update")
        self.query = (writer.trigger(realTime=lasts) if lasts else writer.trigger(availableNow=True)).start()
        if lasts is None:
            assert self.query.awaitTermination(WAIT_S)
        return self.query

    def append(self, count: int = 4) -> None:
        for _ in range(count):
            number = next(self._numbers)
            self.values.append(f"v{number:04d}")
            self.client.append(self.before, self.values[-1], partition=number % len(self.client.partitions(self.before)))

    def wait_for_all(self) -> None:
        def is_there() -> bool:
            assert self.query is not None
            assert self.query.exception() is None
            return set(visible(self.client, self.after)) >= set(self.values)

        wait_until(is_there, f"all of {len(self.values)} rows", WAIT_S)

    def committed(self) -> int:
        """The newest batch that the checkpoint has as done; -1 where there is none."""
        return max((int(name) for name in self._files("commits") if name.isdecimal()), default=-1)

    def _files(self, kind: str) -> list[str]:
        if not self.checkpoint.startswith(SCHEME):
            return [path.name for path in (Path(self.checkpoint) / kind).glob("*")]
        prefix = f"/fs/{self.checkpoint.removeprefix(SCHEME)}/{kind}/"
        return [entry.key.removeprefix(prefix) for entry in self.client.kv.list(prefix).entries]

    def wait_for_batches(self, count: int = 1) -> None:
        """Until so many more batches are over. A batch that was open when this is called is the first of them."""
        goal = self.committed() + count

        def is_over() -> bool:
            assert self.query is not None
            assert self.query.exception() is None
            return self.committed() >= goal

        wait_until(is_over, f"batch {goal}", WAIT_S * count)

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()
            self.query = None

    def offsets(self) -> dict[str, int]:
        """Of the newest batch."""
        path = Path(self.checkpoint) / "offsets" / str(self.committed())
        found: dict[str, dict[str, int]] = json.loads(path.read_text().splitlines()[-1])
        return found[self.before]
