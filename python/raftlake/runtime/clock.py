"""The only reader of real clocks."""

from __future__ import annotations

import time


class SystemClock:
    """`ports.Clock` on the clocks of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Monotonic milliseconds. They go on while the process is paused, so that a paused leader wakes up deposed."""
        return time.monotonic_ns() // 1_000_000

    def now_us(self) -> int:
        """Monotonic microseconds, for measuring latencies."""
        return time.monotonic_ns() // 1_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
        return time.time_ns() // 1_000_000
