"""Logs on a disk without room: an append that fails leaves no trace, a segment that cannot be sealed goes on."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from contract.batches import Batch, data_of, fill, make_batch, read_all
from diskkit import GROUP, Disk, directory, disk, leftovers, look
from raftlake.errors import DiskFull, StorageError
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.log import FileLog
from raftlake.storage.room import FILE_NAME

__all__ = ["directory", "disk"]


def test_an_append_without_room_changes_nothing_and_succeeds_later(directory: FileLogDirectory, disk: Disk) -> None:
    log = directory.open(GROUP)
    batches = fill(log, 3)
    size = log.path.joinpath("00000000000000000000.log").stat().st_size
    for left in (0, 1, 60, 61, 100):
        disk.fill(left)
        with pytest.raises(DiskFull, match=r"offset 3$"):
            fill(log, 2)
        assert log.end_offset == 3 and read_all(log) == data_of(batches)
        assert log.path.joinpath("00000000000000000000.log").stat().st_size == size
    disk.fill(1 << 30)
    batches += fill(log, 2)
    directory.settle(GROUP)
    assert read_all(log) == data_of(batches) and log.synced_end == 5


def test_no_batch_of_an_append_that_failed_is_found_behind_a_shorter_one(directory: FileLogDirectory, disk: Disk) -> None:
    """Of two batches the first one fits. What is appended instead is as long, and the second must not follow it at a start."""
    log = directory.open(GROUP)
    batches = fill(log, 1)
    pair = [make_batch(1, timestamp_ms=1_001), make_batch(2, timestamp_ms=1_002)]
    disk.fill(len(pair[0][0]) + len(pair[1][0]) - 1)
    with pytest.raises(DiskFull):
        log.append([data for data, _ in pair], [span for _, span in pair])
    disk.fill(1 << 30)
    other = make_batch(1, timestamp_ms=1_003)
    assert len(other[0]) == len(pair[0][0])
    log.append([other[0]], [other[1]])
    directory.abandon()
    again = FileLogDirectory(directory.path, post=None)
    assert read_all(again.open(GROUP)) == data_of([*batches, other])
    again.close()


def test_an_append_takes_the_ballast_first(directory: FileLogDirectory, disk: Disk) -> None:
    log = directory.open(GROUP)
    look(directory)
    disk.fill(10)
    fill(log, 2)
    assert log.end_offset == 2 and not (directory.path / FILE_NAME).exists()
    disk.fill(0)
    with pytest.raises(DiskFull):
        fill(log, 1)


def test_a_cut_that_fails_behind_a_full_disk_is_final(
    directory: FileLogDirectory, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = directory.open(GROUP)
    fill(log, 1)
    disk.fill(10)
    with monkeypatch.context() as patch:

        def ftruncate(*_: object) -> None:
            raise OSError(errno.EIO, "broken")

        patch.setattr(os, "ftruncate", ftruncate)
        with pytest.raises(StorageError, match="EIO"):
            fill(log, 1)
    disk.fill(1 << 30)
    with pytest.raises(StorageError, match="EIO"):
        fill(log, 1)


def filled_segment(log: FileLog) -> list[Batch]:
    """Append until the next batch begins another segment."""
    batches = fill(log, 1)
    while len(data_of(batches)) + len(make_batch(0)[0]) <= 1_000:
        batches += fill(log, 1)
    return batches


@pytest.mark.parametrize("writes_that_fit", range(4))
def test_a_segment_that_cannot_be_sealed_goes_on(
    directory: FileLogDirectory, disk: Disk, monkeypatch: pytest.MonkeyPatch, writes_that_fit: int
) -> None:
    """Each of the files that a seal writes may be the one for which there is no room."""
    log = directory.open(GROUP)
    batches = filled_segment(log)
    real, calls = os.open, [0]

    def open_(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT:
            calls[0] += 1
            if calls[0] > writes_that_fit:
                raise OSError(errno.ENOSPC, "full")
        return real(path, flags, *mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_)
        # The epochs are the third file. Once they are durable, they are not written again.
        for fit in (writes_that_fit, min(writes_that_fit, 2)):
            calls[0], writes_that_fit = 0, fit
            with pytest.raises(DiskFull):
                fill(log, 1)
            assert len(log.segments()) == 1 and read_all(log) == data_of(batches)
    batches += fill(log, 3)
    assert len(log.segments()) == 2
    assert leftovers(directory.path) == []
    directory.close()
    again = FileLogDirectory(directory.path, segment_bytes=1_000, post=None)
    assert read_all(again.open(GROUP)) == data_of(batches)
    again.close()


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_room_told(*_: object, **__: object) -> None:
    raise DiskFull("no room")


@pytest.mark.parametrize(
    ("step", "fail"),
    [
        ("raftlake.storage.index_files.write_file", no_room),
        ("raftlake.storage.epochs.replace_file", no_room_told),
        ("raftlake.storage.segment.Segment.create", no_room_told),
    ],
)
def test_a_smaller_append_fits_into_the_segment_that_could_not_be_sealed(
    directory: FileLogDirectory, disk: Disk, monkeypatch: pytest.MonkeyPatch, step: str, fail: Any
) -> None:
    log = directory.open(GROUP)
    batches = fill(log, 1)
    large, span = make_batch(1, size=950)
    with monkeypatch.context() as patch:
        patch.setattr(step, fail)
        with pytest.raises(DiskFull):
            log.append([large], [span])
    batches += fill(log, 1)
    assert len(log.segments()) == 1 and read_all(log) == data_of(batches)
