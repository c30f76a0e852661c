"""How long the event loop stands still at a time: a callback every few milliseconds that notes how late it is.

The pauses are what one long piece of work (a snapshot, a recovery, a garbage collection) makes every client wait. A pause is
seen when it ends, and up to `TICK_SECONDS` of it may go unnoticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TICK_SECONDS = 0.02


class LoopWatch:
    """`note` is told the lag of each tick, in microseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, note: Callable[[int], None]) -> None:
        self._loop = loop
        self._note = note
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        self._due = self._loop.time() + TICK_SECONDS
        self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        self._note(max(0, int(1e6 * (self._loop.time() - self._due))))
        self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
