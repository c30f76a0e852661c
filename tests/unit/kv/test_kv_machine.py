"""The state machine: conditions, versions, lists, history and snapshots."""

from __future__ import annotations

import pytest

from raftlake.errors import InvariantViolation, WireError
from raftlake.kv.commands import ABSENT, ANY, Compare, Delete, Put, Txn, delete, encode, put
from raftlake.kv.history import Change, Compacted
from raftlake.kv.machine import Entry, StateMachine, TxnResult


def machine_with(*txns: Txn) -> StateMachine:
    machine = StateMachine()
    for offset, txn in enumerate(txns, start=1):
        machine.apply(offset, encode(txn))
    return machine


def test_put_gives_the_offset_as_version() -> None:
    machine = machine_with(put("a", b"1"), put("b", b"22"), put("a", b"333"))
    assert machine.get("a") == Entry(b"333", 3)
    assert machine.get("b") == Entry(b"22", 2)
    assert machine.get("c") is None
    assert machine.applied_offset == 4
    assert len(machine) == 2
    assert machine.value_bytes == 5


@pytest.mark.parametrize(
    ("key", "condition", "succeeds", "current"),
    [
        ("a", 1, True, ()),
        ("a", 2, False, (("a", 1),)),
        ("a", ABSENT, False, (("a", 1),)),
        ("a", ANY, True, ()),
        ("z", ABSENT, True, ()),
        ("z", ANY, False, (("z", 0),)),
        ("z", 1, False, (("z", 0),)),
    ],
)
def test_conditions(key: str, condition: int, succeeds: bool, current: tuple[tuple[str, int], ...]) -> None:
    machine = machine_with(put("a", b"1"))
    result = machine.apply(2, encode(put(key, b"2", if_version=condition)))
    assert result == TxnResult(succeeded=succeeds, offset=2, current=current)
    assert (machine.get(key) == Entry(b"2", 2)) is succeeds


def test_a_transaction_is_all_or_nothing() -> None:
    machine = machine_with(put("a", b"1"), put("b", b"1"))
    txn = Txn((Compare("a", 1), Compare("b", 9), Compare("c", ANY)), (Put("a", b"2"), Delete("b"), Put("c", b"2")))
    assert machine.apply(3, encode(txn)) == TxnResult(succeeded=False, offset=3, current=(("b", 2), ("c", 0)))
    assert [key for key, _ in machine.list("", None, 10)[0]] == ["a", "b"]
    txn = Txn((Compare("a", 1), Compare("b", 2)), (Put("a", b"2"), Delete("b"), Put("c", b"2")))
    assert machine.apply(4, encode(txn)).succeeded
    assert machine.list("", None, 10) == ((("a", Entry(b"2", 4)), ("c", Entry(b"2", 4))), False)


def test_deleting_what_is_absent_changes_nothing() -> None:
    machine = machine_with(delete("a"))
    assert machine.applied_offset == 2
    assert machine.changes_since("", 0) == []


def test_garbage_is_a_no_op_with_an_offset() -> None:
    machine = machine_with(put("a", b"1"))
    assert machine.apply(5, b"\xff\x00garbage") == TxnResult(succeeded=False, offset=5)
    assert machine.applied_offset == 6
    assert machine.get("a") == Entry(b"1", 1)


def test_offsets_never_go_back() -> None:
    machine = machine_with(put("a", b"1"))
    machine.advance_to(7)
    for offset in (1, 6, 0, -1):
        with pytest.raises(InvariantViolation):
            machine.apply(offset, encode(put("a", b"2")))
    with pytest.raises(InvariantViolation):
        machine.advance_to(6)
    with pytest.raises(InvariantViolation):
        StateMachine().apply(0, encode(put("a", b"1")))
    assert machine.apply(7, encode(put("a", b"2"))).succeeded


def test_list_pages_through_a_prefix_in_key_order() -> None:
    machine = machine_with(*(put(key, b"v") for key in ("b/2", "a", "b/1", "c", "b/3", "b")))
    page, more = machine.list("b/", None, 2)
    assert ([key for key, _ in page], more) == (["b/1", "b/2"], True)
    page, more = machine.list("b/", "b/2", 2)
    assert ([key for key, _ in page], more) == (["b/3"], False)
    assert machine.list("b/", "a", 2)[1] is True
    assert machine.list("b/", "c", 2) == ((), False)
    assert machine.list("x", None, 2) == ((), False)


