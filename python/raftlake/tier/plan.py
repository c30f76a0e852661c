"""What of a partition is copied to the tier next, and when its open segment is closed for that. Pure: values in, values out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from raftlake.ports.driver import SegmentInfo
from raftlake.raft.types import Epoch, Offset


@dataclass(frozen=True, slots=True)
class Range:
    base_offset: Offset
    #: Exclusive.
    end_offset: Offset


def next_range(segments: Sequence[SegmentInfo], copied_end: Offset, high_watermark: int) -> Range | None:
    """What follows `copied_end`: the rest of the closed segment that holds it. None while there is none below the high
    watermark. Replicas close their segments at different offsets, so a new leader may begin amid one of its own."""
    for segment in segments[:-1]:
        if segment.end_offset > copied_end:
            return Range(copied_end, segment.end_offset) if segment.end_offset <= high_watermark else None
    return None


def epochs_within(epochs: Sequence[tuple[Epoch, Offset]], within: Range) -> tuple[tuple[Epoch, Offset], ...]:
    """The leader epochs of the records of a range, each with its first offset there (Kafka: segmentLeaderEpochs)."""
    first = max(bisect_right(epochs, within.base_offset, key=lambda entry: entry[1]) - 1, 0)
    return tuple((epoch, max(offset, within.base_offset)) for epoch, offset in epochs[first:] if offset < within.end_offset)


@dataclass(frozen=True, slots=True)
class RollRule:
    """When an open segment is closed so that it can be copied."""

    #: It is as large as that.
    flush_bytes: int
    #: Records have waited in it for half as long as this, in milliseconds: the copy takes time too.
    target_lag_ms: int

    def wants_roll(self, active: SegmentInfo, first_seen_ms: int, now_ms: int) -> bool:
        """`first_seen_ms`: when records were first seen in the segment."""
        if active.size == 0:
            return False
        return active.size >= self.flush_bytes or now_ms - first_seen_ms >= self.target_lag_ms // 2
