"""How far another replica's word may raise the epoch: a million at a time, and in an hour.

An epoch costs an election, so that honest ones rise by a few a day. There are 2^31 of them, and a replica that believed in the
last one could never take part in an election again, nor give it up: a single message would end a quorum. A replica that has
nothing yet takes any epoch from an answer to what it asked: its quorum may be old. Knows nothing of what else a message says.
"""

from __future__ import annotations

from raftlake.raft.actions import ReportRefusedEpoch
from raftlake.raft.state import GroupState
from raftlake.raft.types import EPOCH_LEAP_MAX, Epoch, NodeId

WINDOW_MS = 3_600_000


def may_enter(group: GroupState, epoch: Epoch, source: NodeId, now_ms: int, *, is_answer: bool) -> bool:
    """Whether the epoch that `source` names may become ours; reported where it may not."""
    if epoch <= group.epoch:
        return True
    if now_ms - group.leaps_since_ms >= WINDOW_MS:
        group.leaps_from, group.leaps_since_ms = group.epoch, now_ms
    if epoch <= group.leaps_from + EPOCH_LEAP_MAX:
        return True
    if is_answer and group.epoch == 0 and group.log_end == 0:
        group.leaps_from = epoch
        return True
    group.actions.append(ReportRefusedEpoch(source=source, epoch=epoch, own_epoch=group.epoch))
    return False
