"""The files of a pass: how segments are grouped, what a full disk leaves, and what a pass that is left alone leaves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from compactdisk import GROUP, compacted, fill_keys, newest_values, opened, request_for, tried
from diskkit import Disk
from raftlake.errors import DiskFull, StorageError
from raftlake.storage.cleaned import CleanedGroup
from raftlake.storage.compaction_pass import CompactionJob, Source, perform
from raftlake.storage.log import FileLog

SALT = bytes(16)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FileLog]:
    directory, log = opened(tmp_path / "data")
    fill_keys(log, 8)
    yield log
    directory.abandon()


def job_for(log: FileLog, **changes: object) -> CompactionJob:
    sources = tuple(Source(each.base_offset, each.end_offset, each.size) for each in log.segments()[:-1])
    return CompactionJob(directory=str(log.path), sources=sources, request=request_for(log, **changes), salt=SALT)


def unfinished(log: FileLog) -> list[str]:
    return sorted(path.name for path in log.path.glob("*.cleaned"))


def test_groups_are_neighbours_that_fit(log: FileLog) -> None:
    job = job_for(log, segment_bytes=1_500)
    groups = list(perform(job))
    assert [base for group in groups for base in group.sources] == [source.base_offset for source in job.sources]
    sizes = {source.base_offset: source.size for source in job.sources}
    for group, following in pairwise(groups):
        assert group.end_offset == following.base_offset
        assert group.size + sizes[following.base_offset] > 1_500
        assert group.size <= 1_500
    assert any(len(group.sources) > 2 for group in groups)
    assert unfinished(log) == sorted(
        f"{g.base_offset:020d}{s}.cleaned" for g in groups for s in (".log", ".index", ".timeindex")
    )


def test_the_segment_in_which_the_map_ends_is_no_part_of_a_group(log: FileLog) -> None:
    job = job_for(log, segment_bytes=1 << 20, keys_max=12)
    groups = list(perform(job))
    assert len(groups[0].sources) > 1 and len(groups[-1].sources) == 1
    assert groups[-1].end_offset < job.sources[-1].end_offset


def test_a_pass_begins_with_what_another_one_has_left(log: FileLog) -> None:
    (log.path / "00000000000000000099.log.cleaned").write_bytes(b"x")
    list(perform(job_for(log)))
    assert "00000000000000000099.log.cleaned" not in unfinished(log)


def test_what_was_told_stays_when_nobody_asks_for_more(log: FileLog) -> None:
    groups = perform(job_for(log, segment_bytes=1_500))
    first = next(groups)
    assert isinstance(first, CleanedGroup)
    groups.close()
    assert unfinished(log) == [f"{first.base_offset:020d}{suffix}.cleaned" for suffix in (".index", ".log", ".timeindex")]


def test_a_full_disk_ends_the_pass_and_leaves_nothing_of_it(log: FileLog, disk: Disk) -> None:
    values, segments = newest_values(log), log.segments()
    disk.fill(left=300)
    result = tried(log, segment_bytes=1_500)
    assert isinstance(result, DiskFull)
    assert unfinished(log) == []
    assert newest_values(log) == values and log.segments() == segments
    disk.fill(left=1 << 30)
    compacted(log)
    assert newest_values(log) == values


def test_a_disk_that_fills_up_later_leaves_the_groups_before(log: FileLog, disk: Disk) -> None:
    values, size = newest_values(log), sum(each.size for each in log.segments())
    install = log._install

    def install_and_fill(group: CleanedGroup) -> None:
        install(group)
        disk.fill()

    log._install = install_and_fill  # type: ignore[method-assign]
    assert isinstance(tried(log, segment_bytes=1_500), DiskFull)
    assert sum(each.size for each in log.segments()) < size
    assert newest_values(log) == values
    assert unfinished(log) == []


def test_a_directory_that_is_gone_is_an_error(log: FileLog, tmp_path: Path) -> None:
    job = job_for(log)
    (tmp_path / "data" / str(GROUP)).rename(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        list(perform(job))
