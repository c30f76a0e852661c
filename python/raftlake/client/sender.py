"""Appends to one partition: in order, several in flight, retried without duplicates.

Owns the batches of one producer on one partition from their submission to their outcome. All requests in flight are on one
connection. When one fails in a way that may pass, nothing new is sent until every answer of that connection is in; then
what failed is sent again, in the old order and with the old sequences, to whoever leads now. So the order of the batches
in the log is the order of their submission, and a batch that was appended before its answer got lost is recognised by its
sequence and not appended again.

What a batch ends with: AppendResult; RequestRejected when it certainly was not appended; UnknownOutcome when it was sent
and the time is over, or a later error does not say what became of the earlier try.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from raftlake.client import protocol
from raftlake.client.cluster import Cluster
from raftlake.client.connection import Connection
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.errors import Disconnected
from raftlake.client.lanes import IN_FLIGHT_PER_LANE, Lane, ProducerId, ProducerIds, stamp_producer
from raftlake.client.routing import LEADER_BACKOFF_MS_MAX, RETRIABLE
from raftlake.client.types import AppendResult
from raftlake.errors import ErrorCode, RaftlakeError, RequestRejected, UnknownOutcome, WireError
from raftlake.wire.api import ApiKey
from raftlake.wire.produce import ProducePartition, ProducePartitionResult, ProduceRequest, ProduceResponse, ProduceTopic

PRODUCE_VERSION = 12
_ALL_IN_SYNC = -1

#: Retriable errors with which a node says that it has not appended the batch.
_NOT_APPENDED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
#: The node misses an earlier batch of this lane, or the whole lane.
_SEQUENCE_LOST = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


@dataclass(slots=True, eq=False)
class PendingBatch:
    """One batch on its way. `lane` and its sequence are fixed with the first send."""

    batch: bytearray
    record_count: int
    deadline: Deadline
    outcome: asyncio.Future[AppendResult]
    lane: Lane | None = None
    #: It was sent at least once, and an earlier try may have been appended.
    is_ambiguous: bool = False
    last_error: RaftlakeError | None = None


@dataclass(slots=True)
class _Round:
    """What is in flight on the connection, and what failed on it, in order."""

    in_flight: int = 0
    failed: list[PendingBatch] = field(default_factory=list)


class PartitionSender:
    def __init__(self, cluster: Cluster, ids: ProducerIds, topic: str, partition: int, *, lanes_max: int) -> None:
        self._cluster = cluster
        self._ids = ids
        self._topic = topic
        self._partition = partition
        self._lanes_max = lanes_max
        #: With one lane the order is strict: after a batch that failed, nothing later may be appended.
        self._is_strict = lanes_max == 1
        self._lanes: list[Lane] = []
        #: Every producer id that was used here: one whose lane was retired is never taken again.
        self._producers: set[ProducerId] = set()
        self._waiting: deque[PendingBatch] = deque()
        self._round = _Round()
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff(cluster.config.retry_backoff_ms, LEADER_BACKOFF_MS_MAX)
        self._failures = 0
        self._watch: asyncio.TimerHandle | None = None
        self._answered_at = 0.0
        self._failure: RaftlakeError | None = None
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._round.in_flight and not self._round.failed

    def submit(self, batch: bytearray, record_count: int, deadline: Deadline) -> asyncio.Future[AppendResult]:
        """Queue a batch without a producer; the future ends with its outcome."""
        pending = PendingBatch(batch, record_count, deadline, asyncio.get_running_loop().create_future())
        failure = _closed_error() if self._is_closed else self._failure
        if failure is not None:
            pending.outcome.set_exception(failure)
            return pending.outcome
        self._waiting.append(pending)
        self._send_waiting()
        return pending.outcome

    def close(self) -> None:
        """Give up: what was sent ends as unknown, the rest as rejected."""
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        if self._task is not None:
            self._task.cancel()
        self._fail_waiting(_closed_error())

    # --- sending -----------------------------------------------------------------------------------------------------

    def _send_waiting(self) -> None:
        while self._waiting and not self._round.failed and self._task is None:
            connection = self._connection
            if connection is None or not connection.is_open:
                if not self._round.in_flight:
                    self._prepare()
                return
            pending = self._waiting[0]
            if self._is_over(pending):
                self._waiting.popleft()
                self._fail(pending, pending.last_error or RequestRejected(ErrorCode.REQUEST_TIMED_OUT, "never sent"))
                continue
            if pending.lane is not None and pending.lane.is_retired and not pending.is_ambiguous:
                # It certainly is not in the log, and its place in the sequence is lost: it takes a new one.
                pending.lane = None
            if pending.lane is None and not self._assign_lane(pending):
                return
            self._waiting.popleft()
            self._send(connection, pending)

    def _is_over(self, pending: PendingBatch) -> bool:
        """Nobody waits for it any more. A cancelled batch that has its place in a sequence is sent still: without it the lane
        would have a gap."""
        return pending.deadline.is_over() or (pending.lane is None and pending.outcome.done())

    def _assign_lane(self, pending: PendingBatch) -> bool:
        """Give the batch a place in the sequence of a lane with room; False when there is none now."""
        lane = min(self._lanes, key=_in_flight, default=None)
        if lane is None or lane.in_flight >= IN_FLIGHT_PER_LANE:
            if len(self._lanes) < self._lanes_max:
                self._prepare()
            return False
        pending.lane = lane
        stamp_producer(pending.batch, lane.producer, lane.take(pending.record_count))
        return True

    def _send(self, connection: Connection, pending: PendingBatch) -> None:
        assert pending.lane is not None
        pending.lane.in_flight += 1
        self._round.in_flight += 1
        timeout_ms = self._cluster.config.attempt_ms(pending.deadline.remaining_ms())
        request = ProduceRequest(
            acks=_ALL_IN_SYNC,
            timeout_ms=int(timeout_ms * 0.9),
            transactional_id=None,
            topics=[
                ProduceTopic(
                    name=self._topic,
                    topic_id=None,
                    partitions=[ProducePartition(index=self._partition, records=memoryview(pending.batch))],
                )
            ],
        )
        connection.send(ApiKey.PRODUCE, PRODUCE_VERSION, request, timeout_ms, lambda answer: self._on_answer(pending, answer))

        if self._watch is None:
            self._answered_at = self._cluster.now()
            self._watch_progress()

    def _watch_progress(self) -> None:
        """A leader that was paused or cut off answers nothing: find out from others before its requests time out."""
        self._watch = asyncio.get_running_loop().call_later(self._cluster.config.stall_check_ms / 1000, self._check_progress)

    def _check_progress(self) -> None:
        self._watch = None
        if not self._round.in_flight:
            return
        self._watch_progress()
        stalled_ms = (self._cluster.now() - self._answered_at) * 1000
        if stalled_ms >= self._cluster.config.stall_check_ms and self._task is None and self._connection is not None:
            self._task = asyncio.get_running_loop().create_task(self._check_leader(self._connection), name="append check")
            self._task.add_done_callback(self._prepared)

    async def _check_leader(self, connection: Connection) -> None:
        deadline = Deadline(self._cluster.config.attempt_timeout_ms)
        try:
            topic = await self._cluster.refresh_topic(self._topic, deadline, avoid=connection.address)
        except RaftlakeError:
            # Nobody can tell: the time limit of the requests in flight decides.
            return
        leader = self._cluster.leader_address(topic, self._partition)
        if leader is not None and leader != connection.address:
            connection.close("another node leads")

    # --- answers -----------------------------------------------------------------------------------------------------

    def _on_answer(self, pending: PendingBatch, answer: Any) -> None:
        lane = pending.lane
        assert lane is not None
        self._answered_at = self._cluster.now()
        lane.in_flight -= 1
        self._round.in_flight -= 1
        if isinstance(answer, Disconnected):
            pending.is_ambiguous = pending.is_ambiguous or answer.sent
            self._try_again(pending, answer)
        else:
            self._on_response(pending, lane, answer)
        if self._is_closed:
            for failed in self._round.failed:
                self._fail(failed, _closed_error())
            self._round.failed = []
        elif self._round.failed and not self._round.in_flight:
            self._waiting.extendleft(reversed(self._round.failed))
            self._round.failed = []
            self._connection = None
            self._prepare()
        else:
            self._send_waiting()

    def _on_response(self, pending: PendingBatch, lane: Lane, answer: ProduceResponse) -> None:
        if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
            pending.is_ambiguous = True
            self._try_again(pending, WireError(f"Produce answered for other partitions than {self._topic}-{self._partition}"))
            return
        result = answer.topics[0].partitions[0]
        if result.error == ErrorCode.NONE:
            self._failures = 0
            self._backoff.reset()
            self._succeed(pending, result.base_offset, result.log_append_time_ms)
        elif result.error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._succeed(pending, -1, -1)
        elif result.error in RETRIABLE:
            pending.is_ambiguous = pending.is_ambiguous or result.error not in _NOT_APPENDED
            self._learn_leader(result, answer)
            self._try_again(pending, self._rejection(result))
        elif result.error in _SEQUENCE_LOST and any(failed.lane is lane for failed in self._round.failed):
            # The batch before it in the lane did not get in and will be sent again, and this one after it.
            self._try_again(pending, self._rejection(result))
        else:
            self._on_refusal(pending, lane, result)

    def _on_refusal(self, pending: PendingBatch, lane: Lane, result: ProducePartitionResult) -> None:
        """An error that does not pass: the lane has a gap now."""
        was_retired = lane.is_retired
        self._retire(lane)
        if result.error in _SEQUENCE_LOST and was_retired and not self._is_strict and not pending.is_ambiguous:
            # Only the gap before it was wrong: it was not appended, so it may go again in another lane.
            pending.lane = None
            self._try_again(pending, self._rejection(result))
            return
        self._fail(pending, self._rejection(result))

    def _rejection(self, result: ProducePartitionResult) -> RequestRejected:
        where = f"{self._topic}-{self._partition}"
        return RequestRejected(
            protocol.code_of(result.error), f"{where}: {result.error_message}" if result.error_message else where
        )

    def _learn_leader(self, result: ProducePartitionResult, answer: ProduceResponse) -> None:
        if result.current_leader is None:
            return
        is_news = self._cluster.learn_leader(self._topic, self._partition, *result.current_leader, answer.node_endpoints)
        if is_news:
            # Worth trying at once. Epochs only rise, so this cannot go round in circles.
            self._failures = 0

    def _try_again(self, pending: PendingBatch, error: RaftlakeError) -> None:
        pending.last_error = error
        self._round.failed.append(pending)

    def _succeed(self, pending: PendingBatch, offset: int, timestamp_ms: int) -> None:
        if not pending.outcome.done():
            pending.outcome.set_result(
                AppendResult(
                    topic=self._topic,
                    partition=self._partition,
                    offset=offset,
                    count=pending.record_count,
                    timestamp_ms=timestamp_ms,
                )
            )

    def _retire(self, lane: Lane) -> None:
        if not lane.is_retired:
            lane.is_retired = True
            self._lanes.remove(lane)

    def _fail(self, pending: PendingBatch, error: Exception) -> None:
        """End a batch that will not be sent again; a lane that loses a batch is retired."""
        if pending.lane is not None:
            self._retire(pending.lane)
        if pending.is_ambiguous:
            unknown = UnknownOutcome(f"append to {self._topic}-{self._partition} was sent, its outcome is not known: {error}")
            unknown.__cause__ = error
            error = unknown
        if not pending.outcome.done():
            pending.outcome.set_exception(error)
        if self._is_strict and self._failure is None:
            self._failure = RequestRejected(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"an earlier append to {self._topic}-{self._partition} of this producer failed: {error}",
            )
            self._fail_waiting(self._failure)

    # --- between rounds ----------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Start the task that gets what sending needs: a leader's connection, a lane with room."""
        if self._task is None and not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._prepare_once(), name="append recovery")
            self._task.add_done_callback(self._prepared)

    def _prepared(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            assert isinstance(error, Exception)
            self._fail_waiting(error)
        self._send_waiting()

    async def _prepare_once(self) -> None:
        needs_leader = self._connection is None or not self._connection.is_open
        while needs_leader:
            if self._failures:
                await self._backoff.pause()
            self._fail_overdue()
            if not self._waiting:
                return
            deadline = max((pending.deadline for pending in self._waiting), key=lambda deadline: deadline.at)
            needs_leader = not await self._find_leader(deadline, is_retry=self._failures > 0)
            self._failures += 1
        if not self._waiting:
            return
        room = any(lane.in_flight < IN_FLIGHT_PER_LANE for lane in self._lanes)
        if not room and len(self._lanes) < self._lanes_max:
            await self._add_lane(self._waiting[0].deadline)

    async def _find_leader(self, deadline: Deadline, *, is_retry: bool) -> bool:
        """Connect to whoever leads; False when nobody is known to, or it cannot be reached."""
        get_topic = self._cluster.refresh_topic if is_retry else self._cluster.topic
        topic = await get_topic(self._topic, deadline)
        address = self._cluster.leader_address(topic, self._partition)
        if address is None:
            return False
        try:
            connection = await self._cluster.pool.get(address, "append")
        except Disconnected:
            return False
        connection.require_version(ApiKey.PRODUCE, PRODUCE_VERSION)
        self._connection = connection
        return True

    async def _add_lane(self, deadline: Deadline) -> None:
        try:
            producer = await self._ids.shared(len(self._lanes), deadline)
            if producer in self._producers:
                producer = await self._ids.fresh(deadline)
        except RaftlakeError:
            if not self._lanes:
                raise
            # The lanes that are there do the work, with fewer batches in flight.
            self._lanes_max = len(self._lanes)
            return
        self._producers.add(producer)
        self._lanes.append(Lane(producer))

    def _fail_overdue(self) -> None:
        for pending in [pending for pending in self._waiting if self._is_over(pending)]:
            if pending in self._waiting:
                self._waiting.remove(pending)
                self._fail(pending, pending.last_error or RequestRejected(ErrorCode.REQUEST_TIMED_OUT, "never sent"))

    def _fail_waiting(self, error: Exception) -> None:
        while self._waiting:
            self._fail(self._waiting.popleft(), error)


def _in_flight(lane: Lane) -> int:
    return lane.in_flight


def _closed_error() -> RequestRejected:
    return RequestRejected(ErrorCode.NETWORK_EXCEPTION, "this client is closed")
