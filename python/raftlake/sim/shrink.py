"""Cutting a failing run down to what it needs in order to fail.

Delta debugging (Zeller's ddmin) over the list of strikes, then the settings that add noise, one by one. A smaller run counts
only when it breaks the same promise. Owns the search; running and judging is the caller's, so it can be tested on made-up runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from raftlake.sim.faults.strikes import Strike
from raftlake.sim.scenario import Scenario, with_setting

#: The promise that a scenario breaks, None when it breaks none.
Judge = Callable[[Scenario], str | None]

#: Settings that can be switched off, and the value that does it.
QUIET = {
    "network.loss_ppm": 0,
    "network.duplicate_ppm": 0,
    "network.straggle_ppm": 0,
    "flush_stall_ppm": 0,
    "flush_error_ppm": 0,
    "drift_ppm_max": 0,
    "retention_bytes": -1,
    "local_retention_bytes": -2,
    "retention_ms": -1,
    "churners": 0,
    "configurers": 0,
    "observers": 0,
    "partitions": 1,
    "readers": 0,
    "kv_range_percent": 0,
    "kv_clients": 0,
    "producer_window": 1,
    "producers": 0,
}


class Shrinker:
    """`runs_max` bounds how often a run is tried."""

    def __init__(self, judge: Judge, promise: str, runs_max: int = 300) -> None:
        self._judge = judge
        self._promise = promise
        self._runs_left = runs_max

    def shrink(self, scenario: Scenario) -> Scenario:
        """A scenario that breaks the same promise and from which nothing more could be taken."""
        scenario = replace(scenario, strikes=self._fewer(scenario))
        for name, value in QUIET.items():
            quieter = replace(scenario, settings=with_setting(scenario.settings, name, value))
            if quieter != scenario and self._fails(quieter):
                scenario = quieter
        # What was noise for the strikes is gone: some of them may have become needless.
        return replace(scenario, strikes=self._fewer(scenario))

    def _fails(self, scenario: Scenario) -> bool:
        if self._runs_left <= 0:
            return False
        self._runs_left -= 1
        return self._judge(scenario) == self._promise

    def _fewer(self, scenario: Scenario) -> tuple[Strike, ...]:
        strikes = scenario.strikes
        pieces = 2
        while strikes:
            size = max(1, len(strikes) // pieces)
            for start in range(0, len(strikes), size):
                rest = strikes[:start] + strikes[start + size :]
                if self._fails(replace(scenario, strikes=rest)):
                    strikes, pieces = rest, max(2, pieces - 1)
                    break
            else:
                if size == 1:
                    break
                pieces = min(len(strikes), pieces * 2)
        return strikes
