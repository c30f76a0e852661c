"""Deleting large files without waiting until the file system has freed what they held (a gigabyte: a quarter of a second).

Owns a thread that closes descriptors. A name is removed at once, as its caller wants it; the file is held open meanwhile, so
that freeing its blocks falls to the last close, here. A crash in between costs nothing: the file system frees what has no name.
Invariant: at most HELD_MAX files are held; beyond that, deleting takes its time.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections import deque
from pathlib import Path

from raftlake.storage.descriptors import NO_DESCRIPTORS
from raftlake.storage.threads import started

HELD_MAX = 64


class Disposal:
    """`threaded` is False where there is no event loop to keep free: then `unlink` does everything."""

    def __init__(self, *, threaded: bool) -> None:
        self._threaded = threaded
        self._held: deque[int] = deque()
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def held_count(self) -> int:
        """Files without a name whose blocks are not free yet."""
        return len(self._held)

    def unlink(self, path: Path) -> None:
        """Raises OSError; FileNotFoundError when there is no such file."""
        if not self._threaded or len(self._held) >= HELD_MAX:
            path.unlink()
            return
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
            path.unlink()
            return
        try:
            path.unlink()
        except OSError:
            os.close(descriptor)
            raise
        if not self._has_thread():
            os.close(descriptor)
            return
        self._held.append(descriptor)
        self._wake.put(True)

    def _has_thread(self) -> bool:
        """False where none can be started: the next file tries again."""
        if self._thread is None:
            self._thread = started(self._serve, "raftlake-disposal")
        return self._thread is not None

    def _serve(self) -> None:
        while self._wake.get():
            # The name is gone. An error here must not end the thread.
            with contextlib.suppress(OSError):
                os.close(self._held[0])
            self._held.popleft()

    def close(self) -> None:
        """Free what is left, and end the thread."""
        if self._thread is not None:
            self._wake.put(False)
            self._thread.join()
            self._thread = None
