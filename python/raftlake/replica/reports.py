"""What the cores report of themselves: roles, for all who listen, and epochs that they did not take in, for people.

Owns the alarms about epochs. A refused epoch is logged the first time for each group, and then each time their number has
doubled; its alarm ends when the group has reached that epoch. A group whose epochs come to an end is logged once. No alarm
advises to give a voter's data up: others may need it for what they have promised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlake.ports import GroupId
from raftlake.raft.actions import ReportRefusedEpoch, ReportRole
from raftlake.raft.types import EPOCH_LEAP_MAX, EPOCH_MAX, Epoch
from raftlake.replica.partition import Partition

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode

logger = logging.getLogger("raftlake.epochs")

#: Groups whose alarms are kept.
ALARMS_MAX = 100

WHERE_REFUSED = (
    "Somebody forges messages, or this node was away while the others went on; then it catches up by itself once it reaches a "
    "majority of the voters. Keep its data, and see who can reach the listener that peers use"
)
WHERE_NEARLY_OVER = (
    "Close the listener that peers use to whoever forges messages. While there is a leader, stop what writes, and wait until "
    "all nodes have everything (`raftlake describe --replication`). Then stop the nodes and run `raftlake recover` on one: its "
    "logs have to reach as far as those of the others. Keep the data of the others until they have joined it again"
)


class Reports:
    """`alarms` says by group what is wrong with its epochs; `refused_epochs` counts all that were refused since the start."""

    def __init__(self, node: ReplicaNode) -> None:
        self._node = node
        self.role_listeners: list[Callable[[GroupId, ReportRole], None]] = []
        self.refused_epochs = 0
        self._refused: dict[GroupId, int] = {}
        #: The highest epoch that each alarm about a refusal may speak of.
        self._awaited: dict[GroupId, Epoch] = {}
        self.alarms: dict[GroupId, str] = {}

    def role(self, partition: Partition, report: ReportRole) -> None:
        node = self._node
        if not partition.core.is_leader:
            partition.on_leadership_lost(keep_new=node.handover.holds(partition))
        node.tell_fetchers(partition.group, report.leader_id)
        group = partition.group
        if report.epoch >= self._awaited.get(group, EPOCH_MAX + 1):
            del self._awaited[group]
            self.alarms.pop(group, None)
        if report.epoch > EPOCH_MAX - EPOCH_LEAP_MAX:
            told = f"epoch {report.epoch} is near the last one, {EPOCH_MAX}: then nobody can be elected any more"
            self._raise(group, f"{told}. {WHERE_NEARLY_OVER}")
        for listener in self.role_listeners:
            listener(group, report)

    def refused_epoch(self, group: GroupId, report: ReportRefusedEpoch) -> None:
        self.refused_epochs += 1
        count = self._refused[group] = self._refused.get(group, 0) + 1
        self._awaited[group] = max(report.epoch, self._awaited.get(group, report.epoch))
        is_logged = count & (count - 1) == 0
        if is_logged or group not in self.alarms:
            told = f"refused epoch {report.epoch} of node {report.source}: it leaps from {report.own_epoch}"
            self._raise(group, f"{told} ({count} refused so far). {WHERE_REFUSED}", is_logged=is_logged)

    def _raise(self, group: GroupId, alarm: str, *, is_logged: bool = True) -> None:
        if self.alarms.get(group) == alarm or (group not in self.alarms and len(self.alarms) >= ALARMS_MAX):
            return
        self.alarms[group] = alarm
        if is_logged:
            logger.error("%s: %s", group, alarm)
