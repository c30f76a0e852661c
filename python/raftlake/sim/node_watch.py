"""What invariants, coverage and trace get to see of one running node.

After each turn every group of the node is compared with what it was; what moved is reported, in a fixed order: epoch,
leadership, high watermark. Owns nothing of the node and changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Mapping

from raftlake.ports import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.trace import describe
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition import Partition
from raftlake.sim.coverage import Coverage
from raftlake.sim.disk import MemoryLog
from raftlake.sim.invariants.base import InvariantSuite, ReplicaState
from raftlake.sim.trace import Trace


class NodeWatch:
    """One per incarnation of a node."""

    def __init__(
        self,
        node: ReplicaNode,
        incarnation: int,
        logs: Mapping[GroupId, MemoryLog],
        invariants: InvariantSuite,
        coverage: Coverage,
        trace: Trace,
    ) -> None:
        self._node = node
        self._node_id = node.config.node_id
        self._incarnation = incarnation
        self._logs = logs
        self._invariants = invariants
        self._coverage = coverage
        self._trace = trace
        #: Groups as they were when they were last looked at.
        self.replicas: dict[GroupId, ReplicaState] = {}
        self._watched: list[tuple[Partition, ReplicaState]] = []
        self._hosting_changes = -1
        #: Groups that changed since the last turn ended.
        self._touched: list[ReplicaState] = []
        self._roles: dict[GroupId, str] = {}
        node.role_listeners.append(self._on_role)

    def look(self) -> None:
        """Compare every group with what it was, and report what moved."""
        if self._node.hosting.changes != self._hosting_changes:
            self._hosting_changes = self._node.hosting.changes
            self._find_groups()
        for partition, replica in self._watched:
            core = partition.core
            if (
                partition.high_watermark != replica.high_watermark
                or core.epoch != replica.epoch
                or core.is_leader != replica.is_leader
            ):
                self._report(partition, replica)

    def turn_ended(self) -> None:
        """Everything that the cores asked for has been done."""
        if self._touched:
            touched, self._touched = self._touched, []
            for replica in touched:
                self._invariants.on_turn(replica)

    def _find_groups(self) -> None:
        """Groups were opened or closed."""
        known = self._watched
        self._watched = []
        for group, partition in self._node.partitions.items():
            replica = next((replica for other, replica in known if other is partition), None)
            if replica is None:
                replica = ReplicaState(self._node_id, self._incarnation, group, self._logs[group])
            self._watched.append((partition, replica))
        self.replicas = {replica.group: replica for _, replica in self._watched}

    def _report(self, partition: Partition, replica: ReplicaState) -> None:
        core, invariants = partition.core, self._invariants
        epoch_before, leader_before, watermark_before = replica.epoch, replica.is_leader, replica.high_watermark
        replica.epoch, replica.is_leader, replica.high_watermark = core.epoch, core.is_leader, partition.high_watermark
        self._touched.append(replica)
        if self._trace.enabled:
            state = f"epoch={core.epoch} leader={core.leader_id} hw={replica.high_watermark} end={replica.log.end_offset}"
            self._trace.write(self._node_id, f"{replica.group} {core.role_name} {state}")
        if replica.epoch != epoch_before:
            invariants.on_epoch(replica, epoch_before)
        if replica.is_leader and (not leader_before or replica.epoch != epoch_before):
            invariants.on_leader(replica)
        if replica.high_watermark != watermark_before:
            invariants.on_high_watermark(replica, watermark_before)

    def _on_role(self, group: GroupId, action: ReportRole) -> None:
        if self._trace.enabled:
            self._trace.write(self._node_id, f"{group} {describe(action)}")
        before = self._roles.get(group, "-")
        self._roles[group] = action.role
        self._coverage.role(group, before, action)
        partition = self._node.partitions.get(group)
        if partition is not None:
            self._invariants.on_role(self._node_id, group, before, action, partition.core.may_stand())
