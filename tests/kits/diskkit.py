"""A disk whose room is a number: the system calls that would take blocks fail with ENOSPC when there are not enough of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from raftlake.ports.driver import Room
from raftlake.ports.peer_rpcs import GroupId
from raftlake.storage import room as rooms
from raftlake.storage.directory import FileLogDirectory

GROUP = GroupId("orders", 0, bytes(range(16)))
META = GroupId("__cluster_metadata", 0, bytes(15) + b"\x01")
LIMIT = 1 << 20
BALLAST = LIMIT // rooms.BALLAST_PART


class Disk:
    """So many bytes are left; the system calls that take some are counted. Files that go give theirs back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 1 << 40
        #: A write that does not fit is cut, as the system does it, and the next one fails.
        self._pwritev, self._unlink, self._ftruncate = os.pwritev, Path.unlink, os.ftruncate
        monkeypatch.setattr(os, "pwritev", self.pwritev)
        monkeypatch.setattr(os, "pwrite", self.pwrite)
        monkeypatch.setattr(os, "posix_fallocate", self.fallocate)
        monkeypatch.setattr(os, "ftruncate", self.ftruncate)
        monkeypatch.setattr(os, "statvfs", self.statvfs)
        monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: self.unlink(path, missing_ok))

    def fill(self, left: int = 0) -> None:
        self.left = left

    def _full(self) -> OSError:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def pwritev(self, descriptor: int, chunks: Sequence[Any], position: int) -> int:
        data = b"".join(bytes(chunk) for chunk in chunks)
        if data and self.left <= 0:
            raise self._full()
        written = self._pwritev(descriptor, [data[: self.left]], position)
        self.left -= written
        return written

    def pwrite(self, descriptor: int, data: bytes, position: int) -> int:
        if len(data) > self.left:
            raise self._full()
        self.left -= len(data)
        return self._pwritev(descriptor, [data], position)

    def fallocate(self, descriptor: int, offset: int, size: int) -> None:
        if size > self.left:
            raise self._full()
        self.left -= size
        self._ftruncate(descriptor, offset + size)

    def ftruncate(self, descriptor: int, size: int) -> None:
        self.left += max(0, os.fstat(descriptor).st_size - size)
        self._ftruncate(descriptor, size)

    def statvfs(self, _path: object) -> os.statvfs_result:
        return os.statvfs_result((1, 1, 1 << 40, self.left, self.left, 0, 0, 0, 0, 255))

    def unlink(self, path: Path, missing_ok: bool) -> None:
        size = path.stat().st_size if path.exists() else 0
        self._unlink(path, missing_ok=missing_ok)
        self.left += size


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def directory(tmp_path: Path, disk: Disk) -> Iterator[FileLogDirectory]:
    opened = FileLogDirectory(tmp_path, segment_bytes=1_000, post=None, min_free_bytes=LIMIT)
    yield opened
    opened.abandon()


def look(directory: FileLogDirectory) -> Room:
    found: list[Room | None] = []
    directory.look_for_room(found.append)
    assert found[0] is not None
    return found[0]


def leftovers(path: Path) -> list[str]:
    return sorted(each.name for each in path.rglob("*") if each.name.endswith((".tmp", ".part", "-create")))
