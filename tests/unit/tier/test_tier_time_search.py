"""Searches by time in Delta tables: which files are read, also where somebody rewrote them, and what a missing file costs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from contract.tier_contract import GROUP, LINEAGE, failure
from contract.tier_search_contract import timed
from raftlake.ports.tier import FoundRecord, Lineage, RemoteSegment, SearchRequest, TierError, TierFailure
from raftlake.raft.types import Offset
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.schema import table_uri
from raftlake.tier.store import Store
from raftlake.tier.table_reads import TableReads
from tierkit import local_settings

#: The latest time of each file.
LATEST = [1_000, 3_000, 2_000, 4_000, 4_000]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TierSettings:
    """Five files of three records each; the last record of a file has its latest time."""
    settings = local_settings(tmp_path_factory.mktemp("made"))
    tier = DeltaTier(settings)
    for index, latest in enumerate(LATEST):
        copied = tier.copy(timed(3 * index, f"s{index}", [(1, [latest - 2, latest - 1]), (1, [latest])]))
        assert isinstance(copied, RemoteSegment)
    return settings


@pytest.fixture
def settings(made: TierSettings, tmp_path: Path) -> TierSettings:
    """A copy of that table."""
    settings = local_settings(tmp_path)
    shutil.copytree(made.uri, settings.uri)
    return settings


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The data files that are opened, by the copies' names."""
    seen: list[str] = []
    opening = Store.open

    def noted(self: Store, path: str) -> object:
        seen.append(Path(path).stem)
        return opening(self, path)

    monkeypatch.setattr(Store, "open", noted)
    return seen


def search(settings: TierSettings, time: int | None, start: int = 0, end: int = 100) -> tuple[int, int] | TierError | None:
    asked = SearchRequest(lineage=LINEAGE, timestamp_ms=time, start_offset=Offset(start), end_offset=Offset(end))
    found = TableReads(settings).search(asked)
    return (found.offset, found.timestamp_ms) if isinstance(found, FoundRecord) else found


@pytest.mark.parametrize(
    ("time", "found", "read"),
    [
        (2_001, (3, 2_998), ["s1"]),
        (3_001, (9, 3_998), ["s3"]),
        (4_000, (11, 4_000), ["s3"]),
        (4_001, None, []),
        (None, (11, 4_000), ["s3", "s4"]),
    ],
)
def test_only_files_that_may_have_the_time_are_read(
    settings: TierSettings, opened: list[str], time: int | None, found: tuple[int, int] | None, read: list[str]
) -> None:
    assert search(settings, time) == found
    assert sorted({name for name in opened if name.startswith("s")}) == read


def test_the_same_is_found_after_optimize(settings: TierSettings) -> None:
    asked = [*range(995, 4_005, 7), 2_001, 4_000, None]
    before = [search(settings, time, 1, 14) for time in asked]
    assert DeltaTable(table_uri(settings.uri, GROUP)).optimize.compact()["numFilesRemoved"] == 5
    assert [search(settings, time, 1, 14) for time in asked] == before and len(set(before)) == 4


def test_a_file_that_is_gone_is_named_and_is_no_answer(settings: TierSettings) -> None:
    (file,) = Path(table_uri(settings.uri, GROUP)).rglob("*s3*.parquet")
    file.unlink()
    answer = search(settings, 3_001)
    assert failure(answer) is TierFailure.DAMAGED and isinstance(answer, TierError) and file.name in answer.reason
    assert search(settings, 2_001) == (3, 2_998), "others are not needed"


def test_a_table_that_was_never_written_shows_nothing(tmp_path: Path) -> None:
    answer = search(local_settings(tmp_path), 0)
    assert answer is None or failure(answer) is TierFailure.ABSENT


def test_rows_of_another_incarnation_in_the_same_file_have_no_time(tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    tier, later = DeltaTier(settings), Lineage(GROUP, 1)
    for request in (timed(0, "a", [(1, [1_000, 1_001])]), timed(2, "b", [(1, [5_000])], later)):
        assert isinstance(tier.copy(request), RemoteSegment)
    assert DeltaTable(table_uri(settings.uri, GROUP)).optimize.compact()["numFilesAdded"] == 1
    assert search(settings, 1_002) is None and search(settings, None) == (1, 1_001)
