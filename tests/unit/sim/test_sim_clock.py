"""The event queue keeps its order; a node's clock drifts, jumps and tells when a deadline is due."""

from __future__ import annotations

import pytest

from raftlake.sim.clock import US_PER_S, WALL_START_MS, NodeClock, Scheduler


def test_events_run_by_time_and_equal_times_by_the_order_of_scheduling() -> None:
    scheduler = Scheduler()
    seen: list[str] = []
    scheduler.call_at(30, seen.append, "c")
    scheduler.call_at(10, seen.append, "a")
    scheduler.call_at(30, seen.append, "d")
    scheduler.call_after(20, seen.append, "b")
    assert scheduler.run_until(100) == 4
    assert seen == ["a", "b", "c", "d"]
    assert scheduler.now_us == 100


def test_what_is_scheduled_for_the_past_runs_next_and_time_never_goes_back() -> None:
    scheduler = Scheduler()
    times: list[int] = []

    def late() -> None:
        scheduler.call_at(5, lambda: times.append(scheduler.now_us))

    scheduler.call_at(50, late)
    scheduler.run_until(100)
    assert times == [50]


def test_a_run_ends_at_its_time_and_goes_on_from_there() -> None:
    scheduler = Scheduler()
    seen: list[int] = []
    for at_us in (10, 20, 21):
        scheduler.call_at(at_us, seen.append, at_us)
    scheduler.run_until(20)
    assert (seen, scheduler.now_us) == ([10, 20], 20)
    scheduler.run_until(30)
    assert seen == [10, 20, 21]


def test_a_run_stops_at_its_number_of_events() -> None:
    scheduler = Scheduler()

    def again() -> None:
        scheduler.call_after(0, again)

    again()
    assert scheduler.run_until(10, 500) == 500
    assert scheduler.now_us == 0


@pytest.mark.parametrize("drift_ppm", [0, 200, -200, 50_000, -50_000])
def test_a_deadline_is_due_at_the_first_microsecond_at_which_the_clock_shows_it(drift_ppm: int) -> None:
    scheduler = Scheduler()
    scheduler.run_until(777)
    clock = NodeClock(scheduler, start_ms=123, drift_ppm=drift_ppm)
    for deadline_ms in (124, 150, 1_123, 60_123):
        due_us = clock.due_us(deadline_ms)
        scheduler.run_until(due_us - 1)
        assert clock.now_ms() == deadline_ms - 1
        scheduler.run_until(due_us)
        assert clock.now_ms() == deadline_ms


def test_a_deadline_that_has_passed_is_due_at_once() -> None:
    scheduler = Scheduler()
    clock = NodeClock(scheduler, start_ms=100)
    assert clock.due_us(50) == 0


def test_drift_runs_the_monotonic_clock_fast_and_a_jump_moves_only_the_wall_clock() -> None:
    scheduler = Scheduler()
    clock = NodeClock(scheduler, drift_ppm=10_000)
    scheduler.run_until(100 * US_PER_S)
    assert clock.now_ms() == 101_000
    assert clock.wall_ms() == WALL_START_MS + 100_000
    clock.wall_offset_ms -= 5_000
    assert clock.wall_ms() == WALL_START_MS + 95_000
    assert clock.now_ms() == 101_000
