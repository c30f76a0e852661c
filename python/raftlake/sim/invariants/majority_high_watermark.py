"""MajorityReachedHighWatermark (RaftEventSimulationTest) and NoCommittedRecordLost (kafka_data_replication TLA+).

Whenever a leader moves its high watermark, a majority of the voters by whom it counts hold everything below it on their
*disks*, synced. At that moment, and after any crash, truncation or reset, the committed voters can elect no leader
without one of those that hold it. Voters that are down count: their disks still exist. A voter that lost what it held, to
damage or with its whole disk, gives no vote, and is counted as lost.
"""

from __future__ import annotations

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId, VoterSet
from raftlake.sim.disk.log_image import StoredBatch
from raftlake.sim.invariants.base import ClusterView, Invariant, ReplicaState
from raftlake.sim.invariants.committed_log import CommittedLogs


class MajorityHoldsCommitted(Invariant):
    promise = "a majority has everything below the high watermark on disk"

    def __init__(self, view: ClusterView, committed: CommittedLogs) -> None:
        super().__init__(view)
        self._committed = committed
        self._deleted: dict[GroupId, None] = {}

    def on_high_watermark(self, replica: ReplicaState, before: int) -> None:
        if replica.group in self._deleted:
            return
        self._require_electors(replica.group)
        committed = self._committed.of(replica.group)
        history = self.view.history_of(replica.node_id, replica.group)
        if replica.is_leader and history is not None and committed.batches and replica.high_watermark == committed.end:
            # The latest set may have been written after the high watermark moved by the one before, in the same turn.
            is_open = history.latest_offset is not None and history.latest_offset >= replica.high_watermark
            counted = (history.latest, history.previous) if is_open else (history.latest,)
            counts = [self._count(replica.group, voters, committed.batches[-1]) for voters in counted]
            if not any(
                holders and holders + lost >= voters.majority for voters, (holders, lost) in zip(counted, counts, strict=True)
            ):
                raise self.fail(
                    f"{replica.group}: leader {replica.node_id} has high watermark {replica.high_watermark} with "
                    f"(holders, lost) {counts} of the voters {[voters.ids for voters in counted]}"
                )

    def on_log_cut(self, node_id: NodeId, group: GroupId, end_offset: int) -> None:
        self._require_electors(group)

    def on_log_deleted(self, node_id: NodeId, group: GroupId) -> None:
        if group.topic not in self.view.disposable_topics:
            raise self.fail(f"node {node_id} deleted {group}, whose topic was not deleted")
        self._deleted[group] = None

    def on_crash(self, node_id: NodeId) -> None:
        for group in self._committed.groups():
            self._require_electors(group)

    def on_wiped(self, node_id: NodeId) -> None:
        self.on_crash(node_id)

    def _require_electors(self, group: GroupId) -> None:
        committed = self._committed.of(group)
        if not committed.batches or group in self._deleted:
            return
        last = committed.batches[-1]
        voters = committed.voters or self.view.static_voters
        holders, lost = self._count(group, voters, last)
        if not holders or len(voters) - holders - lost >= voters.majority:
            raise self.fail(
                f"{group}: only {holders} of {len(voters)} voters hold [{last.base}, {last.end}) synced, "
                f"{lost} are lost or impaired"
            )

    def _count(self, group: GroupId, voters: VoterSet, last: StoredBatch) -> tuple[int, int]:
        """How many of `voters` hold the batch, and how many had it or not and give no vote as long as they have not."""
        holders = lost = 0
        stand_for = self._committed.of(group).versions.stand_for
        for voter in voters.voters.values():
            log = self.view.log_of(voter.id, group)
            if self.view.is_lost(voter):
                lost += 1
            # The same last batch (epoch and bytes) means the same log before it; `CommittedData` checks that on its own.
            elif log is not None and (log.surely_holds(last, stand_for) or self._is_in_snapshot(voter.id, group, last)):
                holders += 1
            elif log is not None and log.decay.impairment is not None:
                lost += 1
        return holders, lost

    def _is_in_snapshot(self, node_id: NodeId, group: GroupId, last: StoredBatch) -> bool:
        """A log that was begun anew may come back as it was, but a start makes it continue the newest snapshot, which is
        durable and, as `SnapshotData` checks, stands for what was committed."""
        return any(snapshot_id.offset >= last.end for snapshot_id in self.view.snapshots_of(node_id, group))
