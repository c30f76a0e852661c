"""What promise 2 rests on: a Fetch round counts for no group whose sender has left the leader's epoch.

A round says nothing about the groups that it does not list. It counts for them as a Fetch of the epoch in which they were
listed last (`events.ReplicaConfirmed`). That proves that the node leads only as long as the sender tells of each group that has
left it. Judged by what the sender knew when it sent the round, so that a late round is no offence.
"""

from __future__ import annotations

from collections.abc import Mapping

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.sim.invariants.base import Invariant


class LeftLeaders(Invariant):
    promise = "a round counts for no group whose sender has left the leader"

    def on_round(self, node_id: NodeId, source: NodeId, led: Mapping[GroupId, int], known: Mapping[GroupId, int]) -> None:
        for group, epoch in led.items():
            if known.get(group, -1) > epoch:
                raise self.fail(
                    f"node {node_id} leads {group} in epoch {epoch}, and counts a round of node {source}, which had epoch "
                    f"{known[group]} when it sent the round"
                )
