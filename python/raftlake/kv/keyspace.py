"""The keys and their entries, in order, so that no operation ever has to touch all of them.

Owns the layout: leaves of at most LEAF_KEYS_MAX neighbouring keys, each a dict from the key to its row in a snapshot (version,
length, value). One dict of a million keys would stop the node for 100 ms when it grows; here a leaf is split. An object for
each entry would have to be walked by every full garbage collection; text and bytes are nothing that the collector looks at.
Freezing shares all leaves, and a shared leaf is copied before it changes (copy on write). Knows no commands and no log.
Invariant: a leaf holds exactly the keys from its bound up to the bound of the next, and a leaf's order is never that of hashes.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

LEAF_KEYS_MAX = 512
#: What a key counts for beside the bytes of its name and its value: the objects that hold it, about.
ENTRY_OVERHEAD_BYTES = 128
#: A leaf that deletions have left so small is put together with a neighbour that is not large.
_SMALL_LEAF_KEYS = LEAF_KEYS_MAX // 8

#: What stands before the value in a row: the version and the value's length.
ROW_HEAD = struct.Struct(">qI")
_VERSION = struct.Struct(">q")
_HEAD_BYTES = ROW_HEAD.size

#: A key and its row, packed.
Row = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Entry:
    """A value and the log offset of the record that set it."""

    value: bytes
    version: int


def pack(version: int, value: bytes) -> bytes:
    """A row without its key, as snapshots hold it."""
    return ROW_HEAD.pack(version, len(value)) + value


def unpack(row: bytes) -> Entry:
    return Entry(row[_HEAD_BYTES:], _VERSION.unpack_from(row)[0])


def value_bytes(row: bytes) -> int:
    """The length of the row's value."""
    return len(row) - _HEAD_BYTES


def entry_bytes(key: str, value_size: int) -> int:
    """What a key with a value of that length counts for in `KeySpace.size`."""
    return ENTRY_OVERHEAD_BYTES + (len(key) if key.isascii() else len(key.encode())) + value_size


class Leaf:
    """Neighbouring keys. `stamp` says since which freezing it is no longer shared."""

    __slots__ = ("_is_sorted", "_last", "rows", "stamp")

    def __init__(self, rows: dict[str, bytes], last: str, stamp: int, *, is_sorted: bool = True) -> None:
        self.rows = rows
        self.stamp = stamp
        #: No key is above it.
        self._last = last
        self._is_sorted = is_sorted

    def copy(self, stamp: int) -> Leaf:
        return Leaf(self.rows.copy(), self._last, stamp, is_sorted=self._is_sorted)

    def add(self, key: str, row: bytes) -> None:
        """A key that was not there."""
        self.rows[key] = row
        if key > self._last:
            self._last = key
        else:
            self._is_sorted = False

    def sorted_rows(self) -> dict[str, bytes]:
        """The rows, whose order is from now on that of the keys."""
        if not self._is_sorted:
            rows = self.rows
            self.rows = {key: rows[key] for key in sorted(rows)}
            self._is_sorted = True
        return self.rows


