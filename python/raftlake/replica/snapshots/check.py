"""A look at a snapshot of this node that a replica asks for from its beginning a second time.

Pieces are sent unread, and only who has them all knows whether they are intact. A replica that fetches the same snapshot again
may have thrown it away as damaged, and would go on like that until there is a newer one. So the file is read through here, in
slices, and when it is damaged it is written anew from what this node has in memory.

Knows nothing of what a snapshot holds. Invariant: one look at a group's snapshots at a time, and none that the loop waits for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from raftlake.errors import CorruptBatch
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId, OffsetAndEpoch
from raftlake.replica.partition.snapshot_files import describe, scan
from raftlake.wire.snapshots import SnapshotBatch

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode

logger = logging.getLogger("raftlake.snapshots")

SLICE_BYTES = 256 * 1024
SLICE_INTERVAL_MS = 1


class SnapshotCheck:
    def __init__(self, node: ReplicaNode) -> None:
        self._node = node
        #: Who has asked for the beginning of which snapshot of a group.
        self._asked: dict[GroupId, tuple[OffsetAndEpoch, dict[NodeId, None]]] = {}
        self._under_way: dict[GroupId, OffsetAndEpoch] = {}

    def on_begun(self, group: GroupId, snapshot_id: OffsetAndEpoch, replica_id: NodeId) -> None:
        """A replica is sent the first piece of a snapshot."""
        asked_id, replicas = self._asked.get(group, (None, {}))
        if asked_id != snapshot_id:
            self._asked[group] = (snapshot_id, {replica_id: None})
        elif replica_id not in replicas:
            replicas[replica_id] = None
        elif group not in self._under_way:
            self._under_way[group] = snapshot_id
            self._later(group, scan(self._node.logs.snapshots, group, snapshot_id))

    def _later(self, group: GroupId, batches: Iterator[SnapshotBatch]) -> None:
        self._node.timers.schedule(self._node.now_ms + SLICE_INTERVAL_MS, lambda: self._slice(group, batches))

    def _slice(self, group: GroupId, batches: Iterator[SnapshotBatch]) -> None:
        node, snapshot_id = self._node, self._under_way[group]
        if group not in node.partitions or snapshot_id not in node.logs.snapshots.ids(group):
            # The group is gone, or a newer snapshot has taken its place.
            del self._under_way[group]
            return
        size = 0
        try:
            for batch in batches:
                size += len(batch.data)
                if size >= SLICE_BYTES:
                    self._later(group, batches)
                    return
        except CorruptBatch as error:
            logger.error("%s: snapshot %s is damaged: %s", group, describe(snapshot_id), error)
            node.snapshots.renew(node.partitions[group], snapshot_id)
        del self._under_way[group]
        del self._asked[group]
