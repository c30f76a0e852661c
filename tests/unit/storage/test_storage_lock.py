"""One process owns a data directory: the second is told who does."""

from __future__ import annotations

import errno
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
        lock.note_recovered()
        seen.append(lock.is_same_boot)
        lock.release()
    assert seen == [False, True, False, True, False, False], "a machine that does not name its boots may always have lost power"


def names_same_boot(path: Path) -> bool:
    lock = DirectoryLock(path)
    lock.release()
    return lock.is_same_boot


def test_who_only_holds_the_lock_says_nothing_of_the_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`local` takes the directories of its nodes before they start: what they then recovered was taken for damage."""
    boot = tmp_path / "boot_id"
    monkeypatch.setattr("raftlake.storage.lock.BOOT_ID", boot)
    boot.write_text("one\n")
    lock = DirectoryLock(tmp_path)
    lock.note_recovered()
    lock.note_recovered()
    lock.release()
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\none\n"
    assert names_same_boot(tmp_path) and names_same_boot(tmp_path), "who comes next does not take it back"
    boot.write_text("two\n")
    assert not names_same_boot(tmp_path) and not names_same_boot(tmp_path)
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    boot.write_text("one\n")
    assert not names_same_boot(tmp_path)


def test_a_lock_file_of_another_version_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot = tmp_path / "boot_id"
    monkeypatch.setattr("raftlake.storage.lock.BOOT_ID", boot)
    boot.write_text("one\n")
    for text, expected in (
        ("7\none\n", True),
        ("7\n", False),
        ("7", False),
        ("7\n\n", False),
        ("", False),
        ("7\ntwo\n", False),
    ):
        (tmp_path / ".lock").write_text(text)
        assert names_same_boot(tmp_path) == expected, text


def test_a_boot_that_cannot_be_noted_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = DirectoryLock(tmp_path)

    def fail(number: int) -> None:
        def pwrite(descriptor: int, data: bytes, position: int) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "pwrite", pwrite)

    fail(errno.EIO)
    with pytest.raises(StorageError, match=r"cannot write .*\.lock: .*EIO"):
        lock.note_recovered()
    lock.release()
    monkeypatch.undo()
    lock = DirectoryLock(tmp_path)
    fail(errno.ENOSPC)
    lock.note_recovered()
    lock.release()
    monkeypatch.undo()
    assert not names_same_boot(tmp_path), "without room for it the next start is a careful one"
