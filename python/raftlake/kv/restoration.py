"""A key space on its way back from a snapshot, chunk by chunk, beside the one that still serves.

Owns the order and completeness of the chunks. The work of a chunk is bounded by its size. Rows come by key, but need not: a row
goes where it belongs. Invariant: `require_complete` returns only when every entry that the header announced is there.
"""

from __future__ import annotations

from raftlake.errors import WireError
from raftlake.kv import snapshot as snapshots
from raftlake.kv.keys import RESERVED_PREFIX
from raftlake.kv.keyspace import KeySpace, pack, unpack
from raftlake.kv.rules import NoRules, Rules


class Restoration:
    """`feed` it every chunk in order. Raises WireError at the first that does not fit."""

    __slots__ = ("_entry_count", "_is_complete", "_row_count", "applied_offset", "rules", "space")

    def __init__(self, rules: Rules | None = None) -> None:
        self.applied_offset = -1
        #: Learns the reserved keys as they come.
        self.rules: Rules = NoRules() if rules is None else rules
        self.space = KeySpace()
        self._entry_count = -1
        self._row_count = 0
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
            for key, row in snapshots.decode_rows(piece):
                self.space.put(key, row)
                self._row_count += 1
                if key.startswith(RESERVED_PREFIX):
                    loser = self.rules.restore(key, unpack(row), self.space.version_of)
                    if loser is not None:
                        self.space.put(loser, pack(self.space.version_of(loser), b""))

    def require_complete(self) -> None:
        """Raises WireError unless header, footer and every entry have come, none of them twice."""
        if not self._is_complete or not len(self.space) == self._row_count == self._entry_count:
            raise WireError(f"snapshot is cut short: {len(self.space)} of {max(self._entry_count, 0)} entries")
