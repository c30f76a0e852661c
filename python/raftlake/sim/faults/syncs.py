"""The syncs of one simulated machine: how long each takes, which are stalled by a fault, which fail.

A fault that made a sync late ends when the fault ends: what is still under way then ends at once, in the order in which it
was begun. Owns no bytes: what a sync makes durable is the disk's business (`disk`).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from raftlake.sim.clock import US_PER_MS
from raftlake.sim.faults.faults import Settings

#: The shortest sync.
SYNC_US_MIN = 20


class Syncs:
    """`call_after(delay_us, callback, *args)` calls back within the machine's present process, if it still runs then."""

    def __init__(self, settings: Settings, rng: Random, call_after: Callable[..., None]) -> None:
        self._settings = settings
        self._rng = rng
        self._call_after = call_after
        self._slowness = 1
        self._has_faults = settings.flush_stall_ppm > 0 or settings.flush_error_ppm > 0
        #: What is to be called when each sync is over that is under way and late, by number.
        self._late: dict[int, Callable[[], None]] = {}
        self._counter = 0
        #: Faults by kind.
        self.stalled = self.failed = 0

    def slow_down(self, factor: int) -> None:
        """Syncs take `factor` times as long from now on; with 1 the disk is well again, and late syncs end."""
        self._slowness = factor
        if factor == 1:
            for number in self._late:
                self._call_after(SYNC_US_MIN, self._end_late, number)

    def heal(self) -> None:
        """End every fault."""
        self._has_faults = False
        self.slow_down(1)

    def power_lost(self) -> None:
        """What waited for a sync is gone."""
        self._late.clear()

    def begin(self, complete: Callable[[], None], fail: Callable[[], None]) -> None:
        """Start a sync; `complete` or `fail` is called when it is over."""
        settings = self._settings
        share = 1.0 if settings.flush_is_even else self._rng.expovariate(1.0)
        delay_us = SYNC_US_MIN + int(share * settings.flush_us_mean * self._slowness)
        is_late = self._slowness > 1
        outcome = complete
        if self._has_faults:
            if self._rng.random() * 1_000_000 < settings.flush_stall_ppm:
                delay_us += self._rng.randrange(settings.flush_stall_ms_max) * US_PER_MS
                self.stalled += 1
                is_late = True
            if self._rng.random() * 1_000_000 < settings.flush_error_ppm:
                outcome = fail
                self.failed += 1
        if not is_late:
            self._call_after(delay_us, outcome)
            return
        self._counter += 1
        self._late[self._counter] = outcome
        self._call_after(delay_us, self._end_late, self._counter)

    def _end_late(self, number: int) -> None:
        outcome = self._late.pop(number, None)
        if outcome is not None:
            outcome()
