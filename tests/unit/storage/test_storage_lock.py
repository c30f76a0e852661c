"""One process owns a data directory: the second is told who does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raftlake.errors import StorageError
from raftlake.storage.lock import DirectoryLock


def test_a_second_owner_is_told_who_the_first_is(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(StorageError, match=rf"{tmp_path} is in use by process {os.getpid()}, which holds {tmp_path}/\.lock"):
        DirectoryLock(tmp_path)
    lock.release()
    lock.release()
    DirectoryLock(tmp_path).release()


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from raftlake.storage.lock import DirectoryLock\n"
        "lock = DirectoryLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(StorageError, match=f"process {child.pid}"):
            DirectoryLock(tmp_path)
        child.kill()
        child.wait(timeout=60)
    DirectoryLock(tmp_path).release()


def test_an_unknown_owner_is_still_an_owner(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    (tmp_path / ".lock").write_bytes(b"")
    with pytest.raises(StorageError, match="process unknown"):
        DirectoryLock(tmp_path)
    lock.release()


def test_a_directory_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot open .*nowhere/\.lock"):
        DirectoryLock(tmp_path / "nowhere")


def test_the_same_boot_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot = tmp_path / "boot_id"
    monkeypatch.setattr("raftlake.storage.lock.BOOT_ID", boot)
    seen = []
    for text in ("one\n", "one\n", "two\n", "two\n", None, None):
        boot.unlink(missing_ok=True) if text is None else boot.write_text(text)
        lock = DirectoryLock(tmp_path)
        seen.append(lock.is_same_boot)
        lock.release()
    assert seen == [False, True, False, True, False, False], "a machine that does not name its boots may always have lost power"
