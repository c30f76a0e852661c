"""Whether files hold each offset once, by their statistics."""

from __future__ import annotations

import pytest

from raftlake.tier.table_files import TableFile
from raftlake.tier.wholeness import end_of, fault_in, start_of


def file(first: int, last: int, rows: int | None = -1, name: str = "") -> TableFile:
    return TableFile(
        path=name or f"f{first}",
        size=1,
        partition=2,
        rows=last + 1 - first if rows == -1 else rows,
        offset_min=first,
        offset_max=last,
        incarnation_min=0,
        incarnation_max=0,
    )


@pytest.mark.parametrize(
    "files",
    [
        [],
        [file(5, 9)],
        [file(10, 19), file(5, 9)],
        [file(0, 9, 5), file(1, 8, 5), file(10, 19)],
        [file(0, 9, None), file(0, 9, None)],
    ],
)
def test_files_that_follow_one_another_are_whole(files: list[TableFile]) -> None:
    assert fault_in(files) is None


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([file(0, 4), file(7, 9)], "nothing of the offsets 5 to 6 (f7"),
        ([file(0, 9, None), file(11, 12)], "nothing of the offsets 10 to 10 (f11"),
        ([file(0, 9, 9)], "9 rows have the offsets 0 to 9, so some are missing (f0)"),
        ([file(0, 9), file(5, 5)], "11 rows have the offsets 0 to 9, so some are there twice (f0 and f5)"),
        ([file(0, 9), file(0, 9, name="again"), file(3, 3)], "some are there twice (f0 and again, ...)"),
    ],
)
def test_gaps_and_doubles_are_told(files: list[TableFile], words: str) -> None:
    for order in (files, files[::-1]):
        assert words.split(" (")[0] in (fault_in(order) or "")
    assert words in (fault_in(files) or "")


def test_bounds() -> None:
    files = [file(10, 19), file(5, 9)]
    assert (start_of(files), end_of(files)) == (5, 20)
    assert (start_of([]), end_of([])) == (None, None)


def test_it_takes_a_moment_for_a_hundred_thousand_files() -> None:
    """Sorted once: nothing is compared with all the rest."""
    files = [file(10 * n, 10 * n + 9) for n in range(100_000)]
    assert fault_in(files[::-1]) is None
