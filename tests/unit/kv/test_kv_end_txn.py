"""The end of a transaction as an operation: its bytes, its limits, and a command that happens as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftlake.errors import RequestRejected, WireError
from raftlake.kv.commands import Compare, Delete, EndTxn, Put, Txn, decode, encode
from raftlake.kv.keys import TRANSACTIONS_PREFIX
from raftlake.kv.keyspace import Entry
from raftlake.kv.machine import StateMachine, TxnResult
from raftlake.kv.quota import ADDITIONS_PART, END_GROWTH_BYTES, OPEN, Quota
from raftlake.kv.rules import Decided

KEYS = {7: TRANSACTIONS_PREFIX + "a", 8: TRANSACTIONS_PREFIX + "b", 9: TRANSACTIONS_PREFIX + "c"}


class Judge:
    """Producers 7 and 8 can end their transactions, that of 9 is decided, others have none."""

    def take(self, key: str, value: bytes, version: int, standing: Entry | None) -> str | None:
        return None

    def drop(self, key: str) -> None: ...

    def restore(self, key: str, entry: Entry, version_of: Callable[[str], int]) -> str | None:
        return None

    def judge_end(self, ending: EndTxn) -> Decided | str:
        if ending.producer_id == 9:
            return Decided()
        key = KEYS.get(ending.producer_id)
        if key is None:
            return f"{ending.producer_id} has none"
        return Decided((key, b"commit" if ending.commit else b"abort"))


def applied(machine: StateMachine, txn: Txn) -> TxnResult:
    return machine.apply(max(machine.applied_offset, 1), encode(txn))


def test_ends_are_read_as_they_were_written() -> None:
    ends = (EndTxn(7, 0, True), EndTxn(0, 32_767, False, retires_epoch=False), EndTxn(2**63 - 1, 3, True), EndTxn(8, 0, False))
    for txn in (
        Txn((), ends[:1]),
        Txn((Compare("k", 3),), (Put("a", b"1"), *ends, Delete("b"))),
    ):
        assert decode(encode(txn)) == txn
        assert txn.endings == tuple(each for each in ends if each in txn.ops)
        assert all(isinstance(change, Put | Delete) for change in txn.changes)


@pytest.mark.parametrize(
    ("flags", "commit", "retires_epoch"), [("00", False, False), ("01", True, False), ("02", False, True), ("03", True, True)]
)
def test_the_bytes_of_an_end(flags: str, commit: bool, retires_epoch: bool) -> None:
    """An end by a command of an earlier build, which knew no epochs that are retired, reads as it was meant."""
    txn = Txn((), (EndTxn(7, 258, commit, retires_epoch=retires_epoch),))
    written = "01000000010300000000000000070102" + flags
    assert encode(txn).hex() == written
    assert decode(bytes.fromhex(written)) == txn


def test_an_end_retires_the_epoch_unless_it_says_otherwise() -> None:
    assert EndTxn(7, 1, True) == EndTxn(7, 1, True, retires_epoch=True)


@pytest.mark.parametrize("index", range(1, 12))
def test_a_cut_end_is_refused(index: int) -> None:
    with pytest.raises(WireError):
        decode(encode(Txn((), (EndTxn(7, 1, True),)))[:-index])


@pytest.mark.parametrize(
    "changed",
    [
        ("0001", "0002"),
        ("0000000000000007", "ffffffffffffffff"),
        ("010203", "ffff03"),
        ("010203", "010204"),
        ("010203", "0102ff"),
    ],
)
def test_other_bytes_are_refused(changed: tuple[str, str]) -> None:
    good = encode(Txn((), (EndTxn(7, 258, True),))).hex()
    with pytest.raises(WireError):
        decode(bytes.fromhex(good.replace(*changed) if changed[0] != "0001" else good + "00"))


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (2**63, 0), (1, -1), (1, 32_768)])
def test_what_no_producer_has_is_refused(producer_id: int, epoch: int) -> None:
    with pytest.raises(RequestRejected):
        EndTxn(producer_id, epoch, True)


@pytest.mark.parametrize(
    ("ops", "why"),
    [
        ((EndTxn(7, 0, True), EndTxn(7, 1, True)), "producer twice"),
        ((EndTxn(7, 0, True), Put(KEYS[7], b"")), "beside an end"),
        ((Delete(KEYS[8]), EndTxn(7, 0, True)), "beside an end"),
        ((EndTxn(7, 0, True), Put("k", b""), Delete("k")), "key twice"),
    ],
)
def test_what_cannot_stand_in_one_transaction(ops: tuple[Put | Delete | EndTxn, ...], why: str) -> None:
    with pytest.raises(RequestRejected, match=why):
        Txn((), ops)


def test_ends_of_several_producers_happen_with_all_else_at_one_version() -> None:
    machine = StateMachine(rules=Judge)
    result = applied(
        machine, Txn((Compare("k", 0),), (EndTxn(7, 0, True), Put("k", b"v"), EndTxn(8, 4, False), EndTxn(9, 1, True)))
    )

    assert result == TxnResult(succeeded=True, offset=1)
    assert dict(machine.list("", None, 9)[0]) == {
        KEYS[7]: Entry(b"commit", 1),
        KEYS[8]: Entry(b"abort", 1),
        "k": Entry(b"v", 1),
    }
    assert len(machine.changes_since("", 0)) == 3


@pytest.mark.parametrize("order", [0, 1])
def test_one_end_that_cannot_be_keeps_all_from_happening(order: int) -> None:
    machine = StateMachine(rules=Judge)
    applied(machine, Txn((), (Put("gone", b"x"),)))
    ends = (EndTxn(7, 0, True), EndTxn(11, 0, True), EndTxn(12, 0, True))
    ops = (*ends, Put("k", b"v"), Delete("gone"))
    result = applied(machine, Txn((), ops if order else ops[::-1]))

    refused = [(11, "11 has none"), (12, "12 has none")]
    assert result == TxnResult(succeeded=False, offset=2, refused=tuple(refused if order else refused[::-1]))
    assert dict(machine.list("", None, 9)[0]) == {"gone": Entry(b"x", 1)}


def test_a_compare_that_fails_keeps_the_ends_from_happening_and_both_are_told() -> None:
    machine = StateMachine(rules=Judge)
    result = applied(machine, Txn((Compare("k", 5),), (EndTxn(7, 0, True), EndTxn(11, 0, True))))

    assert (result.succeeded, result.current, result.refused) == (False, (("k", 0),), ((11, "11 has none"),))
    assert len(machine) == 0
    assert not applied(machine, Txn((Compare("k", 5),), (EndTxn(7, 0, True),))).succeeded
    assert len(machine) == 0


def test_without_rules_no_producer_has_a_transaction() -> None:
    ((producer_id, why),) = applied(StateMachine(), Txn((), (EndTxn(7, 0, True),))).refused
    assert (producer_id, "7" in why) == (7, True)


def test_an_end_passes_a_full_key_space_and_takes_no_other_change_with_it() -> None:
    machine = StateMachine(rules=Judge)
    applied(machine, Txn((), (Put("k", b"x" * 1000),)))
    full = Quota(machine.size)

    reservation = full.reserve(machine, Txn((), (EndTxn(7, 0, True), EndTxn(8, 0, True))))
    assert reservation is not None
    assert full.under_way == 2 * END_GROWTH_BYTES
    assert full.reserve(machine, Txn((), (EndTxn(7, 0, True), Put("new", b"")))) is None
    full.release(reservation)
    assert full.under_way == 0


def test_what_clients_name_of_transactions_counts_to_their_quota_and_the_steps_of_one_pass() -> None:
    """New ids and many partitions would fill the room that the quorum has for itself."""
    machine = StateMachine()
    applied(machine, Txn((), (Put(KEYS[7], b"x" * 100),)))
    full = Quota(machine.size, own_room=10_000)

    def passes(key: str, size: int) -> bool:
        reservation = full.reserve(machine, Txn((), (Put(key, b"x" * size),)))
        if reservation is not None:
            full.release(reservation)
        return reservation is not None

    assert [passes(KEYS[7], size) for size in (0, 100, 100 + END_GROWTH_BYTES, 101 + END_GROWTH_BYTES)] == [
        True,
        True,
        True,
        False,
    ]
    assert [passes(KEYS[8], size) for size in (0, 1, 100)] == [False, False, False]
    assert full.reserve(machine, Txn((), (Delete(KEYS[7]),))) is not None
    assert passes("/raftlake/topics/t", 1_000)
    roomy = Quota(machine.size + 1_000, own_room=0)
    assert roomy.reserve(machine, Txn((), (Put(KEYS[8], b"x" * 500),))) is not None


@pytest.mark.parametrize("beyond", [0, 1])
def test_partitions_that_come_a_few_at_a_time_leave_room_for_the_ends(beyond: int) -> None:
    """Many small steps of one transaction, or one step of many, would take all room that the quorum has for itself."""
    machine = StateMachine()
    applied(machine, Txn((), (Put(KEYS[7], OPEN), Put(KEYS[8], b"x" * 999))))
    full = Quota(machine.size - 1_000 - beyond, own_room=1_000 * ADDITIONS_PART)

    def passes(*changes: Put) -> bool:
        reservation = full.reserve(machine, Txn((), changes))
        if reservation is not None:
            full.release(reservation)
        return reservation is not None

    assert passes(Put(KEYS[7], OPEN + b",")) is not bool(beyond)
    assert passes(Put(KEYS[7], OPEN)), "it does not grow"
    assert passes(Put(KEYS[7], b"decided".ljust(len(OPEN) + END_GROWTH_BYTES)))
    assert passes(Put("/raftlake/topics/t", b"x" * 100))
    assert not passes(Put(KEYS[7], OPEN.ljust(len(OPEN) + END_GROWTH_BYTES + 1)))
    held = full.reserve(machine, Txn((), (Put("/raftlake/topics/u", b"x" * 100),)))
    assert held is not None
    assert not passes(Put(KEYS[7], OPEN + b",")), "what is under way counts"