def test_a_page_is_bounded_in_bytes_but_never_empty() -> None:
    machine = machine_with(*(put(key, bytes(10)) for key in "abc"))
    assert [key for key, _ in machine.list("", None, 9, bytes_max=20)[0]] == ["a", "b"]
    page, more = machine.list("", None, 9, bytes_max=1)
    assert ([key for key, _ in page], more) == (["a"], True)
    assert machine.list("", None, 9, bytes_max=30)[1] is False


def test_list_sees_keys_that_are_not_sorted_in_yet_and_not_those_deleted() -> None:
    machine = StateMachine()
    for offset in range(1, 10_001):
        machine.apply(offset, encode(put(f"{offset:05}", b"")))
    machine.apply(10_001, encode(delete("00001")))
    machine.apply(10_002, encode(delete("10000")))
    page, more = machine.list("", None, 20_000)
    assert [key for key, _ in page] == [f"{offset:05}" for offset in range(2, 10_000)]
    assert not more


def test_changes_come_in_order_by_prefix_and_whole_transactions() -> None:
    machine = machine_with(put("a/1", b"x"), put("b", b"y"), Txn((), (Delete("a/1"), Put("a/2", b"z"), Put("b", b"w"))))
    assert machine.changes_since("a/", 0) == [Change("a/1", 1, b"x"), Change("a/1", 3, None), Change("a/2", 3, b"z")]
    assert machine.changes_since("a/", 1, limit=1) == [Change("a/1", 3, None), Change("a/2", 3, b"z")]
    assert machine.changes_since("a/", 3) == []
    assert machine.changes_since("", 100) == []


def test_history_is_bounded_by_count_and_says_so() -> None:
    machine = StateMachine(history_changes_max=3)
    for offset in range(1, 6):
        machine.apply(offset, encode(put("k", str(offset).encode())))
    with pytest.raises(Compacted) as caught:
        machine.changes_since("k", 1)
    assert caught.value.floor == 2
    assert [change.version for change in machine.changes_since("k", 2)] == [3, 4, 5]


def test_history_is_bounded_by_bytes() -> None:
    machine = StateMachine(history_bytes_max=10_000)
    for offset in range(1, 5000):
        machine.apply(offset, encode(put("k", bytes(4000))))
    assert len(machine.history) == 2
    assert machine.history.bytes <= 10_000
    machine.apply(5000, encode(put("k", bytes(20_000))))
    assert len(machine.history) == 0
    assert machine.changes_since("k", 5000) == []
    with pytest.raises(Compacted):
        machine.changes_since("k", 4999)


def test_a_dropped_transaction_is_dropped_whole() -> None:
    machine = StateMachine(history_changes_max=3)
    machine.apply(1, encode(Txn((), (Put("a", b""), Put("b", b"")))))
    machine.apply(2, encode(Txn((), (Put("a", b""), Put("b", b"")))))
    assert [change.version for change in machine.changes_since("", 1)] == [2, 2]
    with pytest.raises(Compacted):
        machine.changes_since("", 0)


def test_snapshot_is_of_the_moment_it_was_asked_for() -> None:
    machine = machine_with(put("a", b"1"), put("b", bytes(100_000)), put("c", b"3"))
    chunks = machine.snapshot()
    machine.apply(4, encode(put("a", b"later")))
    machine.apply(5, encode(delete("c")))
    restored = machine_with(put("old", b"gone"))
    restored.restore(chunks)
    assert restored.applied_offset == 4
    assert restored.list("", None, 9) == (
        (("a", Entry(b"1", 1)), ("b", Entry(bytes(100_000), 2)), ("c", Entry(b"3", 3))),
        False,
    )
    assert restored.value_bytes == 100_002
    assert restored.changes_since("", 3) == []
    with pytest.raises(Compacted):
        restored.changes_since("", 2)
    assert restored.apply(4, encode(delete("b"))).succeeded


def test_a_damaged_snapshot_leaves_the_machine_as_it_was() -> None:
    source = machine_with(put("a", b"1"), put("b", b"2"))
    good = list(source.snapshot())
    assert len(good) == 3
    machine = machine_with(put("x", b"0"))
    damaged = [
        [],
        good[1:],
        good[:-1],
        good[:1] + good[2:],
        [*good, good[2]],
        [good[0], good[1][:-1], good[2]],
        [good[0], b"", good[2]],
        [good[0], b"\x09", good[2]],
        [good[0], good[1], good[1], good[2]],
        [bytes([0, 9]) + good[0][2:], *good[1:]],
    ]
    for chunks in damaged:
        with pytest.raises(WireError):
            machine.restore(chunks)
    assert machine.get("x") == Entry(b"0", 1)
    assert machine.applied_offset == 2
