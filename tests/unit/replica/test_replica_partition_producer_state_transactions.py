"""The rows of producers with transactions: what batches and markers write, and that undo, points and expiry keep it."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.replica.partition.producer_state import BATCHES_KEPT, SLICE_PRODUCERS, ProducerStates
from raftlake.replica.partition.transactions import EndedTransaction
from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.producer_snapshot import ProducerRow, encode, packed_rows
from transactionkit import end_marker

#: More than any log here holds.
END = 1 << 40


@pytest.fixture
def states() -> ProducerStates:
    """7 is open from 0 on with the batches 0, 1 to 2 and 4; 8 from 3 on."""
    states = ProducerStates()
    states.record(7, 0, 0, 1, 0, 100, True)
    states.record(7, 0, 1, 2, 1, 101, True)
    states.record(8, 2, 0, 1, 3, 102, True)
    states.record(7, 0, 3, 1, 4, 103, True)
    return states


def last(states: ProducerStates, producer_id: int) -> ProducerRow:
    row = states.last_row(producer_id)
    assert row is not None
    return row


def rows_of(states: ProducerStates, producer_id: int, end: int = END) -> list[ProducerRow]:
    return [row for row in states.at(end) if row.producer_id == producer_id]


def test_each_row_of_a_transaction_says_where_it_begins(states: ProducerStates) -> None:
    assert [row.transaction_first_offset for row in rows_of(states, 7)] == [0, 0, 0]
    assert last(states, 8) == ProducerRow(8, 2, 0, 3, 0, 102, -1, 3)
    assert states.open_transactions == {7: 0, 8: 3} and list(states.open_transactions) == [7, 8]
    assert states.open_transaction(8) == 3 and states.open_transaction(9) is None and states.last_row(9) is None


def test_batches_outside_transactions_open_none() -> None:
    states = ProducerStates()
    states.record(7, 0, 0, 1, 0, 100)
    assert last(states, 7) == ProducerRow(7, 0, 0, 0, 0, 100) and states.open_transactions == {}
    assert not states.transactions.is_used


@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_of_the_same_epoch_keeps_the_batches(states: ProducerStates, commit: bool) -> None:
    states.end_transaction(end_marker(7, commit=commit, coordinator_epoch=5), 5, 900)
    rows = rows_of(states, 7)
    assert [(row.last_sequence, row.last_offset) for row in rows] == [(0, 0), (2, 2), (3, 4)]
    assert {row.transaction_first_offset for row in rows} == {-1} and {row.coordinator_epoch for row in rows} == {5}
    assert [row.timestamp_ms for row in rows] == [100, 101, 900]
    assert states.open_transactions == {8: 3} and last(states, 7).coordinator_epoch == 5
    assert states.check(7, 0, 4, 1, history_trimmed=False) is None
    repeated = states.check(7, 0, 1, 2, history_trimmed=False)
    assert repeated is not None and repeated.base_offset == 1


def test_a_marker_of_a_higher_epoch_leaves_one_row_without_a_batch(states: ProducerStates) -> None:
    states.end_transaction(end_marker(7, epoch=1, coordinator_epoch=5), 5, 900)
    assert rows_of(states, 7) == [ProducerRow(7, 1, -1, -1, 0, 900, 5, -1)]
    with pytest.raises(RequestRejected) as old:
        states.check(7, 0, 4, 1, history_trimmed=False)
    assert old.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(RequestRejected) as gap:
        states.check(7, 1, 1, 1, history_trimmed=False)
    assert gap.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(7, 1, 0, 1, history_trimmed=False) is None
    states.record(7, 1, 0, 1, 6, 901, True)
    assert rows_of(states, 7) == [ProducerRow(7, 1, 0, 6, 0, 901, 5, 6)]


def test_a_marker_of_a_lower_epoch_ends_the_transaction_and_keeps_the_epoch(states: ProducerStates) -> None:
    states.end_transaction(end_marker(8, epoch=1), 5, 900)
    assert states.open_transactions == {7: 0} and last(states, 8)[:4] == (8, 2, 0, 3)


def test_a_marker_makes_an_unknown_producer_known() -> None:
    states = ProducerStates()
    assert states.end_transaction(end_marker(7, epoch=4), 0, 900) is None
    assert states.at(END) == [ProducerRow(7, 4, -1, -1, 0, 900, 3, -1)] and len(states) == 1
    with pytest.raises(RequestRejected):
        states.check(7, 3, 0, 1, history_trimmed=False)


def test_an_aborted_transaction_is_told_with_what_is_stable_behind_it(states: ProducerStates) -> None:
    assert states.end_transaction(end_marker(8, epoch=2), 5, 0) == AbortedTransaction(8, 3, 5, 0)
    assert states.end_transaction(end_marker(7), 6, 0) == AbortedTransaction(7, 0, 6, 7)
    assert states.end_transaction(end_marker(7), 7, 0) is None
    states.record(8, 2, 1, 1, 8, 0, True)
    assert states.end_transaction(end_marker(8, epoch=2, commit=True), 9, 0) is None


def test_the_next_transaction_carries_the_epoch_of_the_coordinator(states: ProducerStates) -> None:
    states.end_transaction(end_marker(7, coordinator_epoch=5), 5, 0)
    states.record(7, 0, 4, 1, 6, 0, True)
    assert last(states, 7)[-2:] == (5, 6) and states.open_transaction(7) == 6
    assert [row.transaction_first_offset for row in rows_of(states, 7)] == [-1, -1, -1, 6]
    states.record(7, 0, 5, 1, 7, 0)
    assert last(states, 7)[-2:] == (5, 6), "a batch outside of it does not end it"


def test_a_higher_epoch_goes_on_with_the_transaction(states: ProducerStates) -> None:
    states.record(7, 1, 0, 1, 5, 0, True)
    assert rows_of(states, 7) == [ProducerRow(7, 1, 0, 5, 0, 0, -1, 0)] and states.open_transactions == {7: 0, 8: 3}


@pytest.mark.parametrize("end", [0, 1, 3, 4, 5, 6, 7])
def test_what_the_records_below_an_offset_say_is_told_of_what_is_behind(states: ProducerStates, end: int) -> None:
    """Each batch and marker is undone that begins there or later."""
    states.end_transaction(end_marker(7, epoch=1), 5, 104)
    states.record(7, 1, 0, 1, 6, 105, True)
    apart = ProducerStates()
    for offset, sequence, count, now_ms in ((0, 0, 1, 100), (1, 1, 2, 101), (4, 3, 1, 103)):
        if offset < end:
            apart.record(7, 0, sequence, count, offset, now_ms, True)
        if offset == 1 and end > 3:
            apart.record(8, 2, 0, 1, 3, 102, True)
    if end > 5:
        apart.end_transaction(end_marker(7, epoch=1), 5, 104)
    if end > 6:
        apart.record(7, 1, 0, 1, 6, 105, True)
    assert sorted(states.at(end)) == sorted(apart.at(END))
    again = ProducerStates()
    again.restore(states.packed(end))
    assert again.open_transactions == apart.open_transactions and list(again.open_transactions) == list(apart.open_transactions)
    assert again.row_count == len(apart.at(END))


def test_a_restored_one_goes_on(states: ProducerStates) -> None:
    states.end_transaction(end_marker(8, epoch=2), 5, 104)
    again = ProducerStates()
    again.restore(states.packed(END), [EndedTransaction(5, 3)])
    assert again.open_transactions == {7: 0} and again.transactions.earliest_undecided == 0
    assert again.end_transaction(end_marker(7), 6, 0) == AbortedTransaction(7, 0, 6, 7)
    assert again.transactions.ended_below(END) == (EndedTransaction(5, 3), EndedTransaction(6, 0))
    again.record(8, 2, 1, 1, 7, 0)
    assert last(again, 8).coordinator_epoch == 3


def test_rows_without_a_transaction_leave_a_restored_one_unused() -> None:
    states, again = ProducerStates(), ProducerStates()
    states.record(7, 0, 0, 1, 0, 100)
    again.restore(states.packed(END))
    assert not again.transactions.is_used


def test_old_rows_of_the_last_transaction_open_none(states: ProducerStates) -> None:
    """Kafka's own file has one row of each producer. Several are read, of which the last counts."""
    again = ProducerStates()
    row = ProducerRow(7, 0, 3, 4, 0, 1, -1, 0)
    again.restore(packed_rows(encode([row, row._replace(last_sequence=4, last_offset=5, transaction_first_offset=-1)])))
    assert again.open_transactions == {}


