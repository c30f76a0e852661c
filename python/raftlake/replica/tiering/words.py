"""What keeps records on local disks, in words for operators and for clients that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from raftlake.replica.tiering.led import LedPartition

#: Years that a wrong clock may give are told as they are.
_LAST_MS = 253_402_300_799_000


def trouble_of(partitions: Sequence[LedPartition]) -> str:
    """One sentence on those that do not get on: how many, since when, and why the longest of them; "" where all do."""
    failing = [step for step in (led.failing for led in partitions) if step is not None]
    if not failing:
        return ""
    first = min(failing, key=lambda step: step.failing_since_ms)
    error = first.error
    assert error is not None
    others = f" and {len(failing) - 1} more partitions" if len(failing) > 1 else ""
    since = _time(first.failing_since_ms)
    return f"{first.group.topic}-{first.group.partition}{others}: {first.purpose}, since {since}: {error.reason}"


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(min(max(wall_ms, 0), _LAST_MS) // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
