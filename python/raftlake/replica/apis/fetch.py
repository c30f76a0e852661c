"""Fetch (key 1) for consumers, at the leader and at followers: never past the high watermark that this node has applied.

A consumer that reads what is committed (isolation level 1) gets nothing at or above the last stable offset, and is told which
transactions are aborted among the records that it gets. While the last stable offset stands no new high watermark calls it.

A request is answered at once when it has enough bytes, an error or a divergence to report, or no time to wait; else it
is parked until the high watermark of one of its partitions moves, or its wait is over. A look in vain reads all partitions: so
the bytes that a request may wait for have an end, and a pause for which the request was large follows. During a pause nothing
calls the request.

No consumer is shown a high watermark below one that it has seen: a leader that has not committed in its own epoch, and a node
whose watermark lies below the position asked for, let it wait, and answer OFFSET_NOT_AVAILABLE when the wait is over (KIP-207
and KIP-392 for Fetch).

Offsets before the local log come from the remote tier, in pieces (`RemoteReads`). A request waits for a piece as it waits for
records. What it did not live to see is there for the consumer's next one.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NO_LEADER, Epoch, Offset
from raftlake.replica.apis.offsets import READ_COMMITTED, fence, stable_end
from raftlake.replica.apis.shown_records import read_shown
from raftlake.replica.config import ClientContext
from raftlake.replica.partition.partition import Partition
from raftlake.replica.refused_for_good import FETCH
from raftlake.replica.services import Services
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.replica.tiering.remote_reads import Wanted
from raftlake.replica.timers import Timer
from raftlake.wire.common import LeaderAndEpoch, NodeEndpoint
from raftlake.wire.fetch import FetchPartition, FetchRequest
from raftlake.wire.fetch_response import EpochEndOffset, FetchPartitionResult, FetchResponse, FetchTopicResult
from raftlake.wire.shown import end_of_empty

WAIT_MS_MAX = 60_000
#: What one answer may hold whatever the client asks for, and of one partition.
BYTES_MAX = 64 * 1024 * 1024
PARTITION_BYTES_MAX = 8 * 1024 * 1024
#: What a request may wait for: as much is read at most by each look that is in vain.
BYTES_MIN_MAX = 1024 * 1024
#: How long batches without records wait for records behind them, at most. Some consumers stay before such batches, and ask
#: again as soon as they are answered.
EMPTY_WAIT_MS_MAX = 50
#: Each partition takes some 5 µs of every look.
PARTITIONS_MAX = 1 << 14
PARTITIONS_LOOKED_AT_PER_MS = 100
#: Partitions that the waiting requests of all connections may name together: each takes some 500 bytes.
PARKED_MAX = 100_000
#: Pieces of the remote tier that one request asks for at a time. What is here already does not count.
REMOTE_PIECES_MAX = 16


class ParkedFetches:
    """Those of all connections. What they hold together has an end: beyond it the largest is answered with what there is."""

    __slots__ = ("_size", "_sizes", "in_vain")

    def __init__(self) -> None:
        self._sizes: dict[ParkedFetch, int] = {}
        self._size = 0
        #: How many pause after a look in vain.
        self.in_vain = 0

    def add(self, fetch: ParkedFetch, size: int) -> None:
        self._sizes[fetch] = size
        self._size += size
        while self._size > PARKED_MAX:
            max(self._sizes, key=self._sizes.__getitem__).finish()

    def discard(self, fetch: ParkedFetch) -> None:
        self._size -= self._sizes.pop(fetch, 0)


class ParkedFetch:
    """One consumer's Fetch. `attempt` reads everything anew, so a late answer is as fresh as an early one."""

    __slots__ = (
        "_awaited", "_bytes_min", "_deadline_ms", "_done", "_groups", "_is_committed", "_is_unsettled", "_missing", "_node",
        "_parked", "_pause", "_reply", "_request", "_seen", "_stops", "_timer",
    )  # fmt: skip

    def __init__(
        self,
        node: Services,
        parked: ParkedFetches,
        request: FetchRequest,
        groups: list[list[GroupId]],
        reply: Callable[[object], None],
    ) -> None:
        self._node = node
        self._parked = parked
        self._request = request
        #: It reads only what transactions have committed.
        self._is_committed = request.isolation_level == READ_COMMITTED
        #: At the last look some partition could not say yet what it has.
        self._is_unsettled = False
        self._groups = groups
        self._reply = reply
        self._done = False
        self._stops: list[Callable[[], None]] = []
        self._bytes_min = min(max(request.bytes_min, 0), BYTES_MIN_MAX)
        self._timer: Timer | None = None
        #: After a look in vain: until then no move of a high watermark calls it. And what the look saw.
        self._pause: Timer | None = None
        self._seen: list[int] = []
        #: Offsets whose piece of the remote tier was not there at the last look; and those that are asked for.
        self._missing: list[tuple[Partition, int]] = []
        self._awaited: list[Wanted] = []
        self._deadline_ms = node.engine.now_ms + min(max(request.wait_ms_max, 0), WAIT_MS_MAX)

    def start(self) -> None:
        if self._attempt(final=self._node.engine.now_ms >= self._deadline_ms):
            return
        self._timer = self._node.engine.timers.schedule(self._deadline_ms, self.finish)
        self._watch()
        self._parked.add(self, _size(self._request))

    def _watch(self) -> None:
        for groups in self._groups:
            for group in groups:
                partition = self._node.engine.partitions.get(group)
                if partition is not None:
                    waiter = self._stable_waiter(partition) if self._is_committed else self._on_watermark
                    self._stops.append(partition.wait_for_watermark(waiter))

    def _stable_waiter(self, partition: Partition) -> Callable[[int], bool]:
        """Waits for a last stable offset other than the one of now."""
        seen = partition.last_stable_offset

        def on_watermark(high_watermark: int) -> bool:
            has_moved = self._is_unsettled or partition.deleted or partition.last_stable_offset != seen
            return has_moved and self._on_watermark(high_watermark)

        return on_watermark

    def _stop_watching(self) -> None:
        for stop in self._stops:
            stop()
        self._stops.clear()

    def _on_watermark(self, _high_watermark: int) -> bool:
        if self._attempt(final=False):
            return True
        self._stop_watching()
        self._seen = self._watermarks()
        self._parked.in_vain += 1
        # All that look in vain share the time: twenty of them look as often together as one would.
        pause_ms = 1 + len(self._seen) * self._parked.in_vain // PARTITIONS_LOOKED_AT_PER_MS
        self._pause = self._node.engine.timers.schedule(self._node.engine.now_ms + pause_ms, self._end_pause)
        return True

    def _watermarks(self) -> list[int]:
        hosted = (self._node.engine.partitions.get(group) for groups in self._groups for group in groups)
        return [-1 if partition is None else self._end_of(partition) for partition in hosted]

    def _end_of(self, partition: Partition) -> int:
        """Where what this consumer may be given ends, exclusively."""
        if not self._is_committed or self._is_unsettled:
            return partition.high_watermark
        return stable_end(self._node.remote_log, partition)

    def _end_pause(self) -> None:
        self._parked.in_vain -= 1
        self._pause = None
        if self._watermarks() == self._seen:
            self._watch()
        else:
            self._on_watermark(0)

    def _attempt(self, final: bool) -> bool:
        """Answer if there is reason to. True once the request has been answered."""
        if self._done:
            return True
        size, empty, urgent, topics = self._read()
        self._done = final or urgent or size - empty >= self._bytes_min
        self._ask_for_missing()
        if not self._done:
            if empty:
                self._hasten()
            return False
        self._parked.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._pause is not None:
            self._pause.cancel()
            self._parked.in_vain -= 1
        self._stop_watching()
        self._reply(FetchResponse(topics=topics, session_id=0, node_endpoints=self._endpoints(topics)))
        return True

    def _hasten(self) -> None:
        deadline_ms = self._node.engine.now_ms + EMPTY_WAIT_MS_MAX
        if deadline_ms >= self._deadline_ms:
            return
        self._deadline_ms = deadline_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._node.engine.timers.schedule(deadline_ms, self.finish)

    def _ask_for_missing(self) -> None:
        """Also where the request is answered without them: the consumer's next one will want them."""
        awaited, missing = self._awaited, self._missing[:REMOTE_PIECES_MAX]
        waiter = None if self._done else self._on_piece
        asked = (self._node.remote_reads.ask(partition, offset, waiter) for partition, offset in missing)
        self._awaited = [wanted for wanted in asked if wanted is not None and waiter is not None]
        for wanted in awaited:
            if wanted not in self._awaited:
                wanted.leave(self._on_piece)

    def _on_piece(self) -> None:
        self._attempt(final=False)

    def finish(self) -> None:
        """Answer with what there is."""
        self._attempt(final=True)

    def _read(self) -> tuple[int, int, bool, list[FetchTopicResult]]:
        """Bytes of records, those of partitions that have batches without records alone, whether to answer now, the answer."""
        budget = min(self._request.bytes_max, BYTES_MAX)
        size, empty, urgent = 0, 0, not self._request.topics
        self._missing, self._is_unsettled = [], False
        topics: list[FetchTopicResult] = []
        for topic, groups in zip(self._request.topics, self._groups, strict=True):
            results: list[FetchPartitionResult] = []
            for part, group in zip(topic.partitions, groups, strict=True):
                result = self._read_partition(group, part, budget - size, first=size == 0)
                records = result.records or b""
                size += len(records)
                empty += len(records) if end_of_empty(records) is not None else 0
                has_news = result.error is not ErrorCode.NONE or result.diverging_epoch is not None
                may_pass = has_news and self._may_pass(group, part, result.error)
                self._is_unsettled |= may_pass
                urgent = urgent or (has_news and not may_pass)
                results.append(result)
            topics.append(FetchTopicResult(topic.name, topic.topic_id, results))
        return size, empty, urgent, topics

    def _read_partition(self, group: GroupId, part: FetchPartition, budget: int, *, first: bool) -> FetchPartitionResult:
        partition = self._node.engine.partitions.get(group)
        if partition is None:
            return FetchPartitionResult(part.index, self._node.names.why_unknown(group))
        error = fence(partition, part.current_leader_epoch)
        if error is not ErrorCode.NONE:
            leader_id = partition.core.leader_id
            leader = None if leader_id == NO_LEADER else LeaderAndEpoch(leader_id, partition.core.epoch)
            return FetchPartitionResult(part.index, error, current_leader=leader)
        remote_log = self._node.remote_log
        error = _check_offset(remote_log, partition, part)
        if error is ErrorCode.OFFSET_NOT_AVAILABLE:
            return FetchPartitionResult(part.index, error)
        high_watermark = partition.high_watermark
        stable = stable_end(remote_log, partition)
        end = Offset(stable if self._is_committed else high_watermark)
        result = FetchPartitionResult(
            part.index,
            error,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=remote_log.start_offset(partition),
            aborted_transactions=[] if self._is_committed else None,
        )
        is_at_end = part.fetch_offset == high_watermark
        if error is not ErrorCode.NONE or (is_at_end and not partition.is_serving):
            # ListOffsets tells clients the epoch of the record at that offset. A follower may not have that record yet.
            return result
        result.error, result.diverging_epoch = _divergence(remote_log, partition, part)
        is_refused = result.error is not ErrorCode.NONE or result.diverging_epoch is not None
        if is_refused or part.fetch_offset >= end or not (budget > 0 or first):
            return result
        size_max = max(1, min(part.bytes_max, budget, PARTITION_BYTES_MAX))
        found = read_shown(self._node, partition, part.fetch_offset, size_max, end if self._is_committed else None)
        result.records, result.error = found.data, found.error
        if self._is_committed:
            result.aborted_transactions = found.aborted
        if found.missing >= 0:
            self._missing.append((partition, found.missing))
        return result

    def _may_pass(self, group: GroupId, part: FetchPartition, error: ErrorCode) -> bool:
        """What is not available yet and likely to be before the wait is over. A follower without the offset sends the
        consumer to the leader at once."""
        partition = self._node.engine.partitions.get(group)
        if error is not ErrorCode.OFFSET_NOT_AVAILABLE or partition is None:
            return False
        if partition.core.is_leader:
            return True
        return partition.high_watermark > 0 and part.fetch_offset <= partition.log.end_offset

    def _endpoints(self, topics: list[FetchTopicResult]) -> list[NodeEndpoint]:
        if not any(part.current_leader is not None for topic in topics for part in topic.partitions):
            return []
        nodes = self._node.membership.nodes()
        return [NodeEndpoint(node_id, endpoint.host, endpoint.port) for node_id, endpoint in nodes.items()]


