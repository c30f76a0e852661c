"""The contract of closed and damaged logs, on files."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from contract.file_faults import leave, without_sync
from contract.set_aside_contract import SEGMENT_BYTES, SetAsideContract
from damagekit import flip
from raftlake.errors import DiskFull, StorageError
from raftlake.ports.driver import LogDirectory, LogStore
from raftlake.storage import impairment
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.log import FileLog

#: The mark; the copy of the intact beginning; the directory for the rest; the look at snapshots, behind the cut.
STEPS: tuple[tuple[Any, str], ...] = (
    (impairment, "replace_file"),
    (impairment, "sync_data"),
    (Path, "mkdir"),
    (impairment, "list_snapshots"),
)


class TestFileSetAside(SetAsideContract):
    steps = len(STEPS)

    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without_sync(monkeypatch)

    def open_directory(self, place: Path) -> FileLogDirectory:
        return FileLogDirectory(place, segment_bytes=SEGMENT_BYTES, post=None)

    def flush(self, directory: LogDirectory, log: LogStore) -> None:
        results: list[StorageError | None] = []
        directory.flush([log], results.append)
        assert results == [None]
        directory.checkpoint()

    def restart(self, directory: LogDirectory) -> LogDirectory:
        self.later = self.open_directory(leave(cast(FileLogDirectory, directory)))
        return self.later

    def close(self, directory: LogDirectory) -> None:
        for each in (directory, getattr(self, "later", directory)):
            cast(FileLogDirectory, each).abandon()

    def damage(self, directory: LogDirectory, log: LogStore, offset: int) -> None:
        segment = cast(FileLog, log)._segment_of(offset)  # type: ignore[arg-type]
        batch = segment.locate(offset)
        segment.path.write_bytes(flip(segment.path.read_bytes(), batch.position + batch.size - 1))

    @contextmanager
    def refusing(self, directory: LogDirectory, step: int) -> Iterator[None]:
        owner, name = STEPS[step]

        def refuse(*_given: object, **_named: object) -> None:
            # What calls these two turns an OSError into the other.
            raise OSError(errno.ENOSPC, name) if name in ("sync_data", "mkdir") else DiskFull(name)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, refuse)
            yield
