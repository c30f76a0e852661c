"""Reading: raw batches from the leader or a follower, records, and offsets.

A follower answers up to the high watermark that it knows, which may lag behind the leader's; when it cannot serve an offset,
the leader is asked. Fetched bytes are never copied: the buffers are slices of the received frame.

Nodes give batches of aborted transactions too, and say which those are. They are left out here, for all readers. The markers of
transactions stay in the buffers, as Raft's control batches do not, and no reader of records gives them to its caller.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial

from raftlake.client import protocol
from raftlake.client.aborted import AbortedBatches
from raftlake.client.cluster import Cluster, Topic
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.errors import Disconnected, OffsetOutOfRange
from raftlake.client.routing import LEADER_BACKOFF_MS_MAX, RETRIABLE, ask_leaders
from raftlake.client.types import EARLIEST, LATEST, Address, FetchedBytes, IsolationLevel, Record
from raftlake.errors import ErrorCode, RequestRejected, WireError
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import decode_records, iterate_headers
from raftlake.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest, FetchResponse, FetchTopic
from raftlake.wire.read_offset import ReadOffsetRequest, ReadOffsetResponse
from raftlake.wire.topic_lists import TopicPartitions

FETCH_VERSION = 16
READ_OFFSET_VERSION = 0

#: Which node to fetch from: None for the leader, "any" for one after another, a node id for that one.
Replica = int | str | None


class Reader:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turn = 0

    # --- records -----------------------------------------------------------------------------------------------------

    async def fetch_raw(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        bytes_max: int,
        wait_ms: int,
        limit_offset: int | None = None,
        replica: Replica = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        topic_id: bytes | None = None,
        timeout_ms: float | None = None,
    ) -> FetchedBytes:
        """Whole batches from the one that holds `offset` on: at least one if there is any below the high watermark, then up to
        about `bytes_max` bytes; batches that begin at or after `limit_offset` are left out. When there is nothing yet,
        the node waits up to `wait_ms` for it.

        Raises OffsetOutOfRange when the leader does not hold `offset`, RequestRejected for other errors that do not pass:
        UNKNOWN_TOPIC_ID when a `topic_id` is given and the topic of this name is another one by now.
        """
        deadline = self._deadline(timeout_ms)
        backoff = Backoff(self._cluster.config.retry_backoff_ms, LEADER_BACKOFF_MS_MAX)
        described = await self._cluster.topic_with(topic, (partition,), deadline, topic_id=topic_id)
        while True:
            leader_id = described.require_partition(partition).leader_id
            node_id = self._choose(described, partition, replica)
            code = ErrorCode.LEADER_NOT_AVAILABLE
            address = self._cluster.nodes.get(node_id)
            if address is not None:
                request = _fetch_request(described, partition, offset, bytes_max, wait_ms, isolation)
                try:
                    answer = await self._fetch(address, request, wait_ms, deadline)
                except Disconnected:
                    code = ErrorCode.NETWORK_EXCEPTION
                else:
                    result = _only_result(answer)
                    code = result.error if answer.error == ErrorCode.NONE else answer.error
                    if code == ErrorCode.NONE:
                        fetched = _cut(result, offset, limit_offset, node_id)
                        is_behind = node_id != leader_id and limit_offset is not None and offset < limit_offset
                        if fetched.next_offset > offset or not is_behind:
                            return fetched
                        # The follower does not have what is known to be committed: the leader does.
                    elif code == ErrorCode.OFFSET_OUT_OF_RANGE and node_id == leader_id:
                        raise OffsetOutOfRange(topic, partition, offset, result.log_start_offset, result.high_watermark)
                    elif result.current_leader is not None:
                        self._cluster.learn_leader(
                            topic, described.topic_id, partition, *result.current_leader, answer.node_endpoints
                        )
            if replica is not None and node_id != leader_id:
                replica = None
                continue
            if code not in RETRIABLE and code not in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE):
                raise RequestRejected(code, f"fetch {topic}-{partition} at {offset}")
            if deadline.is_over():
                raise RequestRejected(code, f"fetch {topic}-{partition} at {offset} had no answer in time")
            await backoff.pause(deadline)
            described = await self._cluster.topic_with(topic, (partition,), deadline, topic_id=topic_id, is_retry=True)

    async def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        bytes_max: int,
        records_max: int | None,
        wait_ms: int,
        replica: Replica = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        topic_id: bytes | None = None,
        timeout_ms: float | None = None,
    ) -> tuple[list[Record], int]:
        """Records from `offset` on, and the offset to go on from (which control records may put beyond the last record).
        Batches without a record for this reader are passed over, however many there are. Without `timeout_ms` each fetch has
        the time of an operation.

        There is no record only at the end for this reader. A node that has to fetch an offset from the remote tier may answer
        without it: such an offset is asked for again, and RequestRejected(REQUEST_TIMED_OUT) names one that does not come.
        `topic_id` is that of `fetch_raw`.
        """
        position = offset
        deadline = None if timeout_ms is None else self._deadline(timeout_ms)
        fetch = partial(
            self.fetch_raw,
            topic,
            partition,
            bytes_max=bytes_max,
            wait_ms=wait_ms,
            replica=replica,
            isolation=isolation,
            topic_id=topic_id,
        )
        while True:
            fetched = await self._await_batch(
                fetch, position, isolation, self._deadline(None) if deadline is None else deadline, f"{topic}-{partition}"
            )
            records: list[Record] = []
            for record in records_from(fetched, topic, partition, position):
                if records_max is not None and len(records) >= records_max:
                    return records, record.offset
                records.append(record)
            if records or fetched.next_offset == position:
                return records, fetched.next_offset
            position = fetched.next_offset

    async def _await_batch(
        self,
        fetch: Callable[..., Awaitable[FetchedBytes]],
        offset: int,
        isolation: IsolationLevel,
        deadline: Deadline,
        place: str,
    ) -> FetchedBytes:
        """Fetch until a batch comes, or `offset` lies at the end for this reader. `place` is the partition, for an error."""
        backoff = Backoff(self._cluster.config.retry_backoff_ms, LEADER_BACKOFF_MS_MAX)
        while True:
            fetched = await fetch(offset, timeout_ms=deadline.remaining_ms())
            is_committed = isolation is IsolationLevel.READ_COMMITTED
            end = fetched.last_stable_offset if is_committed else fetched.high_watermark
            # Each offset before the end belongs to a batch, as compaction leaves batches without records.
            if fetched.next_offset > offset or offset >= end:
                return fetched
            if deadline.is_over():
                what = f"fetch {place} at {offset}: node {fetched.node_id} has not read it from the tier in time"
                raise RequestRejected(ErrorCode.REQUEST_TIMED_OUT, what)
            await backoff.pause(deadline)

    async def _fetch(self, address: Address, request: FetchRequest, wait_ms: int, deadline: Deadline) -> FetchResponse:
        # A parked fetch is answered after `wait_ms`: the attempt's own limit begins then.
        timeout_ms = wait_ms + self._cluster.config.attempt_ms(deadline.remaining_ms())
        async with self._cluster.pool.borrow(address) as connection:
            answer: FetchResponse = await connection.request(ApiKey.FETCH, FETCH_VERSION, request, timeout_ms)
        return answer

    def _choose(self, topic: Topic, partition: int, replica: Replica) -> int:
        known = topic.require_partition(partition)
        if replica is None:
            return known.leader_id
        if isinstance(replica, int):
            return replica
        if replica != "any":
            raise RequestRejected(ErrorCode.INVALID_REQUEST, f"replica {replica!r} is neither a node id nor 'any'")
        self._turn += 1
        return known.replicas[self._turn % len(known.replicas)] if known.replicas else known.leader_id

    # --- offsets -----------------------------------------------------------------------------------------------------

    async def list_offsets(
        self,
        topic: str,
        timestamps: Mapping[int, int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        topic_id: bytes | None = None,
        timeout_ms: float | None = None,
    ) -> dict[int, int]:
        """By partition: the offset of the first record at or after a timestamp (milliseconds; -1 when there is none), or of
        EARLIEST, LATEST (the exclusive end) or MAX_TIMESTAMP. `topic_id` is that of `ask_leaders`."""

        async def ask(address: Address, partitions: list[int], deadline: Deadline) -> Mapping[int, int | ErrorCode]:
            request = protocol.list_offsets_request(topic, {p: timestamps[p] for p in partitions}, isolation)
            connection = await self._cluster.pool.get(address)
            answer = await self._cluster.request(
                connection, ApiKey.LIST_OFFSETS, protocol.LIST_OFFSETS_VERSION, request, deadline
            )
            return protocol.list_offsets_results(answer)

        return await ask_leaders(self._cluster, topic, timestamps, self._deadline(timeout_ms), ask, topic_id=topic_id)

    async def above_end(
        self, topic: str, offsets: Mapping[int, int], *, timeout_ms: float | None = None
    ) -> OffsetOutOfRange | None:
        """Of these offsets, by partition, the first that lies above the high watermark, as the error that tells of it."""
        deadline = self._deadline(timeout_ms)
        committed = IsolationLevel.READ_UNCOMMITTED
        limits = [
            await self.list_offsets(
                topic, dict.fromkeys(offsets, asked), isolation=committed, timeout_ms=deadline.remaining_ms()
            )
            for asked in (EARLIEST, LATEST)
        ]
        starts, ends = limits
        for partition, offset in offsets.items():
            if offset > ends[partition]:
                return OffsetOutOfRange(topic, partition, offset, starts[partition], ends[partition])
        return None

    async def read_offset(
        self, topic: str, partitions: Iterable[int], *, topic_id: bytes | None = None, timeout_ms: float | None = None
    ) -> dict[int, int]:
        """Linearizable end offsets (KIP-650 ReadOffset): every append that was acknowledged before this call lies below them.
        The leader answers only once it has proven that it still leads. `topic_id` is that of `ask_leaders`."""

        async def ask(address: Address, asked: list[int], deadline: Deadline) -> Mapping[int, int | ErrorCode]:
            request = ReadOffsetRequest(
                cluster_id=self._cluster.cluster_id,
                read_timestamp_ms=time.time_ns() // 1_000_000,
                topics=[TopicPartitions(name=topic, partitions=asked)],
            )
            connection = await self._cluster.pool.get(address)
            answer: ReadOffsetResponse = await self._cluster.request(
                connection, ApiKey.READ_OFFSET, READ_OFFSET_VERSION, request, deadline
            )
            if answer.error != ErrorCode.NONE:
                raise RequestRejected(answer.error, f"read offset of {topic}")
            return {
                result.index: result.applied_offset if result.error == ErrorCode.NONE else result.error
                for answered in answer.topics
                for result in answered.partitions
            }

        return await ask_leaders(self._cluster, topic, partitions, self._deadline(timeout_ms), ask, topic_id=topic_id)

    async def read_stable_offset(
        self, topic: str, partitions: Iterable[int], *, topic_id: bytes | None = None, timeout_ms: float | None = None
    ) -> dict[int, int]:
        """Like `read_offset`, for readers of what is committed: what was acknowledged before this call lies below these
        offsets, unless a transaction is open that began before it."""
        deadline = self._deadline(timeout_ms)
        ends = await self.read_offset(topic, partitions, topic_id=topic_id, timeout_ms=deadline.remaining_ms())
        asked = dict.fromkeys(ends, LATEST)
        latest = await self.list_offsets(topic, asked, topic_id=topic_id, timeout_ms=deadline.remaining_ms())
        for partition, end in ends.items():
            if latest[partition] < end:
                # A transaction is open, or whoever answered has been replaced. A leader that has the end says which.
                fetched = await self.fetch_raw(
                    topic, partition, end, bytes_max=1, wait_ms=0, topic_id=topic_id, timeout_ms=deadline.remaining_ms()
                )
                latest[partition] = fetched.last_stable_offset
        return latest

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(self._cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms)


def records_from(fetched: FetchedBytes, topic: str, partition: int, offset: int) -> Iterator[Record]:
    """The records of fetched batches from `offset` on: the first batch may begin below."""
    for buffer in fetched.buffers:
        for record in decode_records(buffer):
            if record.offset >= offset:
                yield Record(
                    topic=topic,
                    partition=partition,
                    offset=record.offset,
                    timestamp_ms=record.timestamp_ms,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )


def _fetch_request(
    topic: Topic, partition: int, offset: int, bytes_max: int, wait_ms: int, isolation: IsolationLevel
) -> FetchRequest:
    asked = FetchPartition(
        index=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        bytes_max=bytes_max,
    )
    return FetchRequest(
        wait_ms_max=wait_ms,
        bytes_min=1,
        bytes_max=bytes_max,
        isolation_level=int(isolation),
        topics=[FetchTopic(name=None, topic_id=topic.topic_id, partitions=[asked])],
    )


def _only_result(answer: FetchResponse) -> FetchPartitionResult:
    if answer.error != ErrorCode.NONE and not answer.topics:
        return FetchPartitionResult(index=0, error=answer.error)
    if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
        raise WireError("Fetch did not answer for exactly one partition")
    return answer.topics[0].partitions[0]


def _cut(result: FetchPartitionResult, offset: int, limit_offset: int | None, node_id: int) -> FetchedBytes:
    """The batches that hold offsets in [offset, limit_offset), without those of aborted transactions."""
    records = memoryview(result.records or b"")
    next_offset, start, end = offset, 0, 0
    aborted = AbortedBatches(result.aborted_transactions or ())
    buffers: list[memoryview] = []
    for header in iterate_headers(records):
        if limit_offset is not None and header.base_offset >= limit_offset:
            break
        if aborted.holds(records, header) or header.end_offset <= offset:
            if end > start:
                buffers.append(records[start:end])
            start = header.end_position
        end = header.end_position
        next_offset = max(next_offset, header.end_offset)
    if end > start:
        buffers.append(records[start:end])
    return FetchedBytes(
        buffers=tuple(buffers),
        high_watermark=result.high_watermark,
        log_start_offset=result.log_start_offset,
        next_offset=next_offset,
        node_id=node_id,
        last_stable_offset=result.last_stable_offset,
    )
