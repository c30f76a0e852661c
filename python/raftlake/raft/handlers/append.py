"""Records: appended by the leader's clients, synced by the driver, deleted by retention.

Owns the log end and the synced end. Invariant: offsets are given out once, in order, and no record is said to be
on disk before `RecordsFlushed` said so.
"""

from __future__ import annotations

from raftlake.errors import require
from raftlake.raft import elections, fetching, impairment, reconfiguration
from raftlake.raft.actions import AppendRecords
from raftlake.raft.events import AppendRequested, LogStartAdvanced, RecordsFlushed
from raftlake.raft.progress import advance_high_watermark, answer_parked
from raftlake.raft.roles import Leader
from raftlake.raft.state import GroupState
from raftlake.raft.types import Offset


def on_append_requested(group: GroupState, event: AppendRequested, now_ms: int) -> None:
    """Give out offsets, then let parked fetches go: followers sync at the same time as we do."""
    leader = group.role
    require(isinstance(leader, Leader), f"append requested of a {group.role_name}")
    assert isinstance(leader, Leader)
    base_offset = group.log_end
    end_offset = int(base_offset)
    for record_count in event.record_counts:
        require(record_count > 0, "append of a batch without offsets")
        end_offset += record_count
    require(end_offset > base_offset, "append of nothing")
    group.log_end = Offset(end_offset)
    group.actions.append(
        AppendRecords(base_offset=base_offset, end_offset=group.log_end, epoch=group.epoch, payload=event.payload)
    )
    if leader.parked:
        answer_parked(group, leader)


def on_records_flushed(group: GroupState, event: RecordsFlushed, now_ms: int) -> None:
    """A sync ended. One that began before a truncation says nothing about what was written since, and is dropped."""
    if event.generation != group.log_generation or event.end_offset <= group.flushed_end:
        return
    require(event.end_offset <= group.log_end, f"synced up to {event.end_offset} but the log ends at {group.log_end}")
    _go_on_from(group, event.end_offset, now_ms)


def _go_on_from(group: GroupState, flushed_end: Offset, now_ms: int) -> None:
    """Nothing below `flushed_end` waits for a sync any more."""
    group.flushed_end = flushed_end
    leader = group.role
    if not isinstance(leader, Leader):
        impairment.mend_if_whole(group)
        fetching.send_fetch(group, now_ms)
        return
    advance_high_watermark(group, leader)
    if leader.watches_commits:
        reconfiguration.after_commit(group, leader, now_ms)
    if not leader.has_begun and group.flushed_end > leader.epoch_start_offset:
        leader.has_begun = True
        waiting = [voter for voter, progress in leader.voters.items() if not progress.endorsed]
        elections.send_begins(group, leader, waiting, now_ms)


def on_log_start_advanced(group: GroupState, event: LogStartAdvanced, now_ms: int) -> None:
    """Retention deleted a committed prefix, perhaps all that there was."""
    log_start = event.log_start_offset
    require(log_start <= group.high_watermark, f"log start {log_start} above high watermark {group.high_watermark}")
    if log_start <= group.log_start:
        return
    group.history.advance_start(log_start)
    group.voter_history.forget_before(log_start)
    group.log_start = log_start
    if log_start > group.flushed_end:
        # What was deleted before our own sync of it is committed all the same: a majority has synced it. The report of that
        # sync tells nothing new where it comes.
        _go_on_from(group, log_start, now_ms)
    if isinstance(group.role, Leader) and group.role.parked:
        answer_parked(group, group.role)
