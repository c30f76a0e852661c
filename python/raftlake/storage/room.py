"""Room on the disk: how much there is, and the ballast, a file that is given up when there is none.

A node whose disk is full has to write still: its vote, the commands that delete something, a cut in a log. For those it keeps
`ballast`, a file of reserved blocks and nothing else. Who meets a full disk with such a write gives the ballast up and tries
once more (`KeptRoom.retrying`). It is made anew when there is room again. Knows nothing of what is written; a lock keeps the
thread that makes the ballast from the one that gives it up.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from raftlake.errors import DiskFull
from raftlake.ports.driver import Room

T = TypeVar("T")

FILE_NAME = "ballast"
BALLAST_BYTES_MAX = 64 << 20
#: A part of what is to stay free; a small disk has a small ballast.
BALLAST_PART = 16


class KeptRoom:
    """Without a ballast: a write that finds no room is not tried again."""

    def release(self) -> bool:
        """Give the ballast up; False where there is none."""
        return False

    def retrying(self, write: Callable[[], T]) -> T:
        """The result of `write`, which may be called twice. Raises DiskFull when there is no room even without the ballast."""
        try:
            return write()
        except DiskFull:
            if not self.release():
                raise
            return write()


class DiskRoom(KeptRoom):
    """The room of the file system that `root` lies on. `min_free_bytes` as in `ports.Room.limit`."""

    def __init__(self, root: Path, min_free_bytes: int) -> None:
        self._root = root
        self._path = root / FILE_NAME
        self._min_free_bytes = min_free_bytes
        self._lock = threading.Lock()

    def look(self) -> Room:
        """What is free now. Raises OSError."""
        found = os.statvfs(self._root)
        return Room(free_bytes=found.f_bavail * found.f_frsize, total_bytes=found.f_blocks * found.f_frsize)

    def release(self) -> bool:
        with self._lock:
            try:
                self._path.unlink()
            except OSError:
                return False
            return True

    def release_if_short(self) -> None:
        """At a start: the ballast goes when less is free than it holds. Raises OSError."""
        room = self.look()
        if room.free_bytes < self._size(room):
            self.release()

    def keep(self) -> Room:
        """Look, and make the ballast where it is absent and leaves more free than has to be. Raises OSError when nothing can be
        said of the disk."""
        room = self.look()
        size = self._size(room)
        limit = room.limit(self._min_free_bytes)
        if size > 0 and room.free_bytes - size > Room.above(limit) and not self._path.exists():
            with self._lock:
                try:
                    _reserve(self._path, size)
                except OSError:
                    # There is less room than it seemed: the next look tries again.
                    with contextlib.suppress(OSError):
                        self._path.unlink(missing_ok=True)
            room = self.look()
        return room

    def _size(self, room: Room) -> int:
        return min(BALLAST_BYTES_MAX, room.limit(self._min_free_bytes) // BALLAST_PART)


def _reserve(path: Path, size: int) -> None:
    """Make a file that holds blocks of `size` bytes. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:
            # macOS has no such call.
            for _ in range(-(-size // (1 << 20))):
                os.write(descriptor, bytes(min(1 << 20, size)))
    finally:
        os.close(descriptor)
