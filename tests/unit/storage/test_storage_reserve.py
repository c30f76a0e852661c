"""Blocks reserved behind a segment: never read, cut by recovery, gone when it is closed, and no condition for appends."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from contract.batches import fill, read_all
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.storage import reserve
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.files import FilePool, PooledFile
from raftlake.storage.log import FileLog
from raftlake.storage.reserve import Reserve

GROUP = GroupId("t", 0)


@pytest.fixture
def file(tmp_path: Path) -> PooledFile:
    made = PooledFile(tmp_path / "f", FilePool(1))
    made.descriptor(create=True)
    return made


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "BYTES_MIN", 100)
    monkeypatch.setattr(reserve, "BYTES_MAX", 4096)


def active_file(root: Path) -> Path:
    (path,) = root.glob("*/*.log")
    return path


def long_log(directory: FileLogDirectory) -> FileLog:
    log = directory.open(GROUP)
    for _ in range(20):
        fill(log, 1)
    return log


def test_a_file_is_reserved_ahead_by_its_own_size_within_bounds(file: PooledFile) -> None:
    reserved = Reserve()
    reserved.cover(file, 0, 50)
    assert file.size() == 0, "too small to be worth it"
    reserved.cover(file, 150, 200)
    assert file.size() == 350
    reserved.cover(file, 200, 350)
    assert file.size() == 350, "still covered"
    reserved.cover(file, 10_000, 10_001)
    assert file.size() == 10_001 + 4096
    reserved.trim(file, 10_001)
    assert file.size() == 10_001


def test_a_disk_that_cannot_reserve_is_appended_to_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    directory = FileLogDirectory(tmp_path, post=None)
    log = long_log(directory)
    assert len(log.read(Offset(0), log.end_offset, 1 << 20)) == active_file(tmp_path).stat().st_size
    directory.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EINTR])
@pytest.mark.parametrize("found", [0, 1, 50, 51, 199, 200])
@pytest.mark.parametrize("written", [200, 201, 349, 350])
def test_what_a_refused_reserve_has_found_is_given_back(
    file: PooledFile, monkeypatch: pytest.MonkeyPatch, written: int, found: int, number: int
) -> None:
    """ext4 lets the file grow as far as there was room."""
    asked: list[int] = []

    def refuse(descriptor: int, offset: int, length: int) -> None:
        asked.append(length)
        os.ftruncate(descriptor, offset + found)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    reserved = Reserve()
    reserved.cover(file, 150, 200)
    assert file.size() == 150 + found and asked == [200]
    reserved.cover(file, 200, written)
    assert asked == [200], "not tried again with every append"
    os.ftruncate(file.descriptor(), max(file.size(), written))
    reserved.trim(file, written)
    assert file.size() == written
    reserved.cover(file, written, written + 1)
    assert asked == [200, written + 1], "a segment that goes on tries again"


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("is_sealed", [False, True], ids=["active", "sealed"])
def test_a_start_finds_no_damage_behind_a_refused_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_sealed: bool, is_killed: bool
) -> None:
    """Zeros were left behind a segment that was sealed, and the next start took them for damage."""
    directory = FileLogDirectory(tmp_path, post=None)
    log = long_log(directory)
    directory.flush([log], lambda error: None)
    refused: list[int] = []

    def refuse(descriptor: int, offset: int, length: int) -> None:
        refused.append(length)
        os.ftruncate(descriptor, offset + length - 1)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    while not refused:
        fill(log, 1)
    if is_sealed:
        log.roll()
        fill(log, 1)
        sealed = sorted(tmp_path.glob("*/*.log"))[0]
        assert sealed.stat().st_size == log.segments()[0].size
    directory.flush([log], lambda error: None)
    end, data = log.end_offset, read_all(log)
    if is_killed:
        directory.abandon()
    else:
        directory.close()
    monkeypatch.undo()
    again = FileLogDirectory(tmp_path, post=None)
    assert again.open(GROUP).end_offset == end and read_all(again.open(GROUP)) == data
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*.log")) == len(data)
    again.close()


def test_a_clean_close_leaves_whole_batches_and_nothing_else(tmp_path: Path) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    log = long_log(directory)
    data = log.read(Offset(0), log.end_offset, 1 << 20)
    assert active_file(tmp_path).stat().st_size > len(data)
    directory.close()
    assert active_file(tmp_path).read_bytes() == data


def test_a_start_after_a_crash_cuts_what_was_reserved(tmp_path: Path) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    log = long_log(directory)
    data, end = log.read(Offset(0), log.end_offset, 1 << 20), log.end_offset
    directory.abandon()
    assert active_file(tmp_path).stat().st_size > len(data)
    directory = FileLogDirectory(tmp_path, post=None)
    assert directory.open(GROUP).end_offset == end
    assert active_file(tmp_path).read_bytes() == data
    directory.close()


def test_a_sealed_segment_is_trimmed(tmp_path: Path) -> None:
    directory = FileLogDirectory(tmp_path, segment_bytes=1000, post=None)
    log = long_log(directory)
    sealed = log.segments()[0]
    path = sorted(tmp_path.glob("*/*.log"))[0]
    assert path.stat().st_size == sealed.size
    directory.close()
