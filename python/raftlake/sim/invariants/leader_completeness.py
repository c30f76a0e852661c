"""LeaderCompleteness (Raft §5.4; kraft_kip_996_properties.tla): a leader has every record committed before its epoch."""

from __future__ import annotations

from raftlake.sim.invariants.base import ClusterView, Invariant, ReplicaState
from raftlake.sim.invariants.committed_log import CommittedLogs


class LeaderCompleteness(Invariant):
    promise = "a new leader has every committed record"

    def __init__(self, view: ClusterView, committed: CommittedLogs) -> None:
        super().__init__(view)
        self._committed = committed

    def on_leader(self, replica: ReplicaState) -> None:
        committed = self._committed.of(replica.group)
        # A node may still win an older epoch, too late to be of use: it needs what was committed in epochs before its own.
        missing = committed.first_difference(replica.log, 0, committed.end_before(replica.epoch))
        if missing is not None:
            raise self.fail(
                f"node {replica.node_id} leads {replica.group} in epoch {replica.epoch} without the committed batch "
                f"[{missing.base}, {missing.end}) of epoch {missing.epoch}"
            )
