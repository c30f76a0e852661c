"""The key space at its bounds: the largest entry and transaction, the last change that fits, the page behind its own prefix."""

from __future__ import annotations

import pytest

from raftlake.errors import RequestRejected, WireError
from raftlake.kv.commands import (
    COMPARES_MAX,
    KEY_BYTES_MAX,
    OPERATIONS_MAX,
    TXN_BYTES_MAX,
    VALUE_BYTES_MAX,
    Compare,
    Delete,
    Put,
    Txn,
    decode,
    encode,
    put,
)
from raftlake.kv.frozen import FrozenView
from raftlake.kv.history import Compacted, History
from raftlake.kv.keyspace import LEAF_KEYS_MAX, KeySpace, pack
from raftlake.kv.machine import StateMachine


def filled(keys: list[str]) -> StateMachine:
    machine = StateMachine()
    for offset, key in enumerate(keys, start=1):
        machine.apply(offset, encode(put(key, b"v")))
    return machine


def large_txn(size: int) -> Txn:
    """One of so many encoded bytes."""
    fixed = len(encode(Txn((), tuple(Put(f"k{number}", b"") for number in range(9)))))
    whole = [VALUE_BYTES_MAX] * 7
    left = size - fixed - sum(whole)
    lengths = [*whole, left // 2, left - left // 2]
    return Txn((), tuple(Put(f"k{number}", bytes(length)) for number, length in enumerate(lengths)))


def test_a_transaction_may_be_as_large_as_the_bound_and_no_larger() -> None:
    largest = encode(large_txn(TXN_BYTES_MAX))
    assert len(largest) == TXN_BYTES_MAX
    assert decode(largest) == large_txn(TXN_BYTES_MAX)
    with pytest.raises(RequestRejected, match=f"{TXN_BYTES_MAX + 1} bytes"):
        encode(large_txn(TXN_BYTES_MAX + 1))
    with pytest.raises(WireError, match="longer than"):
        decode(largest + b"\0")


def test_a_transaction_may_have_as_many_parts_as_the_bound() -> None:
    compares = tuple(Compare(f"k{number}", number) for number in range(COMPARES_MAX))
    ops = tuple(Put(f"k{number}", b"") if number % 2 else Delete(f"k{number}") for number in range(OPERATIONS_MAX))
    txn = Txn(compares, ops)
    assert decode(encode(txn)) == txn
    with pytest.raises(RequestRejected):
        Txn((*compares, Compare("k", 1)), ops)
    with pytest.raises(RequestRejected):
        Txn(compares, (*ops, Delete("k")))


@pytest.mark.parametrize("key", ["k", "k" * KEY_BYTES_MAX, "é" * (KEY_BYTES_MAX // 2)])
@pytest.mark.parametrize("size", [0, 1, VALUE_BYTES_MAX])
def test_the_largest_entry_survives_a_snapshot(key: str, size: int) -> None:
    machine = filled(["first", key, "second"])
    machine.apply(4, encode(put(key, bytes(size))))
    restored = StateMachine()
    restored.restore(list(machine.snapshot()))
    assert restored.list("", None, 9) == machine.list("", None, 9)
    assert restored.value_bytes == machine.value_bytes == size + 2


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_a_key_that_is_the_prefix_itself_is_listed_once(limit: int) -> None:
    machine = filled(["a", "b", "b/1", "b/2", "c"])
    page, more = machine.list("b", "b", limit)
    assert ([key for key, _ in page], more) == (["b/1", "b/2"][:limit], limit < 2)
    assert [key for key, _ in machine.list("b", "a", 9)[0]] == ["b", "b/1", "b/2"]
    assert machine.list("b/2", "b/2", limit) == ((), False)


def test_the_history_keeps_what_just_fits() -> None:
    row = pack(1, bytes(100))
    one = History(floor=0, changes_max=10, bytes_max=1 << 20)
    one.add([("a", 1, row)])
    for spare, kept in ((0, 2), (-1, 1)):
        history = History(floor=0, changes_max=10, bytes_max=2 * one.bytes + spare)
        history.add([("a", 1, row)])
        history.add([("b", 2, row)])
        assert len(history) == kept
        assert [change.key for change in history.since("", 2 - kept, 9)] == ["a", "b"][-kept:]
    with pytest.raises(Compacted):
        history.since("", 0, 9)


def test_a_view_is_by_key_also_where_nothing_had_been_sorted() -> None:
    space = KeySpace()
    for version, key in enumerate(("c", "a", "d", "b"), start=1):
        space.put(key, pack(version, b""))
    view = FrozenView(5, space)
    space.put("0", pack(6, b""))
    assert [key for key, _ in [*view.rows(3, 1 << 20), *view.rows(3, 1 << 20)]] == ["a", "b", "c", "d"]


def test_a_leaf_is_copied_by_the_first_write_after_a_freezing_alone() -> None:
    """A copy costs as much as hundreds of writes."""
    space = KeySpace()
    for number in range(LEAF_KEYS_MAX):
        space.put(f"k{number:04d}", pack(1, b""))
    space.freeze()
    space.put("k0001", pack(2, b""))
    copied = space._leaves[0]
    space.put("k0001", pack(2, b""))
    assert space._leaves[0] is copied
    for number in range(LEAF_KEYS_MAX, 2 * LEAF_KEYS_MAX + 2):
        space.put(f"k{number:04d}", pack(2, b""))
    space.delete("k0000")
    leaves = [*space._leaves]
    assert len(leaves) == 3
    for key in ("k0001", "k0600", f"k{2 * LEAF_KEYS_MAX:04d}"):
        space.put(key, pack(3, b""))
        space.put(key, pack(4, b""))
    assert [after is before for after, before in zip(space._leaves, leaves, strict=True)] == [True] * 3
    for number in range(1, LEAF_KEYS_MAX):
        space.delete(f"k{number:04d}")
    assert len(space._leaves) == 2, "the first was put together with the second"
    merged = space._leaves[0]
    space.put("k0600", pack(5, b""))
    assert space._leaves[0] is merged
