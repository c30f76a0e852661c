"""The log contract on files, flushed inline and by the flush thread, and with hardly any file descriptors."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from contract.aborted_index_contract import AbortedIndexContract
from contract.file_faults import without_sync
from contract.log_store_contract import SEGMENT_BYTES
from raftlake.ports.driver import LogDirectory
from raftlake.storage.directory import FileLogDirectory


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses power."""
    without_sync(monkeypatch)


class TestFileLog(AbortedIndexContract):
    """Every flush is done before it returns."""

    files_max: int | None = None

    def open_directory(self, place: Path) -> FileLogDirectory:
        return FileLogDirectory(place, segment_bytes=SEGMENT_BYTES, post=None, files_max=self.files_max)

    def restart(self, directory: LogDirectory) -> LogDirectory:
        opened = cast(FileLogDirectory, directory)
        opened.close()
        again = self.open_directory(opened.path)
        self.later = again
        return again

    def settle(self, directory: LogDirectory) -> None:
        """Nothing is ever under way."""

    def close(self, directory: LogDirectory) -> None:
        cast(FileLogDirectory, directory).close()
        later = getattr(self, "later", None)
        if later is not None:
            later.close()


class TestFileLogWithFewDescriptors(TestFileLog):
    """One file may stay open: every segment is closed and opened again all the time."""

    files_max = 1


class TestFileLogWithFlushThread(TestFileLog):
    """Flushes run on their thread; `settle` plays the event loop."""

    def open_directory(self, place: Path) -> FileLogDirectory:
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.delivered = 0
        return FileLogDirectory(place, segment_bytes=SEGMENT_BYTES, post=self.posted.put)

    def settle(self, directory: LogDirectory) -> None:
        self.posted.get(timeout=60)()
        while not self.posted.empty():
            self.posted.get()()
