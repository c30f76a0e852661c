"""What the cores report of themselves: roles, for all who listen, and epochs that they did not take in, for people.

Owns the alarms about epochs. A refused epoch is logged the first time for each group, and then each time their number has
doubled; a group whose epochs come to an end is logged once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlake.ports import GroupId
from raftlake.raft.actions import ReportRefusedEpoch, ReportRole
from raftlake.raft.types import EPOCH_LEAP_MAX, EPOCH_MAX
from raftlake.replica.partition import Partition

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode

logger = logging.getLogger("raftlake.epochs")

#: Groups whose alarms are kept.
ALARMS_MAX = 100


class Reports:
    """`alarms` says by group what is wrong with its epochs; `refused_epochs` counts all that were refused since the start."""

    def __init__(self, node: ReplicaNode) -> None:
        self._node = node
        self.role_listeners: list[Callable[[GroupId, ReportRole], None]] = []
        self.refused_epochs = 0
        self._refused: dict[GroupId, int] = {}
        self.alarms: dict[GroupId, str] = {}

    def role(self, partition: Partition, report: ReportRole) -> None:
        node = self._node
        if not partition.core.is_leader:
            partition.on_leadership_lost(keep_new=node.handover.holds(partition))
        node.tell_fetchers(partition.group, report.leader_id)
        if report.epoch > EPOCH_MAX - EPOCH_LEAP_MAX:
            told = f"epoch {report.epoch} is near the last one, {EPOCH_MAX}: then nobody can be elected any more"
            self._raise(partition.group, f"{told}. Stop the nodes and run `raftlake recover` on the one with the longest logs")
        for listener in self.role_listeners:
            listener(partition.group, report)

    def refused_epoch(self, group: GroupId, report: ReportRefusedEpoch) -> None:
        self.refused_epochs += 1
        count = self._refused[group] = self._refused.get(group, 0) + 1
        if count & (count - 1) == 0:
            told = f"refused epoch {report.epoch} of node {report.source}: it leaps from {report.own_epoch}"
            advice = (
                "Somebody forges messages; or, where the quorum truly is that far, begin this node anew with an empty directory"
            )
            self._raise(group, f"{told} ({count} refused so far). {advice}")

    def _raise(self, group: GroupId, alarm: str) -> None:
        if self.alarms.get(group) == alarm or (group not in self.alarms and len(self.alarms) >= ALARMS_MAX):
            return
        self.alarms[group] = alarm
        logger.error("%s: %s", group, alarm)
