"""What keeps records on local disks, in words for operators and for clients that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from raftlake.ports.peer_rpcs import GroupId
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
    since = _time(first.failing_since_ms)
    return f"{_named(first.group, len(failing))}: {first.purpose}, since {since}: {error.reason}"


def lateness_of(waits: Sequence[tuple[int, GroupId]], target_lag_ms: int) -> str:
    """One sentence on partitions whose copies cannot keep up, each with the ms that its records wait; "" where none is so."""
    if not waits:
        return ""
    wait_ms, group = max(waits)
    return (
        f"{_named(group, len(waits))}: copies to the tier are {wait_ms // 1000} s late and do not fail "
        f"(tier.target.lag.ms={target_lag_ms}): larger segments (segment.bytes, tier.flush.bytes) take less time to copy"
    )


def _named(group: GroupId, count: int) -> str:
    """One of so many partitions."""
    others = f" and {count - 1} more partition{'s' * (count > 2)}" if count > 1 else ""
    return f"{group.topic}-{group.partition}{others}"


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(min(max(wall_ms, 0), _LAST_MS) // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
