"""What a replica that fetches a log from its start must be told, though compaction has removed it elsewhere.

A pass removes a tombstone or a marker when all voters have it. A voter may lose its log behind that, and a new observer has
none. The pass is not to blame: they may still get both the older value and the tombstone, or neither of them. So what they
append is judged. It must not go beyond the place of a tombstone without it while it holds an older value of the key. The same
holds for a marker and a batch of its transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from raftlake.raft.types import NodeId
from raftlake.sim.disk.log_image import StoredBatch
from raftlake.wire.batches import Record

#: The newest record of each key in some batches that begin below an offset.
Newest = Callable[[Sequence[StoredBatch], int], Mapping[bytes, int]]
#: The base offset of a batch, among some, of the transaction that the marker at an offset ends; None where there is none.
HeldOf = Callable[[Sequence[StoredBatch], int], int | None]


class Refetched:
    """Of one group."""

    def __init__(self) -> None:
        #: What went because its time was over: tombstones by offset, with their keys, and markers.
        self.tombstones: dict[int, bytes] = {}
        self.markers: set[int] = set()
        #: The replicas that are to have what was committed when they lost it, or began, and how far that reaches.
        self._anew: dict[NodeId, int] = {}
        self._lost: set[NodeId] = set()

    def lost(self, node_id: NodeId, end_offset: int, committed_end: int) -> None:
        """The log of a node ends at `end_offset` now."""
        if end_offset < committed_end:
            self._anew[node_id] = committed_end
            self._lost.add(node_id)

    def begins(self, node_id: NodeId, committed_end: int) -> None:
        """The log of a node was empty, and gets its first batch."""
        self._anew.setdefault(node_id, committed_end)

    def has_lost(self, node_id: NodeId) -> bool:
        """Whether a replica has lost committed records, and has not come so far again."""
        return node_id in self._lost

    def __contains__(self, node_id: NodeId) -> bool:
        return node_id in self._anew

    def caught_up(self, node_id: NodeId, end_offset: int) -> None:
        if end_offset >= self._anew.get(node_id, end_offset + 1):
            del self._anew[node_id]
            self._lost.discard(node_id)

    def fault_of(
        self,
        before: Sequence[StoredBatch],
        batch: StoredBatch,
        records: Sequence[Record],
        newest: Newest,
        last_of: Callable[[bytes], int],
        held_of: HeldOf,
    ) -> str | None:
        """What is wrong with a batch that is appended behind the batches `before`; None where nothing is. `last_of`: where the
        newest committed record of a key stands. One behind the tombstone ends older values, too."""
        if not (self.tombstones or self.markers):
            return None
        told = {record.offset for record in records}
        for offset in range(batch.base, batch.end):
            key = self.tombstones.get(offset)
            if key is not None and offset not in told:
                older = newest(before, batch.base).get(key)
                if older is not None and last_of(key) <= offset:
                    return f"has the key {key!r} at {older} and is not told of its tombstone at {offset}"
            if offset in self.markers and offset not in told:
                held = held_of(before, offset)
                if held is not None:
                    return f"has a batch at {held} of a transaction, and is not told of its marker at {offset}"
        return None