def _check_offset(remote_log: RemoteLog, partition: Partition, part: FetchPartition) -> ErrorCode:
    offset, high_watermark = part.fetch_offset, partition.high_watermark
    if partition.core.is_leader and not partition.is_serving:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    if high_watermark == 0 and (partition.log.end_offset > 0 or partition.shown_before > 0):
        # Restarted or repaired, and not told yet how much of the log is committed.
        return ErrorCode.OFFSET_NOT_AVAILABLE
    if not remote_log.knows_deletions:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    if offset < remote_log.deleted_below(partition):
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if offset < partition.log.start_offset and offset < remote_log.start_offset(partition):
        # A node that has not heard yet what its table holds must not say that it is gone.
        is_gone = offset < 0 or remote_log.knows_start(partition)
        return ErrorCode.OFFSET_OUT_OF_RANGE if is_gone else ErrorCode.OFFSET_NOT_AVAILABLE
    if offset <= high_watermark:
        return ErrorCode.NONE
    # A follower may simply be behind; only a leader that serves knows that the offset does not exist.
    is_beyond = partition.is_serving and offset > partition.log.end_offset
    return ErrorCode.OFFSET_OUT_OF_RANGE if is_beyond else ErrorCode.OFFSET_NOT_AVAILABLE


def _divergence(remote_log: RemoteLog, partition: Partition, part: FetchPartition) -> tuple[ErrorCode, EpochEndOffset | None]:
    """KIP-320: a consumer whose last record is of an epoch that ended earlier here has read what is no longer in the log."""
    if part.last_fetched_epoch < 0:
        return ErrorCode.NONE, None
    end = remote_log.epoch_end(partition, Epoch(part.last_fetched_epoch))
    if end.offset < 0 and not remote_log.knows_start(partition):
        # The table may know more epochs, where its key is not applied yet.
        return ErrorCode.OFFSET_NOT_AVAILABLE, None
    if end.offset < 0:
        end = remote_log.before_first(partition, Epoch(part.last_fetched_epoch))
    if end.offset < 0:
        # An epoch that no record here has, nor a later one.
        return ErrorCode.OFFSET_OUT_OF_RANGE, None
    if end.epoch != part.last_fetched_epoch or end.offset < part.fetch_offset:
        return ErrorCode.NONE, EpochEndOffset(end.epoch, end.offset)
    return ErrorCode.NONE, None


