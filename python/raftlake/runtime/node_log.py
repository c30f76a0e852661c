"""What a node tells its log of its roles, its damage and its voters, one line per event."""

from __future__ import annotations

import logging

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.types import NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.runtime.log import event

logger = logging.getLogger("raftlake.node")


class NodeLog:
    def __init__(self, node_id: NodeId, quorum_group: GroupId) -> None:
        self._node_id = node_id
        self._quorum_group = quorum_group

    def listen_to(self, node: ReplicaNode) -> None:
        node.reports.role_listeners.append(self.role)
        node.damage.listeners.append(self.damage)
        node.own_vote.listeners.append(self.own_vote)
        node.kv.room.listeners.append(self.warning)
        node.disk.listeners.append(self.warning)

    def role(self, group: GroupId, report: ReportRole) -> None:
        """The quorum's own role is news; those of partitions, by the thousand, are for who asks for them."""
        level = logging.INFO if group == self._quorum_group else logging.DEBUG
        event(
            logger, level, "role", node=self._node_id, group=group, role=report.role, epoch=report.epoch,
            leader=report.leader_id, reason=report.reason,
        )  # fmt: skip

    def damage(self, group: GroupId, reason: str | None) -> None:
        """A log is damaged, or, without a reason, repaired."""
        if reason is None:
            event(logger, logging.INFO, "repaired", node=self._node_id, group=group)
        else:
            event(
                logger, logging.ERROR, "damaged log: it is repaired from other nodes and gives no vote until then",
                node=self._node_id, group=group, reason=reason,
            )  # fmt: skip

    def own_vote(self, what: str, refusal: str) -> None:
        """What this node asked the leader about its own vote."""
        outcome = {"refused": refusal} if refusal else {}
        level = logging.WARNING if refusal else logging.INFO
        event(logger, level, f"asked the leader to {what}", node=self._node_id, **outcome)

    def warning(self, what: str) -> None:
        """Something that an operator has to see to before it stops something."""
        event(logger, logging.WARNING, what, node=self._node_id)

    def moved(self, what: str) -> None:
        """The voters may all have moved."""
        event(logger, logging.WARNING, "no leader", node=self._node_id, reason=what)
