"""The state machine: applies committed commands in log order and answers reads of what they left behind.

Owns the keys, their versions and the recent history. Refuses to know who asks, what is committed and when: the caller
applies only committed records, each offset once, ascending. The invariant: the state is a function of the applied records
alone, so all nodes that applied up to the same offset hold the same keys; nothing in a record makes `apply` raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from raftlake.errors import InvariantViolation, WireError
from raftlake.kv import snapshot as snapshots
from raftlake.kv.commands import ABSENT, ANY, FORMAT_RANGES, Compare, ComparePrefix, Delete, EndTxn, Put, Txn, decode
from raftlake.kv.frozen import FrozenView
from raftlake.kv.history import Change, History, Noted
from raftlake.kv.keys import RESERVED_PREFIX
from raftlake.kv.keyspace import Entry, KeySpace, Row, pack, unpack, value_bytes
from raftlake.kv.ranges import RangeResult, judge
from raftlake.kv.restoration import Restoration
from raftlake.kv.rules import Decided, NoRules, Rules

#: Rows of one chunk of a snapshot: about a millisecond's work.
SLICE_ROWS = 1000


@dataclass(frozen=True, slots=True)
class TxnResult:
    """What became of the command at `offset`. `offset` is the version of the keys that it changed.

    `current` names every compare that failed, with the version that its key has (0: it does not exist). `ignored` names every
    put of a command that succeeded which changed the version alone, and why. `refused` names every producer whose transaction
    could not end so, and why: then the command did not succeed. `ranges` tells of the ranges of a command that has some.
    """

    succeeded: bool
    offset: int
    current: tuple[tuple[str, int], ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[int, str], ...] = ()
    ranges: RangeResult | None = None


class StateMachine:
    """The key-value space of one node. `applied_offset` is exclusive: the next offset to apply. `rules` makes the judge of
    reserved keys for an empty space."""

    def __init__(
        self,
        *,
        rules: Callable[[], Rules] = NoRules,
        history_changes_max: int = 65_536,
        history_bytes_max: int = 32 << 20,
    ) -> None:
        self._new_rules = rules
        self.rules = rules()
        self._history_changes_max = history_changes_max
        self._history_bytes_max = history_bytes_max
        self._applied_offset = 0
        self._space = KeySpace()
        self.history = self._empty_history()
        #: Keys that ranges of commands were about, all together: what applying these cost beside their bytes.
        self.range_keys = 0

    def __len__(self) -> int:
        return len(self._space)

    @property
    def applied_offset(self) -> int:
        return self._applied_offset

    @property
    def value_bytes(self) -> int:
        """The sum of the lengths of all values."""
        return self._space.value_bytes

    @property
    def size(self) -> int:
        """What all keys count for together (`keyspace.entry_bytes`): what a quota is compared with."""
        return self._space.size

    def size_of(self, key: str) -> int:
        """What one key counts for; 0 when it does not exist."""
        return self._space.size_of(key)

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
        if record[0] == FORMAT_RANGES:
            return self._apply_ranges(txn, offset)
        current = self._failed_compares(txn.compares)
        changes = txn.changes
        if len(changes) == len(txn.ops):
            if current:
                return TxnResult(succeeded=False, offset=offset, current=current)
            return TxnResult(succeeded=True, offset=offset, ignored=self._perform(changes, offset))
        decided, refused = self._judge_ends(txn.endings)
        if current or refused:
            return TxnResult(succeeded=False, offset=offset, current=current, refused=refused)
        return TxnResult(succeeded=True, offset=offset, ignored=self._perform((*changes, *decided), offset))

    def _apply_ranges(self, txn: Txn, offset: int) -> TxnResult:
        """A command with ranges of keys."""
        current = self._failed_compares(txn.compares)
        decided, refused = self._judge_ends(txn.endings)
        ranges, looked_at = judge(self._space, txn)
        self.range_keys += looked_at
        if current or refused or not ranges.holds:
            ranges = replace(ranges, deleted=0)
            return TxnResult(succeeded=False, offset=offset, current=current, refused=refused, ranges=ranges)
        ignored = self._perform((*txn.changes, *decided), offset, txn.deleted_prefixes)
        return TxnResult(succeeded=True, offset=offset, ignored=ignored, ranges=ranges)

    def advance_to(self, applied_offset: int) -> None:
        """Pass over records that are no commands (control records): the next offset to apply is `applied_offset`."""
        if applied_offset < self._applied_offset:
            raise InvariantViolation(f"state machine at {self._applied_offset} was told to go back to {applied_offset}")
        self._applied_offset = applied_offset

    def _require_next(self, offset: int) -> None:
        # Offset 0 always holds the first leader's LeaderChange record; version 0 therefore can mean "does not exist".
        if offset < max(self._applied_offset, 1):
            raise InvariantViolation(f"state machine at {self._applied_offset} was told to apply offset {offset}")

    def _failed_compares(self, compares: tuple[Compare | ComparePrefix, ...]) -> tuple[tuple[str, int], ...]:
        """Of the compares of one key each."""
        failed: list[tuple[str, int]] = []
        for compare in compares:
            if not isinstance(compare, Compare):
                continue
            version = self._space.version_of(compare.key)
            if not (version != ABSENT if compare.version == ANY else version == compare.version):
                failed.append((compare.key, version))
        return tuple(failed)

    def _judge_ends(self, endings: Iterable[EndTxn]) -> tuple[list[Put], tuple[tuple[int, str], ...]]:
        """What the ends of transactions put, and which of them cannot be. All are judged before anything is changed. No two of
        them are about one key, since a key belongs to one producer."""
        puts: list[Put] = []
        refused: list[tuple[int, str]] = []
        for ending in endings:
            found = self.rules.judge_end(ending)
            if not isinstance(found, Decided):
                refused.append((ending.producer_id, found))
            elif found.change is not None:
                puts.append(Put(*found.change))
        return puts, tuple(refused)

    def _perform(
        self, operations: Iterable[Put | Delete], version: int, deleted_prefixes: Iterable[str] = ()
    ) -> tuple[tuple[str, str], ...]:
        """Returns the puts that changed the version of their key alone, and why."""
        changes: list[Noted] = []
        ignored: list[tuple[str, str]] = []
        for operation in operations:
            match operation:
                case Put(key=key, value=value):
                    if key.startswith(RESERVED_PREFIX):
                        value = self._judged(key, value, version, ignored)
                    row = pack(version, value)
                    self._space.put(key, row)
                    changes.append((key, version, row))
                case Delete(key=key):
                    if self._space.delete(key):
                        changes.append((key, version, None))
                        if key.startswith(RESERVED_PREFIX):
                            self.rules.drop(key)
                case _:
                    assert_never(operation)
        for prefix in deleted_prefixes:
            changes.extend((key, version, None) for key in self._space.delete_below(prefix))
        if changes:
            self.history.add(changes)
        return tuple(ignored)

    def _judged(self, key: str, value: bytes, version: int, ignored: list[tuple[str, str]]) -> bytes:
        """What a put of a reserved key leaves under it. The version changes even where the value stays: nodes of releases that
        had no rules count the same versions, so every later compare ends alike on all."""
        standing = self._space.get(key)
        reason = self.rules.take(key, value, version, standing)
        if reason is None:
            return value
        ignored.append((key, reason))
        return b"" if standing is None else standing.value

    # --- reading -----------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        return self._space.get(key)

    def list(
        self, prefix: str, after: str | None, limit: int, bytes_max: int | None = None
    ) -> tuple[tuple[tuple[str, Entry], ...], bool]:
        """At most `limit` entries whose keys start with `prefix` and follow `after`, in key order (by code point, which is
        the order of the UTF-8 bytes), and whether more follow them. With `bytes_max`, a page ends early rather than hold
        more bytes of values than that (but holds at least one entry)."""
        rows, more = self.rows(prefix, after, limit, bytes_max)
        return tuple((key, unpack(row)) for key, row in rows), more

    def rows(self, prefix: str, after: str | None, limit: int, bytes_max: int | None = None) -> tuple[Sequence[Row], bool]:
        """What `list` returns, packed: nothing is copied."""
        from_prefix = after is None or after < prefix
        found: list[Row] = []
        bytes_left = bytes_max
        for key, row in self._space.rows_from(prefix if after is None or from_prefix else after, inclusive=from_prefix):
            if not key.startswith(prefix):
                break
            if len(found) >= limit:
                return found, True
            if bytes_left is not None:
                bytes_left -= value_bytes(row)
                if bytes_left < 0 and found:
                    return found, True
            found.append((key, row))
        return found, False

    def names(
        self, prefix: str, after: str | None, limit: int, delimiter: str, bytes_max: int | None = None
    ) -> tuple[Sequence[tuple[str, bytes | None]], bool]:
        """At most `limit` names right below `prefix` that follow `after`, in order, and whether more follow them: keys without
        the delimiter behind the prefix with their rows, and with None the beginnings that the deeper keys have up to it, once
        each. `after` may be a name of either kind. `bytes_max` is that of `list`."""
        found: list[tuple[str, bytes | None]] = []
        bytes_left = bytes_max
        for name, row in self._space.names_from(prefix, after, delimiter):
            if len(found) >= limit:
                return found, True
            if bytes_left is not None and row is not None:
                bytes_left -= value_bytes(row)
                if bytes_left < 0 and found:
                    return found, True
            found.append((name, row))
        return found, False

    def changes_since(self, prefix: str, version: int, limit: int = 1024) -> Sequence[Change]:
        """The changes below `prefix` with a version above `version`, oldest first; whole transactions, so that a watcher may
        resume at the last version that it got. Raises `history.Compacted` when some are no longer kept."""
        return self.history.since(prefix, version, limit)

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def freeze(self) -> FrozenView:
        """The state as it is at this call, to be read in slices."""
        return FrozenView(self._applied_offset, self._space)

    def snapshot(self) -> Iterator[bytes]:
        """The whole state as chunks of bounded size, as it is at this call: later commands do not show in it."""
        return _chunks(self.freeze())

    def restore(self, chunks: Iterable[bytes | bytearray | memoryview]) -> None:
        """Become the state that `snapshot` wrote. Raises WireError on damage, and is unchanged then.

        The history starts anew: watchers of older versions see `Compacted`.
        """
        restoration = self.restoration()
        for chunk in chunks:
            restoration.feed(chunk)
        self.adopt(restoration)

    def restoration(self) -> Restoration:
        """What `adopt` takes, with nothing in it yet."""
        return Restoration(self._new_rules())

    def adopt(self, restoration: Restoration) -> KeySpace:
        """Become the state that a complete restoration holds, at once; the old one is returned, since freeing it takes time
        (`KeySpace.release`). Raises WireError when the restoration is not complete."""
        restoration.require_complete()
        self._applied_offset = restoration.applied_offset
        retired, self._space, self.rules = self._space, restoration.space, restoration.rules
        self.history = self._empty_history()
        return retired

    def _empty_history(self) -> History:
        return History(floor=self._applied_offset - 1, changes_max=self._history_changes_max, bytes_max=self._history_bytes_max)


def _chunks(view: FrozenView) -> Iterator[bytes]:
    yield snapshots.encode_header(view.applied_offset, view.entry_count)
    while rows := view.rows(SLICE_ROWS, snapshots.CHUNK_BYTES):
        yield snapshots.encode_rows(rows)
    yield snapshots.FOOTER


__all__ = ["SLICE_ROWS", "Entry", "StateMachine", "TxnResult"]
