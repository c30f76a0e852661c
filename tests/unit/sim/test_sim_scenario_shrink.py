"""A run as text, its shrinking, the end of its trace, and what many of them add up to."""

from __future__ import annotations

import pytest

from raftlake.sim.cluster import Outcome
from raftlake.sim.faults.strikes import Strike
from raftlake.sim.report import Report
from raftlake.sim.scenario import Scenario, with_setting
from raftlake.sim.shrink import QUIET, Shrinker
from raftlake.sim.tail import LINES_PER_NODE, TraceTail


def test_a_scenario_is_read_as_it_was_written() -> None:
    drawn = Scenario.of_seed(3)
    assert Scenario.parse(3, drawn.lines()) == drawn
    changed = Scenario(with_setting(with_setting(drawn.settings, "network.loss_ppm", 7), "voters", 4), drawn.strikes[:1])
    assert changed.lines() == ["# seed 3", "set voters=4", "set network.loss_ppm=7", str(drawn.strikes[0])]
    assert Scenario.parse(3, changed.lines()) == changed


@pytest.mark.parametrize("name", ["nonsense", "network.nonsense", "nonsense.loss_ppm", "raft.draw"])
def test_a_setting_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        with_setting(Scenario.of_seed(1).settings, name, 1)


def test_every_switch_of_the_shrinker_is_a_setting() -> None:
    for name, value in QUIET.items():
        with_setting(Scenario.of_seed(1).settings, name, value)


def strike(number: int) -> Strike:
    return Strike(number, "crash", (("leader", 0), ("pick", number)))


@pytest.mark.parametrize("needed", [(), (7,), (3, 90), (0, 1, 50, 99)])
def test_what_is_left_is_what_the_failure_needs(needed: tuple[int, ...]) -> None:
    scenario = Scenario(with_setting(Scenario.of_seed(1).settings, "churners", 1), tuple(strike(i) for i in range(100)))
    runs: list[Scenario] = []

    def judge(tried: Scenario) -> str | None:
        runs.append(tried)
        return "a promise" if all(strike(number) in tried.strikes for number in needed) else None

    smaller = Shrinker(judge, "a promise").shrink(scenario)
    assert smaller.strikes == tuple(strike(number) for number in needed)
    assert smaller.settings.churners == 0
    assert len(runs) < 200


def test_another_broken_promise_is_another_failure_and_the_number_of_runs_is_bounded() -> None:
    scenario = Scenario(Scenario.of_seed(1).settings, tuple(strike(i) for i in range(40)))
    assert Shrinker(lambda tried: "another", "a promise").shrink(scenario) == scenario
    runs: list[Scenario] = []

    def judge(tried: Scenario) -> str | None:
        runs.append(tried)
        return None

    Shrinker(judge, "a promise", runs_max=5).shrink(scenario)
    assert len(runs) == 5


def test_the_end_of_a_trace_has_the_last_lines_of_each_in_order() -> None:
    tail = TraceTail()
    tail.write("        1 2<3 first\n")
    tail.write("        2 net cut\n")
    for number in range(LINES_PER_NODE + 5):
        tail.write(f"{3 + number:>9} 1 line {number}\n")
    lines = tail.lines()
    assert lines[:2] == ["        1 2<3 first", "        2 net cut"]
    assert lines[2].endswith("line 5")
    assert len(lines) == 2 + LINES_PER_NODE


def test_a_report_adds_up_and_names_what_failed() -> None:
    report = Report(3, 2, 100.0)
    report.totals.add(1, Outcome(simulated_ms=60_000, events=10, completed=5, faults={"crash": 1}, covered={"x": 2}), 0.5)
    report.totals.add(2, None, 0.5)
    assert report.progress(102.0) == "2 of 3 seeds, 1.00 a second, 1 failed"
    assert report.summary(104.0) == [
        "2 seeds in 4.0 s: 0.50 seeds/s with 2 jobs; 1 failed",
        "2.00 seeds a second of processor time, 100000.0 us an event",
        "simulated 1.0 minutes, 10 events, 5 client requests; a seed has 60 simulated seconds and 5 requests",
        "fault crash: 1",
        "covered x: 2 times in 1 runs",
    ]
    assert report.totals.failed == [2]
