"""The keys and their entries, in order, so that no operation ever has to touch all of them.

Owns the layout: leaves of at most LEAF_KEYS_MAX neighbouring keys, each a dict from the key to its row in a snapshot (version,
length, value). One dict of a million keys would stop the node for 100 ms when it grows; here a leaf is split. An object for
each entry would have to be walked by every full garbage collection; text and bytes are nothing that the collector looks at.
Freezing shares all leaves, and a shared leaf is copied before it changes (copy on write). Knows no commands and no log.
Invariant: a leaf holds exactly the keys from its bound up to the bound of the next, and a leaf's order is never that of hashes.
"""

from __future__ import annotations

import struct
import sys
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


def behind(prefix: str) -> str | None:
    """The least text that is above all texts which begin with `prefix`; None where there is none. It may be no text that can be
    encoded: it is only compared."""
    kept = prefix.rstrip(chr(sys.maxunicode))
    return kept[:-1] + chr(ord(kept[-1]) + 1) if kept else None


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


def _version_of(row: bytes) -> int:
    """0 for no row."""
    return int(_VERSION.unpack_from(row)[0]) if row else 0


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

    def names_from(self, prefix: str, after: str | None, delimiter: str) -> Iterator[tuple[str, bytes | None]]:
        """What stands right below `prefix`, by name: keys without the delimiter behind the prefix, with their rows; and the
        beginnings up to the delimiter that the others have, once each, with None. Only names above `after`. The keys of a
        beginning are passed over by bisection. Not while the space changes."""
        start: str | None = prefix
        if after is not None and after >= prefix:
            cut = after.find(delimiter, len(prefix)) if after.startswith(prefix) else -1
            # The least text above `after` is longer by the least character.
            start = after + "\0" if cut < 0 else behind(after[: cut + 1])
        index = -1
        while start is not None and index + 1 < len(self._leaves):
            index = max(index + 1, bisect_right(self._bounds, start) - 1)
            rows = self._leaves[index].sorted_rows()
            keys = list(rows)
            place = bisect_left(keys, start)
            while place < len(keys):
                key = keys[place]
                if not key.startswith(prefix):
                    return
                cut = key.find(delimiter, len(prefix))
                if cut < 0:
                    yield key, rows[key]
                    place += 1
                    continue
                yield key[: cut + 1], None
                start = behind(key[: cut + 1])
                if start is None:
                    return
                place = bisect_left(keys, start, place + 1)

    # --- ranges ---

    def newest_below(self, prefix: str, looks_max: int) -> tuple[int, int, bool]:
        """Of the first `looks_max` keys that begin with `prefix`: the highest version, 0 without keys, and how many they are;
        and whether there are more."""
        looks, newest = 0, b""
        for index, keys in self._below(prefix):
            looked = keys[: looks_max - looks]
            rows = self._leaves[index].rows
            # A row begins with its version, so the bytes of the newest one are the highest.
            newest = max(newest, max(map(rows.__getitem__, looked), default=b""))
            looks += len(looked)
            if len(looked) < len(keys):
                return _version_of(newest), looks, True
        return _version_of(newest), looks, False

    def count_below(self, prefix: str, count_max: int) -> int:
        """How many keys begin with `prefix`, or a number above `count_max` where they are more."""
        count = 0
        for _, keys in self._below(prefix):
            count += len(keys)
            if count > count_max:
                break
        return count

    def _below(self, prefix: str) -> Iterator[tuple[int, list[str]]]:
        """The leaves with keys that begin with `prefix`, by index, and those keys in order."""
        end = behind(prefix)
        for index in range(bisect_right(self._bounds, prefix) - 1, len(self._leaves)):
            if end is not None and self._bounds[index] >= end:
                return
            keys = list(self._leaves[index].sorted_rows())
            first = bisect_left(keys, prefix)
            found = keys[first : len(keys) if end is None else bisect_left(keys, end, first)]
            if found:
                yield index, found

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

    def delete_below(self, prefix: str) -> list[str]:
        """Delete every key that begins with `prefix`; these keys, in order."""
        found = list(self._below(prefix))
        gone: list[str] = []
        for index, keys in found:
            rows = self._own(index).rows
            sizes = [value_bytes(rows.pop(key)) for key in keys]
            self.value_bytes -= sum(sizes)
            self.size -= sum(map(entry_bytes, keys, sizes))
            gone += keys
        self._count -= len(gone)
        for index, _ in reversed(found):
            if len(self._leaves[index].rows) <= _SMALL_LEAF_KEYS and len(self._leaves) > 1:
                self._merge(min(index, len(self._leaves) - 2))
        return gone

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
