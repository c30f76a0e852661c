"""A disk that fails: the error names file and offset, the log refuses all further use, and a sync error is never retried."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from contract.batches import data_of, fill, make_batch, read_all
from raftlake.errors import DiskFull, StorageError, TooManyFiles
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.files import PooledFile
from raftlake.storage.log import FileLog

GROUP = GroupId("orders", 0, bytes(range(16)))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[FileLogDirectory]:
    opened = FileLogDirectory(tmp_path, segment_bytes=1_000, post=None)
    yield opened
    opened.abandon()


@pytest.fixture
def log(directory: FileLogDirectory) -> FileLog:
    return directory.open(GROUP)


def failing(number: int) -> Callable[..., int]:
    def call(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return call


def uses(log: FileLog) -> list[Callable[[], object]]:
    data, span = make_batch(log.end_offset)
    return [
        lambda: log.append([data], [span]),
        lambda: log.read(log.start_offset, log.end_offset, 10),
        lambda: log.truncate_to(log.end_offset),
        lambda: log.reset(OffsetAndEpoch(Offset(9), Epoch(1))),
        lambda: log.advance_start(Offset(1)),
        lambda: log.note_partial(True),
        lambda: log.find_timestamp(1),
        log.latest_timestamp,
        log.segments,
        log.verify,
        log.begin_flush,
    ]


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_failed_append_stops_the_log(log: FileLog, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    fill(log, 3)
    position = 3 * len(make_batch(0)[0])
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", failing(number))
        with pytest.raises(StorageError) as raised:
            fill(log, 1)
    text = str(raised.value)
    assert f"{log.path}/00000000000000000000.log at byte {position}" in text
    assert text.endswith("offset 3") and errno.errorcode[number] in text
    assert log.end_offset == 3
    for use in uses(log):
        with pytest.raises(StorageError, match=errno.errorcode[number]):
            use()


def test_a_disk_that_fills_in_the_middle_of_a_batch(
    directory: FileLogDirectory, log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = fill(log, 3)
    real = os.pwritev
    left = 100

    def pwritev(descriptor: int, chunks: Sequence[bytes], position: int) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(descriptor, [bytes(chunks[0])[:left]], position)
        left -= written
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", pwritev)
        with pytest.raises(StorageError, match="ENOSPC"):
            fill(log, 1)
    directory.abandon()
    again = FileLogDirectory(directory.path, post=None)
    assert read_all(again.open(GROUP)) == data_of(batches)
    again.close()


def test_a_real_full_device(log: FileLog, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    descriptor = os.open("/dev/full", os.O_RDWR)
    monkeypatch.setattr("raftlake.storage.files.PooledFile.descriptor", lambda *_: descriptor)
    # It is no file that could be cut.
    monkeypatch.setattr(os, "ftruncate", lambda *_: None)
    with pytest.raises(DiskFull, match=r"No space left on device \(ENOSPC\)"):
        fill(log, 1)
    monkeypatch.undo()
    os.close(descriptor)


def test_a_failed_sync_is_reported_once_and_never_tried_again(
    directory: FileLogDirectory, log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = directory.open(GroupId("other", 0))
    fill(log, 1)
    fill(other, 1)
    bad = log.segments()[0]
    results: list[StorageError | None] = []
    with monkeypatch.context() as patch:
        calls: list[int] = []

        def sync(descriptor: int) -> None:
            calls.append(descriptor)
            if len(calls) == 1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        patch.setattr("raftlake.storage.flusher.sync_data", sync)
        directory.flush([log, other], results.append)
        assert len(calls) == 2, "the other log is synced all the same"
    directory.flush([other], results.append)
    directory.flush([log], results.append)
    assert [result is None for result in results] == [False, True, False]
    assert f"cannot sync {log.path}/{bad.base_offset:020d}.log: Input/output error (EIO)" in str(results[0])
    assert str(results[2]) == str(results[0])
    for use in uses(log):
        with pytest.raises(StorageError, match="EIO"):
            use()
    assert other.end_offset == 1


def test_a_failed_sync_of_a_sealed_segment_stops_the_append_that_rolls(log: FileLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlake.storage.segment.sync_data", failing(errno.EIO))
    with pytest.raises(StorageError, match=r"cannot sync .*00\.log: .*EIO"):
        fill(log, 40)
    assert len(list(log.path.glob("*.log"))) == 1


def test_the_old_segment_is_synced_before_the_new_one_exists(log: FileLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlake.storage.segment.sync_data", lambda descriptor: seen.append(len(list(log.path.glob("*.log")))))
    seen: list[int] = []
    fill(log, 20)
    assert seen == [1, 2, 3][: len(seen)]
    assert len(log.segments()) == len(seen) + 1 > 2


def test_the_epochs_are_durable_before_a_new_segment_begins(log: FileLog) -> None:
    fill(log, 4, epoch=1)
    fill(log, 20, epoch=2)
    assert (log.path / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n2 4\n"


def test_the_name_of_a_new_segment_is_synced_with_its_first_bytes(
    directory: FileLogDirectory, log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.flush([log], lambda error: None)
    fill(log, 20)
    assert len(log.segments()) > 1
    synced: list[int] = []
    monkeypatch.setattr("raftlake.storage.flusher.sync_descriptor", synced.append)
    directory.flush([log], lambda error: None)
    assert len(synced) == 1
    fill(log, 1, size=10)
    directory.flush([log], lambda error: None)
    assert len(synced) == 1, "once is enough"


def test_a_truncation_is_synced_before_it_returns(log: FileLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes appended behind an unsynced cut could come back mixed with those that it cut."""
    fill(log, 5)
    sizes: list[int] = []
    monkeypatch.setattr("raftlake.storage.segment.sync_data", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    log.truncate_to(Offset(2))
    assert sizes == [2 * len(make_batch(0)[0])]


def test_a_file_that_shrank_is_damage(log: FileLog) -> None:
    fill(log, 3)
    os.truncate(log.path / "00000000000000000000.log", 50)
    with pytest.raises(StorageError, match=r"00\.log is damaged at byte 50 .*the file ends there, \d+ bytes were written"):
        log.read(Offset(0), log.end_offset, 1 << 20)


def test_a_failed_log_is_closed_without_being_written(
    directory: FileLogDirectory, log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", failing(errno.EIO))
        with pytest.raises(StorageError):
            fill(log, 1)
    monkeypatch.setattr("raftlake.storage.segment.sync_data", failing(errno.EIO))
    directory.close()
    assert not (log.path / "00000000000000000000.index").exists()


@pytest.mark.parametrize("refusals", [1, 3])
def test_a_log_is_settled_again_once_there_is_a_descriptor(
    directory: FileLogDirectory, log: FileLog, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    """The log failed for good, and the next try, a second later, stopped the node."""
    batches = fill(log, 3)
    with monkeypatch.context() as patch:

        def refuse(_file: PooledFile) -> int:
            raise TooManyFiles("simulated")

        patch.setattr(PooledFile, "descriptor", refuse)
        for _ in range(refusals):
            with pytest.raises(TooManyFiles):
                directory.settle(GROUP)
        assert log.synced_end == 0
    directory.settle(GROUP)
    assert log.synced_end == 3 and read_all(log) == data_of(batches)


@pytest.mark.parametrize("is_rolled", [False, True])
@pytest.mark.parametrize("refusals", [0, 2])
def test_a_log_is_settled_with_the_name_of_its_newest_segment(
    directory: FileLogDirectory, log: FileLog, monkeypatch: pytest.MonkeyPatch, *, is_rolled: bool, refusals: int
) -> None:
    """Its records counted as durable. A power loss could take the file that holds them."""
    if is_rolled:
        fill(log, 1)
        directory.flush([log], lambda error: None)
        log.roll()
    durable = log.synced_end
    batch = fill(log, 1)
    synced: list[str] = []
    honest_open, honest_sync = os.open, os.fsync

    def refuse(path: Any, flags: int, *given: Any, **named: Any) -> int:
        if flags & os.O_DIRECTORY:
            raise OSError(errno.EMFILE, "too many open files")
        return honest_open(path, flags, *given, **named)

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        honest_sync(descriptor)

    for _ in range(refusals):
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            with pytest.raises(TooManyFiles):
                directory.settle(GROUP)
        assert log.synced_end == durable
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        directory.settle(GROUP)
        assert log.synced_end == log.end_offset and synced.count(str(log.path)) == 1
    work = log.begin_flush()
    assert work is None or not (work.directory or work.files), "the next flush has nothing to sync"
    assert read_all(log).endswith(data_of(batch))


def test_a_log_is_settled_with_names_that_a_flush_under_way_is_to_sync(
    directory: FileLogDirectory, log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 1)
    directory.flush([log], lambda error: None)
    log.roll()
    fill(log, 1)
    work = log.begin_flush()
    assert work is not None and work.directory is not None
    fill(log, 1)
    synced: list[str] = []
    honest = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        honest(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        directory.settle(GROUP)
    assert log.synced_end == log.end_offset == 3 and str(log.path) in synced
    log.end_flush(work)
    assert log.synced_end == 3


def test_a_name_whose_sync_failed_as_a_log_was_settled_is_lost(
    directory: FileLogDirectory, log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 3)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(errno.ENOSPC))
        with pytest.raises(StorageError, match="cannot sync"):
            directory.settle(GROUP)
    with pytest.raises(StorageError, match="cannot sync"):
        directory.settle(GROUP)
    assert log.synced_end == 0


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_a_sync_that_failed_as_a_log_was_settled_is_not_made_again(
    directory: FileLogDirectory, log: FileLog, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fill(log, 3)
    with monkeypatch.context() as patch:
        patch.setattr("raftlake.storage.segment.sync_data", failing(number))
        with pytest.raises(StorageError, match="cannot sync"):
            directory.settle(GROUP)
    with pytest.raises(StorageError, match="cannot sync"):
        directory.settle(GROUP)
    assert log.synced_end == 0
