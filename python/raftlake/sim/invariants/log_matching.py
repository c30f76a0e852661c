"""LogMatching / NoLogDivergence (Raft §5.3; kraft_kip_996_properties.tla LogMatching; kraft_kip_853 NoLogDivergence).

If two logs hold a record with the same offset and epoch, they hold the same records up to it, committed or not. The check is
made where a batch is appended: every node that appends at this offset in this epoch appends the same bytes, after a batch of
the same epoch. By induction everything before it is the same too. A follower may also append what compaction made of committed
batches (`compaction_rules`).
"""

from __future__ import annotations

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.sim.disk.log_image import StoredBatch
from raftlake.sim.invariants.base import ClusterView, Invariant
from raftlake.sim.invariants.committed_log import CommittedLogs


class LogMatching(Invariant):
    promise = "logs that share a record share all before it"

    def __init__(self, view: ClusterView, committed: CommittedLogs) -> None:
        super().__init__(view)
        self._committed = committed
        #: Who first appended a batch with this base offset and epoch, the batch, and the epoch of the record before it.
        self._first: dict[tuple[GroupId, int, int], tuple[NodeId, StoredBatch, int]] = {}

    def on_append(self, node_id: NodeId, group: GroupId, batch: StoredBatch, epoch_before: int) -> None:
        first, known, before = self._first.setdefault((group, batch.base, batch.epoch), (node_id, batch, epoch_before))
        if known != batch and batch not in self._committed.of(group).versions:
            raise self.fail(
                f"{group}: node {node_id} appends [{batch.base}, {batch.end}) of epoch {batch.epoch}, node {first} has other "
                f"bytes in [{known.base}, {known.end})"
            )
        if before != epoch_before and -1 not in (before, epoch_before):
            raise self.fail(
                f"{group}: before offset {batch.base} of epoch {batch.epoch} node {node_id} has epoch {epoch_before}, "
                f"node {first} has {before}"
            )
