"""The key space as it was at one offset, read in slices while commands go on.

Owns the way through the leaves that were there when the space was frozen; the space copies a leaf before it changes it, so
freezing costs next to nothing and each slice what it holds. A leaf that has been passed is let go. Invariant: every row of the
moment of freezing is handed out exactly once, by key.
"""

from __future__ import annotations

from collections.abc import Iterator

from raftlake.kv.keyspace import KeySpace, Leaf, Row, value_bytes


class FrozenView:
    __slots__ = ("_rows", "applied_offset", "entry_count")

    def __init__(self, applied_offset: int, space: KeySpace) -> None:
        self.applied_offset = applied_offset
        self.entry_count = len(space)
        leaves = space.freeze()
        leaves.reverse()
        self._rows = _walk(leaves)

    def rows(self, count_max: int, bytes_max: int) -> list[Row]:
        """The next rows: at most `count_max`, and no more once their values hold `bytes_max` bytes. Empty at the end."""
        found: list[Row] = []
        size = 0
        while len(found) < count_max and size < bytes_max:
            row = next(self._rows, None)
            if row is None:
                break
            found.append(row)
            size += value_bytes(row[1])
        return found


def _walk(leaves: list[Leaf]) -> Iterator[Row]:
    """Last leaf first."""
    while leaves:
        yield from leaves.pop().sorted_rows().items()
