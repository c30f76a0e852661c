"""Which transactions are open or undecided: their order, high watermarks at their edges, and what is kept of ended ones."""

from __future__ import annotations

from random import Random

import pytest

from raftlake.replica.partition.transactions import ENDED_MAX, EndedTransaction, Transactions


def opened(*begun: tuple[int, int]) -> Transactions:
    """(producer id, first offset)."""
    transactions = Transactions()
    for producer_id, offset in begun:
        transactions.begin(producer_id, offset)
    return transactions


def test_a_log_without_transactions() -> None:
    transactions = Transactions()
    transactions.commit(100)
    assert transactions.earliest_open is None and transactions.earliest_undecided is None and transactions.open == {}
    assert not transactions.is_used and not transactions.has_ended and transactions.ended_below(1 << 40) == ()


def test_open_transactions_are_told_the_earliest_first() -> None:
    transactions = opened((9, 3), (7, 5), (8, 6))
    assert list(transactions.open.items()) == [(9, 3), (7, 5), (8, 6)] and transactions.is_used
    assert transactions.first_offset_of(7) == 5 and transactions.first_offset_of(6) is None
    assert transactions.is_open(8) and not transactions.is_open(6)
    assert transactions.earliest_open == transactions.earliest_undecided == 3


def test_an_ended_transaction_is_undecided_up_to_a_high_watermark_behind_its_marker() -> None:
    transactions = opened((7, 5))
    assert transactions.end(7, 9) == 5
    assert transactions.earliest_open is None and transactions.open == {} and transactions.has_ended
    for high_watermark in (0, 5, 9):
        transactions.commit(high_watermark)
        assert transactions.earliest_undecided == 5
    transactions.commit(10)
    assert transactions.earliest_undecided is None and not transactions.has_ended and transactions.is_used


def test_a_marker_without_a_transaction_ends_none() -> None:
    transactions = Transactions()
    assert transactions.end(7, 9) is None
    assert transactions.earliest_undecided is None and not transactions.has_ended and transactions.is_used


def test_a_producer_begins_again_behind_its_marker() -> None:
    transactions = opened((7, 5), (8, 6))
    transactions.end(7, 9)
    transactions.begin(7, 10)
    assert transactions.open == {8: 6, 7: 10} and list(transactions.open) == [8, 7]
    assert transactions.earliest_open == 6 and transactions.earliest_undecided == 5
    transactions.commit(10)
    assert transactions.earliest_undecided == 6
    transactions.end(8, 11)
    assert transactions.earliest_open == 10


def test_the_last_to_end_may_have_begun_first() -> None:
    transactions = opened((1, 10), (2, 20), (3, 30))
    for producer_id, marker in ((3, 40), (1, 50), (2, 60)):
        transactions.end(producer_id, marker)
    assert transactions.earliest_undecided == 10
    transactions.commit(51)
    assert transactions.earliest_undecided == 20
    transactions.commit(61)
    assert transactions.earliest_undecided is None


def test_what_is_ended_and_not_committed_is_told_for_a_point() -> None:
    transactions = opened((1, 10), (2, 20), (3, 30))
    for producer_id, marker in ((3, 40), (1, 50), (2, 60)):
        transactions.end(producer_id, marker)
    told = [EndedTransaction(40, 30), EndedTransaction(50, 10), EndedTransaction(60, 20)]
    for end, count in ((40, 0), (41, 1), (50, 1), (51, 2), (61, 3)):
        assert transactions.ended_below(end) == tuple(told[:count])
    transactions.commit(41)
    assert transactions.ended_below(100) == tuple(told[1:])


def test_a_restored_one_goes_on_as_the_first() -> None:
    transactions = Transactions()
    transactions.restore([(30, 3), (10, 1), (20, 2)], [EndedTransaction(35, 5), EndedTransaction(36, 12)])
    assert list(transactions.open.items()) == [(1, 10), (2, 20), (3, 30)] and transactions.is_used
    assert transactions.earliest_open == 10 and transactions.earliest_undecided == 5
    transactions.commit(36)
    assert transactions.earliest_undecided == 10
    transactions.end(1, 40)
    assert transactions.earliest_open == 20 and transactions.earliest_undecided == 10
    transactions.commit(41)
    assert transactions.earliest_undecided == 20


def test_one_that_stays_open_keeps_nothing_of_those_that_come_and_go() -> None:
    transactions = opened((1, 0))
    for number in range(3 * ENDED_MAX):
        transactions.begin(2, 10 + 2 * number)
        transactions.end(2, 11 + 2 * number)
        transactions.commit(12 + 2 * number)
    assert transactions.earliest_undecided == 0 and transactions.open == {1: 0}
    assert len(transactions._order) <= ENDED_MAX + 8


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_events_says_what_counting_says(seed: int) -> None:
    rng, transactions, offset, committed = Random(seed), Transactions(), 0, 0
    open_ones: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    for _ in range(300):
        producer_id = rng.randrange(6)
        offset += rng.randrange(1, 4)
        if producer_id in open_ones:
            first = open_ones.pop(producer_id)
            assert transactions.end(producer_id, offset) == first
            ended.append((offset, first))
        else:
            transactions.begin(producer_id, offset)
            open_ones[producer_id] = offset
        if rng.randrange(3) == 0:
            committed = rng.randrange(committed, offset + 2)
            transactions.commit(committed)
            ended = [each for each in ended if each[0] >= committed]
        assert transactions.open == open_ones and list(transactions.open.values()) == sorted(open_ones.values())
        undecided = [*open_ones.values(), *(first for _, first in ended)]
        assert transactions.earliest_undecided == min(undecided, default=None)
        assert transactions.earliest_open == min(open_ones.values(), default=None)
        assert transactions.ended_below(offset) == tuple(each for each in ended if each[0] < offset)
