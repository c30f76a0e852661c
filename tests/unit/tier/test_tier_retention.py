"""Which whole files of a table total retention ends."""

from __future__ import annotations

import pytest

from raftlake.ports.tier import RemoteFile
from raftlake.raft.types import Offset
from raftlake.tier.retention import TotalRule

#: Ten offsets and 100 bytes each, from 1970 plus 1, 2, 3, ... seconds.
FOUR = [
    RemoteFile(
        base_offset=Offset(10 * n),
        end_offset=Offset(10 * n + 10),
        timestamp_ms_max=1_000 * (n + 1),
        size=40,
        log_bytes=100,
    )
    for n in range(4)
]


def first_kept(rule: TotalRule, *, total: int = 400, copied_end: int = 40, wall_ms: int = 10_000) -> int | None:
    return rule.first_kept(FOUR, total_bytes=total, copied_end=Offset(copied_end), wall_ms=wall_ms)


@pytest.mark.parametrize(
    ("keep", "total", "expected"),
    [(400, 400, None), (301, 400, None), (300, 400, 10), (299, 400, 10), (200, 400, 20), (400, 500, 10), (0, 400, 30)],
)
def test_by_size_at_least_so_much_stays(keep: int, total: int, expected: int | None) -> None:
    """What is local and not copied counts too."""
    assert first_kept(TotalRule(keep, -1), total=total) == expected


@pytest.mark.parametrize(
    ("keep_ms", "wall_ms", "expected"),
    [(5_000, 6_000, None), (5_000, 6_001, 10), (5_000, 7_001, 20), (5_000, 0, None), (0, 3_001, 30), (-1, 1 << 60, None)],
)
def test_by_age_the_newest_record_of_a_file_counts(keep_ms: int, wall_ms: int, expected: int | None) -> None:
    assert first_kept(TotalRule(-1, keep_ms), wall_ms=wall_ms) == expected


def test_a_clock_that_is_far_ahead_leaves_the_newest_copy() -> None:
    assert first_kept(TotalRule(0, 0), wall_ms=1 << 60) == 30
    assert first_kept(TotalRule(0, 0), wall_ms=1 << 60, copied_end=35) == 30, "also in a file that was rewritten"
    assert first_kept(TotalRule(0, 0), wall_ms=1 << 60, copied_end=50) == 40, "that one is not among the oldest"
    assert first_kept(TotalRule(0, 0), wall_ms=1 << 60, copied_end=10) is None


def test_a_file_that_stays_keeps_those_behind_it() -> None:
    old, young, older = (
        RemoteFile(base_offset=Offset(n), end_offset=Offset(n + 1), timestamp_ms_max=time, size=1, log_bytes=1)
        for n, time in enumerate((1_000, 9_000, 500))
    )
    kept = TotalRule(-1, 5_000).first_kept([old, young, older], total_bytes=3, copied_end=Offset(9), wall_ms=10_000)
    assert kept == 1


@pytest.mark.parametrize(("next_ms", "expected"), [(1_000, 2), (9_000, None), (-1, None)])
def test_a_file_without_times_is_as_old_as_what_follows(next_ms: int, expected: int | None) -> None:
    files = [
        RemoteFile(base_offset=Offset(n), end_offset=Offset(n + 1), timestamp_ms_max=time, size=1, log_bytes=1)
        for n, time in enumerate((-1, next_ms))
    ]
    assert TotalRule(-1, 5_000).first_kept(files, total_bytes=2, copied_end=Offset(9), wall_ms=10_000) == expected


def test_nobody_is_asked_where_nothing_can_be_due() -> None:
    assert not TotalRule(-1, -1).may_end_something(1 << 60)
    assert not TotalRule(100, -1).may_end_something(100) and TotalRule(100, -1).may_end_something(101)
    assert TotalRule(-1, 0).may_end_something(0)


@pytest.mark.parametrize(("deleted", "expected"), [(9, None), (10, 10), (29, 20), (30, 30), (99, 30)])
def test_files_whose_records_are_all_deleted_go_except_the_newest(deleted: int, expected: int | None) -> None:
    kept = TotalRule(-1, -1).first_kept(FOUR, total_bytes=400, copied_end=Offset(40), wall_ms=10_000, deleted_below=deleted)
    assert kept == expected


def test_deleted_records_are_worth_a_look() -> None:
    assert TotalRule(-1, -1).may_end_something(0, has_deleted=True)
    assert not TotalRule(-1, -1).may_end_something(1 << 40)
