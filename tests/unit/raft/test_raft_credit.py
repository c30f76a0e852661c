"""What may be spent, and when more comes."""

from __future__ import annotations

import random

from raftlake.raft.credit import Credit


def test_all_of_it_can_be_spent_at_once_and_comes_back_one_by_one() -> None:
    credit = Credit(3, 100)
    assert credit.spend(3, 50)
    assert credit.amount(50) == 0 and not credit.spend(1, 149)
    assert [credit.wait_ms(at) for at in (50, 149, 150)] == [100, 1, 0]
    assert credit.spend(1, 150) and not credit.spend(1, 249)
    assert credit.spend(1, 250)


def test_what_came_in_part_is_kept() -> None:
    credit = Credit(3, 100)
    credit.spend(3, 0)
    assert [credit.amount(at) for at in (99, 199, 200, 299, 300, 10_000)] == [0, 1, 2, 2, 3, 3]


def test_a_sum_that_is_too_large_costs_nothing() -> None:
    credit = Credit(3, 100)
    assert not credit.spend(4, 0)
    assert credit.spend(2, 0) and not credit.spend(2, 99)
    assert credit.amount(99) == 1


def test_time_without_spending_is_not_saved_unless_somebody_saves() -> None:
    credit = Credit(3, 100)
    assert credit.amount(1_000_000) == 3
    credit.save_for(5, 1_000_000)
    assert [credit.amount(1_000_000 + after) for after in (199, 200, 10_000)] == [4, 5, 5]
    assert credit.spend(5, 1_010_000)
    assert credit.amount(2_000_000) == 3, "it is over"


def test_what_is_spent_meanwhile_leaves_the_rest_of_the_savings() -> None:
    credit = Credit(3, 100)
    credit.save_for(10, 0)
    assert credit.spend(1, 500)
    assert credit.amount(500) == 7 and credit.amount(10_000) == 7
    credit.save_for(10, 10_000)
    assert credit.spend(10, 10_300)


def test_no_more_is_spent_than_the_limit_and_one_for_each_step() -> None:
    drawn = random.Random(7)
    for _ in range(50):
        most, step_ms = drawn.randrange(1, 20), drawn.randrange(1, 50)
        credit, spent, now_ms = Credit(most, step_ms), 0, drawn.randrange(1_000)
        began_ms = now_ms
        for _ in range(300):
            now_ms += drawn.randrange(2 * step_ms)
            if drawn.randrange(10) == 0:
                credit.save_for(drawn.randrange(3 * most), now_ms)
            wanted = drawn.randrange(1, most + 2)
            spent += wanted * credit.spend(wanted, now_ms)
            assert spent <= most + (now_ms - began_ms) // step_ms
