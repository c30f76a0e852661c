"""The recent changes of the key space, for watchers: bounded by count and by bytes.

The invariant: for every version v >= `floor`, the changes with a version above v are all here. What is older has been
dropped, whole transactions at a time, and asking for it raises `Compacted` rather than leaving a gap unsaid. What is kept are
tuples that share the key space's rows: the garbage collector has nothing to follow in them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.kv.keyspace import unpack, value_bytes

#: What one change costs beside its key and value, in bytes, roughly.
_CHANGE_OVERHEAD_BYTES = 160
#: Changes that are dropped are freed so many at a time.
_FREED_AT_ONCE = 1024

#: A key, the version that it got, and its row; None where it was deleted.
Noted = tuple[str, int, bytes | None]
_version_of = itemgetter(1)


@dataclass(frozen=True, slots=True)
class Change:
    """`key` got `value` at `version`, or was deleted (None). Changes of one transaction share their version."""

    key: str
    version: int
    value: bytes | None


class Compacted(RequestRejected):
    """A watch asked for changes that are no longer kept: list the prefix again, then watch from the list's version."""

    def __init__(self, version: int, floor: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"changes since version {version} are gone, kept are those since {floor}"
        )
        self.version = version
        self.floor = floor


class History:
    """Changes in log order. `changes_max` and `bytes_max` bound it; a single transaction above them is dropped as well."""

    def __init__(self, *, floor: int, changes_max: int, bytes_max: int) -> None:
        assert changes_max > 0 and bytes_max > 0
        self.floor = floor
        self._changes_max = changes_max
        self._bytes_max = bytes_max
        self._changes: list[Noted] = []
        # The first _head changes are dropped, and freed now and then: moving the rest costs little more than nothing for each.
        self._head = 0
        #: How many are freed, of all that there were.
        self._freed = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._changes) - self._head

    @property
    def bytes(self) -> int:
        return self._bytes

    def add(self, changes: Sequence[Noted]) -> None:
        """Take the changes of one transaction; their version is above all earlier ones."""
        for change in changes:
            self._bytes += _size_of(change)
        self._changes.extend(changes)
        while len(self) > self._changes_max or self._bytes > self._bytes_max:
            self._drop_oldest_version()
        if self._head >= _FREED_AT_ONCE:
            del self._changes[: self._head]
            self._freed += self._head
            self._head = 0

    def since(self, prefix: str, version: int, limit: int) -> list[Change]:
        """Changes below `prefix` with a version above `version`, oldest first: about `limit` of them, never part of a
        transaction. Raises Compacted when some of them are gone."""
        if version < self.floor:
            raise Compacted(version, self.floor)
        first = bisect_right(self._changes, version, lo=self._head, key=_version_of)
        found: list[Change] = []
        for index in range(first, len(self._changes)):
            key, changed_at, row = self._changes[index]
            if len(found) >= limit and changed_at != found[-1].version:
                break
            if key.startswith(prefix):
                found.append(Change(key, changed_at, None if row is None else unpack(row).value))
        return found

    # Positions count the changes since the history began. So a reader goes on where it stopped, without a search.

    @property
    def start(self) -> int:
        """Where the oldest change that is kept stands."""
        return self._freed + self._head

    @property
    def end(self) -> int:
        """Where the next change will stand."""
        return self._freed + len(self._changes)

    def after(self, version: int) -> int:
        """Where the first change with a version above `version` stands, or will. Raises Compacted when some are gone."""
        if version < self.floor:
            raise Compacted(version, self.floor)
        return self._freed + bisect_right(self._changes, version, lo=self._head, key=_version_of)

    def at(self, position: int) -> Noted:
        """The change at a position from `start` up to `end`."""
        return self._changes[position - self._freed]

    def _drop_oldest_version(self) -> None:
        self.floor = _version_of(self._changes[self._head])
        while self._head < len(self._changes) and _version_of(self._changes[self._head]) == self.floor:
            self._bytes -= _size_of(self._changes[self._head])
            self._head += 1


def _size_of(change: Noted) -> int:
    key, _, row = change
    return _CHANGE_OVERHEAD_BYTES + len(key) + (0 if row is None else value_bytes(row))
