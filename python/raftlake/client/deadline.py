"""Time limits: a deadline on the loop's clock, the pauses between the attempts of an operation, and an alarm.

uvloop rounds times to milliseconds: what waits for an instant may go on half a millisecond before it. Whoever is to act behind
a deadline looks whether it is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable


class Deadline:
    """An instant on the running loop's clock."""

    __slots__ = ("_at", "_now", "_started")

    def __init__(self, timeout_ms: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._started = self._now()
        self._at = self._started + timeout_ms / 1000

    @property
    def at(self) -> float:
        """Seconds on the loop's clock."""
        return self._at

    def elapsed_ms(self) -> float:
        return (self._now() - self._started) * 1000

    def remaining_ms(self) -> float:
        return max(0.0, (self._at - self._now()) * 1000)

    def is_over(self) -> bool:
        return self._now() >= self._at


class Backoff:
    """Exponential pauses with jitter (half to whole), from `first_ms` to `last_ms`."""

    __slots__ = ("_first_ms", "_last_ms", "_next_ms")

    def __init__(self, first_ms: float, last_ms: float) -> None:
        self._first_ms = first_ms
        self._last_ms = last_ms
        self._next_ms = first_ms

    def reset(self) -> None:
        self._next_ms = self._first_ms

    def next_ms(self) -> float:
        pause_ms = self._next_ms * random.uniform(0.5, 1.0)
        self._next_ms = min(self._last_ms, self._next_ms * 1.6)
        return pause_ms

    async def pause(self, deadline: Deadline | None = None) -> None:
        """Wait for the next pause, but never beyond the deadline."""
        pause_ms = self.next_ms()
        if deadline is not None:
            pause_ms = min(pause_ms, deadline.remaining_ms())
        await asyncio.sleep(pause_ms / 1000)


class Alarm:
    """Calls `ring` once, at the earliest instant that it was set to, and not before."""

    __slots__ = ("_at", "_handle", "_ring")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        # uvloop's handle of a time that is over does not know its time.
        self._at = 0.0
        self._handle: asyncio.Handle | None = None

    def set(self, at: float) -> None:
        """`at` in seconds on the running loop's clock."""
        if self._handle is None or at < self._at:
            self.cancel()
            self._at = at
            self._handle = asyncio.get_running_loop().call_at(at, self._on_time)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _on_time(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._at:
            self._handle = loop.call_later(0.001, self._on_time)
            return
        self._handle = None
        self._ring()
