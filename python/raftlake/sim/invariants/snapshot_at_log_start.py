"""SnapshotAtLogStart (RaftEventSimulationTest): a log that begins above 0 has a snapshot at or above its start.

Judged when a log's start moves and after each crash, which may take unfinished snapshots away.
"""

from __future__ import annotations

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.sim.invariants.base import ClusterView, Invariant


class SnapshotAtLogStart(Invariant):
    promise = "what lies before a log's start is in a snapshot"

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view)
        #: Groups whose log has ever begun above 0, by node.
        self._trimmed: dict[NodeId, dict[GroupId, None]] = {}

    def on_log_start(self, node_id: NodeId, group: GroupId, start_offset: int, is_reset: bool) -> None:
        if start_offset > 0:
            self._trimmed.setdefault(node_id, {})[group] = None
            self._check(node_id, group, start_offset)

    def on_log_deleted(self, node_id: NodeId, group: GroupId) -> None:
        self._trimmed.get(node_id, {}).pop(group, None)

    def on_wiped(self, node_id: NodeId) -> None:
        self._trimmed.pop(node_id, None)

    def on_crash(self, node_id: NodeId) -> None:
        for group in self._trimmed.get(node_id, {}):
            log = self.view.log_of(node_id, group)
            if log is not None and log.start_offset > 0:
                self._check(node_id, group, log.start_offset)

    def _check(self, node_id: NodeId, group: GroupId, start_offset: int) -> None:
        snapshots = self.view.snapshots_of(node_id, group)
        if not any(snapshot_id.offset >= start_offset for snapshot_id in snapshots):
            raise self.fail(f"node {node_id} {group}: the log begins at {start_offset}, the snapshots are {list(snapshots)}")
