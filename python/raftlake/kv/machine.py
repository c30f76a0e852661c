"""The state machine: applies committed commands in log order and answers reads of what they left behind.

Owns the keys, their versions and the recent history. Refuses to know who asks, what is committed and when: the caller
applies only committed records, each offset once, ascending. The invariant: the state is a function of the applied records
alone, so all nodes that applied up to the same offset hold the same keys; nothing in a record makes `apply` raise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from sortedcontainers import SortedList

from raftlake.errors import InvariantViolation, WireError
from raftlake.kv import snapshot as snapshots
from raftlake.kv.commands import ABSENT, ANY, Compare, Delete, Put, Txn, decode
from raftlake.kv.frozen import Entry, FrozenView
from raftlake.kv.history import Change, History
from raftlake.kv.restoration import Restoration

#: New keys wait unsorted until a list needs them or this many have come: inserting them together is cheaper, and the
#: list that has to sort them in never waits longer than a few milliseconds.
_UNSORTED_KEYS_MAX = 4096
#: Rows of one chunk of a snapshot: about two milliseconds' work.
SLICE_ROWS = 2000


@dataclass(frozen=True, slots=True)
class TxnResult:
    """What became of the command at `offset`. `offset` is the version of the keys that it changed.

    `current` names every compare that failed, with the version that its key has (0: it does not exist).
    """

    succeeded: bool
    offset: int
    current: tuple[tuple[str, int], ...] = ()


class StateMachine:
    """The key-value space of one node. `applied_offset` is exclusive: the next offset to apply."""

    def __init__(self, *, history_changes_max: int = 65_536, history_bytes_max: int = 32 << 20) -> None:
        self._history_changes_max = history_changes_max
        self._history_bytes_max = history_bytes_max
        self._applied_offset = 0
        self._entries: dict[str, Entry] = {}
        self._sorted = SortedList()
        # A dict, not a set: its order is that of insertion, the same in every run.
        self._unsorted: dict[str, None] = {}
        self._value_bytes = 0
        self._frozen: FrozenView | None = None
        self.history = self._empty_history()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def applied_offset(self) -> int:
        return self._applied_offset

    @property
    def value_bytes(self) -> int:
        """The sum of the lengths of all values."""
        return self._value_bytes

    # --- applying ----------------------------------------------------------------------------------------------------

    def apply(self, offset: int, record: bytes | bytearray | memoryview) -> TxnResult:
        """Apply the command in `record`, which is committed at `offset`; undecodable bytes change nothing and did not succeed.

        Raises InvariantViolation only when the caller goes back or applies twice.
        """
        self._require_next(offset)
        self._applied_offset = offset + 1
        try:
            txn = decode(record)
        except WireError:
            return TxnResult(succeeded=False, offset=offset)
        current = self._failed_compares(txn.compares)
        if current:
            return TxnResult(succeeded=False, offset=offset, current=current)
        self._perform(txn, offset)
        return TxnResult(succeeded=True, offset=offset)

    def advance_to(self, applied_offset: int) -> None:
        """Pass over records that are no commands (control records): the next offset to apply is `applied_offset`."""
        if applied_offset < self._applied_offset:
            raise InvariantViolation(f"state machine at {self._applied_offset} was told to go back to {applied_offset}")
        self._applied_offset = applied_offset

    def _require_next(self, offset: int) -> None:
        # Offset 0 always holds the first leader's LeaderChange record; version 0 therefore can mean "does not exist".
        if offset < max(self._applied_offset, 1):
            raise InvariantViolation(f"state machine at {self._applied_offset} was told to apply offset {offset}")

    def _failed_compares(self, compares: tuple[Compare, ...]) -> tuple[tuple[str, int], ...]:
        failed: list[tuple[str, int]] = []
        for compare in compares:
            entry = self._entries.get(compare.key)
            version = ABSENT if entry is None else entry.version
            if not (version != ABSENT if compare.version == ANY else version == compare.version):
                failed.append((compare.key, version))
        return tuple(failed)

    def _perform(self, txn: Txn, version: int) -> None:
        changes: list[Change] = []
        for operation in txn.ops:
            match operation:
                case Put(key=key, value=value):
                    self._put(key, Entry(value, version))
                    changes.append(Change(key, version, value))
                case Delete(key=key):
                    if self._delete(key):
                        changes.append(Change(key, version, None))
                case _:
                    assert_never(operation)
        if changes:
            self.history.add(changes)

    def _put(self, key: str, entry: Entry) -> None:
        replaced = self._entries.get(key)
        if self._frozen is not None:
            self._frozen.preserve(key, replaced)
        self._entries[key] = entry
        self._value_bytes += len(entry.value)
        if replaced is not None:
            self._value_bytes -= len(replaced.value)
            return
        self._unsorted[key] = None
        if len(self._unsorted) >= _UNSORTED_KEYS_MAX:
            self._sort_in()

    def _delete(self, key: str) -> bool:
        removed = self._entries.pop(key, None)
        if removed is None:
            return False
        if self._frozen is not None:
            self._frozen.preserve(key, removed)
        self._value_bytes -= len(removed.value)
        if key in self._unsorted:
            del self._unsorted[key]
        else:
            self._sorted.remove(key)
        return True

    def _sort_in(self) -> None:
        self._sorted.update(self._unsorted)
        self._unsorted.clear()

    # --- reading -----------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def list(
        self, prefix: str, after: str | None, limit: int, bytes_max: int | None = None
    ) -> tuple[tuple[tuple[str, Entry], ...], bool]:
        """At most `limit` entries whose keys start with `prefix` and follow `after`, in key order (by code point, which is
        the order of the UTF-8 bytes), and whether more follow them. With `bytes_max`, a page ends early rather than hold
        more bytes of values than that (but holds at least one entry)."""
        if self._unsorted:
            self._sort_in()
        from_prefix = after is None or after < prefix
        found: list[tuple[str, Entry]] = []
        bytes_left = bytes_max
        for key in self._sorted.irange(minimum=prefix if from_prefix else after, inclusive=(from_prefix, True)):
            if not key.startswith(prefix):
                break
            entry = self._entries[key]
            if len(found) >= limit:
                return tuple(found), True
            if bytes_left is not None:
                bytes_left -= len(entry.value)
                if bytes_left < 0 and found:
                    return tuple(found), True
            found.append((key, entry))
        return tuple(found), False

    def changes_since(self, prefix: str, version: int, limit: int = 1024) -> Sequence[Change]:
        """The changes below `prefix` with a version above `version`, oldest first; whole transactions, so that a watcher may
        resume at the last version that it got. Raises `history.Compacted` when some are no longer kept."""
        return self.history.since(prefix, version, limit)

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def freeze(self) -> FrozenView:
        """The state as it is at this call, to be read in slices, at no cost now. An earlier view is no longer kept up."""
        self._sort_in()
        self._frozen = FrozenView(self._applied_offset, self._sorted, self._entries)
        return self._frozen

    def thaw(self, view: FrozenView) -> None:
        """The view is not read any more."""
        if self._frozen is view:
            self._frozen = None

    def snapshot(self) -> Iterator[bytes]:
        """The whole state as chunks of bounded size, as it is at this call: later commands do not show in it."""
        return self._chunks(self.freeze())

    def _chunks(self, view: FrozenView) -> Iterator[bytes]:
        yield snapshots.encode_header(view.applied_offset, view.entry_count)
        while rows := view.rows(SLICE_ROWS, snapshots.CHUNK_BYTES):
            yield snapshots.encode_rows(rows)
        yield snapshots.FOOTER
        self.thaw(view)

    def restore(self, chunks: Iterable[bytes | bytearray | memoryview]) -> None:
        """Become the state that `snapshot` wrote. Raises WireError on damage, and is unchanged then.

        The history starts anew: watchers of older versions see `Compacted`.
        """
        restoration = Restoration()
        for chunk in chunks:
            restoration.feed(chunk)
        self.adopt(restoration)

    def adopt(self, restoration: Restoration) -> None:
        """Become the state that a complete restoration holds, at once. Raises WireError when it is not complete."""
        restoration.require_complete()
        self._applied_offset = restoration.applied_offset
        self._entries = restoration.entries
        self._sorted = restoration.keys
        self._unsorted = {}
        self._value_bytes = restoration.value_bytes
        self._frozen = None
        self.history = self._empty_history()

    def _empty_history(self) -> History:
        return History(floor=self._applied_offset - 1, changes_max=self._history_changes_max, bytes_max=self._history_bytes_max)


__all__ = ["SLICE_ROWS", "Entry", "StateMachine", "TxnResult"]
