"""Processes without a free descriptor: what is kept for that moment, what waits, what a node says when it cannot go on."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.batches import data_of, fill, read_all
from descriptorkit import descriptors_left, soft_limit
from raftlake.errors import DiskFull, StorageError, TooManyFiles
from raftlake.ports.peer_rpcs import GroupId
from raftlake.storage import files
from raftlake.storage.descriptors import LIMIT_MAX, SPARES, limit, open_file, raise_limit, spares
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.disposal import Disposal
from raftlake.storage.files import FilePool, PooledFile, read_file, replace_file, storage_error
from raftlake.storage.log import FileLog

GROUPS = [GroupId("orders", number, bytes(range(16))) for number in range(6)]

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open descriptors are not listed here")


@pytest.fixture(autouse=True)
def _no_spares() -> Iterator[None]:
    spares.give_up()
    yield
    spares.give_up()


# --- the limit ---------------------------------------------------------------------------------------------------------------


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with soft_limit(300):
        assert limit() == 300
        assert raise_limit() == limit() == (LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, LIMIT_MAX))


def test_a_system_that_takes_less_than_it_says_is_asked_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS: no hard limit, and at most 10,240."""
    soft, asked = [256], []

    def setrlimit(_: int, limits: tuple[int, int]) -> None:
        asked.append(limits[0])
        if limits[0] > 10_240:
            raise ValueError("current limit exceeds maximum limit")
        soft[0] = limits[0]

    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft[0], resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    assert raise_limit() == soft[0] == 8_192 and asked[0] == LIMIT_MAX
    monkeypatch.setattr(resource, "setrlimit", lambda *_: pytest.fail("nothing is lowered"))
    soft[0] = LIMIT_MAX
    assert raise_limit() == LIMIT_MAX


# --- the spares --------------------------------------------------------------------------------------------------------------


def test_a_file_is_written_with_the_spares_when_no_descriptor_is_free(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_file(path, b"old")
    assert spares.keep() and spares.count == SPARES
    with descriptors_left():
        replace_file(path, b"new")
        assert spares.count == 0
        assert read_file(path) == b"new" and list(tmp_path.iterdir()) == [path]
    assert spares.keep() and spares.count == SPARES


def test_spares_are_taken_as_far_as_there_are_any() -> None:
    with descriptors_left(3):
        assert not spares.keep() and spares.count == 3
    assert spares.keep() and spares.count == SPARES
    before = len(os.listdir("/proc/self/fd"))
    assert spares.keep() and len(os.listdir("/proc/self/fd")) == before


def test_two_that_find_none_free_at_once_both_try_again() -> None:
    """The other thread has given the spares up a moment before."""
    taken: list[int] = []
    real = os.open

    def open_after_the_other(path: Any, flags: int, mode: int = 0o777) -> int:
        if not taken:
            taken.append(0)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, flags, mode)

    os.open = open_after_the_other  # type: ignore[assignment]
    try:
        os.close(open_file(os.devnull, os.O_RDONLY))
    finally:
        os.open = real


