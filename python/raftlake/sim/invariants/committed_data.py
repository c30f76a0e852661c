"""ConsistentCommittedData and LogMatching (Raft §5.3; RaftEventSimulationTest; kraft_kip_996_properties.tla LogMatching).

Below its high watermark every replica holds the same bytes, epochs included, and a committed batch never changes. A replica is
compared from its last high watermark to the new one; a restarted one from its log start.
"""

from __future__ import annotations

from raftlake.sim.invariants.base import ClusterView, Invariant, ReplicaState
from raftlake.sim.invariants.committed_log import CommittedLogs


class CommittedData(Invariant):
    promise = "committed data is the same everywhere and never changes"

    def __init__(self, view: ClusterView, committed: CommittedLogs) -> None:
        super().__init__(view)
        self._committed = committed

    def on_high_watermark(self, replica: ReplicaState, before: int) -> None:
        committed, log, end = self._committed.of(replica.group), replica.log, replica.high_watermark
        different = committed.first_difference(log, max(before, 0), end)
        if different is not None:
            raise self.fail(
                f"node {replica.node_id} {replica.group} has high watermark {end}, but not the committed batch "
                f"[{different.base}, {different.end}) of epoch {different.epoch}"
            )
        if end > committed.end and not committed.extend(log, end, replica.epoch):
            raise self.fail(
                f"node {replica.node_id} {replica.group}: high watermark {end} is not the end of a batch in its log"
            )
