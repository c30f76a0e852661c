"""Linearizable reads (KIP-650 ReadOffset) at the leader.

A read is answered with a high watermark once two things are proven: the leader committed an entry of its own epoch, so
its high watermark covers all that was ever acknowledged; and *after* the read arrived a majority of the voters still
fetched in its epoch, so no later leader can have acknowledged anything before it. The high watermark is the one of the read's
arrival (or of the first commit, when that came later): what was acknowledged since need not be in it, and the asking
replica learns it with the very round that brings the proof. "After" is causal, not by the clock: a
fetch counts when its sender had received an answer that we sent after the read arrived. Reads share such rounds.
KIP-650 itself asks only for the leader's applied offset; the proof is ours (ARCHITECTURE, promise 2).
"""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.raft.actions import AnswerRead, ReleaseFetchRounds
from raftlake.raft.events import ReadRequested
from raftlake.raft.quorum import largest_reached_by
from raftlake.raft.roles import Leader, PendingRead
from raftlake.raft.state import GroupState


def on_read_requested(group: GroupState, event: ReadRequested, now_ms: int) -> None:
    """Answer at once where no proof is missing, else queue."""
    leader = group.role
    if not isinstance(leader, Leader):
        _refuse(group, event.read_id)
        return
    leader.pending_reads.append(PendingRead(event.read_id, event.sequence, group.high_watermark))
    answer_proven(group, leader)
    if leader.pending_reads and leader.voters and event.sequence > leader.released_sequence:
        leader.released_sequence = event.sequence
        group.actions.append(ReleaseFetchRounds())


def answer_proven(group: GroupState, leader: Leader) -> None:
    """Answer every read that a majority has confirmed us for; called when a confirmation or the first commit arrives."""
    if not leader.pending_reads or group.high_watermark <= leader.epoch_start_offset:
        return
    confirmed = _confirmed_sequence(group, leader)
    waiting: list[PendingRead] = []
    for read in leader.pending_reads:
        if confirmed is not None and read.sequence >= confirmed:
            waiting.append(read)
            continue
        group.actions.append(
            AnswerRead(
                read_id=read.read_id,
                error=ErrorCode.NONE,
                offset=read.high_watermark if read.high_watermark > leader.epoch_start_offset else group.high_watermark,
                leader_id=group.leader_id,
                leader_epoch=group.epoch,
            )
        )
    leader.pending_reads = waiting


def fail_all(group: GroupState, leader: Leader) -> None:
    """Leadership is lost: nothing can be proven any more."""
    for read in leader.pending_reads:
        _refuse(group, read.read_id)
    leader.pending_reads.clear()


def _confirmed_sequence(group: GroupState, leader: Leader) -> int | None:
    """Reads that arrived before this causal clock are proven; None when we alone are the majority."""
    # A leader that removed itself does not count (KAFKA-16530).
    others_needed = group.voters.majority - group.is_voter
    if others_needed == 0:
        return None
    return largest_reached_by([progress.follows for progress in leader.voters.values()], others_needed)


def _refuse(group: GroupState, read_id: int) -> None:
    group.actions.append(
        AnswerRead(
            read_id=read_id,
            error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            offset=group.high_watermark,
            leader_id=group.leader_id,
            leader_epoch=group.epoch,
        )
    )
