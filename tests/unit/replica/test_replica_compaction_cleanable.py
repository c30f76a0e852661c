"""What of a log may be compacted, and how much of that was not yet."""

from __future__ import annotations

import pytest

from raftlake.ports.driver import SegmentInfo
from raftlake.raft.types import Offset
from raftlake.replica.compaction.cleanable import Cleanable, cleanable

NOW_MS = 1_000_000


def segment(base: int, end: int, size: int = 100, time_ms: int = 0) -> SegmentInfo:
    return SegmentInfo(Offset(base), Offset(end), size, time_ms)


#: Three closed segments and the active one.
LOG = (segment(10, 20), segment(20, 30, 200), segment(30, 40, 400), segment(40, 45, 1_000))


def of(
    segments: tuple[SegmentInfo, ...] = LOG, compacted_until: int | None = None, below: int = 45, lag_ms: int = 0
) -> Cleanable:
    known = None if compacted_until is None else Offset(compacted_until)
    return cleanable(segments, known, Offset(below), lag_ms, NOW_MS)


def test_all_closed_segments_of_a_log_that_was_never_compacted() -> None:
    assert of() == Cleanable(Offset(10), Offset(40), 0, 700)
    assert of().dirty_ratio == 1.0


@pytest.mark.parametrize(
    ("compacted_until", "clean", "dirty"),
    [(10, 0, 700), (19, 0, 700), (20, 100, 600), (29, 100, 600), (30, 300, 400), (40, 700, 0)],
)
def test_a_segment_is_clean_once_its_end_was_compacted(compacted_until: int, clean: int, dirty: int) -> None:
    assert of(compacted_until=compacted_until) == Cleanable(Offset(compacted_until), Offset(40), clean, dirty)


def test_a_pass_that_ended_amid_a_segment_may_find_less_the_next_time() -> None:
    """Simulator, seed 155: a horizon was due, and the segment in which the last pass ended had to wait."""
    assert of(compacted_until=25, below=20) == Cleanable(Offset(20), Offset(20), 100, 0)


def test_what_was_compacted_and_is_gone_counts_no_more() -> None:
    """Retention has moved the start since."""
    assert of(compacted_until=3).dirty_from == 10


@pytest.mark.parametrize(("below", "until"), [(40, 40), (39, 30), (30, 30), (29, 20), (20, 20), (19, 10), (0, 10)])
def test_nothing_that_may_change_is_touched(below: int, until: int) -> None:
    """A segment that reaches above the last stable offset stays whole."""
    assert of(below=below).until == until


def test_the_active_segment_stays_however_old_it_is() -> None:
    assert of((segment(0, 9),)) == Cleanable(Offset(0), Offset(0), 0, 0)
    assert of((segment(0, 9),)).dirty_ratio == 0.0


@pytest.mark.parametrize(("lag_ms", "until"), [(NOW_MS - 500, 30), (NOW_MS - 499, 20), (0, 40), (NOW_MS, 20), (NOW_MS + 1, 10)])
def test_a_young_segment_keeps_itself_and_what_follows(lag_ms: int, until: int) -> None:
    """The middle one has a record of 500 ms, the others of 0 ms and 501 ms."""
    aged = (segment(10, 20), segment(20, 30, time_ms=500), segment(30, 40, time_ms=501), segment(40, 45))
    assert of(aged, lag_ms=lag_ms).until == until


def test_what_was_compacted_does_not_grow_young_again() -> None:
    """A raised lag holds nothing back that the last pass has seen."""
    aged = (segment(10, 20, time_ms=900), segment(20, 30, time_ms=901), segment(30, 40))
    assert of(aged, compacted_until=20, lag_ms=NOW_MS) == Cleanable(Offset(20), Offset(20), 100, 0)


def test_a_segment_without_any_time_counts_as_old() -> None:
    aged = (segment(10, 20, time_ms=-1), segment(20, 30))
    assert of(aged, lag_ms=NOW_MS * 2).until == 20
