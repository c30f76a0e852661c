"""What the key of a transactional id holds, written and read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from raftlake.kv.commands import require_key
from raftlake.kv.strict_json import Refused
from raftlake.replica.transaction_entry import (
    EPOCH_MAX,
    ID_BRACKETS_MAX,
    ID_BYTES_MAX,
    PARTITIONS_MAX,
    VALUE_BYTES_MAX,
    Outcome,
    Transaction,
    TransactionState,
    decode,
    encode,
    fault_of_id,
    transaction_key,
)

TOPIC = bytes(range(1, 17))
OTHER = bytes(range(17, 33))
PLAIN = Transaction(
    transactional_id="orders-1",
    producer_id=4000,
    epoch=3,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({(TOPIC, 0), (TOPIC, 12), (OTHER, 3)}),
    started_ms=1_700_000_000_000,
    updated_ms=1_700_000_000_123,
    last_producer_id=12,
    last_epoch=2,
    ended=Outcome.ABORT,
)


def under_its_key(transaction: Transaction, **changes: object) -> Transaction | Refused:
    fields = json.loads(encode(transaction)) | changes
    return decode(transaction_key(transaction.transactional_id), json.dumps(fields).encode())


def test_a_transaction_is_read_as_it_was_written() -> None:
    for transaction in (
        PLAIN,
        replace(PLAIN, partitions=frozenset(), started_ms=-1, updated_ms=-1, last_producer_id=-1, last_epoch=-1),
        *(replace(PLAIN, state=state) for state in TransactionState),
        replace(PLAIN, epoch=EPOCH_MAX, producer_id=2**63 - 1, timeout_ms=2**31 - 1),
    ):
        assert decode(transaction_key("orders-1"), encode(transaction)) == transaction


@pytest.mark.parametrize(
    "text", ["a/b c", "~", "~" + "0" * 64, "%7E", ".", "..", "\x00\n\x7f", "Ünïcode 🙂", "x" * 32_767, "\x01" * 32_767]
)
def test_any_text_of_kafkas_length_is_a_transactional_id(text: str) -> None:
    transaction = replace(PLAIN, transactional_id=text)

    require_key(transaction_key(text))
    assert decode(transaction_key(text), encode(transaction)) == transaction


@pytest.mark.parametrize("opening", ["[", "{", "[{"])
@pytest.mark.parametrize("more", [-1, 0, 1, 2])
def test_an_id_has_a_fault_where_its_brackets_are_too_many_for_what_reads_it(opening: str, more: int) -> None:
    """In any state, and however much the transaction grows."""
    count = ID_BRACKETS_MAX + more
    text = "x]}" + (opening * count)[:count]
    partitions = frozenset((index.to_bytes(16, "big"), 2**31 - 1) for index in range(PARTITIONS_MAX))
    first = Transaction(transactional_id=text, producer_id=0, epoch=0, timeout_ms=1, state=TransactionState.EMPTY)
    grown = replace(PLAIN, transactional_id=text, producer_id=2**63 - 1, epoch=EPOCH_MAX, partitions=partitions)
    for each in (first, grown, grown.decided(True).retired(), grown.raised(False), replace(grown, epoch=0).raised(True, 9)):
        if each.epoch <= EPOCH_MAX:
            is_read = decode(transaction_key(text), encode(each)) == each
            assert is_read is (more <= 0) is (fault_of_id(text) is None)


def test_an_id_has_a_fault_where_it_is_too_short_or_too_long() -> None:
    faults = {length: fault_of_id("x" * length) is not None for length in (0, 1, ID_BYTES_MAX, ID_BYTES_MAX + 1)}
    assert faults == {0: True, 1: False, ID_BYTES_MAX: False, ID_BYTES_MAX + 1: True}


def test_no_two_ids_have_one_key() -> None:
    long_id = "x" * 300
    hashed = transaction_key(long_id).rpartition("/")[2]
    ids = [long_id, "x" * 301, hashed, hashed[1:], "%7E" + hashed[1:], "a/b", "a%2Fb", "a%252Fb", "A", "a"]

    assert len({transaction_key(text) for text in ids}) == len(ids)


def test_the_largest_transaction_stays_in_its_bounds() -> None:
    partitions = frozenset((index.to_bytes(16, "big"), 2**31 - 1) for index in range(PARTITIONS_MAX))
    largest = replace(PLAIN, transactional_id="\x01" * ID_BYTES_MAX, partitions=partitions)

    assert len(encode(largest)) <= VALUE_BYTES_MAX
    assert decode(transaction_key(largest.transactional_id), encode(largest)) == largest
    over = replace(largest, partitions=partitions | {(TOPIC, 0)})
    assert isinstance(decode(transaction_key(over.transactional_id), encode(over)), Refused)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "orders-2"},
        {"id": ""},
        {"id": 7},
        {"id": "\ud800"},
        {"producer_id": -1},
        {"producer_id": True},
        {"epoch": EPOCH_MAX + 1},
        {"timeout_ms": 0},
        {"state": "Dead"},
        {"state": None},
        {"partitions": []},
        {"partitions": {"short": "1"}},
        {"partitions": {"AQIDBAUGBwgJCgsMDQ4PEA": ""}},
        {"partitions": {"AQIDBAUGBwgJCgsMDQ4PEA": "1,,2"}},
        {"partitions": {"AQIDBAUGBwgJCgsMDQ4PEA": "01"}},
        {"partitions": {"AQIDBAUGBwgJCgsMDQ4PEA": 1}},
        {"last_epoch": -1},
        {"ended": "maybe"},
    ],
)
def test_what_is_no_transaction_is_refused(changes: dict[str, object]) -> None:
    assert isinstance(under_its_key(PLAIN, **changes), Refused)


def test_what_a_later_release_adds_is_passed_over() -> None:
    assert under_its_key(PLAIN, two_phase=True) == PLAIN


@pytest.mark.parametrize("commit", [True, False])
def test_a_retired_epoch_is_read_as_it_was_written_and_is_not_said_of_others(commit: bool) -> None:
    known = replace(PLAIN, last_producer_id=9, last_epoch=1).decided(commit)
    for ended in (known, known.completed()):
        assert b"retired" not in encode(ended)
        retired = ended.retired()
        assert retired == replace(ended, is_retired=True, last_producer_id=-1, last_epoch=-1)
        assert decode(transaction_key(retired.transactional_id), encode(retired)) == retired
        assert under_its_key(ended, retired=False) == ended
        for spoilt in (1, "true", None):
            assert isinstance(under_its_key(ended, retired=spoilt), Refused)
    assert known.retired().completed() == known.completed().retired()


@pytest.mark.parametrize("state", [TransactionState.EMPTY, TransactionState.ONGOING])
def test_no_epoch_is_retired_before_its_transaction_has_ended(state: TransactionState) -> None:
    assert isinstance(under_its_key(replace(PLAIN, state=state), retired=True), Refused)


def test_bytes_that_are_no_json_are_refused() -> None:
    for value in (b"", b"\xff", b"[]", b"{}", b'{"id": 1.5}', b"[" * 100_000):
        assert isinstance(decode(transaction_key("orders-1"), value), Refused)


def test_a_decision_and_its_end() -> None:
    for commit, prepared, complete, outcome in (
        (True, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT, Outcome.COMMIT),
        (False, TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT, Outcome.ABORT),
    ):
        decided = PLAIN.decided(commit)
        assert decided == replace(PLAIN, state=prepared)
        assert decided.is_prepared
        assert not decided.is_ongoing
        assert not decided.is_idle
        assert decided.decision is outcome
        assert decided.completed() == replace(PLAIN, state=complete, partitions=frozenset(), ended=outcome)
        assert decided.completed().decision is outcome
        assert decided.completed().is_idle
    assert PLAIN.decision is Outcome.NONE
    assert PLAIN.is_ongoing
