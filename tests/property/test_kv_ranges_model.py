"""Ranges of keys against a dumb twin: a dict, and every key looked at for every question."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from raftlake.errors import RequestRejected
from raftlake.kv import keyspace, ranges
from raftlake.kv.commands import Compare, ComparePrefix, Delete, DeletePrefix, Put, Txn, decode, encode
from raftlake.kv.history import Change
from raftlake.kv.keyspace import entry_bytes, unpack
from raftlake.kv.machine import Entry, StateMachine, TxnResult
from raftlake.kv.ranges import RangeResult

#: Below any prefix there may be more.
KEYS_MAX = 4
LETTERS = st.sampled_from(["a", "b", "/", "\0", "0", "é", "\ue000", "\U0010ffff"])
KEYS = st.text(LETTERS, min_size=1, max_size=4).filter(lambda key: not key.startswith("/r"))
PREFIXES = st.text(LETTERS, min_size=1, max_size=3).filter(lambda prefix: prefix != "/")
OPERATIONS = st.one_of(
    st.builds(Put, KEYS, st.binary(max_size=4)),
    st.builds(Put, KEYS, st.binary(max_size=4)),
    st.builds(Delete, KEYS),
    st.builds(DeletePrefix, PREFIXES),
)
COMPARES = st.one_of(st.builds(Compare, KEYS, st.integers(-1, 20)), st.builds(ComparePrefix, PREFIXES, st.integers(0, 20)))


@st.composite
def txns(draw: st.DrawFn) -> Txn:
    compares = draw(st.lists(COMPARES, max_size=2).map(tuple))
    ops = draw(st.lists(OPERATIONS, max_size=4).map(tuple))
    try:
        return Txn(compares, ops)
    except RequestRejected:
        names = [(op.prefix, True) if isinstance(op, DeletePrefix) else (op.key, False) for op in ops]
        # It is refused for a reason: two operations are about one key.
        assert any(
            name == other or (is_range and other.startswith(name)) or (other_is_range and name.startswith(other))
            for index, (name, is_range) in enumerate(names)
            for other, other_is_range in names[:index]
        )
        return Txn(compares, ops[:1])


@dataclass
class Twin:
    state: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def below(self, prefix: str) -> list[str]:
        return sorted(key for key in self.state if key.startswith(prefix))

    def apply(self, offset: int, txn: Txn) -> TxnResult:
        current = []
        for compare in txn.key_compares:
            version = self.state[compare.key][1] if compare.key in self.state else 0
            if version == 0 if compare.version == -1 else version != compare.version:
                current.append((compare.key, version))
        found = self.judge(txn)
        has_ranges = txn.has_ranges
        if current or not found.holds:
            told = RangeResult(
                newest=found.newest, compares_too_large=found.compares_too_large, deletes_too_large=found.deletes_too_large
            )
            return TxnResult(succeeded=False, offset=offset, current=tuple(current), ranges=told if has_ranges else None)
        for operation in txn.changes:
            if isinstance(operation, Put):
                self.state[operation.key] = (operation.value, offset)
                self.changes.append(Change(operation.key, offset, operation.value))
            elif operation.key in self.state:
                del self.state[operation.key]
                self.changes.append(Change(operation.key, offset, None))
        for prefix in txn.deleted_prefixes:
            for key in self.below(prefix):
                del self.state[key]
                self.changes.append(Change(key, offset, None))
        return TxnResult(succeeded=True, offset=offset, ranges=found if has_ranges else None)

    def judge(self, txn: Txn) -> RangeResult:
        left, newest, compares_too_large, deletes_too_large = KEYS_MAX, [], [], []
        for compare in txn.prefix_compares:
            keys = self.below(compare.prefix)
            highest = max((self.state[key][1] for key in keys[:left]), default=0)
            if highest > compare.newest:
                newest.append((compare.prefix, highest))
            elif len(keys) > left:
                compares_too_large.append(compare.prefix)
            left -= min(left, len(keys))
        deleted = 0
        for prefix in txn.deleted_prefixes:
            if deleted + len(self.below(prefix)) > KEYS_MAX:
                deletes_too_large.append(prefix)
            else:
                deleted += len(self.below(prefix))
        return RangeResult(
            newest=tuple(newest),
            compares_too_large=tuple(compares_too_large),
            deletes_too_large=tuple(deletes_too_large),
            deleted=deleted,
        )

    def names(self, prefix: str, after: str | None, delimiter: str) -> list[tuple[str, Entry | None]]:
        found: dict[str, Entry | None] = {}
        for key in self.below(prefix):
            head, cut, _ = key[len(prefix) :].partition(delimiter)
            found[prefix + head + cut] = None if cut else Entry(*self.state[key])
        return [(name, found[name]) for name in sorted(found) if after is None or name > after]


@contextmanager
def small() -> Iterator[None]:
    with (
        patch.object(ranges, "COMPARE_RANGE_KEYS_MAX", KEYS_MAX),
        patch.object(ranges, "DELETE_RANGE_KEYS_MAX", KEYS_MAX),
        patch.object(keyspace, "LEAF_KEYS_MAX", 3),
        patch.object(keyspace, "_SMALL_LEAF_KEYS", 1),
    ):
        yield


@given(st.lists(txns(), max_size=25), st.integers(0, 25))
@settings(max_examples=300, deadline=None)
def test_ranges_do_what_the_twin_does(commands: list[Txn], frozen_at: int) -> None:
    machine, twin = StateMachine(), Twin()
    then, snapshot = {}, None
    with small():
        for offset, txn in enumerate(commands, start=1):
            assert decode(encode(txn)) == txn
            assert machine.apply(offset, encode(txn)) == twin.apply(offset, txn)
            if offset == frozen_at:
                then, snapshot = dict(twin.state), machine.snapshot()
        assert machine.list("", None, 1_000)[0] == tuple((key, Entry(*twin.state[key])) for key in sorted(twin.state))
        assert len(machine) == len(twin.state)
        assert machine.size == sum(entry_bytes(key, len(value)) for key, (value, _) in twin.state.items())
        assert machine.value_bytes == sum(len(value) for value, _ in twin.state.values())
        assert machine.changes_since("", 0) == twin.changes
        if snapshot is not None:
            restored = StateMachine()
            restored.restore(snapshot)
            assert restored.list("", None, 1_000)[0] == tuple((key, Entry(*then[key])) for key in sorted(then))


@given(
    st.lists(KEYS, max_size=40),
    st.sampled_from(["", "a", "a/", "/", "b\0"]),
    st.none() | KEYS,
    LETTERS,
    st.integers(1, 4),
)
@settings(max_examples=300, deadline=None)
def test_names_are_those_of_the_twin_and_pages_together_are_all(
    keys: list[str], prefix: str, after: str | None, delimiter: str, limit: int
) -> None:
    machine, twin = StateMachine(), Twin()
    with small():
        for offset, key in enumerate(keys, start=1):
            txn = Txn((), (Put(key, b"v"),))
            machine.apply(offset, encode(txn))
            twin.apply(offset, txn)
        expected = twin.names(prefix, after, delimiter)
        found: list[tuple[str, Entry | None]] = []
        more, last = True, after
        while more:
            page, more = machine.names(prefix, last, limit, delimiter)
            assert len(page) == limit or not more
            found += [(name, None if row is None else unpack(row)) for name, row in page]
            last = found[-1][0] if found else last
    assert found == expected
