"""Appends to one partition: in order, several in flight, retried without duplicates.

Owns the batches of one producer on one partition from their submission to their outcome. All requests in flight are on one
connection. When one fails in a way that may pass, nothing new is sent until every answer of that connection is in; then
what failed is sent again, in the old order and with the old sequences, to the leader of that time. A batch that was appended
before its answer got lost is recognised by its sequence and not appended again. A node that does not know what came before a
batch (the topic was deleted and created again, or a lost majority took records with it) gets it under a new number, if it
certainly is not in the log: it was never sent to this topic, or was refused. Batches wait together for what sending needs, and
each of them in its own time.

What a batch ends with: AppendResult; RequestRejected when it certainly was not appended; UnknownOutcome when it was sent
and the time is over, or a later error does not say what became of the earlier try. With one lane the order is strict: after
a batch that failed, no later one is appended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from raftlake.client.cluster import Cluster
from raftlake.client.connection import Connection
from raftlake.client.deadline import Alarm, Backoff, Deadline
from raftlake.client.errors import Disconnected, closed_error
from raftlake.client.lanes import Lane, ProducerId, ProducerIds, stamp_producer
from raftlake.client.produce_answer import (
    PRODUCE_VERSION,
    Meaning,
    PendingBatch,
    meaning_of,
    only_result,
    produce_request,
    rejection,
    says_no_room,
)
from raftlake.client.routing import LEADER_BACKOFF_MS_MAX
from raftlake.client.stall_watch import StallWatch
from raftlake.client.types import AppendResult
from raftlake.errors import ErrorCode, RaftlakeError, RequestRejected, WireError, unknown_outcome
from raftlake.wire.api import ApiKey
from raftlake.wire.produce import ProducePartitionResult, ProduceResponse


class PartitionSender:
    def __init__(self, cluster: Cluster, ids: ProducerIds, topic: str, partition: int, *, lanes_max: int) -> None:
        self._cluster = cluster
        self._ids = ids
        self._topic = topic
        self._partition = partition
        self._lanes_max = lanes_max
        self._is_strict = lanes_max == 1
        self._lanes: list[Lane] = []
        #: Every producer id that was used here: one whose lane was retired is never taken again.
        self._producers: set[ProducerId] = set()
        self._submitted = 0
        self._waiting: deque[PendingBatch] = deque()
        self._in_flight = 0
        #: What failed on the connection and will be sent again, once nothing is in flight on it any more.
        self._failed: list[PendingBatch] = []
        #: Whether something that waits may have its number in a lane.
        self._has_unsent = False
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        #: The longest time of those that the task works for.
        self._task_deadline: Deadline | None = None
        #: Rings when the first of those that wait has no time left.
        self._alarm = Alarm(self._on_time)
        self._backoff = Backoff(cluster.config.retry_backoff_ms, LEADER_BACKOFF_MS_MAX)
        self._attempts = 0
        #: Since it was found, something failed that may be otherwise at another node.
        self._is_leader_doubtful = False
        #: Nothing but want of room was what failed.
        self._is_told_to_wait = False
        #: The topic as it was last asked for, and whether it may be another one by now.
        self._topic_id = b""
        self._is_topic_doubtful = False
        self._watch = StallWatch(cluster, topic, partition, lambda: self._connection if self._in_flight else None)
        #: Strict only: the batch behind which nothing may be appended, and what to say then.
        self._gap: tuple[int, RequestRejected] | None = None
        self._is_closed = False

    def submit(self, batch: bytearray, record_count: int, deadline: Deadline) -> asyncio.Future[AppendResult]:
        """Queue a batch without a producer; the future ends with its outcome."""
        outcome: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        pending = PendingBatch(self._submitted, batch, record_count, deadline, outcome)
        self._submitted += 1
        if self._is_closed or self._gap is not None:
            self._fail(pending, closed_error() if self._gap is None else self._gap[1])
            return outcome
        self._waiting.append(pending)
        self._send_waiting()
        if self._waiting:
            self._alarm.set(deadline.at)
        return outcome

    def close(self) -> None:
        """Give up: what was sent ends as unknown, the rest as rejected."""
        self._is_closed = True
        self._watch.close()
        if self._task is not None:
            self._task.cancel()
        self._alarm.cancel()
        self._fail_waiting(closed_error())

    # --- sending -----------------------------------------------------------------------------------------------------

    def _send_waiting(self) -> None:
        while self._waiting and not self._failed and self._task is None:
            connection = self._connection
            if connection is None or not connection.is_open:
                if not self._in_flight:
                    self._prepare()
                return
            pending = self._next()
            if self._is_over(pending) or self._is_lost(pending):
                self._waiting.remove(pending)
                self._fail_over(pending)
                continue
            if not self._has_place(pending):
                return
            self._waiting.remove(pending)
            self._send(connection, pending)

    def _next(self) -> PendingBatch:
        """The first batch that waits, or one behind it that has its number: no new number is given out in a lane before those
        that are given out are on their way again."""
        first = self._waiting[0]
        if self._has_unsent and (first.lane is None or first.lane.is_retired):
            lane = next((lane for lane in self._lanes if lane.unsent), None)
            if lane is not None:
                return next(pending for pending in self._waiting if pending.lane is lane)
            self._has_unsent = False
        return first

    def _is_lost(self, pending: PendingBatch) -> bool:
        """The node does not know what came before it, and it may be in the log: it cannot be sent again."""
        return pending.lane is not None and pending.lane.is_lost and not self._may_move(pending)

    def _is_over(self, pending: PendingBatch) -> bool:
        """No caller waits for it any more. A cancelled batch that has its place in a sequence is sent still: without it the
        lane would have a gap."""
        return pending.deadline.is_over() or (pending.lane is None and pending.outcome.done())

    def _has_place(self, pending: PendingBatch) -> bool:
        """Whether the batch has a place in the sequence of a lane, or gets one now."""
        if self._may_move(pending):
            pending.lane = None
            pending.is_ambiguous = False
        if pending.lane is not None:
            return True
        lane = next((lane for lane in self._lanes if lane.has_room), None)
        if lane is None:
            if len(self._lanes) < self._lanes_max:
                self._prepare()
            return False
        pending.lane = lane
        pending.number_in_lane, sequence = lane.take(pending.record_count)
        is_transactional = self._ids.transactional_id is not None
        stamp_producer(pending.batch, lane.producer, sequence, is_transactional=is_transactional)
        return True

    def _may_move(self, pending: PendingBatch) -> bool:
        """Whether the batch certainly is not in the log, and its place in the sequence is of no use: it takes a new one."""
        lane = pending.lane
        if lane is None or not lane.is_retired:
            return False
        if lane.is_lost:
            # An earlier try that may have been appended went to a topic that is gone, if this one has another id.
            return not pending.is_ambiguous or lane.topic_id != self._topic_id
        return not pending.is_ambiguous and not self._is_strict

    def _send(self, connection: Connection, pending: PendingBatch) -> None:
        assert pending.lane is not None
        pending.lane.unsent.pop(pending.number_in_lane, None)
        self._in_flight += 1
        timeout_ms = self._cluster.config.attempt_ms(pending.deadline.remaining_ms())
        transactional_id = self._ids.transactional_id
        request = produce_request(self._topic, self._partition, pending.batch, timeout_ms * 0.9, transactional_id)
        connection.send(ApiKey.PRODUCE, PRODUCE_VERSION, request, timeout_ms, lambda answer: self._on_answer(pending, answer))
        self._watch.on_send()

    # --- answers -----------------------------------------------------------------------------------------------------

    def _on_answer(self, pending: PendingBatch, answer: Any) -> None:
        self._watch.on_answer()
        self._in_flight -= 1
        if isinstance(answer, Disconnected):
            pending.is_ambiguous = pending.is_ambiguous or answer.sent
            self._try_again(pending, answer)
        else:
            self._on_response(pending, answer)
        if self._is_closed:
            failed, self._failed = self._failed, []
            for batch in failed:
                self._fail(batch, closed_error())
        elif self._failed and not self._in_flight:
            for batch in self._failed:
                assert batch.lane is not None
                batch.lane.unsent[batch.number_in_lane] = None
            self._has_unsent = True
            self._waiting.extendleft(reversed(self._failed))
            self._failed = []
            if self._is_leader_doubtful:
                self._connection = None
            self._is_told_to_wait = not self._is_leader_doubtful
            self._prepare()
            self._ring_for_those_that_wait()
        else:
            self._send_waiting()

    def _on_response(self, pending: PendingBatch, answer: ProduceResponse) -> None:
        result = only_result(answer)
        if result is None:
            pending.is_ambiguous = True
            self._try_again(pending, WireError(f"Produce answered for other partitions than {self._topic}-{self._partition}"))
            return
        match meaning_of(result.error):
            case Meaning.APPENDED:
                self._attempts = 0
                self._backoff.reset()
                self._succeed(pending, result)
            case Meaning.RETRY_NOT_APPENDED:
                self._learn_leader(result, answer)
                self._try_again(pending, rejection(self._topic, self._partition, result))
            case Meaning.RETRY_AMBIGUOUS:
                pending.is_ambiguous = True
                self._learn_leader(result, answer)
                self._try_again(pending, rejection(self._topic, self._partition, result))
            case Meaning.SEQUENCE_LOST:
                self._on_sequence_lost(pending, rejection(self._topic, self._partition, result))
            case Meaning.REFUSED:
                self._fail(pending, rejection(self._topic, self._partition, result))

    def _on_sequence_lost(self, pending: PendingBatch, error: RequestRejected) -> None:
        """The node misses something before this batch, which was not appended in this try."""
        lane = pending.lane
        assert lane is not None
        if not any(failed.lane is lane for failed in self._failed):
            # Nothing before it will be sent again. Whether it may be sent under a new number is seen when it is known which
            # topic this is by now.
            if pending.is_ambiguous or not lane.is_retired:
                self._is_topic_doubtful = True
            lane.is_lost = True
            self._retire(lane)
        self._try_again(pending, error)

    def _learn_leader(self, result: ProducePartitionResult, answer: ProduceResponse) -> None:
        if result.current_leader is None:
            return
        is_news = self._cluster.learn_leader(
            self._topic, self._topic_id, self._partition, *result.current_leader, answer.node_endpoints
        )
        if is_news:
            # Worth trying at once. Epochs only rise, so this cannot go round in circles.
            self._attempts = 0

    # --- outcomes ----------------------------------------------------------------------------------------------------

    def _try_again(self, pending: PendingBatch, error: RaftlakeError) -> None:
        if self._gap is not None and pending.number > self._gap[0]:
            self._fail(pending, self._gap[1])
            return
        pending.last_error = error
        self._failed.append(pending)
        self._is_leader_doubtful = self._is_leader_doubtful or not says_no_room(error)

    def _succeed(self, pending: PendingBatch, result: ProducePartitionResult) -> None:
        assert pending.lane is not None
        pending.lane.close(pending.number_in_lane)
        if pending.outcome.done():  # Its caller was cancelled.
            return
        appended = AppendResult(
            topic=self._topic,
            partition=self._partition,
            # Known to be appended, but the node no longer remembers where.
            offset=result.base_offset if result.error is ErrorCode.NONE else -1,
            count=pending.record_count,
            timestamp_ms=result.log_append_time_ms,
        )
        pending.outcome.set_result(appended)

    def _fail(self, pending: PendingBatch, error: Exception) -> None:
        """End a batch that will not be sent again; a lane that loses a batch is retired."""
        if pending.lane is not None:
            self._retire(pending.lane)
        if pending.is_ambiguous:
            sent = f"append to {self._topic}-{self._partition} was sent ({error})"
            unknown = unknown_outcome(sent, "read the partition, then decide")
            unknown.__cause__ = error
            error = unknown
        if not pending.outcome.done():
            pending.outcome.set_exception(error)
        if self._is_strict and not self._is_closed and (self._gap is None or pending.number < self._gap[0]):
            self._open_gap(pending.number, error)

    def _retire(self, lane: Lane) -> None:
        if not lane.is_retired:
            lane.is_retired = True
            self._lanes.remove(lane)

    def _open_gap(self, number: int, error: Exception) -> None:
        """Strict only: what was submitted later and is not in flight ends now; what is in flight ends with its answer."""
        where = f"{self._topic}-{self._partition}"
        told = f"an earlier append to {where} of this producer failed: {error}"
        rejected = RequestRejected(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, told)
        self._gap = (number, rejected)
        later = [batch for batch in [*self._failed, *self._waiting] if batch.number > number]
        self._failed = [batch for batch in self._failed if batch.number < number]
        self._waiting = deque(batch for batch in self._waiting if batch.number < number)
        for batch in later:
            self._fail(batch, rejected)

    def _fail_over(self, pending: PendingBatch) -> None:
        self._fail(pending, pending.last_error or RequestRejected(ErrorCode.REQUEST_TIMED_OUT, "never sent"))

    def _end_what_is_over(self, error: Exception | None = None) -> None:
        for pending in [pending for pending in self._waiting if self._is_over(pending)]:
            # A batch before it may have ended it.
            if pending in self._waiting and not self._is_worked_for(pending):
                self._waiting.remove(pending)
                if error is None:
                    self._fail_over(pending)
                else:
                    self._fail(pending, error)

    def _is_worked_for(self, pending: PendingBatch) -> bool:
        """Whether the task ends with the time of this batch, and tells the reason then."""
        return self._task_deadline is not None and pending.deadline.at >= self._task_deadline.at

    def _fail_waiting(self, error: Exception) -> None:
        while self._waiting:
            self._fail(self._waiting.popleft(), error)

    # --- the time of those that wait ---------------------------------------------------------------------------------

    def _ring_for_those_that_wait(self) -> None:
        left = [pending.deadline.at for pending in self._waiting if not pending.deadline.is_over()]
        if left:
            self._alarm.set(min(left))

    def _on_time(self) -> None:
        self._end_what_is_over()
        self._send_waiting()
        self._ring_for_those_that_wait()

    # --- between rounds ----------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Start the task that gets what sending needs: a leader's connection, a lane with room."""
        if self._task is None and not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._prepare_once(), name="append recovery")
            self._task.add_done_callback(self._prepared)

    def _prepared(self, task: asyncio.Task[None]) -> None:
        self._task = None
        deadline, self._task_deadline = self._task_deadline, None
        if task.cancelled():
            return
        error = task.exception()
        assert error is None or isinstance(error, Exception)
        if error is not None and deadline is not None and deadline.is_over():
            # Whoever came later has time left.
            self._end_what_is_over(error)
        elif error is not None:
            self._fail_waiting(error)
        self._send_waiting()

    async def _prepare_once(self) -> None:
        needs_leader = self._connection is None or not self._connection.is_open
        if self._is_told_to_wait:
            # The leader has no room: it is asked again, and no other node.
            self._is_told_to_wait = False
            await self._backoff.pause()
        while needs_leader:
            if self._attempts:
                await self._backoff.pause()
            self._end_what_is_over()
            if not self._waiting:
                return
            self._task_deadline = deadline = self._longest()
            needs_leader = not await self._find_leader(deadline, is_retry=self._attempts > 0 or self._is_topic_doubtful)
            self._task_deadline = None
            self._attempts += 1
        if self._waiting and len(self._lanes) < self._lanes_max and not any(lane.has_room for lane in self._lanes):
            self._task_deadline = deadline = self._longest()
            await self._add_lane(deadline)

    def _longest(self) -> Deadline:
        return max((pending.deadline for pending in self._waiting), key=lambda deadline: deadline.at)

    async def _find_leader(self, deadline: Deadline, *, is_retry: bool) -> bool:
        """Connect to the leader; False when none is known, or it cannot be reached."""
        topic = await self._cluster.topic_with(self._topic, (self._partition,), deadline, is_retry=is_retry)
        self._topic_id = topic.topic_id
        self._is_topic_doubtful = self._is_topic_doubtful and not is_retry
        address = self._cluster.leader_address(topic, self._partition)
        if address is None:
            return False
        try:
            connection = await self._cluster.pool.get(address, "append")
        except Disconnected:
            return False
        connection.require_version(ApiKey.PRODUCE, PRODUCE_VERSION)
        self._connection = connection
        self._is_leader_doubtful = False
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
            if not deadline.is_over():
                self._lanes_max = len(self._lanes)
            return
        self._producers.add(producer)
        self._lanes.append(Lane(producer, self._topic_id))
