"""A replica that has lost records which it had synced: what it may not do, and when it is whole again.

Others may have counted those records as held by a majority, this replica among them. So it gives no vote and stands for no
election until it holds them again; it follows, and what it fetches counts as ever. While at most a minority is impaired, no
majority of votes comes together without a replica that has every committed record. When a majority is impaired, no
leader is elected, which is better than an election that forgets.

It is whole when it has synced everything below the high watermark of a leader that (1) leads an epoch at least as high as
the one in which the records were lost, (2) has committed a record of that epoch, so that its high watermark covers all that
was ever acknowledged, and (3) cannot count an old Fetch any more that claims more than is held: its epoch is higher, which
fences them, or the log again reaches as far as they did.

How far was that, where the very end of the log was damaged? A leader counts a Fetch of its own epoch only if it names a
position of the leader's log, which within the epoch only grows. The old Fetches were sent before the loss was found, so none
claims more than the leader's log held at any later moment of that epoch: the first log end that its leader tells, in an answer
to a Fetch of this start, bounds them all, however late they come in. That the answer brings less (budgets, pacing), or nothing,
does not matter, nor that the log has grown since: no replica has to catch up with a leader that is written to.
"""

from __future__ import annotations

from raftlake.raft.actions import MendReplica
from raftlake.raft.roles import Follower
from raftlake.raft.state import GroupState
from raftlake.raft.types import Impairment, Offset


def learn_log_end(group: GroupState, leader_log_end: Offset) -> None:
    """The leader of our epoch told, since the loss was found, where its log ended; -1: it did not."""
    lost = group.impairment
    if lost is not None and group.epoch == lost.epoch and 0 <= leader_log_end < lost.end_offset:
        group.impairment = Impairment(lost.epoch, leader_log_end)


def mend_if_whole(group: GroupState) -> None:
    """Called after each answer of the leader, after each sync, and when the log was begun anew behind a snapshot."""
    lost, role = group.impairment, group.role
    if lost is None or not isinstance(role, Follower):
        return
    high_watermark = role.leader_high_watermark
    if high_watermark > group.flushed_end or group.epoch < lost.epoch:
        return
    if high_watermark < group.log_start or group.history.epoch_before(high_watermark) != group.epoch:
        return
    if group.epoch == lost.epoch and group.flushed_end < lost.end_offset:
        return
    group.impairment = None
    group.actions.append(MendReplica())
