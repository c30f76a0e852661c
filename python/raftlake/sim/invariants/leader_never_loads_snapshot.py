"""LeaderNeverLoadsSnapshot (RaftEventSimulationTest): a leader holds all that was ever committed, so its log is never reset."""

from __future__ import annotations

from raftlake.ports import GroupId
from raftlake.raft.types import NodeId
from raftlake.sim.invariants.base import ClusterView, Invariant, ReplicaState


class LeaderNeverLoadsSnapshot(Invariant):
    promise = "a leader never loads a snapshot"

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view)
        #: The last state of each group that led on a node, while that incarnation runs.
        self._leaders: dict[tuple[NodeId, GroupId], ReplicaState] = {}

    def on_leader(self, replica: ReplicaState) -> None:
        self._leaders[replica.node_id, replica.group] = replica

    def on_crash(self, node_id: NodeId) -> None:
        for key in [key for key in self._leaders if key[0] == node_id]:
            del self._leaders[key]

    def on_log_start(self, node_id: NodeId, group: GroupId, start_offset: int, is_reset: bool) -> None:
        replica = self._leaders.get((node_id, group))
        if is_reset and replica is not None and replica.is_leader:
            raise self.fail(f"node {node_id} {group} leads epoch {replica.epoch} and begins anew at {start_offset}")
