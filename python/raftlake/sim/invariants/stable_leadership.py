"""StableLeadership (RaftEventSimulationTest, leadershipWillNotChangeDuringNetworkPartitionIfMajorityStillReachable).

Used by the tests that need it: once armed, no group may get another leader or a higher epoch. It shows that a node which is
cut off, comes back or restarts never disturbs a leader that a majority can reach (KIP-650 / KIP-996 pre-vote).
"""

from __future__ import annotations

from raftlake.sim.invariants.base import ClusterView, Invariant, ReplicaState


class StableLeadership(Invariant):
    promise = "a leader that a majority reaches stays leader"

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view)
        self.armed = False

    def on_leader(self, replica: ReplicaState) -> None:
        if self.armed:
            raise self.fail(f"node {replica.node_id} became leader of {replica.group} in epoch {replica.epoch}")

    def on_epoch(self, replica: ReplicaState, before: int) -> None:
        if self.armed and before >= 0:
            raise self.fail(f"node {replica.node_id} {replica.group}: epoch {before} -> {replica.epoch}")