def _size(request: FetchRequest) -> int:
    """Partitions, and topics that name none."""
    return sum(max(1, len(topic.partitions)) for topic in request.topics)


def _refuse(node: Services, client: ClientContext, why: str) -> None:
    """The answer has no room for a reason, and Java's consumers go on asking."""
    node.refused_for_good.note(FETCH, client.client_id or "", why, client, code=why)


def fetch(
    node: Services, parked: ParkedFetches, request: FetchRequest, client: ClientContext, reply: Callable[[object], None]
) -> None:
    if _size(request) > PARTITIONS_MAX:
        _refuse(node, client, f"it names more than {PARTITIONS_MAX} partitions")
        reply(FetchResponse(topics=[], error=ErrorCode.INVALID_REQUEST))
        return
    groups = [
        [node.names.group_of(topic.name, topic.topic_id, part.index) for part in topic.partitions] for topic in request.topics
    ]
    if len({group for of_topic in groups for group in of_topic}) < sum(map(len, groups)):
        # No client asks for a partition twice, and each mention would be a look and a waiter of its own.
        _refuse(node, client, "it names a partition twice")
        reply(FetchResponse(topics=[], error=ErrorCode.INVALID_REQUEST))
        return
    ParkedFetch(node, parked, request, groups, reply).start()
