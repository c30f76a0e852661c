"""Compares and deletions of all keys with a prefix: their bytes, their limits, and what they find."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from raftlake.errors import RequestRejected, WireError
from raftlake.kv.commands import (
    COMPARE_RANGE_KEYS_MAX,
    DELETE_RANGE_KEYS_MAX,
    KEY_BYTES_MAX,
    OPERATIONS_MAX,
    Compare,
    ComparePrefix,
    Delete,
    DeletePrefix,
    EndTxn,
    Put,
    Txn,
    decode,
    delete,
    encode,
    put,
)
from raftlake.kv.history import Change
from raftlake.kv.keyspace import LEAF_KEYS_MAX, KeySpace, behind, entry_bytes, pack
from raftlake.kv.machine import Entry, StateMachine, TxnResult
from raftlake.kv.quota import Quota
from raftlake.kv.ranges import RangeResult, judge

MOST = 2**63 - 1


def space_of(versions: dict[str, int]) -> KeySpace:
    space = KeySpace()
    for key, version in versions.items():
        space.put(key, pack(version, b"v"))
    return space


def many(count: int, version: int = 1, prefix: str = "d/") -> dict[str, int]:
    return {f"{prefix}{number:06}": version for number in range(count)}


def machine_with(*txns: Txn) -> StateMachine:
    machine = StateMachine()
    for offset, txn in enumerate(txns, start=1):
        machine.apply(offset, encode(txn))
    return machine


def filled(keys: Iterable[str]) -> StateMachine:
    """All keys at version 1 and above, many in one command."""
    machine, left = StateMachine(), list(keys)
    for start in range(0, len(left), OPERATIONS_MAX):
        ops = tuple(Put(key, b"v") for key in left[start : start + OPERATIONS_MAX])
        machine.apply(max(machine.applied_offset, 1), encode(Txn((), ops)))
    return machine


def apply(
    machine: StateMachine, *ops: Put | Delete | DeletePrefix, compares: tuple[ComparePrefix | Compare, ...] = ()
) -> TxnResult:
    return machine.apply(machine.applied_offset, encode(Txn(compares, ops)))


def keys_of(machine: StateMachine) -> list[str]:
    return [key for key, _ in machine.list("", None, 100_000)[0]]


# --- bytes and limits ---


def test_ranges_are_read_as_they_were_written() -> None:
    compares = (Compare("k", 3), ComparePrefix("a/", 0), Compare("l", -1), ComparePrefix("é", MOST))
    ops = (Put("x", b"1"), DeletePrefix("a/"), EndTxn(7, 1, True), Delete("y"), DeletePrefix("b"))
    for txn in (Txn(compares, ops), Txn(compares, ()), Txn(compares[:2], ops[:1]), Txn((), ops), Txn((), ops[1:2])):
        assert txn.has_ranges and decode(encode(txn)) == txn
    assert Txn(compares, ops).key_compares == (compares[0], compares[2])
    assert Txn(compares, ops).prefix_compares == (compares[1], compares[3])
    assert Txn(compares, ops).changes == (ops[0], ops[3]) and Txn(compares, ops).endings == (ops[2],)
    assert Txn(compares, ops).deleted_prefixes == ("a/", "b")


def test_the_bytes_of_ranges() -> None:
    txn = Txn((Compare("k", 5), ComparePrefix("p", 258)), (DeletePrefix("q"),))
    written = "020002" + "0100016b0000000000000005" + "020001700000000000000102" + "0001" + "04000171"
    assert encode(txn).hex() == written
    assert decode(bytes.fromhex(written)) == txn


def test_commands_without_ranges_are_written_as_before() -> None:
    txn = Txn((Compare("k", 5),), (Put("a", b"v"), Delete("b"), EndTxn(7, 258, True)))
    written = (
        "010001" + "00016b0000000000000005" + "0003" + "0100016100000001" + "76" + "02000162" + "03000000000000000701" + "0203"
    )
    assert encode(txn).hex() == written and not txn.has_ranges
    assert decode(bytes.fromhex(written)) == txn


@pytest.mark.parametrize(
    "written",
    [
        # Format 2 without a range, which is written in format 1; format 1 with one; kinds that there are not; format 3.
        "02000000010100016100000000",
        "02000101000161000000000000000500" + "00",
        "01000000010400017" + "1",
        "0200010300016b000000000000000500010400" + "0171",
        "0200000001050001" + "71",
        "03000000010400017" + "1",
        # A prefix that is empty, too long for a key, or around reserved keys; a version below 0.
        "0200000001040000",
        "02000000010400012f",
        "020001020001700000000000000000" + "0000" + "00",
        "0200010200017fffffffffffffffff0000",
        "020001020001" + "70" + "ffffffffffffffff" + "0000",
    ],
)
def test_other_bytes_are_no_command(written: str) -> None:
    with pytest.raises(WireError):
        decode(bytes.fromhex(written))
    assert StateMachine().apply(1, bytes.fromhex(written)) == TxnResult(succeeded=False, offset=1)


@pytest.mark.parametrize(
    "prefix", ["", "/", "/r", "/raftlake", "/raftlake/", "/raftlake/topics/", "k" * (KEY_BYTES_MAX + 1), "\ud800"]
)
def test_prefixes_that_cannot_be_deleted(prefix: str) -> None:
    with pytest.raises(RequestRejected):
        DeletePrefix(prefix)


@pytest.mark.parametrize("prefix", ["r", "raftlake/", "/raftlake-", "/raftlakes/", "/s", "//", "k" * KEY_BYTES_MAX])
def test_prefixes_beside_reserved_keys_can_be_deleted(prefix: str) -> None:
    assert decode(encode(Txn((), (DeletePrefix(prefix),)))).deleted_prefixes == (prefix,)


@pytest.mark.parametrize(
    ("prefix", "newest"), [("", 0), ("k" * (KEY_BYTES_MAX + 1), 0), ("\udfff", 0), ("p", -1), ("p", MOST + 1)]
)
def test_prefixes_that_cannot_be_compared(prefix: str, newest: int) -> None:
    with pytest.raises(RequestRejected):
        ComparePrefix(prefix, newest)


def test_reserved_keys_can_be_compared() -> None:
    machine = machine_with(put("/raftlake/topics/t", b""))
    assert apply(machine, Put("k", b""), compares=(ComparePrefix("/raftlake/", 1),)).succeeded
    assert not apply(machine, Put("k", b""), compares=(ComparePrefix("/raftlake/", 0),)).succeeded


@pytest.mark.parametrize(
    "ops",
    [
        (DeletePrefix("a/"), Put("a/b", b"")),
        (Delete("a/"), DeletePrefix("a/")),
        (DeletePrefix("a/"), DeletePrefix("a/")),
        (DeletePrefix("a/b/"), DeletePrefix("a/")),
        (DeletePrefix("a"), Put("a\0", b""), Put("aa", b"")),
        (Put("b", b""), DeletePrefix("a"), Put("c", b""), Put("a\U0010ffff", b"")),
        (DeletePrefix("a"), DeletePrefix("b"), Delete("ab"), DeletePrefix("aa")),
    ],
)
def test_a_prefix_covers_no_other_operation(ops: tuple[Put | Delete | DeletePrefix, ...]) -> None:
    with pytest.raises(RequestRejected, match="deletes all below"):
        Txn((), ops)


def test_a_prefix_beside_operations_that_it_does_not_cover() -> None:
    ops = (
        Put("a", b""),
        DeletePrefix("a/"),
        Put("a0", b""),
        Delete("a.b/c"),
        DeletePrefix("a.b/d"),
        DeletePrefix("b"),
        EndTxn(7, 1, True),
    )
    assert Txn((), ops).ops == ops


def test_the_other_rules_hold_beside_ranges() -> None:
    with pytest.raises(RequestRejected, match="twice"):
        Txn((), (Put("a", b""), Delete("a"), DeletePrefix("b")))
    with pytest.raises(RequestRejected, match="ends the transaction of a producer twice"):
        Txn((), (EndTxn(7, 1, True), EndTxn(7, 2, True), DeletePrefix("b")))


def test_many_prefixes_and_keys_are_told_apart_in_no_time() -> None:
    """Each prefix against each key would be a million looks."""
    ops = (
        *(DeletePrefix(f"p{n}/") for n in range(OPERATIONS_MAX // 2)),
        *(Put(f"p{n}", b"") for n in range(OPERATIONS_MAX // 2)),
    )
    assert len(Txn((), ops).ops) == OPERATIONS_MAX


# --- behind a prefix ---


@pytest.mark.parametrize(
    ("prefix", "end"),
    [("a", "b"), ("a/", "a0"), ("é", "ê"), ("\ud7ff", "\ud800"), ("a\U0010ffff", "b"), ("\U0010ffff", None), ("", None)],
)
def test_what_is_behind_a_prefix(prefix: str, end: str | None) -> None:
    assert behind(prefix) == end


# --- compares ---


@pytest.mark.parametrize(
    ("prefix", "newest", "found"),
    [
        ("a/", 7, None),
        ("a/", 8, None),
        ("a/", MOST, None),
        ("a/", 6, 7),
        ("a/", 0, 7),
        ("a", 7, 300),
        ("a/x", 3, None),
        ("a/x", 2, 3),
        ("a/z", 0, None),
        ("c", 0, None),
        ("\U0010ffff", 0, 4),
        ("\U0010ffff", 4, None),
    ],
)
def test_a_range_holds_when_none_of_its_keys_is_newer(prefix: str, newest: int, found: int | None) -> None:
    space = space_of({"a": 300, "a/x": 3, "a/y": 7, "a/y/z": 5, "b": 9, "\U0010ffff\U0010ffff": 4})
    result, _ = judge(space, Txn((ComparePrefix(prefix, newest),), ()))
    assert result == RangeResult(newest=() if found is None else ((prefix, found),))
    assert result.holds == (found is None)


def test_the_newest_key_is_found_whatever_its_value_and_leaf() -> None:
    """Values that are greater bytes than the newest version, over several leaves."""
    space = KeySpace()
    for number in range(3 * LEAF_KEYS_MAX):
        space.put(f"d/{number:06}", pack(number + 1, b"\xff" * 9))
    space.put("d/000700", pack(256 * 256, b""))
    assert space.newest_below("d/", 10_000) == (256 * 256, 3 * LEAF_KEYS_MAX, False)
    assert space.newest_below("d/0000", 10_000) == (100, 100, False)
    assert space.newest_below("d/0000", 100) == (100, 100, False)
    assert space.newest_below("d/", 10) == (10, 10, True)
    assert space.newest_below("d/", 0) == (0, 0, True)
    assert space.newest_below("e", 0) == (0, 0, False)


def test_a_deleted_key_does_not_count() -> None:
    machine = machine_with(put("d/a", b""), put("d/b", b""), delete("d/b"))
    assert apply(machine, Put("k", b""), compares=(ComparePrefix("d/", 1),)).succeeded
    apply(machine, Delete("d/a"))
    assert apply(machine, Put("k", b""), compares=(ComparePrefix("d/", 0),)).succeeded


def test_a_range_that_does_not_hold_keeps_all_from_happening() -> None:
    machine = machine_with(put("d/a", b""), put("d/b", b""))
    result = apply(machine, Put("k", b""), DeletePrefix("d/"), compares=(ComparePrefix("d/", 1), Compare("d/a", 9)))
    assert result == TxnResult(succeeded=False, offset=3, current=(("d/a", 1),), ranges=RangeResult(newest=(("d/", 2),)))
    assert keys_of(machine) == ["d/a", "d/b"]
    failed = apply(machine, DeletePrefix("d/"), compares=(Compare("d/a", 9), ComparePrefix("d/", 2)))
    assert failed == TxnResult(succeeded=False, offset=4, current=(("d/a", 1),), ranges=RangeResult())
    assert keys_of(machine) == ["d/a", "d/b"]


def test_a_compare_sees_what_stood_before_its_own_command() -> None:
    machine = machine_with(put("d/a", b""))
    assert apply(machine, Put("d/b", b""), compares=(ComparePrefix("d/", 1),)).succeeded
    result = apply(machine, Put("d/c", b""), compares=(ComparePrefix("d/", 1),))
    assert result.ranges == RangeResult(newest=(("d/", 2),))


def test_compares_look_at_a_bounded_number_of_keys_together() -> None:
    space = space_of(many(COMPARE_RANGE_KEYS_MAX) | {"e/1": 5})
    whole, looked_at = judge(space, Txn((ComparePrefix("d/", 1),), ()))
    assert whole.holds and looked_at == COMPARE_RANGE_KEYS_MAX
    more, looked_at = judge(space, Txn((ComparePrefix("d/", 1), ComparePrefix("e/", 5), ComparePrefix("f/", 0)), ()))
    assert more == RangeResult(compares_too_large=("e/",)) and looked_at == COMPARE_RANGE_KEYS_MAX
    space.put("d/x", pack(1, b""))
    assert judge(space, Txn((ComparePrefix("d/", 1),), ()))[0] == RangeResult(compares_too_large=("d/",))
    # What was looked at decides where it does not hold already.
    assert judge(space, Txn((ComparePrefix("d/", 0),), ()))[0] == RangeResult(newest=(("d/", 1),))


# --- deletions ---


def test_a_range_is_deleted_with_all_its_keys_and_no_other() -> None:
    keys = ["a", "a/", "a/b", "a/b/c", "a/\U0010ffff", "a0", "b"]
    machine = filled(keys)
    result = apply(machine, DeletePrefix("a/"), Put("a", b"w"))
    assert result == TxnResult(succeeded=True, offset=2, ranges=RangeResult(deleted=4))
    assert keys_of(machine) == ["a", "a0", "b"]
    assert machine.get("a") == Entry(b"w", 2) and len(machine) == 3
    assert machine.size == entry_bytes("a", 1) + entry_bytes("a0", 1) + entry_bytes("b", 1) and machine.value_bytes == 3


def test_deleting_a_range_without_keys_changes_nothing() -> None:
    machine = filled(["a", "b"])
    assert apply(machine, DeletePrefix("a/")) == TxnResult(succeeded=True, offset=2, ranges=RangeResult())
    assert machine.changes_since("", 1) == [] and keys_of(machine) == ["a", "b"]


def test_watchers_see_each_deletion_of_a_range() -> None:
    machine = filled(["a/1", "a/2", "b/1", "c"])
    apply(machine, Put("c", b"w"), DeletePrefix("b/"), DeletePrefix("a/"))
    gone = [Change("b/1", 2, None), Change("a/1", 2, None), Change("a/2", 2, None)]
    assert machine.changes_since("", 1) == [Change("c", 2, b"w"), *gone]
    assert machine.changes_since("a/", 1) == gone[1:]


@pytest.mark.parametrize("count", [DELETE_RANGE_KEYS_MAX, DELETE_RANGE_KEYS_MAX + 1])
def test_a_range_of_too_many_keys_is_left_whole(count: int) -> None:
    machine = filled([*many(count), "k"])
    offset = machine.applied_offset
    result = apply(machine, Put("k", b"w"), DeletePrefix("d/"))
    if count > DELETE_RANGE_KEYS_MAX:
        assert result == TxnResult(succeeded=False, offset=offset, ranges=RangeResult(deletes_too_large=("d/",)))
        assert len(machine) == count + 1 and machine.get("k") != Entry(b"w", offset)
        assert machine.changes_since("", offset - 1) == []
    else:
        assert result.succeeded and result.ranges == RangeResult(deleted=count) and keys_of(machine) == ["k"]
    assert machine.range_keys == (count if result.succeeded else 0)


def test_ranges_of_one_command_count_together() -> None:
    machine = filled([*many(DELETE_RANGE_KEYS_MAX, prefix="d/"), "e/1", "f/1"])
    result = apply(machine, DeletePrefix("e/"), DeletePrefix("d/"), DeletePrefix("f/"))
    assert result.ranges == RangeResult(deletes_too_large=("d/",)) and not result.succeeded
    assert len(machine) == DELETE_RANGE_KEYS_MAX + 2


def test_what_commands_with_ranges_cost_is_counted() -> None:
    machine = filled([*many(700), "e/1"])
    apply(machine, Put("k", b""), compares=(ComparePrefix("d/", 1), ComparePrefix("e/", 1)))
    assert machine.range_keys == 701
    apply(machine, DeletePrefix("d/0000"))
    assert machine.range_keys == 801
    apply(machine, Put("k", b""))
    assert machine.range_keys == 801


@pytest.mark.parametrize("prefix", ["d/", "d/0", "d/0005", "d/00", "d/000999", "d"])
def test_a_snapshot_keeps_what_a_range_deletes_afterwards(prefix: str) -> None:
    machine = filled(many(3 * LEAF_KEYS_MAX))
    before = keys_of(machine)
    frozen = machine.snapshot()
    header = next(frozen)
    apply(machine, DeletePrefix(prefix))
    restored = StateMachine()
    restored.restore([header, *frozen])
    assert keys_of(restored) == before
    assert keys_of(machine) == [key for key in before if not key.startswith(prefix)]


# --- room ---


def test_deleting_a_range_is_no_growth_and_passes_in_a_full_space() -> None:
    machine = filled(["a/1", "a/2"])
    quota = Quota(machine.size)
    reservation = quota.reserve(machine, Txn((), (DeletePrefix("a/"),)))
    assert reservation is not None and quota.under_way == 0
    # What is deleted beside is no room for what is put: the quota does not know what a range holds.
    assert quota.reserve(machine, Txn((), (DeletePrefix("a/"), Put("b", b"")))) is None


@pytest.mark.parametrize("prefix", ["a/", "a/1", "a"])
def test_a_key_under_a_range_that_is_being_deleted_counts_as_gone(prefix: str) -> None:
    machine = filled(["a/1", "b"])
    quota = Quota(machine.size)
    again = Txn((), (Put("a/1", b"v"),))
    whole = quota.reserve(machine, again)
    assert whole is not None
    quota.release(whole)
    deleting = quota.reserve(machine, Txn((), (DeletePrefix(prefix),)))
    assert deleting is not None
    assert quota.reserve(machine, again) is None
    beside = quota.reserve(machine, Txn((), (Put("b", b"w"),)))
    assert beside is not None
    quota.release(beside)
    quota.release(deleting)
    assert quota.reserve(machine, again) is not None


def test_many_ranges_under_way_are_not_told_apart() -> None:
    """Each key would be compared with all of them: every key counts as gone then, which is the worst that may be."""
    machine = filled(["b"])
    quota = Quota(machine.size)
    several = Txn((), tuple(DeletePrefix(f"a{number}/") for number in range(OPERATIONS_MAX)))
    reservation = quota.reserve(machine, several)
    assert reservation is not None
    assert quota.reserve(machine, Txn((), (Put("b", b"v"),))) is None
    quota.release(reservation)
    assert quota.reserve(machine, Txn((), (Put("b", b"v"),))) is not None
