"""Fetch (1), the leader's side: validate, reconcile, count, answer or park.

Owns Kafka's order of checks and what an answer says; the driver reads the records. The hot path of replication: plain
attributes, no helper objects. Invariant: only a fetch of our own epoch whose position lies in our log moves a
replica's progress, and the high watermark never passes what a majority has synced.
"""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.raft import reads, reconfiguration
from raftlake.raft.actions import AnswerFetch
from raftlake.raft.events import FetchRequestReceived, ReplicaConfirmed
from raftlake.raft.handlers import remote_log_aux
from raftlake.raft.messages import FetchRequest
from raftlake.raft.progress import advance_high_watermark, find_progress, lacks_log_start
from raftlake.raft.roles import Leader
from raftlake.raft.state import GroupState
from raftlake.raft.types import UNKNOWN_OFFSET, Epoch, OffsetAndEpoch


def on_fetch_request(group: GroupState, event: FetchRequestReceived, now_ms: int) -> None:
    """Answer a replica's Fetch at once where there is something to say, else park it."""
    request = event.request
    leader = group.role
    error = _validate(group, request)
    if error is not ErrorCode.NONE:
        answer(group, request, error)
        return
    assert isinstance(leader, Leader)
    replica_id = request.replica.id
    leader.parked.pop(replica_id, None)
    progress = find_progress(group, leader, request.replica, now_ms)
    is_voter = leader.voters.get(replica_id) is progress
    if now_ms > progress.fetched_at_ms:
        previous_fetch_ms = progress.fetched_at_ms
        progress.fetched_at_ms = now_ms
    else:
        previous_fetch_ms = now_ms
    progress.has_fetched = progress.endorsed = True
    offset = request.fetch_offset
    history = group.history
    diverging = snapshot_id = None
    if request.last_fetched_epoch != history.last_epoch or not history.last_start < offset <= group.log_end:
        diverging, snapshot_id = reconcile(group, offset, request.last_fetched_epoch)
    # Sent before a fetch that we have handled: what it tells may be lost since. The first one of a session follows nothing.
    is_late = 0 < event.follows < progress.follows
    if diverging is None and snapshot_id is None and not is_late:
        # Kafka's lastCaughtUpTimestamp: it has all we have now, or all we had when it fetched before.
        if offset >= group.log_end:
            progress.caught_up_at_ms = now_ms
        elif 0 <= progress.leader_end_at_fetch <= offset:
            progress.caught_up_at_ms = max(progress.caught_up_at_ms, previous_fetch_ms)
        progress.leader_end_at_fetch = group.log_end
        # A replica that lost its disk goes back; the high watermark does not (KAFKA-14077).
        progress.end_offset = offset
        if is_voter and offset > group.high_watermark:
            advance_high_watermark(group, leader)
    if leader.watches_commits:
        if leader.learns_voters:
            reconfiguration.learn_voter(group, leader, request.replica)
        reconfiguration.after_commit(group, leader, now_ms)
    if event.follows > progress.follows:
        progress.follows = event.follows
        if is_voter and leader.pending_reads:
            reads.answer_proven(group, leader)
    announced = group.announced_high_watermark
    if event.follows == 0:
        # Nothing that was sent to it is known to have arrived.
        progress.told_log_start = UNKNOWN_OFFSET
    if diverging is None and snapshot_id is None:
        has_all = offset == group.log_end and request.high_watermark >= announced
        if has_all and not lacks_log_start(group, progress, request):
            leader.parked[replica_id] = request
            return
        progress.told_log_start = group.announced_log_start
    if snapshot_id is not None and remote_log_aux.is_before_log_in_tier(group):
        # Who has no tier is told of the snapshot too.
        answer(group, request, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, snapshot_id=snapshot_id)
        return
    answer(group, request, ErrorCode.NONE, diverging, snapshot_id)


def _validate(group: GroupState, request: FetchRequest) -> ErrorCode:
    """The request itself, then epoch and leadership, and membership never (KAFKA-13837)."""
    if (
        request.fetch_offset < 0
        or request.last_fetched_epoch < 0
        or request.last_fetched_epoch > request.leader_epoch
        or request.replica.id < 0
    ):
        return ErrorCode.INVALID_REQUEST
    if request.leader_epoch != group.epoch:
        is_older = request.leader_epoch < group.epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH
    if not group.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if request.replica.id == group.local.id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def reconcile(group: GroupState, offset: int, epoch: Epoch) -> tuple[OffsetAndEpoch | None, OffsetAndEpoch | None]:
    """(divergence, snapshot id): both None when `offset` with `epoch` before it is a position of our log.

    KIP-595 "FetchRequest Handling" 3 as KafkaRaftLog.validateOffsetAndEpoch decides it. What lies before our log start
    cannot be reconciled record by record; then the replica begins at our newest snapshot (KIP-630), and so does an empty one
    when there is any. Where the remote tier holds what lies before our log, the replica is sent there instead (KIP-405). A log
    that begins at 0 has no record before it, so an empty replica fits it, whatever epoch it claims. An offset beyond our end
    with the right epoch diverges at our end, it is never out of range (pitfall 23).
    """
    history = group.history
    log_start = group.log_start
    if offset == 0 and group.snapshot_id is not None:
        return None, group.snapshot_id
    if offset == 0 == log_start:
        return None, None
    if offset < log_start or epoch < history.start_epoch or (offset == log_start and epoch != history.start_epoch):
        return None, group.snapshot_id or OffsetAndEpoch(log_start, history.start_epoch)
    if offset == log_start:
        return None, None
    end = history.floor_end(epoch, group.log_end)
    if end.epoch != epoch or end.offset < offset:
        return end, None
    if history.has_epoch(epoch) and history.first_offset(epoch) >= offset:
        # It claims a record of that epoch where our log has an earlier one: only damage can do that.
        return history.floor_end(Epoch(epoch - 1), group.log_end), None
    return None, None


def answer(
    group: GroupState,
    request: FetchRequest,
    error: ErrorCode,
    diverging: OffsetAndEpoch | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
) -> None:
    """One AnswerFetch that names the leader and the high watermark as they are now."""
    group.actions.append(
        AnswerFetch(
            replica_id=request.replica.id,
            request=request,
            error=error,
            leader_id=group.leader_id,
            leader_epoch=group.epoch,
            high_watermark=group.announced_high_watermark if group.is_leader else group.high_watermark,
            diverging=diverging,
            snapshot_id=snapshot_id,
        )
    )


def on_replica_confirmed(group: GroupState, event: ReplicaConfirmed, now_ms: int) -> None:
    """A fetch round without news for this group: a sign of life, and a proof for reads.

    Ignored before a real Fetch of our epoch arrived from that replica: it would say nothing about whom it follows now. So would
    a round that covers a Fetch of another epoch, which we refuse: its sender has left our epoch, and may have elected another.
    """
    leader = group.role
    if not isinstance(leader, Leader) or event.leader_epoch != group.epoch:
        return
    progress = leader.voters.get(event.replica_id)
    if progress is None or not progress.has_fetched:
        # Also a voter's number on a new disk, which is an observer until it is added (KIP-853).
        progress = leader.observers.get(event.replica_id)
    if progress is None or not progress.has_fetched:
        return
    at_ms = min(event.at_ms, now_ms)
    progress.fetched_at_ms = max(progress.fetched_at_ms, at_ms)
    if progress.end_offset >= group.log_end:
        progress.caught_up_at_ms = max(progress.caught_up_at_ms, at_ms)
    if event.follows > progress.follows:
        progress.follows = event.follows
        if leader.pending_reads:
            reads.answer_proven(group, leader)
