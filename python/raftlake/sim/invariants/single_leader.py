"""SingleLeader / ElectionSafety (Raft §5.2; kraft_kip_996_properties.tla; RaftEventSimulationTest over persisted files).

In one epoch of one group at most one node ever leads, and every election file that names a leader of it names that one.
"""

from __future__ import annotations

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, NodeId
from raftlake.sim.invariants.base import ClusterView, Invariant, ReplicaState


class SingleLeader(Invariant):
    promise = "an epoch has at most one leader"

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view)
        self._leaders: dict[tuple[GroupId, int], NodeId] = {}

    def on_election_saved(self, node_id: NodeId, group: GroupId, before: ElectionState | None, after: ElectionState) -> None:
        if after.leader_id is not None:
            self._note(group, after.epoch, after.leader_id, f"the disk of node {node_id}")

    def on_leader(self, replica: ReplicaState) -> None:
        self._note(replica.group, replica.epoch, replica.node_id, "the running node")

    def _note(self, group: GroupId, epoch: int, leader_id: NodeId, source: str) -> None:
        known = self._leaders.setdefault((group, epoch), leader_id)
        if known != leader_id:
            raise self.fail(f"{group} epoch {epoch} is led by {known}, but {source} says {leader_id}")
