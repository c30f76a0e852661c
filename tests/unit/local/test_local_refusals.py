"""LocalQuorum where the machine refuses something: one error of ours each, and nothing is left behind."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from raftlake.errors import ConfigError, MachineError, StorageError
from raftlake.local import LOG_FILE, LocalQuorum
from raftlake.storage.lock import DirectoryLock


def test_a_path_that_is_no_text_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """The settings of the nodes, which name it, are UTF-8."""
    place = tmp_path / os.fsdecode(b"b\xffd")
    with pytest.raises(ConfigError, match=r"b\\udcffd' is not valid Unicode text"):
        LocalQuorum(1, place)
    assert not place.exists()


def test_without_a_temporary_directory_a_place_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(prefix: str) -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "mkdtemp", none)
    with pytest.raises(MachineError, match="No usable temporary directory found; give a directory for the data"):
        LocalQuorum(1)


def test_a_log_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    log = tmp_path / "node-1" / LOG_FILE
    log.mkdir(parents=True)
    with pytest.raises(StorageError, match=f"cannot open {log}"):
        LocalQuorum(1, tmp_path)
    DirectoryLock(tmp_path).release()
