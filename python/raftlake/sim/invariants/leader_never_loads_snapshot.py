"""LeaderNeverLoadsSnapshot (RaftEventSimulationTest): a leader holds all that was ever committed, so its log is never reset.

Judged at the end of the turn: a leader that finds its log damaged gives its office up and opens what is left of it anew, within
one turn, and that may well begin with its own snapshot.
"""

from __future__ import annotations

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.sim.invariants.base import ClusterView, Invariant, ReplicaState


class LeaderNeverLoadsSnapshot(Invariant):
    promise = "a leader never loads a snapshot"

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view)
        #: The epoch in which a group last led on a node, and that of the leader whose log was reset in this turn.
        self._led: dict[tuple[NodeId, GroupId], int] = {}
        self._suspected: dict[tuple[NodeId, GroupId], int] = {}

    def on_leader(self, replica: ReplicaState) -> None:
        self._led[replica.node_id, replica.group] = replica.epoch

    def on_log_start(self, node_id: NodeId, group: GroupId, start_offset: int, is_reset: bool) -> None:
        epoch = self._led.get((node_id, group))
        if is_reset and epoch is not None:
            self._suspected[node_id, group] = epoch

    def on_turn(self, replica: ReplicaState) -> None:
        epoch = self._suspected.pop((replica.node_id, replica.group), None)
        if replica.is_leader and replica.epoch == epoch:
            raise self.fail(f"node {replica.node_id} {replica.group} leads epoch {epoch} and its log began anew")
