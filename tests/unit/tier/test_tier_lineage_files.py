"""The files of a lineage by their offsets: which hold an offset, and which a delete may remove without a gap."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.tier_contract import GROUP, segment
from raftlake.ports.tier import Lineage, RemoteSegment
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.lineage_files import LineageFiles, lineage_files, removable
from raftlake.tier.schema import table_uri
from raftlake.tier.store import Store
from raftlake.tier.table_files import TableFile
from tierkit import local_settings


def file(first: int, last: int, incarnation: int | None = 0, highest: int | None = None) -> TableFile:
    return TableFile(
        path=f"{first}-{last}",
        size=1,
        partition=2,
        rows=None,
        offset_min=first,
        offset_max=last,
        incarnation_min=incarnation,
        incarnation_max=incarnation if highest is None else highest,
    )


def names(files: list[TableFile]) -> list[str]:
    return [each.path for each in files]


def test_files_that_follow_one_another() -> None:
    files = LineageFiles([file(10, 19), file(0, 9), file(20, 29)])
    assert (files.start, files.end) == (0, 30)
    assert [names(files.holding(offset)) for offset in (0, 9, 10, 29, 30)] == [["0-9"], ["0-9"], ["10-19"], ["20-29"], []]
    assert names(files.overlapping(9, 11)) == ["0-9", "10-19"]
    assert names(files.overlapping(10, 20)) == ["10-19"]
    assert names(files.overlapping(30, 99)) == [] == names(files.overlapping(-5, 0))


def test_no_files() -> None:
    files = LineageFiles([])
    assert (files.start, files.end, files.holding(0), files.end_of_window(0, 3)) == (None, 0, [], 0)


def test_files_that_overlap_as_optimize_may_make_them() -> None:
    files = LineageFiles([file(0, 50), file(5, 9), file(8, 60), file(61, 70)])
    assert names(files.holding(7)) == ["0-50", "5-9"]
    assert names(files.holding(55)) == ["8-60"]
    assert names(files.holding(61)) == ["61-70"]
    assert files.end == 71


def test_windows_go_through_all_files() -> None:
    files = LineageFiles([file(10 * n, 10 * n + 9) for n in range(7)])
    seen, at = [], 0
    while at < files.end:
        at = files.end_of_window(at, 3)
        seen.append(at)
    assert seen == [40, 70]
    # From the middle of a file.
    assert files.end_of_window(15, 1) == 30
    assert files.end_of_window(60, 1) == 70


@pytest.mark.parametrize(
    ("until", "gone"), [(0, []), (9, []), (10, ["0-9"]), (19, ["0-9"]), (20, ["0-9", "10-19"]), (99, ["0-9", "10-19", "20-29"])]
)
def test_files_below_an_offset_are_removable(until: int, gone: list[str]) -> None:
    files = LineageFiles([file(20, 29), file(0, 9), file(10, 19)])
    assert names(removable(files, 0, until)) == gone


def test_files_that_overlap_one_that_stays_stay() -> None:
    """Rows between those of a file that stays: without them it would have a gap."""
    files = LineageFiles([file(0, 9), file(10, 30), file(12, 14), file(15, 40)])
    assert names(removable(files, 0, 31)) == ["0-9"]
    assert names(removable(files, 0, 41)) == ["0-9", "10-30", "12-14", "15-40"]


def test_rows_of_another_incarnation_or_an_unknown_one_end_it() -> None:
    assert names(removable(LineageFiles([file(0, 9), file(10, 19, highest=1), file(20, 29)]), 0, 99)) == ["0-9"]
    assert names(removable(LineageFiles([file(0, 9), file(10, 19, incarnation=None), file(20, 29)]), 0, 99)) == ["0-9"]


def test_row_groups_tell_where_statistics_do_not(tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    made = DeltaTier(settings).copy(segment(6, "a", lineage=Lineage(GROUP, 3)))
    assert isinstance(made, RemoteSegment)
    uri = table_uri(settings.uri, GROUP)
    bare = TableFile(
        path=made.file,
        size=made.size,
        partition=2,
        rows=None,
        offset_min=None,
        offset_max=None,
        incarnation_min=None,
        incarnation_max=None,
    )
    other = file(50, 60, incarnation=4)
    found = lineage_files(Store(uri, {}), uri, [bare, other], 3)
    assert [(each.path, each.offset_min, each.offset_max) for each in found.files] == [(made.file, 6, 11)]
