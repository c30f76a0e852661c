"""What of a log may be compacted. Pure: segments and a time come in, offsets and sizes go out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raftlake.ports.driver import SegmentInfo
from raftlake.raft.types import Offset


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The closed segments of a log up to `until`. Sizes in bytes."""

    #: What lies below was compacted before.
    dirty_from: Offset
    until: Offset
    clean_bytes: int
    dirty_bytes: int

    @property
    def dirty_ratio(self) -> float:
        """The part that was not compacted yet, 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable(
    segments: Sequence[SegmentInfo], compacted_until: Offset | None, below: Offset, lag_ms: int, wall_ms: int
) -> Cleanable:
    """The active segment stays as it is, and so does everything from the first segment on that reaches above `below`, or that
    was not compacted yet and has a record younger than `lag_ms`. A segment without any time counts as old. A segment is dirty
    as a whole where only its end was not compacted: a pass may end amid a segment."""
    until = segments[0].base_offset
    dirty_from = max(until, until if compacted_until is None else compacted_until)
    clean_bytes = dirty_bytes = 0
    for segment in segments[:-1]:
        is_clean = segment.end_offset <= dirty_from
        is_young = segment.timestamp_ms_max >= 0 and wall_ms - segment.timestamp_ms_max < lag_ms
        if segment.end_offset > below or (is_young and not is_clean):
            break
        until = segment.end_offset
        if is_clean:
            clean_bytes += segment.size
        else:
            dirty_bytes += segment.size
    # The last pass may have ended amid a segment that has to wait now.
    return Cleanable(min(dirty_from, until), until, clean_bytes, dirty_bytes)
