"""A vote is on disk before it is answered (KIP-595 "Vote"; TLA+ ElectionSafety rests on it), and is one an epoch.

Looked at where the answer leaves the node, so that a vote which a crash could take back is found even when no crash does.
"""

from __future__ import annotations

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId, ReplicaKey
from raftlake.sim.invariants.base import ClusterView, Invariant


class DurableVote(Invariant):
    promise = "a vote is on disk before it is answered, and there is one an epoch"

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view)
        self._granted: dict[tuple[NodeId, GroupId, int], ReplicaKey] = {}

    def on_vote_granted(self, node_id: NodeId, group: GroupId, epoch: int, candidate: ReplicaKey) -> None:
        before = self._granted.setdefault((node_id, group, epoch), candidate)
        if before != candidate:
            raise self.fail(f"node {node_id} granted epoch {epoch} of {group} to {candidate.id} after {before.id}")
        saved = self.view.election_of(node_id, group)
        if saved is None and group.topic in self.view.disposable_topics and self.view.log_of(node_id, group) is None:
            # Granted, saved and deleted with its topic in one turn: no other node counts on such a group any more.
            return
        # A later epoch on disk says that the earlier one can never be voted in again.
        if saved is None or saved.epoch < epoch or (saved.epoch == epoch and saved.voted_key != candidate):
            raise self.fail(f"node {node_id} grants epoch {epoch} of {group} to {candidate.id}, its disk says {saved}")

    def on_wiped(self, node_id: NodeId) -> None:
        """Who comes back is another voter, if any: what the lost one granted, its directory id granted."""
        for key in [key for key in self._granted if key[0] == node_id]:
            del self._granted[key]
