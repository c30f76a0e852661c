"""Simulated time: one event queue for the whole cluster and one drifting clock per node incarnation.

Owns: the order in which everything happens. Events that fall on the same microsecond run in the order in which they were
scheduled, so a run is a function of its seed alone. Knows nothing of nodes, messages or faults.

Invariant: time never goes back, and no callback runs inside another one.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

US_PER_MS = 1_000
US_PER_S = 1_000_000

#: Simulated runs begin at this wall-clock time (milliseconds since 1970), so that record timestamps look like real ones.
WALL_START_MS = 1_700_000_000_000


class Scheduler:
    """The event queue. Times are microseconds since the start of the run."""

    def __init__(self) -> None:
        self.now_us = 0
        self.events_run = 0
        self._sequence = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def call_at(self, at_us: int, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback(*args)` at `at_us`; a time that has passed means "next"."""
        self._sequence += 1
        heappush(self._queue, (max(at_us, self.now_us), self._sequence, callback, args))

    def call_after(self, delay_us: int, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback(*args)` in `delay_us` (0 or more): after everything that is already due at that moment."""
        self._sequence += 1
        heappush(self._queue, (self.now_us + delay_us, self._sequence, callback, args))

    def run_until(self, end_us: int, events_max: int = 1 << 62) -> int:
        """Run every event due up to `end_us`, at most `events_max`; returns how many were run."""
        queue = self._queue
        events = 0
        while queue and queue[0][0] <= end_us:
            if events >= events_max:
                break
            at_us, _, callback, args = heappop(queue)
            self.now_us = at_us
            events += 1
            callback(*args)
        else:
            self.now_us = max(self.now_us, end_us)
        self.events_run += events
        return events


class NodeClock:
    """What one incarnation of a node reads: a monotonic clock with its own origin and drift, and a wall clock that may jump.

    A drift of +200 ppm runs 200 microseconds a second fast. A restarted machine's monotonic clock starts anew, so each
    incarnation gets its own instance.
    """

    def __init__(self, scheduler: Scheduler, *, start_ms: int = 0, drift_ppm: int = 0, wall_offset_ms: int = 0) -> None:
        assert start_ms >= 0
        assert -500_000 <= drift_ppm <= 500_000
        self._scheduler = scheduler
        self._origin_us = scheduler.now_us
        self._start_ms = start_ms
        self._rate = 1_000_000 + drift_ppm
        self.wall_offset_ms = wall_offset_ms

    def now_ms(self) -> int:
        """Monotonic milliseconds of this incarnation."""
        return self._start_ms + (self._scheduler.now_us - self._origin_us) * self._rate // 1_000_000_000

    def jump(self, by_ms: int) -> None:
        """Skip time, as after a suspension. It never goes back."""
        assert by_ms >= 0
        self._start_ms += by_ms

    def wall_ms(self) -> int:
        """Milliseconds since 1970; jumps when a fault moves `wall_offset_ms`."""
        return WALL_START_MS + self.wall_offset_ms + self._scheduler.now_us // US_PER_MS

    def due_us(self, deadline_ms: int) -> int:
        """The first simulated microsecond at which `now_ms()` is at least `deadline_ms`."""
        elapsed = -(-(deadline_ms - self._start_ms) * 1_000_000_000 // self._rate)
        return self._origin_us + max(elapsed, 0)
