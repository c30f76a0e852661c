"""The file that names the process of a node, which no start may fail for."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from diskkit import Disk, disk
from raftlake.errors import StorageError
from raftlake.runtime.pid_file import PID_FILE, remove_pid, write_pid

__all__ = ["disk"]


def test_it_names_the_process_until_it_is_removed(tmp_path: Path) -> None:
    write_pid(tmp_path)
    assert (tmp_path / PID_FILE).read_bytes() == b"%d\n" % os.getpid()
    for _ in range(2):
        remove_pid(tmp_path)
        assert not (tmp_path / PID_FILE).exists()


def test_a_full_disk_keeps_no_node_from_starting(tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    disk.fill(0)
    write_pid(tmp_path)
    assert not (tmp_path / PID_FILE).exists() and "No space left" in caplog.text


def test_any_other_trouble_does(tmp_path: Path) -> None:
    (tmp_path / PID_FILE).mkdir()
    with pytest.raises(StorageError, match=PID_FILE):
        write_pid(tmp_path)


def test_a_file_that_cannot_be_removed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a node on a disk that became read-only was a traceback."""

    def unlink(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    write_pid(tmp_path)
    monkeypatch.setattr(Path, "unlink", unlink)
    remove_pid(tmp_path)
    assert (tmp_path / PID_FILE).exists()
