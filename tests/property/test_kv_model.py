"""The state machine against a dumb twin: a dict, a list of all changes and nothing clever."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlake.errors import WireError
from raftlake.kv.commands import Compare, Delete, Put, Txn, decode, encode
from raftlake.kv.history import Change, Compacted
from raftlake.kv.machine import Entry, StateMachine

KEYS = st.sampled_from(["a", "a/1", "a/2", "b", "b/1", "é", "\U0001f40b"])
OPERATIONS = st.one_of(st.builds(Put, KEYS, st.binary(max_size=8)), st.builds(Delete, KEYS))
TXNS = st.builds(
    Txn,
    st.lists(st.builds(Compare, KEYS, st.integers(-1, 12)), max_size=2).map(tuple),
    st.lists(OPERATIONS, max_size=3, unique_by=lambda operation: operation.key).map(tuple),
)
RECORDS = st.one_of(TXNS, TXNS, TXNS, st.binary(max_size=40))


@dataclass
class Twin:
    state: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def apply(self, offset: int, txn: Txn) -> bool:
        for compare in txn.compares:
            version = self.state[compare.key][1] if compare.key in self.state else 0
            if version == 0 if compare.version == -1 else version != compare.version:
                return False
        for operation in txn.ops:
            if isinstance(operation, Put):
                self.state[operation.key] = (operation.value, offset)
                self.changes.append(Change(operation.key, offset, operation.value))
            elif operation.key in self.state:
                del self.state[operation.key]
                self.changes.append(Change(operation.key, offset, None))
        return True


def run(records: list[Txn | bytes], machine: StateMachine, twin: Twin, first_offset: int = 1) -> None:
    for offset, record in enumerate(records, start=first_offset):
        if isinstance(record, Txn):
            assert machine.apply(offset, encode(record)).succeeded == twin.apply(offset, record)
            continue
        succeeded = machine.apply(offset, record).succeeded
        try:
            expected = twin.apply(offset, decode(record))
        except WireError:
            expected = False
        assert succeeded == expected


def assert_same_state(machine: StateMachine, twin: Twin) -> None:
    entries, more = machine.list("", None, 1000)
    assert not more
    assert entries == tuple((key, Entry(*twin.state[key])) for key in sorted(twin.state))
    assert machine.value_bytes == sum(len(value) for value, _ in twin.state.values())


@given(st.lists(RECORDS, max_size=30))
def test_the_machine_does_what_its_twin_does(records: list[Txn | bytes]) -> None:
    machine, twin = StateMachine(), Twin()
    run(records, machine, twin)
    assert_same_state(machine, twin)
    for version in range(len(records) + 1):
        assert machine.changes_since("a", version) == [
            change for change in twin.changes if change.version > version and change.key.startswith("a")
        ]


@given(st.lists(RECORDS, max_size=20), st.sampled_from(["", "a", "a/", "b", "é", "z"]), st.integers(1, 4))
def test_pages_together_are_the_prefix(records: list[Txn | bytes], prefix: str, limit: int) -> None:
    machine, twin = StateMachine(), Twin()
    run(records, machine, twin)
    listed: list[str] = []
    after, more = None, True
    while more:
        page, more = machine.list(prefix, after, limit)
        assert len(page) == limit or not more
        listed += [key for key, _ in page]
        after = listed[-1] if listed else None
    assert listed == sorted(key for key in twin.state if key.startswith(prefix))


@given(st.lists(RECORDS, max_size=15), st.lists(RECORDS, max_size=15))
def test_a_restored_machine_goes_on_like_the_first(before: list[Txn | bytes], after: list[Txn | bytes]) -> None:
    machine, twin, restored = StateMachine(), Twin(), StateMachine()
    run(before, machine, twin)
    restored.restore(machine.snapshot())
    assert restored.applied_offset == machine.applied_offset
    for offset, record in enumerate(after, start=len(before) + 1):
        encoded = encode(record) if isinstance(record, Txn) else record
        assert restored.apply(offset, encoded) == machine.apply(offset, encoded)
    assert restored.list("", None, 1000) == machine.list("", None, 1000)
    assert list(restored.changes_since("", len(before))) == list(machine.changes_since("", len(before)))


@given(st.lists(RECORDS, min_size=1, max_size=30), st.integers(1, 10), st.integers(200, 2000))
def test_history_is_bounded_and_never_has_a_gap(records: list[Txn | bytes], changes_max: int, bytes_max: int) -> None:
    machine, twin = StateMachine(history_changes_max=changes_max, history_bytes_max=bytes_max), Twin()
    run(records, machine, twin)
    assert len(machine.history) <= changes_max and machine.history.bytes <= bytes_max
    for version in range(len(records) + 1):
        if version < machine.history.floor:
            with pytest.raises(Compacted):
                machine.changes_since("", version)
        else:
            assert machine.changes_since("", version) == [change for change in twin.changes if change.version > version]


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_decode_raises_nothing_but_wire_errors(encoded: bytes) -> None:
    try:
        txn = decode(encoded)
    except WireError:
        return
    assert encode(txn) == encoded


@given(TXNS, st.data())
def test_a_flipped_byte_never_breaks_apply(txn: Txn, data: st.DataObject) -> None:
    encoded = bytearray(encode(txn))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    machine = StateMachine()
    machine.apply(1, encoded)
    assert machine.applied_offset == 2


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_restore_of_garbage_raises_nothing_but_wire_errors(chunks: list[bytes]) -> None:
    machine = StateMachine()
    try:
        machine.restore(chunks)
    except WireError:
        assert machine.applied_offset == 0
