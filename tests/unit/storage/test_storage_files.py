"""Writing whole, reading whole, replacing in one step, and the bound on open files."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from raftlake.errors import DiskFull, StorageError, TooManyFiles
from raftlake.storage import files
from raftlake.storage.files import FilePool, PooledFile, descriptors_max, read_at, replace_file, storage_error, write_at


@pytest.fixture
def descriptor(tmp_path: Path) -> int:
    return os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)


@pytest.fixture
def one_byte_writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every write takes one byte only, as a write that a signal cut short."""
    calls: list[int] = []
    real = os.pwrite

    def pwritev(descriptor: int, chunks: Sequence[bytes], position: int) -> int:
        calls.append(len(chunks))
        return real(descriptor, bytes(chunks[0])[:1], position)

    monkeypatch.setattr(os, "pwritev", pwritev)
    return calls


def test_a_short_write_goes_on(descriptor: int, one_byte_writes: list[int]) -> None:
    write_at(descriptor, [b"ab", b"", bytearray(b"cde"), memoryview(b"f")], 3, 6)
    assert os.pread(descriptor, 99, 0) == b"\0\0\0abcdef"
    assert len(one_byte_writes) == 6


def test_more_chunks_than_one_call_takes(descriptor: int) -> None:
    chunks = [bytes([number % 251]) * 3 for number in range(files.IOV_MAX * 2 + 5)]
    write_at(descriptor, chunks, 0, sum(map(len, chunks)))
    assert os.pread(descriptor, 1 << 20, 0) == b"".join(chunks)


def test_a_write_that_takes_nothing_is_an_error(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    with pytest.raises(OSError, match="no bytes"):
        write_at(descriptor, [b"abc"], 0, 3)


def test_a_short_read_goes_on_to_the_end(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    os.pwrite(descriptor, b"abcdef", 0)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, position: real(descriptor, min(size, 2), position))
    assert read_at(descriptor, 5, 0) == b"abcde"
    assert read_at(descriptor, 99, 4) == b"ef"
    assert read_at(descriptor, 99, 6) == b""


def test_an_error_names_the_file_the_position_and_the_reason(tmp_path: Path) -> None:
    error = storage_error("append to", tmp_path / "x.log", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 77)
    assert str(error) == f"cannot append to {tmp_path}/x.log at byte 77: No space left on device (ENOSPC)"


def test_a_file_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    replace_file(path, b"old")

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(files, "sync_descriptor", refuse)
    with pytest.raises(StorageError, match=r"state.*broken \(EIO\)"):
        replace_file(path, b"new and longer")
    assert path.read_bytes() == b"old"


def test_replacing_syncs_the_file_before_the_rename_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real_rename = os.rename

    def sync(descriptor: int) -> None:
        steps.append("sync " + os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))

    def rename(source: Path, target: Path) -> None:
        steps.append("rename")
        real_rename(source, target)

    monkeypatch.setattr(files, "sync_descriptor", sync)
    monkeypatch.setattr(os, "rename", rename)
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("descriptors have no names here")
    replace_file(tmp_path / "state", b"x")
    assert steps == ["sync state.tmp", "rename", f"sync {tmp_path.name}"]


def without_directories(patch: pytest.MonkeyPatch, number: int = errno.EMFILE) -> None:
    """No directory can be opened."""
    open_file = files.open_file

    def refuse(path: Path, flags: int, mode: int = 0o600) -> int:
        if flags & os.O_DIRECTORY:
            raise OSError(number, os.strerror(number))
        return open_file(path, flags, mode)

    patch.setattr(files, "open_file", refuse)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_what_cannot_be_made_durable_for_want_of_a_descriptor_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The new file was there, and the callers, told that there was no room, went on with the old one."""
    path = tmp_path / "state"
    replace_file(path, b"old")
    with monkeypatch.context() as patch:
        without_directories(patch, number)
        with pytest.raises(TooManyFiles, match=r"cannot replace .*state"):
            replace_file(path, b"new and longer")
        with pytest.raises(TooManyFiles):
            replace_file(tmp_path / "other", b"new")
        replace_file(path, b"newer", sync=False)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("state", b"newer")]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_sync_of_the_directory_that_fails_is_no_want_of_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "state"
    sync_descriptor = files.sync_descriptor

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        sync_descriptor(descriptor)

    monkeypatch.setattr(files, "sync_descriptor", refuse)
    with pytest.raises(StorageError, match=rf"cannot sync {tmp_path}: ") as raised:
        replace_file(path, b"new")
    assert not isinstance(raised.value, DiskFull)
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["state"]


def test_replacing_leaves_no_descriptor_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("open descriptors are not listed here")
    before = os.listdir("/proc/self/fd")
    replace_file(tmp_path / "state", b"x")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(DiskFull):
        replace_file(tmp_path / "state", b"y")
    assert os.listdir("/proc/self/fd") == before


def make_files(tmp_path: Path, pool: FilePool, count: int) -> list[PooledFile]:
    made = [PooledFile(tmp_path / str(number), pool) for number in range(count)]
    for file in made:
        file.path.write_bytes(b"")
    return made


def test_the_least_recently_used_file_is_closed(tmp_path: Path) -> None:
    pool = FilePool(2)
    first, second, third = make_files(tmp_path, pool, 3)
    first.descriptor()
    second.descriptor()
    first.descriptor()
    third.descriptor()
    assert (first.is_open, second.is_open, third.is_open) == (True, False, True)
    assert pool.open_count == 2


def test_pinned_files_stay_open_and_unsynced_ones_while_there_are_others(tmp_path: Path) -> None:
    pool = FilePool(3)
    unsynced, pinned, other, last = make_files(tmp_path, pool, 4)
    unsynced.descriptor()
    unsynced.unsynced = True
    pinned.pin()
    other.descriptor()
    last.descriptor()
    assert (unsynced.is_open, pinned.is_open, other.is_open, last.is_open) == (True, True, False, True)
    last.pin()
    other.descriptor()
    assert (unsynced.is_open, unsynced.unsynced, pinned.is_open, last.is_open) == (False, False, True, True)


def test_a_pinned_file_is_closed_once_it_is_let_go(tmp_path: Path) -> None:
    pool = FilePool(1)
    (file,) = make_files(tmp_path, pool, 1)
    descriptor = file.pin()
    file.close()
    assert os.fstat(descriptor).st_size == 0
    file.unpin()
    assert not file.is_open
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot open .*gone.*ENOENT"):
        PooledFile(tmp_path / "gone", FilePool(1)).descriptor()


def test_some_descriptors_are_left_to_sockets() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert descriptors_max() < soft or soft == resource.RLIM_INFINITY
