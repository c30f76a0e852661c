"""Liveness at the end of a run (KIP-595; TLA+ ValuesEventuallyAcked, EventuallyLeaderElected, NotStuckInProspective).

After the faults have ended and a bounded time has passed, all nodes hold all groups at the same epoch, the same high
watermark and the same log end, and each group has one leader.
"""

from __future__ import annotations

from collections.abc import Sequence

from raftlake.ports.peer_rpcs import GroupId
from raftlake.sim.invariants.base import ClusterView, Invariant, ReplicaState
from raftlake.sim.invariants.committed_log import CommittedLogs


def disagreements(replicas: Sequence[ReplicaState], node_count: int) -> list[str]:
    """What is not equal yet, one line each; empty when the cluster has converged."""
    groups: dict[GroupId, list[ReplicaState]] = {}
    for replica in replicas:
        groups.setdefault(replica.group, []).append(replica)
    found: list[str] = []
    for group, members in groups.items():
        positions = {
            replica.node_id: (replica.epoch, replica.high_watermark, int(replica.log.end_offset)) for replica in members
        }
        leaders = [replica.node_id for replica in members if replica.is_leader]
        if len(members) != node_count:
            found.append(f"{group} is on nodes {sorted(positions)} only")
        elif len(leaders) != 1:
            found.append(f"{group} has the leaders {leaders}")
        elif len(dict.fromkeys(positions.values())) != 1:
            found.append(f"{group}: (epoch, high watermark, log end) by node: {positions}")
        elif any(replica.log.decay.impairment is not None for replica in members):
            found.append(f"{group} is impaired on some node")
        elif any(replica.high_watermark != replica.log.end_offset for replica in members):
            found.append(f"{group}: the log end is not committed: {positions}")
    return found


class Convergence(Invariant):
    promise = "without faults all nodes converge"

    def __init__(self, view: ClusterView, committed: CommittedLogs, node_count: int) -> None:
        super().__init__(view)
        self._committed = committed
        self._node_count = node_count

    def on_end(self, replicas: Sequence[ReplicaState]) -> None:
        found = disagreements(replicas, self._node_count)
        if found:
            raise self.fail("; ".join(found))
        for replica in replicas:
            # Equal everywhere is not enough: it must be all that was ever committed.
            end = self._committed.of(replica.group).end
            if replica.high_watermark != end:
                raise self.fail(f"{replica.group} ends at {replica.high_watermark}, but {end} was committed")
