"""What of a partition is copied to the tier next, and when its open segment is closed for that. Pure: values in, values out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raftlake.ports.driver import SegmentInfo
from raftlake.raft.types import Epoch, Offset


@dataclass(frozen=True, slots=True)
class Range:
    base_offset: Offset
    #: Exclusive.
    end_offset: Offset


def next_range(
    segments: Sequence[SegmentInfo], copied_end: Offset, high_watermark: int, ends_well: Callable[[Offset], bool]
) -> list[Range]:
    """What follows `copied_end`, each part in one closed segment: the rest of the segment that holds it, and those behind it up
    to the first end that `ends_well`. Empty while there is none below the high watermark.

    Replicas close their segments at different offsets, so a new leader may begin amid one of its own. A replica can begin only
    where the state of producers and voters was saved (`ends_well`), and a disk without room may have missed it."""
    parts: list[Range] = []
    for segment in segments[:-1]:
        if segment.end_offset <= copied_end:
            continue
        if segment.end_offset > high_watermark:
            break
        parts.append(Range(max(copied_end, segment.base_offset), segment.end_offset))
        if ends_well(segment.end_offset):
            return parts
    return []


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
