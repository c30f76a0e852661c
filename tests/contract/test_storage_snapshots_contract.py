"""The snapshot contract on files, and what only files have: names, leftovers of crashes, errors of the disk."""

from __future__ import annotations

import errno
import os
import queue
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from contract.file_faults import without_sync
from contract.snapshot_store_contract import GROUP, SnapshotStoreContract, snapshot_id
from raftlake.errors import StorageError
from raftlake.ports.driver import LogDirectory
from raftlake.storage import snapshots
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.snapshots import parse_snapshot_name, snapshot_name


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses power."""
    without_sync(monkeypatch)


class TestFileSnapshots(SnapshotStoreContract):
    """Written on the caller's thread."""

    reports_at_once = True

    def open_directory(self, place: Path) -> FileLogDirectory:
        return FileLogDirectory(place, post=None)

    def restart(self, directory: LogDirectory) -> LogDirectory:
        opened = cast(FileLogDirectory, directory)
        opened.close()
        self.later = FileLogDirectory(opened.path, post=None)
        return self.later

    def settle(self, directory: LogDirectory) -> None:
        """Nothing is ever under way."""

    def close(self, directory: LogDirectory) -> None:
        cast(FileLogDirectory, directory).close()
        later = getattr(self, "later", None)
        if later is not None:
            later.close()


class TestFileSnapshotsWithThread(TestFileSnapshots):
    """Written by the store's thread; `settle` plays the event loop."""

    reports_at_once = False

    def open_directory(self, place: Path) -> FileLogDirectory:
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        return FileLogDirectory(place, post=self.posted.put)

    def settle(self, directory: LogDirectory) -> None:
        self.posted.get(timeout=60)()


@pytest.fixture
def directory(tmp_path: Path) -> FileLogDirectory:
    opened = FileLogDirectory(tmp_path, post=None)
    opened.open(GROUP)
    return opened


def finish(directory: FileLogDirectory, offset: int, epoch: int) -> StorageError | None:
    ended: list[StorageError | None] = []
    writer = directory.snapshots.create(GROUP, snapshot_id(offset, epoch))
    writer.append(b"content")
    writer.freeze(ended.append)
    return ended[0]


def test_names_are_kafkas() -> None:
    assert snapshot_name(snapshot_id(1234, 7)) == "00000000000000001234-0000000007.checkpoint"
    assert parse_snapshot_name("00000000000000001234-0000000007.checkpoint") == snapshot_id(1234, 7)
    assert parse_snapshot_name("00000000000000001234-0000000007.checkpoint.part") is None
    assert parse_snapshot_name("00000000000000001234.log") is None


def test_the_file_appears_under_its_name_when_it_is_frozen(directory: FileLogDirectory, tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    writer = directory.snapshots.create(GROUP, snapshot_id(12, 3))
    writer.append(b"content")
    assert (folder / "00000000000000000012-0000000003.checkpoint.part").exists()
    writer.freeze(lambda error: None)
    assert (folder / "00000000000000000012-0000000003.checkpoint").read_bytes() == b"content"
    assert not (folder / "00000000000000000012-0000000003.checkpoint.part").exists()


def test_leftovers_of_a_crash_are_swept_and_the_bootstrap_snapshot_is_left_alone(tmp_path: Path) -> None:
    first = FileLogDirectory(tmp_path, post=None)
    first.open(GROUP)
    assert finish(first, 12, 3) is None
    first.close()
    folder = tmp_path / "orders-0"
    bootstrap = folder / snapshot_name(snapshots.BOOTSTRAP)
    bootstrap.write_bytes(b"voters")
    part = folder / "00000000000000000020-0000000003.checkpoint.part"
    deleted = folder / "00000000000000000005-0000000003.checkpoint.deleted"
    part.write_bytes(b"half")
    deleted.write_bytes(b"gone")
    again = FileLogDirectory(tmp_path, post=None)
    assert list(again.snapshots.ids(GROUP)) == [snapshot_id(12, 3)]
    assert bootstrap.exists() and not part.exists() and not deleted.exists()
    again.close()


def test_a_failed_sync_leaves_no_snapshot(directory: FileLogDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(snapshots, "sync_data", fail)
    error = finish(directory, 12, 3)
    assert error is not None and "00000000000000000012-0000000003.checkpoint.part" in str(error) and "EIO" in str(error)
    assert list(directory.snapshots.ids(GROUP)) == []


def test_a_full_disk_is_told_when_the_snapshot_is_frozen(directory: FileLogDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(snapshots, "write_at", fail)
    error = finish(directory, 12, 3)
    assert error is not None and "ENOSPC" in str(error)
    assert list(directory.snapshots.ids(GROUP)) == []


def test_bytes_wait_in_memory_until_the_thread_has_written_them(tmp_path: Path) -> None:
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    threaded = FileLogDirectory(tmp_path, post=posted.put)
    threaded.open(GROUP)
    writer = threaded.snapshots.create(GROUP, snapshot_id(12, 3))
    writer.append(bytes(1000))
    assert writer.size == 1000 and 0 <= writer.backlog <= 1000
    ended: list[StorageError | None] = []
    writer.freeze(ended.append)
    posted.get(timeout=60)()
    assert ended == [None] and writer.backlog == 0
    threaded.close()


@pytest.mark.parametrize("write_bytes", [1, 10, 1 << 20])
def test_small_pieces_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_bytes: int) -> None:
    monkeypatch.setattr(snapshots, "WRITE_BYTES", write_bytes)
    directory = FileLogDirectory(tmp_path, post=None)
    directory.open(GROUP)
    writes: list[int] = []
    write_at = snapshots.write_at

    def counted(descriptor: int, chunks: Sequence[bytes], position: int, size: int) -> None:
        writes.append(size)
        write_at(descriptor, chunks, position, size)

    monkeypatch.setattr(snapshots, "write_at", counted)
    wanted, parts = snapshot_id(7, 1), [b"%d" % number * 3 for number in range(30)]
    writer = directory.snapshots.create(GROUP, wanted)
    for part in parts:
        writer.append(part)
        assert writer.backlog < write_bytes
    ended: list[StorageError | None] = []
    writer.freeze(ended.append)
    assert ended == [None] and directory.snapshots.read(GROUP, wanted, 0, 1000) == b"".join(parts)
    assert sum(writes) == sum(map(len, parts)) and all(size >= write_bytes for size in writes[:-1])
    directory.close()
