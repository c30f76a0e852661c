"""Executor: Arrow record batches into the log, through one transactional producer per task.

Rows are gathered into chunks, each chunk is sorted by partition, and every partition's rows become record batches that are
sent while the next chunk is prepared. The rows of a task keep their order within a partition. Memory is bounded: by the size
of a chunk and by the bytes in flight.

What is written is visible to nobody before the transaction of the task commits, which is not decided here (`ledger`). A task
without rows has no producer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_raftlake import errors
from pyspark_raftlake.errors import InvalidRow
from pyspark_raftlake.offsets import TopicPartition
from pyspark_raftlake.options import OUTAGE_MS_MAX
from pyspark_raftlake.partitioner import partitions_of_rows
from raftlake.arrow.records import encode_from_arrow
from raftlake.errors import ConfigError, ErrorCode, RequestRejected

if TYPE_CHECKING:
    from pyspark_raftlake.ledger import Standing
    from raftlake.client.types import AppendResult, EndTxn, TopicDescription

#: pyarrow ships no types.
Arrow: TypeAlias = Any

CHUNK_ROWS_MAX = 100_000
CHUNK_BYTES_MAX = 16 << 20
BATCH_BYTES_MAX = 512 << 10
IN_FLIGHT_BYTES_MAX = 32 << 20


class BatchProducer(Protocol):
    """The part of `raftlake.client.Producer` that writing needs."""

    def submit_batches(
        self, topic: str, partition: int, batches: Sequence[bytes | bytearray | memoryview], *, timeout_ms: float | None = None
    ) -> Future[tuple[AppendResult, ...]]: ...

    def close(self) -> None: ...


P = TypeVar("P", bound=BatchProducer)


class WriteClient(Protocol):
    """The part of `raftlake.client.Client` that writing needs."""

    def partitions(self, topic: str) -> list[int]: ...

    def topics(self) -> tuple[TopicDescription, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPartition:
    """What one task appended to one partition: `rows` records within offsets [start, end)."""

    topic: str
    partition: int
    rows: int
    start: int
    end: int


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one attempt of a task appended, by topic and partition, and what commits it."""

    partitions: tuple[WrittenPartition, ...] = ()
    #: The commit of its transaction; None: the task had no rows.
    end: EndTxn | None = None
    #: What it found of its app; None for a write without one.
    standing: Standing | None = None
    #: Its transactional id.
    transaction: str = ""

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions)


def write_rows(
    client: WriteClient,
    batches: Iterable[Arrow],
    *,
    topic: str | None,
    columns: Sequence[str],
    make_producer: Callable[[], P],
    compression: str = "none",
    turn: int = 0,
    delivery_ms_max: int = OUTAGE_MS_MAX,
) -> tuple[tuple[WrittenPartition, ...], P | None]:
    """Append all rows and wait until all are acknowledged. Raises what the first failed append raised, or InvalidRow. Returns
    what was appended, and the producer, which is made with the first row; the caller ends and closes it.

    `columns` are those of topic, key, value, headers, partition that the rows have; others are not looked at. `turn`
    says at which partition rows without a key begin.
    """
    writer = _TaskWriter(client, topic, columns, make_producer, compression, turn, delivery_ms_max)
    for chunk in _chunks(batches, columns):
        writer.write_chunk(chunk)
    return writer.finish(), writer.producer


def _chunks(batches: Iterable[Arrow], columns: Sequence[str]) -> Iterator[Arrow]:
    """Record batches of the chosen columns: small ones joined, none much larger than a chunk may be."""
    gathered: list[Arrow] = []
    rows = size = 0
    for batch in batches:
        for piece in _cut(batch.select(list(columns))):
            if gathered and (rows + len(piece) > CHUNK_ROWS_MAX or size + piece.nbytes > CHUNK_BYTES_MAX):
                yield pa.concat_batches(gathered)
                gathered, rows, size = [], 0, 0
            gathered.append(piece)
            rows += len(piece)
            size += piece.nbytes
    if rows:
        yield pa.concat_batches(gathered)


