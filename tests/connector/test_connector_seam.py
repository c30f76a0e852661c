"""The seam between table and log, off by one: each offset of a range lies in one piece, and tasks end where files end."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_raftlake.ranges import OffsetRange
from pyspark_raftlake.seam import FileIndex, Shown, TimeSpan, cut_by_bytes, split_at_seam


@dataclass(frozen=True)
class File:
    offset_min: int | None
    offset_max: int | None
    size: int = 100
    time_min: int | None = None
    time_max: int | None = None


def range_of(start: int, end: int) -> OffsetRange:
    return OffsetRange(topic="t", partition=0, start=start, end=end)


def bounds(pieces: list[OffsetRange]) -> list[tuple[int, int]]:
    return [(piece.start, piece.end) for piece in pieces]


SEAMS = [
    ("no table", None, [(10, 20)]),
    ("a table without rows", Shown(12, 12), [(10, 20)]),
    ("the seam at the start", Shown(0, 10), [(10, 20)]),
    ("one offset in the table", Shown(0, 11), [(10, 11), (11, 20)]),
    ("the table ends inside", Shown(0, 15), [(10, 15), (15, 20)]),
    ("one offset in the log", Shown(0, 19), [(10, 19), (19, 20)]),
    ("the seam at the end", Shown(0, 20), [(10, 20)]),
    ("the table reaches farther", Shown(0, 30), [(10, 20)]),
    ("the table begins at the start", Shown(10, 15), [(10, 15), (15, 20)]),
    ("the start of the table has moved up", Shown(12, 15), [(10, 12), (12, 15), (15, 20)]),
    ("the table begins with the last offset", Shown(19, 30), [(10, 19), (19, 20)]),
    ("the table begins at the end", Shown(20, 30), [(10, 20)]),
]


@pytest.mark.parametrize(("shown", "pieces"), [each[1:] for each in SEAMS], ids=[each[0] for each in SEAMS])
def test_a_range_is_split_where_the_table_begins_and_ends(shown: Shown | None, pieces: list[tuple[int, int]]) -> None:
    assert bounds(split_at_seam(range_of(10, 20), shown)) == pieces


def test_an_empty_range_has_no_piece() -> None:
    assert split_at_seam(range_of(10, 10), Shown(0, 30)) == [] == split_at_seam(range_of(10, 10), None)


@given(start=st.integers(0, 30), size=st.integers(0, 30), first=st.integers(0, 60), rows=st.integers(0, 60))
def test_each_offset_lies_in_one_piece_and_no_piece_crosses_the_seam(start: int, size: int, first: int, rows: int) -> None:
    shown = Shown(first, first + rows)
    pieces = split_at_seam(range_of(start, start + size), shown)
    assert [offset for piece in pieces for offset in range(piece.start, piece.end)] == list(range(start, start + size))
    for piece in pieces:
        assert len({shown.holds(offset) for offset in range(piece.start, piece.end)}) == 1


# --- tasks of files ---------------------------------------------------------------------------------------------------


def test_tasks_end_where_files_end() -> None:
    files = [File(0, 9), File(10, 19), File(20, 29), File(30, 39)]
    assert bounds(cut_by_bytes(range_of(0, 40), files, 200)) == [(0, 20), (20, 40)]
    assert bounds(cut_by_bytes(range_of(0, 40), files, 199)) == [(0, 10), (10, 20), (20, 30), (30, 40)]
    assert bounds(cut_by_bytes(range_of(0, 40), files, 1_000)) == [(0, 40)]
    # Only the bytes of the range count.
    assert bounds(cut_by_bytes(range_of(5, 25), files, 200)) == [(5, 25)]


def test_a_large_file_is_cut_by_offsets() -> None:
    assert bounds(cut_by_bytes(range_of(0, 12), [File(0, 9, 390), File(10, 11, 2)], 100)) == [(0, 2), (2, 5), (5, 7), (7, 12)]
    assert bounds(cut_by_bytes(range_of(0, 12), [File(0, 9, 390), File(10, 11, 20)], 100))[-2:] == [(7, 10), (10, 12)]
    # A row cannot be cut.
    assert bounds(cut_by_bytes(range_of(0, 2), [File(0, 1, 400)], 100)) == [(0, 1), (1, 2)]


def test_files_that_do_not_tell_their_offsets_are_one_task_with_all() -> None:
    assert bounds(cut_by_bytes(range_of(0, 40), [File(None, None, 10**9)], 100)) == [(0, 40)]
    index = FileIndex([File(None, None), File(20, 29), File(0, 9), File(5, 25)])
    assert index.within(range_of(0, 5)) == (File(None, None), File(0, 9))
    assert index.within(range_of(26, 30)) == (File(None, None), File(20, 29))
    assert index.within(range_of(9, 10)) == (File(None, None), File(0, 9), File(5, 25))
    assert index.within(range_of(40, 50)) == (File(None, None),)


ENDS = st.lists(st.integers(1, 8), max_size=8)


@given(sizes=ENDS, start=st.integers(0, 40), count=st.integers(0, 40), bytes_max=st.integers(1, 300))
def test_tasks_follow_one_another_over_the_whole_range(sizes: list[int], start: int, count: int, bytes_max: int) -> None:
    files, at = [], 0
    for size in sizes:
        files.append(File(at, at + size - 1, size * 10))
        at += size
    pieces = cut_by_bytes(range_of(start, start + count), files, bytes_max)
    assert [offset for piece in pieces for offset in range(piece.start, piece.end)] == list(range(start, start + count))
    assert all(piece.size > 0 for piece in pieces)
    index = FileIndex(files)
    for piece in pieces:
        holding = tuple(f for f in files if f.offset_max >= piece.start and f.offset_min < piece.end)  # type: ignore[operator]
        assert index.within(piece) == holding


# --- times ------------------------------------------------------------------------------------------------------------


def test_files_of_other_times_are_left_out() -> None:
    files = [File(0, 9, 1, 100, 199), File(10, 19, 1, 150, 250), File(20, 29, 1, 300, 399), File(30, 39)]
    index = FileIndex(files)

    def kept(*span: int | None, start: int = 0, end: int = 50) -> list[tuple[int, int]]:
        return bounds(index.without_times(range_of(start, end), TimeSpan(*span)))

    assert kept(None, None) == [(0, 50)]
    assert kept(200, None) == [(10, 50)]
    assert kept(199, None) == [(0, 50)]
    assert kept(251, 299) == [(30, 50)], "what does not tell its times is kept, and what lies behind all files"
    assert kept(None, 149) == [(0, 10), (30, 50)]
    assert kept(None, 150) == [(0, 20), (30, 50)]
    assert kept(400, None, start=5, end=25) == []
    assert kept(300, None, start=5, end=25) == [(20, 25)]


def test_files_that_share_offsets_are_kept_whatever_their_times() -> None:
    """OPTIMIZE may put rows of one range of offsets into several files."""
    overlapping = [File(0, 30, 1, 100, 199), File(5, 9, 1, 100, 199), File(20, 40, 1, 500, 599), File(50, 59, 1, 100, 199)]
    assert bounds(FileIndex(overlapping).without_times(range_of(0, 60), TimeSpan(500, None))) == [(0, 50)]
    untold = [File(None, None), File(0, 9, 1, 100, 199)]
    assert bounds(FileIndex(untold).without_times(range_of(0, 10), TimeSpan(500, None))) == [(0, 10)]
