"""Freezing the key space in slices while it changes, and putting it together again chunk by chunk."""

from __future__ import annotations

from random import Random

import pytest

from raftlake.errors import WireError
from raftlake.kv import snapshot
from raftlake.kv.commands import delete, encode, put
from raftlake.kv.frozen import FrozenView
from raftlake.kv.keyspace import LEAF_KEYS_MAX, Row, pack, unpack
from raftlake.kv.machine import StateMachine
from raftlake.kv.restoration import Restoration


def drain(view: FrozenView, count: int = 3) -> list[Row]:
    rows: list[Row] = []
    while slice_ := view.rows(count, 1 << 20):
        assert len(slice_) <= count
        rows += slice_
    return rows


def filled(keys: int) -> StateMachine:
    machine = StateMachine()
    for number in range(keys):
        machine.apply(machine.applied_offset or 1, encode(put(f"k{number:03d}", b"v%d" % number)))
    return machine


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_between_the_slices_the_view_stays_as_it_was(seed: int) -> None:
    random = Random(seed)
    machine = filled(40)
    expected = {key: (entry.version, entry.value) for key, entry in machine.list("", None, 1000)[0]}
    view = machine.freeze()
    assert (view.entry_count, view.applied_offset) == (40, machine.applied_offset)
    rows: list[Row] = []
    while slice_ := view.rows(random.randrange(1, 6), 1 << 20):
        rows += slice_
        for _ in range(random.randrange(6)):
            key = f"k{random.randrange(60):03d}"
            change = delete(key) if random.random() < 0.4 else put(key, b"later")
            machine.apply(machine.applied_offset, encode(change))
    assert [key for key, _ in rows] == sorted(expected), "none twice, by key"
    assert {key: (unpack(row).version, unpack(row).value) for key, row in rows} == expected


def test_a_slice_ends_when_it_holds_enough_bytes() -> None:
    machine = StateMachine()
    for offset in range(1, 6):
        machine.apply(offset, encode(put(f"k{offset}", bytes(100))))
    assert [len(machine.freeze().rows(10, limit)) for limit in (1, 100, 101, 10_000)] == [1, 1, 2, 5]


def test_views_of_two_moments_keep_what_each_has_seen() -> None:
    machine = filled(3 * LEAF_KEYS_MAX)
    views = []
    for value in (b"first", b"second"):
        machine.apply(machine.applied_offset, encode(put("k004", value)))
        views.append(machine.freeze())
    machine.apply(machine.applied_offset, encode(delete("k004")))
    seen = [{key: unpack(row).value for key, row in drain(view, 100)} for view in views]
    assert [each["k004"] for each in seen] == [b"first", b"second"]
    assert len(seen[0]) == len(seen[1]) == len(machine) + 1


def test_a_restoration_wants_header_entries_and_footer_in_order() -> None:
    rows = [("b", pack(2, b"2")), ("a", pack(3, b"1"))]
    restoration = Restoration()
    restoration.feed(snapshot.encode_header(7, 2))
    restoration.feed(snapshot.encode_rows(rows))
    with pytest.raises(WireError, match="cut short"):
        restoration.require_complete()
    restoration.feed(snapshot.FOOTER)
    restoration.require_complete()
    assert [key for key, _ in restoration.space.rows_from("", inclusive=True)] == ["a", "b"]
    assert restoration.space.value_bytes == 2 and restoration.applied_offset == 7
    with pytest.raises(WireError, match="after its footer"):
        restoration.feed(snapshot.encode_rows(rows))


def test_a_key_that_comes_twice_is_damage() -> None:
    restoration = Restoration()
    rows = [("a", pack(1, b"")), ("a", pack(2, b""))]
    for chunk in (snapshot.encode_header(7, 2), snapshot.encode_rows(rows), snapshot.FOOTER):
        restoration.feed(chunk)
    with pytest.raises(WireError, match="cut short"):
        restoration.require_complete()


def test_an_empty_state_is_a_snapshot_too() -> None:
    machine = StateMachine()
    machine.advance_to(5)
    restored = filled(3)
    restored.restore(machine.snapshot())
    assert (len(restored), restored.applied_offset) == (0, 5)


def test_the_state_that_a_restoration_replaces_is_freed_in_pieces() -> None:
    machine, restoration = filled(4 * LEAF_KEYS_MAX), Restoration()
    for chunk in filled(3).snapshot():
        restoration.feed(chunk)
    retired = machine.adopt(restoration)
    assert len(machine) == 3
    pieces = 1
    while retired.release(2):
        pieces += 1
    assert pieces > 1
