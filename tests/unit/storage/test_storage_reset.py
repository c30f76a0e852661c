"""Emptying a log in one step: announced, interrupted, finished; and what a full disk makes of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from contract.batches import data_of, fill, read_all
from diskkit import GROUP, Disk, directory, disk, leftovers
from raftlake.errors import DiskFull, StorageError, TooManyFiles
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage import files
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.reset import RESET_FILE_NAME, announce_reset, read_pending_reset

__all__ = ["directory", "disk"]
START = OffsetAndEpoch(Offset(70), Epoch(4))


def test_what_was_announced_is_read_again(tmp_path: Path) -> None:
    assert read_pending_reset(tmp_path) is None
    announce_reset(tmp_path, START)
    assert read_pending_reset(tmp_path) == START


@pytest.mark.parametrize("content", [b"", b"0\n", b"0\n70\n", b"0\n70 4", b"1\n70 4\n", b"0\nx 4\n", b"0\n70 4\nmore", b"\xff"])
def test_a_damaged_announcement_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / RESET_FILE_NAME).write_bytes(content)
    with pytest.raises(StorageError, match="is damaged"):
        read_pending_reset(tmp_path)


def test_a_reset_that_was_interrupted_is_finished_by_the_next_open(directory: FileLogDirectory) -> None:
    log = directory.open(GROUP)
    fill(log, 20)
    announce_reset(log.path, START)
    directory.abandon()
    again = FileLogDirectory(directory.path, post=None)
    log = again.open(GROUP)
    assert (log.start_offset, log.end_offset, list(log.epochs)) == (70, 70, [(4, 70)])
    assert not (log.path / RESET_FILE_NAME).exists()
    again.close()


def test_a_reset_without_room_for_its_announcement_drops_nothing(directory: FileLogDirectory, disk: Disk) -> None:
    log = directory.open(GROUP)
    batches = fill(log, 20)
    disk.fill(0)
    with pytest.raises(DiskFull):
        log.reset(START)
    assert read_all(log) == data_of(batches) and leftovers(directory.path) == []
    disk.fill(1 << 30)
    batches += fill(log, 1)
    assert read_all(log) == data_of(batches)
    log.reset(START)
    assert log.end_offset == 70


def test_a_reset_without_a_descriptor_for_its_announcement_drops_nothing(
    directory: FileLogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The announcement was there all the same: the log went on, and the next start emptied it."""
    log = directory.open(GROUP)
    batches = fill(log, 20)
    open_file = files.open_file

    def refuse(path: Path, flags: int, mode: int = 0o600) -> int:
        if flags & os.O_DIRECTORY and Path(path) == log.path:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(path, flags, mode)

    with monkeypatch.context() as patch:
        patch.setattr(files, "open_file", refuse)
        with pytest.raises(TooManyFiles):
            log.reset(START)
    batches += fill(log, 1)
    directory.settle(GROUP)
    directory.abandon()
    again = FileLogDirectory(directory.path, post=None)
    assert read_all(again.open(GROUP)) == data_of(batches)
    again.close()


@pytest.mark.parametrize("failing", ["open", "fsync"])
def test_a_reset_whose_names_cannot_be_synced_is_no_want_of_room(
    directory: FileLogDirectory, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Without a descriptor nothing is changed. What a failed sync was to write may be lost."""
    log = directory.open(GROUP)
    fill(log, 20)
    announce_reset(log.path, START)
    path = log.path
    directory.abandon()
    again = FileLogDirectory(directory.path, post=None)
    kept = sorted(each.name for each in path.glob("*.log"))
    honest_open, honest_sync = files.open_file, files.sync_descriptor

    def open_file(asked: Path, flags: int, mode: int = 0o600) -> int:
        if failing == "open" and flags & os.O_DIRECTORY and Path(asked) == path:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return honest_open(asked, flags, mode)

    def sync_descriptor(descriptor: int) -> None:
        is_log = os.path.samestat(os.fstat(descriptor), path.stat())
        if failing == "fsync" and is_log and not (path / RESET_FILE_NAME).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        honest_sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(files, "open_file", open_file)
        patch.setattr(files, "sync_descriptor", sync_descriptor)
        with pytest.raises(StorageError, match=f"cannot {'open' if failing == 'open' else 'sync'} ") as told:
            again.open(GROUP)
    assert isinstance(told.value, DiskFull) == (failing == "open")
    if failing == "open":
        assert sorted(each.name for each in path.glob("*.log")) == kept
    log = again.open(GROUP)
    assert (log.start_offset, log.end_offset) == (70, 70)
    again.close()
