"""The key space as it was at one offset, read in slices while commands go on (copy on write).

Owns what a slice must not miss: before a key that has not been passed yet changes for the first time, its old entry is kept
here. So freezing costs nothing, each slice costs what it holds, and a change costs one look at a dict while a snapshot is being
taken. The rows come by key, those that were changed meanwhile last. Invariant: every entry of the moment of freezing is handed
out exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sortedcontainers import SortedList

Row = tuple[str, int, bytes]


@dataclass(frozen=True, slots=True)
class Entry:
    """A value and the log offset of the record that set it."""

    value: bytes
    version: int


class FrozenView:
    """`keys` and `entries` are the living ones; the state machine calls `preserve` before it changes an entry."""

    __slots__ = ("_cursor", "_entries", "_keys", "_kept", "_left", "_passed", "applied_offset", "entry_count")

    def __init__(self, applied_offset: int, keys: SortedList, entries: Mapping[str, Entry]) -> None:
        self.applied_offset = applied_offset
        self.entry_count = len(entries)
        self._keys = keys
        self._entries = entries
        #: The last key that was passed; None before the first slice.
        self._cursor: str | None = None
        #: Every key has been passed; only changed ones are left.
        self._passed = False
        #: Entries as they were; None for a key that did not exist.
        self._kept: dict[str, Entry | None] = {}
        self._left: list[Row] = []

    def preserve(self, key: str, entry: Entry | None) -> None:
        """`key`, which has `entry` (None: does not exist), is about to change."""
        if not self._passed and (self._cursor is None or key > self._cursor) and key not in self._kept:
            self._kept[key] = entry

    def rows(self, count_max: int, bytes_max: int) -> list[Row]:
        """The next rows: at most `count_max`, and no more once their values hold `bytes_max` bytes. Empty at the end."""
        found: list[Row] = []
        size = 0
        if not self._passed:
            for key in self._keys.irange(minimum=self._cursor, inclusive=(self._cursor is None, True)):
                if len(found) >= count_max or size >= bytes_max:
                    return found
                self._cursor = key
                if key not in self._kept:
                    entry = self._entries[key]
                    found.append((key, entry.version, entry.value))
                    size += len(entry.value)
            self._passed = True
            kept = reversed(self._kept.items())
            self._left = [(key, entry.version, entry.value) for key, entry in kept if entry is not None]
            self._kept.clear()
        while self._left and len(found) < count_max and size < bytes_max:
            found.append(self._left.pop())
            size += len(found[-1][2])
        return found
