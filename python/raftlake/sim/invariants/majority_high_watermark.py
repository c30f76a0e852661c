"""MajorityReachedHighWatermark (RaftEventSimulationTest) and NoCommittedRecordLost (kafka_data_replication TLA+).

Whenever a high watermark grows, a majority of the voters hold everything below it on their *disks*, synced; and after any
crash, truncation or reset a majority still does. Voters that are down count: their disks still exist.
"""

from __future__ import annotations

from raftlake.ports import GroupId
from raftlake.raft.types import NodeId
from raftlake.sim.invariants.base import ClusterView, Invariant, ReplicaState
from raftlake.sim.invariants.committed_log import CommittedLogs


class MajorityHoldsCommitted(Invariant):
    promise = "a majority has everything below the high watermark on disk"

    def __init__(self, view: ClusterView, committed: CommittedLogs) -> None:
        super().__init__(view)
        self._committed = committed
        self._deleted: dict[GroupId, None] = {}

    def on_high_watermark(self, replica: ReplicaState, before: int) -> None:
        self._require_majority(replica.group)

    def on_log_cut(self, node_id: NodeId, group: GroupId, end_offset: int) -> None:
        self._require_majority(group)

    def on_log_deleted(self, node_id: NodeId, group: GroupId) -> None:
        if group.topic not in self.view.disposable_topics:
            raise self.fail(f"node {node_id} deleted {group}, whose topic nobody deleted")
        self._deleted[group] = None

    def on_crash(self, node_id: NodeId) -> None:
        for group in self._committed.groups():
            self._require_majority(group)

    def _require_majority(self, group: GroupId) -> None:
        committed = self._committed.of(group)
        if not committed.batches or group in self._deleted:
            return
        last = committed.batches[-1]
        # The same last batch (epoch and bytes) means the same log before it; `CommittedData` checks that on its own.
        logs = self.view.voter_logs(group)
        holders = sum(1 for log in logs if log.surely_holds(last))
        if holders >= self.view.majority:
            return
        # A voter that lost it by damage gives no vote until it has it again: nobody is elected without a holder.
        impaired = sum(1 for log in logs if log.decay.impairment is not None and not log.surely_holds(last))
        if not holders or len(self.view.voters) - holders - impaired >= self.view.majority:
            raise self.fail(
                f"{group}: only {holders} of {len(self.view.voters)} voters hold [{last.base}, {last.end}) synced, "
                f"{impaired} are impaired"
            )
