"""Blocks reserved behind a segment: never read, cut by recovery, gone when it is closed, and no condition for appends."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from contract.batches import fill
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
