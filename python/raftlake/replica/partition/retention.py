"""Which prefix of a log may be deleted. Pure: segments and a time come in, an offset goes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raftlake.ports.driver import SegmentInfo
from raftlake.replica.configs.in_force import InForce


@dataclass(frozen=True, slots=True)
class Kept:
    """What the local disk keeps of a partition, -1 for all."""

    local_bytes: int
    local_ms: int


@dataclass(frozen=True, slots=True)
class TableBounds:
    """What the quorum's keys say of a partition's table in the remote tier."""

    #: Its first offset: what lies before has been ended by retention.
    start: int
    #: What lies below is not needed here: the table gave it back as it was written, or it has been ended.
    safe: int


def kept_here(asked: InForce, *, is_tiered: bool) -> Kept:
    """Without a remote tier the local disks have the only copy, and keep all that is kept. What is only compacted stays."""
    if not asked.deletes:
        return Kept(-1, -1)
    if is_tiered:
        return Kept(asked.local_bytes, asked.local_ms)
    return Kept(asked.retention_bytes, asked.retention_ms)


def first_offset_to_keep(segments: Sequence[SegmentInfo], kept: Kept, wall_ms: int, below: int, ended: int = 0) -> int:
    """The first offset that must stay. Whole closed segments up to `below` go when they are older than `local_ms` or, oldest
    first, while the log is larger than `local_bytes`. Those up to `ended` go in any case. The active segment always stays: what
    `wants_roll` says is asked first."""
    keep_from = segments[0].base_offset if segments else 0
    total_bytes = sum(segment.size for segment in segments)
    for segment in segments[:-1]:
        if segment.end_offset > below:
            break
        too_old = _is_too_old(segment, kept, wall_ms)
        too_much = 0 <= kept.local_bytes <= total_bytes - segment.size
        if not (too_old or too_much or segment.end_offset <= ended):
            break
        keep_from = segment.end_offset
        total_bytes -= segment.size
    return keep_from


def wants_roll(segments: Sequence[SegmentInfo], kept: Kept, wall_ms: int, below: int, ended: int = 0) -> bool:
    """Whether the active segment is to be closed so that retention may delete all of the log, as in Kafka: its newest record is
    older than `local_ms`, or all of it lies below `ended`. Nothing of it lies above `below`, and whatever lies before it goes.
    A segment without any time stays: it holds the control records of a leader, and grows old with the first record behind
    them."""
    if not segments:
        return False
    active = segments[-1]
    if active.size == 0 or active.timestamp_ms_max < 0 or active.end_offset > below:
        return False
    if not (_is_too_old(active, kept, wall_ms) or active.end_offset <= ended):
        return False
    return first_offset_to_keep(segments, kept, wall_ms, below, ended) == active.base_offset


def _is_too_old(segment: SegmentInfo, kept: Kept, wall_ms: int) -> bool:
    return 0 <= kept.local_ms < wall_ms - segment.timestamp_ms_max
