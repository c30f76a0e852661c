"""The recent changes of the key space, for watchers: bounded by count and by bytes.

The invariant: for every version v >= `floor`, the changes with a version above v are all here. What is older has been
dropped, whole transactions at a time, and asking for it raises `Compacted` rather than leaving a gap unsaid.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from raftlake.errors import ErrorCode, RequestRejected

#: What one change costs beside its key and value, in bytes, roughly.
_CHANGE_OVERHEAD_BYTES = 160


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
        self._changes: list[Change] = []
        # The first _head changes are dropped; the list is cut once they are half of it, so that dropping costs O(1) a change.
        self._head = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._changes) - self._head

    @property
    def bytes(self) -> int:
        return self._bytes

    def add(self, changes: Sequence[Change]) -> None:
        """Take the changes of one transaction; their version is above all earlier ones."""
        for change in changes:
            self._bytes += _size_of(change)
        self._changes.extend(changes)
        while len(self) > self._changes_max or self._bytes > self._bytes_max:
            self._drop_oldest_version()
        if self._head > 1024 and self._head * 2 > len(self._changes):
            del self._changes[: self._head]
            self._head = 0

    def since(self, prefix: str, version: int, limit: int) -> list[Change]:
        """Changes below `prefix` with a version above `version`, oldest first: about `limit` of them, never part of a
        transaction. Raises Compacted when some of them are gone."""
        if version < self.floor:
            raise Compacted(version, self.floor)
        first = bisect_right(self._changes, version, lo=self._head, key=_version_of)
        found: list[Change] = []
        for index in range(first, len(self._changes)):
            change = self._changes[index]
            if len(found) >= limit and change.version != found[-1].version:
                break
            if change.key.startswith(prefix):
                found.append(change)
        return found

    def _drop_oldest_version(self) -> None:
        self.floor = self._changes[self._head].version
        while self._head < len(self._changes) and self._changes[self._head].version == self.floor:
            self._bytes -= _size_of(self._changes[self._head])
            self._head += 1


def _version_of(change: Change) -> int:
    return change.version


def _size_of(change: Change) -> int:
    return _CHANGE_OVERHEAD_BYTES + len(change.key) + len(change.value or b"")
