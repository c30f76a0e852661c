"""The watch over the event loop's pauses, on a loop whose time a test controls."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from raftlake.runtime.loop_watch import TICK_SECONDS, LoopWatch
from raftlake.runtime.metrics import Latency


class Loop:
    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> Any:
        self.timers.append((when, call))
        return SimpleNamespace(cancel=self.timers.clear)

    def turn(self, at: float) -> None:
        """The loop comes to its timers at that time, not before."""
        self.now = at
        due, self.timers = self.timers, []
        for when, call in due:
            assert when <= at
            call()


def test_a_tick_on_time_has_no_lag_and_a_late_one_has_the_pause() -> None:
    loop, lags = Loop(), list[int]()
    LoopWatch(loop, lags.append).start()  # type: ignore[arg-type]
    loop.turn(100.0 + TICK_SECONDS)
    loop.turn(100.0 + 2 * TICK_SECONDS + 0.25)
    loop.turn(100.0 + 3 * TICK_SECONDS + 0.25)
    assert [round(lag / 1000) for lag in lags] == [0, 250, 0]


def test_nothing_comes_after_the_stop() -> None:
    loop, lags = Loop(), list[int]()
    watch = LoopWatch(loop, lags.append)  # type: ignore[arg-type]
    watch.start()
    watch.stop()
    assert loop.timers == []
    watch.stop()


def test_the_metric_shows_the_longest_of_the_window() -> None:
    latency = Latency()
    for now_s, lag_us in ((1, 2000), (2, 70_000), (3, 1000)):
        latency.note(now_s * 1_000_000, lag_us)
    assert latency.read(3_000_000)[1] == 70.0
    assert latency.read(32_500_000)[1] == 1.0