def _cut(batch: Arrow) -> Iterator[Arrow]:
    pieces = max(1, -(-len(batch) // CHUNK_ROWS_MAX), -(-batch.nbytes // CHUNK_BYTES_MAX))
    step = max(1, -(-len(batch) // pieces))
    for start in range(0, len(batch), step):
        yield batch.slice(start, step)


class _TaskWriter(Generic[P]):
    def __init__(
        self,
        client: WriteClient,
        topic: str | None,
        columns: Sequence[str],
        make_producer: Callable[[], P],
        compression: str,
        turn: int,
        delivery_ms_max: int,
    ) -> None:
        self._client = client
        self._topic = topic
        self._columns = columns
        self._compression = compression
        self._turn = turn
        self._make_producer = make_producer
        self._delivery_ms_max = delivery_ms_max
        self.producer: P | None = None
        self._partition_counts: dict[str, int] = {}
        #: What is on its way, with its size, in the order of its submission.
        self._in_flight: deque[tuple[Future[tuple[AppendResult, ...]], int]] = deque()
        self._in_flight_bytes = 0
        self._written: dict[TopicPartition, WrittenPartition] = {}

    def write_chunk(self, chunk: Arrow) -> None:
        if self._topic is not None:
            self._write_topic(self._topic, chunk)
            return
        topics = chunk.column("topic").cast(pa.string())
        if topics.null_count:
            raise InvalidRow("column topic: null topic present in the data. Use the topic option for setting a topic.")
        encoded = topics.dictionary_encode()
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        for index, topic in enumerate(encoded.dictionary.to_pylist()):
            self._write_topic(
                topic, chunk if len(encoded.dictionary) == 1 else chunk.take(pa.array(np.flatnonzero(indices == index)))
            )

    def finish(self) -> tuple[WrittenPartition, ...]:
        while self._in_flight:
            self._await_oldest()
        return tuple(self._written[partition] for partition in sorted(self._written))

    def _write_topic(self, topic: str, chunk: Arrow) -> None:
        count = self._count_partitions(topic)
        key, partition = self._column(chunk, "key", pa.binary()), self._column(chunk, "partition", pa.int32())
        chosen = partitions_of_rows(len(chunk), key, partition, count, self._turn)
        self._turn += 1
        ends = np.cumsum(np.bincount(chosen, minlength=count))
        if np.count_nonzero(chosen[1:] < chosen[:-1]):
            narrow = chosen.astype(np.int16) if count < 1 << 15 else chosen
            chunk = chunk.take(pa.array(np.argsort(narrow, kind="stable")))
        start = 0
        for number, end in enumerate(ends.tolist()):
            if end > start:
                self._submit(topic, number, chunk.slice(start, end - start))
            start = end

    def _submit(self, topic: str, partition: int, rows: Arrow) -> None:
        batches = encode_from_arrow(
            self._column(rows, "key"),
            self._column(rows, "value"),
            self._column(rows, "headers"),
            timestamp_ms=time.time_ns() // 1_000_000,
            batch_bytes_max=BATCH_BYTES_MAX,
            compression=self._compression,
        )
        size = sum(len(batch) for batch in batches)
        while self._in_flight and self._in_flight_bytes + size > IN_FLIGHT_BYTES_MAX:
            self._await_oldest()
        if self.producer is None:
            self.producer = self._make_producer()
        future = self.producer.submit_batches(topic, partition, batches, timeout_ms=self._delivery_ms_max)
        self._in_flight.append((future, size))
        self._in_flight_bytes += size

    def _await_oldest(self) -> None:
        future, size = self._in_flight.popleft()
        self._in_flight_bytes -= size
        for result in future.result():
            self._note(result)

    def _note(self, result: AppendResult) -> None:
        """An offset of -1 is that of a retried batch that the node knows to be appended, and no longer where."""
        partition = TopicPartition(result.topic, result.partition)
        known = self._written.get(partition)
        start, end = (result.offset, result.offset + result.count) if result.offset >= 0 else (-1, -1)
        if known is None:
            self._written[partition] = WrittenPartition(
                topic=result.topic, partition=result.partition, rows=result.count, start=start, end=end
            )
        else:
            start = min(known.start, start) if min(known.start, start) >= 0 else max(known.start, start)
            self._written[partition] = replace(known, rows=known.rows + result.count, start=start, end=max(known.end, end))

    def _column(self, rows: Arrow, name: str, data_type: Arrow = None) -> Arrow | None:
        if name not in self._columns:
            return None
        column = rows.column(name)
        return column if data_type is None else column.cast(data_type)

    def _count_partitions(self, topic: str) -> int:
        if topic not in self._partition_counts:
            try:
                self._partition_counts[topic] = count_partitions(self._client, topic)
            except ConfigError as missing:
                if self._topic is not None:
                    raise
                raise InvalidRow(f"column topic: {missing}") from missing
        return self._partition_counts[topic]


def count_partitions(client: WriteClient, topic: str) -> int:
    """How many partitions a topic has; ConfigError when there is no such topic."""
    try:
        return len(client.partitions(topic))
    except RequestRejected as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise errors.missing_topics([topic], [known.name for known in client.topics()]) from error
