"""A key space on its way back from a snapshot, chunk by chunk, beside the one that still serves.

Owns the order and completeness of the chunks. The work of a chunk is bounded by its size, also the sorting: rows come by key,
and what comes out of order (changed while the snapshot was taken) is inserted where it belongs. Invariant: `require_complete`
returns only when every entry that the header announced is there.
"""

from __future__ import annotations

from sortedcontainers import SortedList

from raftlake.errors import WireError
from raftlake.kv import snapshot as snapshots
from raftlake.kv.frozen import Entry


class Restoration:
    """`feed` it every chunk in order. Raises WireError at the first that does not fit."""

    __slots__ = ("_entry_count", "_is_complete", "applied_offset", "entries", "keys", "value_bytes")

    def __init__(self) -> None:
        self.applied_offset = -1
        self.entries: dict[str, Entry] = {}
        self.keys = SortedList()
        self.value_bytes = 0
        self._entry_count = -1
        self._is_complete = False

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        piece = bytes(chunk)
        if self._entry_count < 0:
            self.applied_offset, self._entry_count = snapshots.decode_header(piece)
        elif self._is_complete:
            raise WireError("snapshot goes on after its footer")
        elif piece == snapshots.FOOTER:
            self._is_complete = True
        else:
            for key, version, value in snapshots.decode_rows(piece):
                self.entries[key] = Entry(value, version)
                self.keys.add(key)
                self.value_bytes += len(value)

    def require_complete(self) -> None:
        """Raises WireError unless header, footer and every entry have come, none of them twice."""
        if not self._is_complete or not len(self.entries) == len(self.keys) == self._entry_count:
            raise WireError(f"snapshot is cut short: {len(self.keys)} of {max(self._entry_count, 0)} entries")
