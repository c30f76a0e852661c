"""A flush of many logs: nothing is reported before the last of them is synced, and a failure stops the log that it is of."""

from __future__ import annotations

import errno
import os
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from contract.batches import fill
from raftlake.errors import StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.storage import flusher
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.log import FileLog

#: Around PARALLEL_FROM and around one and two shares of each thread.
COUNTS = (1, 2, 3, 4, 5, 8, 9)
SECONDS_MAX = 60


class LateCall(Future[None]):
    """A call that is made when its result is asked for: no thread could be later."""

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._call = call

    def result(self, timeout: float | None = None) -> None:
        self._call()


class LateHelpers:
    """Stands in for the flusher's pool of threads; each begins as late as it may."""

    def __init__(self, threads_max: int, thread_name_prefix: str = "") -> None:
        assert threads_max == flusher.HELPERS

    def submit(self, call: Callable[..., None], *arguments: object) -> Future[None]:
        return LateCall(lambda: call(*arguments))

    def shutdown(self) -> None:
        """No thread was begun."""


def segment_of(log: FileLog) -> Path:
    return log.path / "00000000000000000000.log"


class Disk:
    """Notes which logs and names were synced, in order, also at the moment of each report; fails where it is told to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.synced: list[int] = []
        self.at_report: list[list[int]] = []
        self.bad: set[int] = set()
        self.reports: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        patch.setattr(flusher, "sync_data", self.sync)
        patch.setattr(flusher, "sync_descriptor", self.sync)

    def sync(self, descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        if inode in self.bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.synced.append(inode)

    def post(self, call: Callable[[], None]) -> None:
        self.at_report.append(list(self.synced))
        self.reports.put(call)

    def flush(self, directory: FileLogDirectory, logs: Sequence[FileLog]) -> StorageError | None:
        """The result, once it is reported on the driver's thread."""
        results: list[StorageError | None] = []
        directory.flush(logs, results.append)
        if not results:
            self.reports.get(timeout=SECONDS_MAX)()
        (result,) = results
        return result


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture(params=["threads", "late helpers", "inline"])
def directory(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[FileLogDirectory]:
    if request.param == "late helpers":
        monkeypatch.setattr(flusher, "ThreadPoolExecutor", LateHelpers)
    opened = FileLogDirectory(tmp_path, post=None if request.param == "inline" else disk.post)
    yield opened
    opened.abandon()


def logs_of(directory: FileLogDirectory, count: int) -> list[FileLog]:
    logs = [directory.open(GroupId("many", number)) for number in range(count)]
    for log in logs:
        fill(log, 1)
    return logs


def inodes(logs: Sequence[FileLog]) -> list[int]:
    """Of the segments and of the directories, whose names are new."""
    return sorted(path.stat().st_ino for log in logs for path in (log.path, segment_of(log)))


@pytest.mark.parametrize("count", COUNTS)
def test_nothing_is_reported_before_every_log_of_the_flush_is_synced(
    directory: FileLogDirectory, disk: Disk, count: int
) -> None:
    logs = logs_of(directory, count)
    assert disk.flush(directory, logs) is None
    assert sorted(disk.synced) == inodes(logs), "each once"
    assert all(sorted(at_report) == inodes(logs) for at_report in disk.at_report)
    assert [log.synced_end for log in logs] == [1] * count


@pytest.mark.parametrize("what", ["segment", "names"])
@pytest.mark.parametrize(("count", "bad"), [(count, bad) for count in COUNTS if count < 9 for bad in range(count)])
def test_a_failure_of_any_log_of_the_flush_is_reported_and_stops_that_log_alone(
    directory: FileLogDirectory, disk: Disk, count: int, bad: int, what: str
) -> None:
    logs = logs_of(directory, count)
    path = segment_of(logs[bad]) if what == "segment" else logs[bad].path
    disk.bad = {path.stat().st_ino}
    assert f"cannot sync {path}: Input/output error (EIO)" in str(disk.flush(directory, logs))
    assert sorted([*disk.synced, *disk.bad]) == inodes(logs), "the others are synced all the same"
    assert [log.synced_end for log in logs] == [0 if number == bad else 1 for number in range(count)]
    assert [log.failure_unless_deleted() is not None for log in logs] == [number == bad for number in range(count)]


@pytest.mark.parametrize("bad", [(0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_of_several_failures_the_first_is_reported_and_each_stops_its_log(
    directory: FileLogDirectory, disk: Disk, bad: tuple[int, ...]
) -> None:
    logs = logs_of(directory, 3)
    disk.bad = {segment_of(logs[number]).stat().st_ino for number in bad}
    assert str(segment_of(logs[bad[0]])) in str(disk.flush(directory, logs))
    assert [log.failure_unless_deleted() is not None for log in logs] == [number in bad for number in range(3)]


@pytest.mark.parametrize("bad", range(3))
def test_a_log_that_had_failed_before_is_told_again_and_the_others_are_synced(
    directory: FileLogDirectory, disk: Disk, monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    logs = logs_of(directory, 3)

    def fail(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", fail)
        with pytest.raises(StorageError):
            fill(logs[bad], 1)
    assert "EROFS" in str(disk.flush(directory, logs))
    others = [log for number, log in enumerate(logs) if number != bad]
    assert sorted(disk.synced) == inodes(others)
    assert [log.synced_end for log in others] == [1, 1]


@pytest.mark.parametrize("bad", range(3))
def test_an_epoch_file_that_cannot_be_written_stops_its_own_log_alone(
    directory: FileLogDirectory, disk: Disk, bad: int
) -> None:
    logs = logs_of(directory, 3)
    (logs[bad].path / "leader-epoch-checkpoint.tmp").mkdir()
    assert disk.flush(directory, logs) is None, "the bytes are durable"
    if disk.at_report:
        disk.reports.get(timeout=SECONDS_MAX)()
    told = [str(log.failure_unless_deleted()) for log in logs]
    assert ["leader-epoch-checkpoint" in each for each in told] == [number == bad for number in range(3)]
    assert [(log.path / "leader-epoch-checkpoint").exists() for log in logs] == [number != bad for number in range(3)]


@pytest.mark.parametrize("changed", range(3))
def test_the_epoch_file_of_any_log_of_the_flush_is_written(directory: FileLogDirectory, disk: Disk, changed: int) -> None:
    logs = logs_of(directory, 3)
    assert disk.flush(directory, logs) is None
    if disk.at_report:
        disk.reports.get(timeout=SECONDS_MAX)()
    for number, log in enumerate(logs):
        fill(log, 1, epoch=2 if number == changed else 1)
    assert disk.flush(directory, logs) is None
    if disk.at_report:
        disk.reports.get(timeout=SECONDS_MAX)()
    found = [(log.path / "leader-epoch-checkpoint").read_text() for log in logs]
    assert found == ["0\n2\n1 0\n2 1\n" if number == changed else "0\n1\n1 0\n" for number in range(3)]


def test_a_checkpoint_notes_how_far_each_log_is_synced_and_tells_the_next_flush_of_its_failure(tmp_path: Path) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    logs = logs_of(directory, 3)
    file = tmp_path / "recovery-point-offset-checkpoint"
    results: list[StorageError | None] = []
    directory.flush(logs, results.append)
    fill(logs[1], 1)
    directory.checkpoint()
    assert file.read_text() == "0\n3\nmany 0 1\nmany 1 1\nmany 2 1\n"
    directory.flush(logs, results.append)
    directory.checkpoint()
    assert file.read_text() == "0\n3\nmany 0 1\nmany 1 2\nmany 2 1\n", "also a second one"
    fill(logs[2], 1)
    directory.flush(logs, results.append)
    (tmp_path / f"{file.name}.tmp").mkdir()
    directory.checkpoint()
    directory.flush(logs[:1], results.append)
    assert [result is None for result in results] == [True, True, True, False] and file.name in str(results[-1])
    directory.abandon()
