"""Producers: where batches are made, and where each goes.

`AsyncProducer` is one idempotent producer: batches of one partition keep the order of their submission, and none is appended
twice, whatever happens on the way. The client's own appends use one with several lanes, so that many single appends can be
in flight at once; there, appends that overlap in time may change places when one has to be retried.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

from raftlake.client.cluster import Cluster, Topic
from raftlake.client.deadline import Deadline
from raftlake.client.lanes import ProducerIds
from raftlake.client.partitioner import RoundRobin, partition_for_key
from raftlake.client.sender import PartitionSender
from raftlake.client.types import AppendRecord, AppendResult, NewRecord, to_record
from raftlake.errors import ErrorCode, RaftlakeError, RequestRejected
from raftlake.wire.batches import Record as WireRecord
from raftlake.wire.batches import build_batch, parse_header

#: Bytes of keys, values and headers that `append_many` puts into one batch.
BATCH_BYTES = 512 << 10


class AsyncProducer:
    """Appends with one producer id per lane. `lanes_max` 1: strict order, at most five batches in flight per partition, and
    after a failure every later append to that partition fails too, so that nothing is ever appended out of order."""

    def __init__(self, cluster: Cluster, *, lanes_max: int = 1, ids: ProducerIds | None = None) -> None:
        """`ids`: where producer ids come from, if not fresh from the nodes."""
        self._cluster = cluster
        self._ids = ids or ProducerIds(cluster)
        self._lanes_max = lanes_max
        self._senders: dict[tuple[str, int], PartitionSender] = {}
        self._turns = RoundRobin()
        self._is_closed = False

    async def append(self, topic: str, record: AppendRecord, timeout_ms: float | None = None) -> AppendResult:
        """One record, in a request of its own, sent at once."""
        record = to_record(record)
        deadline = self._deadline(timeout_ms)
        while True:
            described = await self._cluster.topic_with(topic, _named([record]), deadline)
            partition = self.choose_partition(described, record)
            batch = self._built([record])
            try:
                return await self._sender(topic, partition).submit(batch, 1, deadline)
            except RequestRejected as refused:
                if record.partition is not None or refused.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                if deadline.is_over() or partition in (await self._cluster.topic(topic, deadline)).partitions:
                    raise
                # The topic was created again with fewer partitions: the record belongs into one of these.

    async def append_many(
        self, topic: str, records: Iterable[AppendRecord], timeout_ms: float | None = None
    ) -> tuple[AppendResult, ...]:
        """Records in as few batches as their sizes allow, in order within each partition. Raises the first failure after
        every batch has ended."""
        return await _gather([outcome for _, outcome in await self._submit_many(topic, records, timeout_ms)])

    async def append_each(
        self, topic: str, records: Iterable[AppendRecord], timeout_ms: float | None = None
    ) -> tuple[AppendResult | RaftlakeError, ...]:
        """As `append_many`, but tells of each record in turn what its batch ended with, failures too."""
        ended: dict[int, AppendResult | RaftlakeError] = {}
        for places, outcome in await self._submit_many(topic, records, timeout_ms):
            try:
                result: AppendResult | RaftlakeError = await outcome
            except RaftlakeError as error:
                result = error
            ended.update(dict.fromkeys(places, result))
        return tuple(ended[place] for place in sorted(ended))

    async def _submit_many(
        self, topic: str, records: Iterable[AppendRecord], timeout_ms: float | None
    ) -> list[tuple[list[int], asyncio.Future[AppendResult]]]:
        """The batches that these records make: the places of its records among them, and its outcome. Nothing is sent before
        all of them are built: what cannot be built is an error of the call."""
        deadline = self._deadline(timeout_ms)
        chosen = [to_record(record) for record in records]
        described = await self._cluster.topic_with(topic, _named(chosen), deadline)
        keyless: int | None = None
        by_partition: dict[int, list[tuple[int, NewRecord]]] = {}
        for place, record in enumerate(chosen):
            if record.partition is None and record.key is None:
                # Records without a key stay together: one batch is cheaper than one for each partition.
                keyless = self._turns.next(topic, sorted(described.partitions)) if keyless is None else keyless
                partition = keyless
            else:
                partition = self.choose_partition(described, record)
            by_partition.setdefault(partition, []).append((place, record))
        built = [
            (partition, [place for place, _ in batch], self._built([record for _, record in batch]))
            for partition, placed in by_partition.items()
            for batch in _split(placed)
        ]
        return [
            (places, self._sender(topic, partition).submit(batch, len(places), deadline)) for partition, places, batch in built
        ]

    async def append_batches(
        self,
        topic: str,
        partition: int,
        batches: Sequence[bytes | bytearray | memoryview],
        timeout_ms: float | None = None,
    ) -> tuple[AppendResult, ...]:
        """Encoded record batches (format v2, one per element), in this order. Their producer fields are overwritten: a
        `bytearray` in place, anything else in a copy. Raises the first failure after every batch has ended."""
        return await _gather(self.submit_batches(topic, partition, batches, timeout_ms))

    def submit_batches(
        self,
        topic: str,
        partition: int,
        batches: Sequence[bytes | bytearray | memoryview],
        timeout_ms: float | None = None,
    ) -> list[asyncio.Future[AppendResult]]:
        """As `append_batches`, but returns at once: one future per batch."""
        deadline = self._deadline(timeout_ms)
        # All are read before the first is sent. Without a batch that can be sent there is no sender, and no transaction.
        counted = [(batch, parse_header(batch).last_offset_delta + 1) for batch in batches]
        owned = [(batch if isinstance(batch, bytearray) else bytearray(batch), count) for batch, count in counted]
        return [self._sender(topic, partition).submit(batch, count, deadline) for batch, count in owned]

    def choose_partition(self, topic: Topic, record: NewRecord) -> int:
        """The record's own, or its key's, or the next one in turn."""
        if record.partition is not None:
            topic.require_partition(record.partition)
            return record.partition
        if not topic.partitions:
            raise RequestRejected(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic.name!r} has no partitions yet")
        if record.key is not None:
            return partition_for_key(record.key, len(topic.partitions))
        return self._turns.next(topic.name, sorted(topic.partitions))

    async def close(self) -> None:
        """Give up what is not acknowledged yet: what was sent ends as UnknownOutcome."""
        self._is_closed = True
        for sender in self._senders.values():
            sender.close()
        await self._ids.close()

    def _built(self, records: Sequence[NewRecord]) -> bytearray:
        return build_batch(
            [WireRecord(0, -1 if r.timestamp_ms is None else r.timestamp_ms, r.key, r.value, r.headers) for r in records],
            timestamp_ms=time.time_ns() // 1_000_000,
            compression=self._cluster.config.compression,
        )

    def _require_open(self) -> None:
        """Raises where nothing may be appended any more."""

    def _sender(self, topic: str, partition: int) -> PartitionSender:
        if self._is_closed:
            raise RequestRejected(ErrorCode.NETWORK_EXCEPTION, "this producer is closed")
        self._require_open()
        sender = self._senders.get((topic, partition))
        if sender is None:
            sender = PartitionSender(self._cluster, self._ids, topic, partition, lanes_max=self._lanes_max)
            self._senders[topic, partition] = sender
        return sender

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(self._cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms)


def _named(records: Iterable[NewRecord]) -> set[int]:
    """The partitions that the records themselves ask for."""
    return {record.partition for record in records if record.partition is not None}


async def _gather(outcomes: Sequence[asyncio.Future[AppendResult]]) -> tuple[AppendResult, ...]:
    if outcomes:
        await asyncio.wait(outcomes)
    failures = [error for outcome in outcomes if not outcome.cancelled() and (error := outcome.exception()) is not None]
    if failures:
        raise failures[0]
    return tuple(outcome.result() for outcome in outcomes)


def _split(records: Sequence[tuple[int, NewRecord]]) -> Iterable[Sequence[tuple[int, NewRecord]]]:
    """Runs of records, each with its place, of at most BATCH_BYTES, at least one record each."""
    start, size = 0, 0
    for index, (_, record) in enumerate(records):
        record_size = len(record.key or b"") + len(record.value or b"") + 16
        record_size += sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
        if index > start and size + record_size > BATCH_BYTES:
            yield records[start:index]
            start, size = index, 0
        size += record_size
    if start < len(records):
        yield records[start:]