def test_a_producer_with_an_open_transaction_is_never_forgotten(states: ProducerStates) -> None:
    states.record(9, 0, 0, 1, 5, 100)
    states.settle(6)
    states.expire(1_000)
    assert {row.producer_id for row in states.at(END)} == {7, 8}
    states.end_transaction(end_marker(7), 6, 500)
    states.settle(7)
    states.expire(500)
    assert {row.producer_id for row in states.at(END)} == {7, 8}
    states.expire(501)
    assert {row.producer_id for row in states.at(END)} == {8} and states.has_forgotten


def test_no_more_than_the_last_batches_are_kept(states: ProducerStates) -> None:
    for number in range(2 * BATCHES_KEPT):
        states.record(7, 0, 4 + number, 1, 5 + number, 0, True)
    assert [row.transaction_first_offset for row in rows_of(states, 7)] == [0] * BATCHES_KEPT


def test_all_producers_are_told_in_slices_while_others_write() -> None:
    states = ProducerStates()
    count = 2 * SLICE_PRODUCERS + 10
    for producer_id in range(count):
        states.record(producer_id, 0, 0, 1, producer_id, 0, producer_id % 2 == 0)
    states.settle(count)
    slices = states.last_rows()
    found = next(slices)
    assert len(found) == SLICE_PRODUCERS and found[0] == ProducerRow(0, 0, 0, 0, 0, 0, -1, 0)
    states.record(count, 0, 0, 1, count, 0)
    states.end_transaction(end_marker(count - 2), count + 1, 5)
    for rows in slices:
        found += rows
    assert [row.producer_id for row in found] == list(range(count)) and found[-2].transaction_first_offset == -1
    assert {row.producer_id for each in states.last_rows() for row in each} == set(range(count + 1))


def test_a_question_that_is_given_up_holds_nothing() -> None:
    states = ProducerStates()
    states.record(7, 0, 0, 1, 0, 0)
    slices = states.last_rows()
    next(slices)
    slices.close()
    states.record(8, 0, 0, 1, 1, 0)
    states.record(7, 0, 1, 1, 2, 0)
    assert states._entries.keys() == {7, 8} and not states._changed
