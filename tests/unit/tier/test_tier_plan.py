"""What is copied next, and when an open segment is closed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from raftlake.ports.driver import SegmentInfo
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.plan import Range, RollRule, epochs_within, next_range


def segments(*bounds: int) -> list[SegmentInfo]:
    """Between the bounds, the last one active."""
    return [SegmentInfo(Offset(base), Offset(end), 100, -1) for base, end in pairwise(bounds)]


def ranges(found: list[Range]) -> list[tuple[int, int]]:
    return [(part.base_offset, part.end_offset) for part in found]


@pytest.mark.parametrize(
    ("copied_end", "high_watermark", "expected"),
    [
        (0, 9, [(0, 3)]),
        (0, 3, [(0, 3)]),
        (0, 2, []),
        (2, 9, [(2, 3)]),
        (3, 9, [(3, 7)]),
        (3, 6, []),
        (6, 7, [(6, 7)]),
        (7, 9, []),
        (9, 9, []),
    ],
)
def test_the_rest_of_the_segment_that_holds_the_end_of_the_copies(
    copied_end: int, high_watermark: int, expected: list[tuple[int, int]]
) -> None:
    found = next_range(segments(0, 3, 7, 9), Offset(copied_end), high_watermark, lambda end: True)
    assert ranges(found) == expected


def test_segments_are_taken_together_up_to_an_end_that_is_good() -> None:
    bounds = segments(0, 3, 7, 9, 12)
    assert ranges(next_range(bounds, Offset(1), 9, lambda end: end == 9)) == [(1, 3), (3, 7), (7, 9)]
    assert next_range(bounds, Offset(1), 8, lambda end: end == 9) == []
    assert next_range(bounds, Offset(1), 12, lambda end: end == 12) == [], "the last one is open"


@pytest.mark.parametrize(
    ("base", "end", "expected"),
    [
        (0, 10, [(1, 0), (4, 5), (6, 8)]),
        (0, 5, [(1, 0)]),
        (4, 6, [(1, 4), (4, 5)]),
        (5, 6, [(4, 5)]),
        (9, 10, [(6, 9)]),
        (0, 8, [(1, 0), (4, 5)]),
    ],
)
def test_the_epochs_of_a_range_begin_within_it(base: int, end: int, expected: list[tuple[int, int]]) -> None:
    epochs = [(Epoch(1), Offset(0)), (Epoch(4), Offset(5)), (Epoch(6), Offset(8))]
    assert list(epochs_within(epochs, Range(Offset(base), Offset(end)))) == expected


def test_an_open_segment_is_closed_when_it_is_large_or_its_records_have_waited() -> None:
    rule = RollRule(flush_bytes=100, target_lag_ms=1_000)
    active = SegmentInfo(Offset(0), Offset(5), 99, -1)
    assert not rule.wants_roll(active, first_seen_ms=0, now_ms=499)
    assert rule.wants_roll(active, first_seen_ms=0, now_ms=500)
    assert rule.wants_roll(SegmentInfo(Offset(0), Offset(5), 100, -1), first_seen_ms=0, now_ms=0)
    assert not rule.wants_roll(SegmentInfo(Offset(5), Offset(5), 0, -1), first_seen_ms=0, now_ms=5_000)
