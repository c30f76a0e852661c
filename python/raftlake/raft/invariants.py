"""What one replica can check about itself.

Owns `check`, the cheap facts that hold after each step of a group. `errors.require` guards every place where data could be
lost. What only the whole cluster shows is the simulator's business. A failure here is always our own bug: the node stops and
keeps its disk as evidence.
"""

from __future__ import annotations

from raftlake.errors import InvariantViolation
from raftlake.raft.state import GroupState


def check(group: GroupState) -> None:
    """The order of the offsets of one log, and no record from an epoch that this replica has not heard of.

    One comparison chain, because it runs after every step; the message is built only when it fails.
    """
    if (
        group.log_start <= group.high_watermark <= group.log_end
        and group.log_start <= group.flushed_end <= group.log_end
        and group.history.last_epoch <= group.epoch
    ):
        return
    raise InvariantViolation(
        f"replica {group.local.id} in epoch {group.epoch}: log_start={group.log_start} "
        f"high_watermark={group.high_watermark} flushed_end={group.flushed_end} log_end={group.log_end} "
        f"last_epoch={group.history.last_epoch}"
    )
