"""How much room there is, what has to stay free, and the ballast: when it is made, and who gives it up."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from diskkit import BALLAST, LIMIT, Disk, directory, disk, look
from raftlake.errors import DiskFull, StorageError
from raftlake.ports.driver import Room
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.files import storage_error
from raftlake.storage.lock import DirectoryLock
from raftlake.storage.room import FILE_NAME, DiskRoom, KeptRoom

__all__ = ["directory", "disk"]


@pytest.mark.parametrize(
    ("total", "wanted", "limit"),
    [(1 << 40, -1, 1 << 30), (10 << 30, -1, (10 << 30) // 20), (1 << 40, 5, 5), (1 << 40, 0, 0), (0, -1, 0)],
)
def test_what_has_to_stay_free(total: int, wanted: int, limit: int) -> None:
    assert Room(free_bytes=7, total_bytes=total).limit(wanted) == limit


def test_a_look_tells_what_is_free_and_makes_the_ballast(directory: FileLogDirectory, disk: Disk) -> None:
    before = disk.left
    room = look(directory)
    ballast = directory.path / FILE_NAME
    assert ballast.stat().st_size == BALLAST and room.free_bytes == before - BALLAST == disk.left
    assert look(directory).free_bytes == before - BALLAST, "it is made once"
    assert directory.give_up_ballast() and not ballast.exists() and disk.left == before
    assert not directory.give_up_ballast()


def test_no_ballast_is_made_where_it_would_leave_too_little(directory: FileLogDirectory, disk: Disk) -> None:
    disk.fill(Room.above(LIMIT) + BALLAST)
    look(directory)
    assert not (directory.path / FILE_NAME).exists()
    disk.fill(Room.above(LIMIT) + BALLAST + 1)
    look(directory)
    assert (directory.path / FILE_NAME).exists()


def test_a_ballast_that_does_not_fit_after_all_leaves_nothing(
    directory: FileLogDirectory, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fallocate(descriptor: int, offset: int, size: int) -> None:
        os.ftruncate(descriptor, size // 2)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    look(directory)
    assert not (directory.path / FILE_NAME).exists()


def test_the_ballast_is_a_sixteenth_of_the_limit_and_64_mib_at_most(tmp_path: Path, disk: Disk) -> None:
    for limit, size in ((1 << 30, 64 << 20), (1 << 40, 64 << 20), (1 << 20, 1 << 16), (0, 0)):
        assert DiskRoom(tmp_path, limit)._size(Room(free_bytes=1, total_bytes=1 << 42)) == size
    DiskRoom(tmp_path, 0).keep()
    assert not (tmp_path / FILE_NAME).exists()


def test_a_start_on_a_short_disk_gives_the_ballast_up(tmp_path: Path, disk: Disk) -> None:
    first = FileLogDirectory(tmp_path, post=None, min_free_bytes=LIMIT)
    look(first)
    first.close()
    disk.fill(BALLAST + 100)
    FileLogDirectory(tmp_path, post=None, min_free_bytes=LIMIT).close()
    assert (tmp_path / FILE_NAME).exists(), "there is as much as it holds"
    disk.fill(BALLAST // 2)
    FileLogDirectory(tmp_path, post=None, min_free_bytes=LIMIT).close()
    assert not (tmp_path / FILE_NAME).exists() and disk.left > BALLAST


def test_a_write_is_tried_again_once_and_only_where_there_was_a_ballast(tmp_path: Path, disk: Disk) -> None:
    room, calls = DiskRoom(tmp_path, LIMIT), list[int]()

    def write() -> int:
        calls.append(1)
        if len(calls) != 2:
            raise DiskFull("full")
        return 5

    room.keep()
    assert room.retrying(write) == 5 and len(calls) == 2
    for kept in (room, KeptRoom()):
        with pytest.raises(DiskFull):
            kept.retrying(write)
    assert len(calls) == 4

    def fail() -> None:
        calls.append(1)
        raise StorageError("broken")

    room.keep()
    with pytest.raises(StorageError, match="broken"):
        room.retrying(fail)
    assert len(calls) == 5 and (tmp_path / FILE_NAME).exists()


@pytest.mark.parametrize("is_new", [True, False])
def test_the_lock_needs_no_room(tmp_path: Path, disk: Disk, is_new: bool) -> None:
    if not is_new:
        DirectoryLock(tmp_path).release()
    disk.fill(0)
    lock = DirectoryLock(tmp_path)
    assert not is_new or (tmp_path / ".lock").read_bytes() == b""
    with pytest.raises(StorageError, match="in use by process"):
        DirectoryLock(tmp_path)
    lock.release()


def test_only_want_of_room_is_a_full_disk(tmp_path: Path) -> None:
    def makes(doing: str, number: int) -> type:
        return type(storage_error(doing, tmp_path, OSError(number, "x")))

    assert makes("write", errno.ENOSPC) is makes("replace", errno.EDQUOT) is DiskFull
    assert makes("write", errno.EIO) is makes("sync", errno.ENOSPC) is StorageError