def test_without_any_spare_the_error_says_that_the_disk_is_well_and_what_to_raise(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_file(path, b"old")
    with descriptors_left():
        with pytest.raises(TooManyFiles, match=r"cannot replace .*state: Too many open files \(EMFILE\)\. .*ulimit -n"):
            replace_file(path, b"new")
        with pytest.raises(TooManyFiles, match=rf"may have {limit()} files"):
            read_file(path)
    assert path.read_bytes() == b"old"
    assert issubclass(TooManyFiles, DiskFull) and "disk" not in TooManyFiles.for_clients


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_of_the_machine_or_of_the_process_but_never_of_a_sync(tmp_path: Path, number: int) -> None:
    assert type(storage_error("open", tmp_path, OSError(number, "x"))) is TooManyFiles
    assert type(storage_error("sync", tmp_path, OSError(number, "x"))) is StorageError
    assert type(storage_error("open", tmp_path, OSError(errno.EIO, "x"))) is StorageError


# --- files of logs -----------------------------------------------------------------------------------------------------------


def pooled(tmp_path: Path, pool: FilePool, count: int) -> list[PooledFile]:
    made = [PooledFile(tmp_path / str(number), pool) for number in range(count)]
    for file in made:
        file.path.write_bytes(b"")
    return made


def test_a_pool_closes_files_of_its_own_when_others_took_its_descriptors(tmp_path: Path) -> None:
    pool = FilePool(100)
    *opened, wanted = pooled(tmp_path, pool, 7)
    for file in opened:
        file.descriptor()
    with descriptors_left():
        wanted.descriptor()
    assert wanted.is_open and [file.is_open for file in opened] == [False] * 3 + [True] * 3
    for file in [*opened, wanted]:
        file.close()


def test_a_pool_never_holds_more_than_its_share_while_no_flush_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More partitions have unsynced records than files may be open: the longest unused is synced, then closed."""
    synced: list[str] = []
    monkeypatch.setattr(files, "sync_data", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")[-1]))
    pool = FilePool(2)
    for file in pooled(tmp_path, pool, 5):
        file.descriptor()
        file.unsynced = True
        assert pool.open_count <= 2
    assert synced == ["0", "1", "2"]


def test_a_sync_that_fails_before_a_file_is_closed_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = FilePool(1)
    lost, other = pooled(tmp_path, pool, 2)
    lost.descriptor()
    lost.unsynced = True

    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as broken:
        broken.setattr(files, "sync_data", refuse)
        with pytest.raises(StorageError, match=r"cannot sync .*0: broken"):
            other.descriptor()
    assert lost.unsynced
    with pytest.raises(StorageError, match=r"cannot sync .*0: broken"):
        lost.pin()
    lost.close()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[FileLogDirectory]:
    opened = FileLogDirectory(tmp_path, post=None, files_max=3)
    yield opened
    opened.abandon()


def test_more_logs_with_unsynced_records_than_files_may_be_open(directory: FileLogDirectory) -> None:
    logs = [directory.open(group) for group in GROUPS]
    wanted = {log.group: data_of(fill(log, 2)) for log in logs}
    assert directory.open_files <= 3
    failed: list[StorageError | None] = []
    directory.flush(logs, failed.append)
    assert failed == [None] and {log.group: read_all(log) for log in logs} == wanted


def test_an_append_without_a_descriptor_changes_nothing_and_succeeds_later(directory: FileLogDirectory) -> None:
    log: FileLog = directory.open(GROUPS[0])
    batches = fill(log, 2)
    directory.settle(GROUPS[0])
    for segment in log._segments:
        segment.close()
    with descriptors_left():
        with pytest.raises(TooManyFiles):
            fill(log, 1)
        with pytest.raises(TooManyFiles):
            read_all(log)
    assert read_all(log) == data_of(batches)
    assert data_of(batches + fill(log, 1)) == read_all(log)


def test_a_running_directory_keeps_spares_until_it_is_closed(tmp_path: Path) -> None:
    directory = FileLogDirectory(tmp_path, post=lambda call: call())
    assert spares.count == SPARES
    directory.close()
    assert spares.count == 0


def test_spares_are_taken_back_from_the_files_of_logs(tmp_path: Path) -> None:
    directory = FileLogDirectory(tmp_path, post=None, files_max=40)
    for group in GROUPS:
        fill(directory.open(group), 1)
        directory.settle(group)
    assert directory.open_files == 6
    with descriptors_left():
        directory.checkpoint()
        assert directory.open_files == 3, "none was free, and logs gave some up"
        directory.checkpoint()
        assert 0 < spares.count < SPARES
    directory.checkpoint()
    assert spares.count == SPARES
    left = directory.open_files
    directory.checkpoint()
    assert directory.open_files == left
    directory.close()


def test_a_file_is_deleted_at_once_when_it_cannot_be_held_open(tmp_path: Path) -> None:
    disposal = Disposal(threaded=True)
    path = tmp_path / "large"
    path.write_bytes(b"x")
    with descriptors_left():
        disposal.unlink(path)
    assert not path.exists() and disposal.held_count == 0
    disposal.close()
