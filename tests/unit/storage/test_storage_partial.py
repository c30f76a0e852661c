"""The note that a log is partial: there when it was made, whatever the power does, and not there when it could not be made."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.batches import fill
from contract.power_loss import outcomes_of_power_losses
from raftlake.errors import DiskFull, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.storage import partial
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.log import FileLog

GROUP = GroupId("orders", 0, bytes(range(16)))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FileLog]:
    directory = FileLogDirectory(tmp_path, post=None)
    yield directory.open(GROUP)
    directory.abandon()


@pytest.mark.parametrize("is_partial", [True, False])
def test_it_is_durable_when_it_was_made(tmp_path: Path, is_partial: bool) -> None:
    """A restart that forgot it would take what two leaders gave for one log."""
    kept = tmp_path / "kept"
    kept.mkdir()

    def begin() -> Path:
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        place.mkdir()
        partial.note(place, not is_partial)
        return place

    seen = outcomes_of_power_losses(kept, begin, lambda place: partial.note(place, is_partial), partial.is_noted)
    assert (seen[0], seen[-1]) == (not is_partial, is_partial)


def test_it_is_an_empty_file_beside_the_segments(log: FileLog, tmp_path: Path) -> None:
    log.note_partial(True)
    assert (tmp_path / "orders-0" / "partial").read_bytes() == b""


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EIO, StorageError)])
def test_without_it_the_log_is_as_it_was(
    log: FileLog, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageError]
) -> None:
    """For want of room the log goes on. Any other error of the disk ends it."""

    def rename(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    fill(log, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with pytest.raises(kind, match=f"/partial: .*{errno.errorcode[number]}"):
            log.note_partial(True)
    assert not log.is_partial and not list(log.path.glob("partial*"))
    if kind is DiskFull:
        log.note_partial(True)
        assert log.is_partial and len(fill(log, 1)) == 1
    else:
        with pytest.raises(StorageError, match="EIO"):
            fill(log, 1)
