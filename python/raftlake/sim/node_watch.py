"""What invariants, coverage and trace get to see of one running node and of its disk.

After each turn every group of the node is compared with what it was; what moved is reported, in a fixed order: epoch,
leadership, high watermark. Owns nothing of the node and changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Mapping

from raftlake.ports.driver import Compacted, Compaction
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.trace import describe
from raftlake.raft.types import ElectionState, NodeId, OffsetAndEpoch
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.partition import Partition
from raftlake.sim.coverage import Coverage
from raftlake.sim.disk.disk import MemoryLog
from raftlake.sim.disk.log_image import StoredBatch
from raftlake.sim.disk.observer import Installed
from raftlake.sim.invariants.base import InvariantSuite, ReplicaState
from raftlake.sim.trace import Trace


class NodeWatch:
    """One per incarnation of a node."""

    def __init__(
        self,
        node: ReplicaNode,
        incarnation: int,
        logs: Mapping[GroupId, MemoryLog],
        invariants: InvariantSuite,
        coverage: Coverage,
        trace: Trace,
    ) -> None:
        self._node = node
        self._node_id = node.config.node_id
        self._incarnation = incarnation
        self._logs = logs
        self._invariants = invariants
        self._coverage = coverage
        self._trace = trace
        #: Groups as they were when they were last looked at.
        self.replicas: dict[GroupId, ReplicaState] = {}
        self._watched: list[tuple[Partition, ReplicaState]] = []
        self._hosting_changes = -1
        #: Groups that changed since the last turn ended.
        self._touched: list[ReplicaState] = []
        self._roles: dict[GroupId, str] = {}
        #: Attempts to make the state of a group of what the tier keeps, with and without success.
        self._built = self._not_built = 0
        node.reports.role_listeners.append(self._on_role)

    def look(self) -> None:
        """Compare every group with what it was, and report what moved."""
        if self._node.hosting.changes != self._hosting_changes:
            self._hosting_changes = self._node.hosting.changes
            self._find_groups()
        for partition, replica in self._watched:
            core = partition.core
            if (
                partition.high_watermark != replica.high_watermark
                or core.epoch != replica.epoch
                or core.is_leader != replica.is_leader
            ):
                self._report(partition, replica)

    def turn_ended(self) -> None:
        """Everything that the cores asked for has been done, but of groups whose state found no room on the disk."""
        disk = self._node.disk
        for what, is_so in (("low disk", disk.is_low), ("full disk", disk.is_full), ("majority low", disk.is_refusing)):
            if is_so:
                self._coverage.note(f"turns with a {what}")
        self._note_recoveries()
        if self._touched:
            touched, held = self._touched, disk.held
            self._touched = [replica for replica in touched if replica.group in held]
            for replica in touched:
                # One whose group was begun anew before its state was saved has said nothing of it.
                if replica.group not in held and self.replicas.get(replica.group) is replica:
                    self._invariants.on_turn(replica)

    def _note_recoveries(self) -> None:
        counts = self._node.remote_log_aux.counts
        if counts.built > self._built or counts.failures > self._not_built:
            self._coverage.note("built remote log aux", counts.built - self._built)
            self._coverage.note("failed to build remote log aux", counts.failures - self._not_built)
            self._built, self._not_built = counts.built, counts.failures

    def _find_groups(self) -> None:
        """Groups were opened or closed."""
        known = self._watched
        for closed, seen in known:
            if closed.deleted:
                self._look_at_closed(closed, seen)
        self._watched = []
        for group, partition in self._node.partitions.items():
            replica = next((replica for other, replica in known if other is partition), None)
            if replica is None:
                replica = ReplicaState(self._node_id, self._incarnation, group, self._logs[group])
            self._watched.append((partition, replica))
        self.replicas = {replica.group: replica for _, replica in self._watched}

    def _look_at_closed(self, partition: Partition, replica: ReplicaState) -> None:
        """The group was closed since the last look, perhaps opened anew. What it had committed before may have been answered
        and acted on."""
        log, before = replica.log, replica.high_watermark
        has_it = self._logs.get(replica.group) is log and log.end_offset >= partition.high_watermark
        if has_it and partition.high_watermark > before:
            replica.high_watermark = partition.high_watermark
            self._invariants.on_high_watermark(replica, before)

    def _report(self, partition: Partition, replica: ReplicaState) -> None:
        core, invariants = partition.core, self._invariants
        epoch_before, leader_before, watermark_before = replica.epoch, replica.is_leader, replica.high_watermark
        replica.epoch, replica.is_leader, replica.high_watermark = core.epoch, core.is_leader, partition.high_watermark
        self._touched.append(replica)
        if self._trace.enabled:
            state = f"epoch={core.epoch} leader={core.leader_id} hw={replica.high_watermark} end={replica.log.end_offset}"
            self._trace.write(self._node_id, f"{replica.group} {core.role_name} {state}")
        if replica.epoch != epoch_before:
            invariants.on_epoch(replica, epoch_before)
        if replica.is_leader and (not leader_before or replica.epoch != epoch_before):
            invariants.on_leader(replica)
        if replica.high_watermark != watermark_before:
            invariants.on_high_watermark(replica, watermark_before)

    def _on_role(self, group: GroupId, action: ReportRole) -> None:
        if self._trace.enabled:
            self._trace.write(self._node_id, f"{group} {describe(action)}")
        before = self._roles.get(group, "-")
        self._roles[group] = action.role
        self._coverage.role(group, before, action)
        partition = self._node.partitions.get(group)
        if partition is not None:
            self._invariants.on_role(self._node_id, group, before, action, partition.core.may_stand())


class DiskWatch:
    """The same for the disk of one machine: implements `disk_observer.DiskObserver`."""

    def __init__(self, node_id: NodeId, invariants: InvariantSuite, coverage: Coverage, trace: Trace) -> None:
        self._node_id = node_id
        self._invariants = invariants
        self._coverage = coverage
        self._trace = trace

    def election_saved(self, group: GroupId, before: ElectionState | None, after: ElectionState) -> None:
        if self._trace.enabled:
            vote = "-" if after.voted_key is None else after.voted_key.id
            leader = "-" if after.leader_id is None else after.leader_id
            self._trace.write(self._node_id, f"save {group} epoch={after.epoch} leader={leader} vote={vote}")
        self._invariants.on_election_saved(self._node_id, group, before, after)

    def appended(self, group: GroupId, batch: StoredBatch, epoch_before: int) -> None:
        self._invariants.on_append(self._node_id, group, batch, epoch_before)

    def log_cut(self, group: GroupId, end_offset: int) -> None:
        self._coverage.note("log truncated")
        if self._trace.enabled:
            self._trace.write(self._node_id, f"cut {group} end={end_offset}")
        self._invariants.on_log_cut(self._node_id, group, end_offset)

    def log_start_moved(self, group: GroupId, start_offset: int, *, is_reset: bool) -> None:
        if self._trace.enabled:
            self._trace.write(self._node_id, f"begin {group} start={start_offset}{' anew' if is_reset else ''}")
        self._invariants.on_log_start(self._node_id, group, start_offset, is_reset)

    def segments_compacted(self, group: GroupId, installed: Installed) -> None:
        self._coverage.note("segments compacted")
        if self._trace.enabled:
            before, after = installed.before, installed.after
            sizes = f"{sum(len(batch.data) for batch in before)}->{sum(len(batch.data) for batch in after)}"
            self._trace.write(self._node_id, f"compact {group} [{before[0].base}, {before[-1].end}) bytes={sizes}")
        self._invariants.on_compacted(self._node_id, group, installed)

    def pass_ended(self, group: GroupId, request: Compaction, compacted: Compacted) -> None:
        self._coverage.note("logs compacted")
        self._coverage.note("records removed by compaction", compacted.records_removed)
        if self._trace.enabled:
            what = f"compacted {group} dirty={request.dirty_from} until={request.until} clean={compacted.clean_until}"
            self._trace.write(self._node_id, what)
        self._invariants.on_pass_ended(self._node_id, group, request, compacted)

    def snapshot_finished(self, group: GroupId, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        if self._trace.enabled:
            what = f"snapshot {group} {snapshot_id.offset}@{snapshot_id.epoch} bytes={len(data)}"
            self._trace.write(self._node_id, what)
        self._coverage.note("snapshot finished")
        self._invariants.on_snapshot(self._node_id, group, snapshot_id, data)

    def log_deleted(self, group: GroupId) -> None:
        if self._trace.enabled:
            self._trace.write(self._node_id, f"delete {group}")
        self._invariants.on_log_deleted(self._node_id, group)