class KeySpace:
    """A sorted map. Every call costs the same however many keys there are, but for a few steps of bisection."""

    __slots__ = ("_bounds", "_count", "_leaves", "_stamp", "size", "value_bytes")

    def __init__(self) -> None:
        #: The smallest key that may stand in each leaf; ascending, the first one is below every key.
        self._bounds = [""]
        self._leaves = [Leaf({}, "", 0)]
        self._count = 0
        #: Counts the freezings.
        self._stamp = 0
        #: The sum of the lengths of all values.
        self.value_bytes = 0
        #: The sum of `entry_bytes` of all keys: the same on every node that has applied the same.
        self.size = 0

    def __len__(self) -> int:
        return self._count

    # --- reading ---

    def get(self, key: str) -> Entry | None:
        row = self._leaves[bisect_right(self._bounds, key) - 1].rows.get(key)
        return None if row is None else unpack(row)

    def version_of(self, key: str) -> int:
        """0 for a key that does not exist."""
        row = self._leaves[bisect_right(self._bounds, key) - 1].rows.get(key)
        return 0 if row is None else int(_VERSION.unpack_from(row)[0])

    def size_of(self, key: str) -> int:
        """What the key counts for in `size`; 0 for a key that does not exist."""
        row = self._leaves[bisect_right(self._bounds, key) - 1].rows.get(key)
        return 0 if row is None else entry_bytes(key, value_bytes(row))

    def rows_from(self, start: str, *, inclusive: bool) -> Iterator[Row]:
        """Rows by key (by code point, which is the order of the UTF-8 bytes) from `start` on. Not while the space changes."""
        index = bisect_right(self._bounds, start) - 1
        rows = self._leaves[index].sorted_rows()
        keys = list(rows)
        for key in keys[(bisect_left if inclusive else bisect_right)(keys, start) :]:
            yield key, rows[key]
        for later in range(index + 1, len(self._leaves)):
            yield from self._leaves[later].sorted_rows().items()

    # --- changing ---

    def put(self, key: str, row: bytes) -> None:
        """Set `key` to a row that `pack` made."""
        index = bisect_right(self._bounds, key) - 1
        leaf = self._own(index)
        replaced = leaf.rows.get(key)
        self.value_bytes += value_bytes(row)
        if replaced is not None:
            leaf.rows[key] = row
            self.value_bytes -= value_bytes(replaced)
            self.size += value_bytes(row) - value_bytes(replaced)
            return
        self.size += entry_bytes(key, value_bytes(row))
        leaf.add(key, row)
        self._count += 1
        if len(leaf.rows) > LEAF_KEYS_MAX:
            self._split(index, key)

    def delete(self, key: str) -> bool:
        """False when it did not exist."""
        index = bisect_right(self._bounds, key) - 1
        if key not in self._leaves[index].rows:
            return False
        leaf = self._own(index)
        row = leaf.rows.pop(key)
        self.value_bytes -= value_bytes(row)
        self.size -= entry_bytes(key, value_bytes(row))
        self._count -= 1
        if len(leaf.rows) <= _SMALL_LEAF_KEYS and len(self._leaves) > 1:
            self._merge(min(index, len(self._leaves) - 2))
        return True

    def _own(self, index: int) -> Leaf:
        """The leaf, which may be changed: no frozen view shares it."""
        leaf = self._leaves[index]
        if leaf.stamp != self._stamp:
            leaf = self._leaves[index] = leaf.copy(self._stamp)
        return leaf

    def _split(self, index: int, added: str) -> None:
        rows = self._leaves[index].sorted_rows()
        keys = list(rows)
        # Keys that come in order leave full leaves behind.
        is_at_end = index == len(self._leaves) - 1 and keys[-1] == added
        cut = len(keys) - 1 if is_at_end else len(keys) // 2
        for place, part in ((index, keys[:cut]), (index + 1, keys[cut:])):
            leaf = Leaf({key: rows[key] for key in part}, part[-1], self._stamp)
            if place == index:
                self._leaves[index] = leaf
            else:
                self._leaves.insert(place, leaf)
                self._bounds.insert(place, part[0])

    def _merge(self, index: int) -> None:
        """Put a leaf and the next one together, if that makes no large one."""
        first, second = self._leaves[index].rows, self._leaves[index + 1].rows
        if first and second and len(first) + len(second) > LEAF_KEYS_MAX // 2:
            return
        rows = {**self._leaves[index].sorted_rows(), **self._leaves[index + 1].sorted_rows()}
        self._leaves[index : index + 2] = [Leaf(rows, next(reversed(rows), ""), self._stamp)]
        del self._bounds[index + 1]

    # --- as a whole ---

    def freeze(self) -> list[Leaf]:
        """All leaves as they are now, by key; later changes are made to copies."""
        self._stamp += 1
        return self._leaves.copy()

    def release(self, leaves_max: int) -> bool:
        """Free so many leaves of a space that is read no more; False when none is left."""
        del self._leaves[-leaves_max:]
        return bool(self._leaves)
