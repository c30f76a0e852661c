"""MonotonicEpoch (Kafka RaftEventSimulationTest): an epoch never goes back, on disk or in memory.

With it goes what makes an epoch worth something: in one epoch a node votes once and knows one leader (KIP-595
"Vote"; KAFKA-17641), and what a node says at the end of a turn is what its disk says.
"""

from __future__ import annotations

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, NodeId
from raftlake.sim.invariants.base import Invariant, ReplicaState


class MonotonicEpoch(Invariant):
    promise = "an epoch never goes back, nor does a vote or a leader of it change"

    def on_election_saved(self, node_id: NodeId, group: GroupId, before: ElectionState | None, after: ElectionState) -> None:
        if before is None:
            return
        if after.epoch < before.epoch:
            raise self.fail(f"node {node_id} {group} saved epoch {after.epoch} over {before.epoch}")
        if after.epoch > before.epoch:
            return
        if before.voted_key is not None and after.voted_key != before.voted_key:
            raise self.fail(f"node {node_id} {group} epoch {after.epoch}: vote changed {before.voted_key} -> {after.voted_key}")
        if before.leader_id is not None and after.leader_id not in (None, before.leader_id):
            raise self.fail(f"node {node_id} {group} epoch {after.epoch}: leader {before.leader_id} -> {after.leader_id}")

    def on_epoch(self, replica: ReplicaState, before: int) -> None:
        if replica.epoch < before:
            raise self.fail(f"node {replica.node_id} {replica.group} runs in epoch {replica.epoch} after {before}")
        saved = self.view.election_of(replica.node_id, replica.group)
        if saved is not None and replica.epoch < saved.epoch:
            raise self.fail(f"node {replica.node_id} {replica.group} runs in {replica.epoch}, its disk says {saved.epoch}")

    def on_turn(self, replica: ReplicaState) -> None:
        saved = self.view.election_of(replica.node_id, replica.group)
        saved_epoch = 0 if saved is None else saved.epoch
        if replica.epoch > saved_epoch:
            raise self.fail(
                f"node {replica.node_id} {replica.group} ended a turn in {replica.epoch}, its disk says {saved_epoch}"
            )
