"""A look at a snapshot of this node that a replica asks for from its beginning a second time.

Pieces are sent unread, and only who has them all knows whether they are intact. A replica that fetches the same snapshot again
may have thrown it away as damaged, and would go on like that until there is a newer one. So the file is read through here, in
slices, and when it is damaged it is written anew from what this node has in memory.

Knows nothing of what a snapshot holds. Invariant: one look at a group's snapshots at a time, and none that the loop waits for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from raftlake.errors import CorruptBatch, TooManyFiles
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId, OffsetAndEpoch
from raftlake.replica.engine import Engine
from raftlake.replica.partition.snapshot_files import describe, scan
from raftlake.replica.snapshots.snapshots import Snapshots
from raftlake.wire.snapshots import SnapshotBatch

logger = logging.getLogger("raftlake.snapshots")

SLICE_BYTES = 256 * 1024
SLICE_INTERVAL_MS = 1


class SnapshotCheck:
    def __init__(self, engine: Engine, snapshots: Snapshots) -> None:
        self._engine = engine
        self._snapshots = snapshots
        #: For each group: the snapshot, and the nodes that have asked for its beginning.
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
            self._later(group, scan(self._engine.logs.snapshots, group, snapshot_id))

    def _later(self, group: GroupId, batches: Iterator[SnapshotBatch]) -> None:
        self._engine.timers.schedule(self._engine.now_ms + SLICE_INTERVAL_MS, lambda: self._slice(group, batches))

    def _slice(self, group: GroupId, batches: Iterator[SnapshotBatch]) -> None:
        engine, snapshot_id = self._engine, self._under_way[group]
        if group not in engine.partitions or snapshot_id not in engine.logs.snapshots.ids(group):
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
        except TooManyFiles as error:
            # It is looked at when a replica asks for its beginning again.
            logger.warning("%s: snapshot %s could not be read through: %s", group, describe(snapshot_id), error)
        except CorruptBatch as error:
            logger.error("%s: snapshot %s is damaged: %s", group, describe(snapshot_id), error)
            self._snapshots.renew(engine.partitions[group], snapshot_id)
        del self._under_way[group]
        del self._asked[group]
