"""What a leader derives from its replicas' progress: the high watermark, who is awake, whom to answer.

Owns the writes of the high watermark on a leader. Invariants: it counts only synced offsets, our own included; it moves
only past a record of the own epoch (KIP-595 "Extra condition on commitment"); it never goes back.
"""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.raft import reads
from raftlake.raft.actions import AdvanceHighWatermark, AnswerFetch
from raftlake.raft.messages import FetchRequest
from raftlake.raft.quorum import largest_reached_by
from raftlake.raft.roles import Leader, ReplicaProgress
from raftlake.raft.state import GroupState
from raftlake.raft.types import NO_DIRECTORY, Offset, ReplicaKey

#: Replicas without a vote that a leader remembers at most; the one heard of longest ago goes first.
OBSERVERS_MAX = 128


def find_progress(group: GroupState, leader: Leader, key: ReplicaKey, now_ms: int) -> ReplicaProgress:
    """The progress of a fetching replica; a voter's number with another directory id counts as an observer (KIP-853)."""
    progress = leader.voters.get(key.id)
    if progress is not None and progress.key.directory_id in (NO_DIRECTORY, key.directory_id):
        return progress
    if progress is not None:
        # Its number has a new disk: what the old one told us no longer shows that it lives.
        progress.has_fetched = False
    progress = leader.observers.get(key.id)
    if progress is None or progress.key != key:
        if len(leader.observers) >= OBSERVERS_MAX:
            oldest = min(leader.observers.values(), key=lambda observer: (observer.fetched_at_ms, observer.key.id))
            del leader.observers[oldest.key.id]
            parked = None if oldest.key.id in leader.voters else leader.parked.pop(oldest.key.id, None)
            if parked is not None:
                # It asks anew, and is remembered again: it may be alive, and idle.
                _answer_parked(group, parked)
        progress = leader.observers[key.id] = ReplicaProgress(key, now_ms)
    return progress


def advance_high_watermark(group: GroupState, leader: Leader) -> None:
    """Raise the high watermark to what a majority has synced, if that covers a record of our epoch (KAFKA-12619)."""
    ends = [progress.end_offset for progress in leader.voters.values()]
    if group.is_voter:
        ends.append(group.flushed_end)
    committed = largest_reached_by(ends, group.voters.majority)
    if committed <= group.high_watermark or committed <= leader.epoch_start_offset:
        return
    group.high_watermark = Offset(committed)
    group.actions.append(AdvanceHighWatermark(high_watermark=group.high_watermark))
    if leader.parked:
        answer_parked(group, leader)
    if leader.pending_reads:
        reads.answer_proven(group, leader)


def answer_parked(group: GroupState, leader: Leader) -> None:
    """Complete the parked fetches that now have records to get, or a high watermark (KIP-1166) or a log start to learn."""
    log_end = group.log_end
    high_watermark = group.announced_high_watermark
    for replica_id, request in list(leader.parked.items()):
        progress = _of_parked(leader, request.replica)
        if (
            request.fetch_offset >= log_end
            and request.high_watermark >= high_watermark
            and (progress is None or not lacks_log_start(group, progress, request))
        ):
            continue
        del leader.parked[replica_id]
        if progress is not None:
            progress.told_log_start = group.announced_log_start
        _answer_parked(group, request)


def _answer_parked(group: GroupState, request: FetchRequest) -> None:
    group.actions.append(
        AnswerFetch(
            replica_id=request.replica.id,
            request=request,
            error=ErrorCode.NONE,
            leader_id=group.leader_id,
            leader_epoch=group.epoch,
            high_watermark=group.announced_high_watermark,
        )
    )


def lacks_log_start(group: GroupState, progress: ReplicaProgress, request: FetchRequest) -> bool:
    """Whether a replica has not been told where our log begins now. One that was told and takes no notice is not told again."""
    known = max(progress.told_log_start, request.log_start_offset)
    return group.shares_log_start and known < min(group.announced_log_start, request.high_watermark)


def _of_parked(leader: Leader, key: ReplicaKey) -> ReplicaProgress | None:
    """The progress of a replica whose fetch is parked (`find_progress`); None where it was forgotten since."""
    observer = leader.observers.get(key.id)
    return observer if observer is not None and observer.key == key else leader.voters.get(key.id)


def majority_heard_at_ms(group: GroupState, leader: Leader) -> int:
    """The latest time since which a majority, ourselves counted where we vote, has been heard of. Needs another voter."""
    return largest_reached_by([progress.fetched_at_ms for progress in leader.voters.values()], others_needed(group))


def others_needed(group: GroupState) -> int:
    """How many other voters make a majority with us; a leader that removed itself does not count (KAFKA-16530)."""
    return group.voters.majority - group.is_voter
