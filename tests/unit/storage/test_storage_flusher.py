"""The flush thread: order of completions, the driver's thread, parallel syncs, and what a close still finishes."""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.batches import fill
from raftlake.errors import InvariantViolation, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.storage import flusher
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.log import FileLog

Posted = queue.SimpleQueue[Callable[[], None]]


@pytest.fixture
def posted() -> Posted:
    return queue.SimpleQueue()


@pytest.fixture
def directory(tmp_path: Path, posted: Posted) -> Iterator[FileLogDirectory]:
    opened = FileLogDirectory(tmp_path, post=posted.put)
    yield opened
    opened.abandon()


def logs_of(directory: FileLogDirectory, count: int) -> list[FileLog]:
    logs = [directory.open(GroupId("many", number)) for number in range(count)]
    for log in logs:
        fill(log, 1)
    return logs


def test_done_runs_on_the_drivers_thread_and_not_before_it_is_asked(directory: FileLogDirectory, posted: Posted) -> None:
    threads: list[threading.Thread] = []
    directory.flush(logs_of(directory, 1), lambda error: threads.append(threading.current_thread()))
    completion = posted.get(timeout=60)
    assert threads == []
    completion()
    assert threads == [threading.current_thread()]


def test_many_logs_are_synced_on_several_threads(
    directory: FileLogDirectory, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(flusher.HELPERS + 1, timeout=60)
    # Nobody passes before as many syncs are under way as there are threads.
    monkeypatch.setattr(flusher, "sync_data", lambda descriptor: void(together.wait()))
    results: list[StorageError | None] = []
    directory.flush(logs_of(directory, 2 * (flusher.HELPERS + 1)), results.append)
    posted.get(timeout=60)()
    assert results == [None]


def void(_: object) -> None:
    return


class Waiting:
    """Flushes of one log by a caller that may wait; each notes its result, and each sync the thread that made it."""

    def __init__(self, directory: FileLogDirectory, posted: Posted, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.posted = posted
        self.patch = monkeypatch
        self.results: list[StorageError | None] = []
        self.threads: list[threading.Thread] = []
        (self.log,) = logs_of(directory, 1)
        monkeypatch.setattr(flusher, "sync_data", lambda descriptor: self.threads.append(threading.current_thread()))

    def flush(self, *, quick_s: float) -> None:
        """What takes less than `quick_s` is quick."""
        self.patch.setattr(flusher, "QUICK_S", quick_s)
        fill(self.log, 1)
        self.directory.flush([self.log], self.results.append, may_wait=True)


@pytest.fixture
def waiting(directory: FileLogDirectory, posted: Posted, monkeypatch: pytest.MonkeyPatch) -> Waiting:
    """The last sync was quick."""
    made = Waiting(directory, posted, monkeypatch)
    made.flush(quick_s=60)
    assert made.results == [], "nothing is known of the disk before the first sync"
    posted.get(timeout=60)()
    assert made.results.pop() is None
    posted.get(timeout=60)()  # the epoch file, with the first flush alone
    assert made.threads.pop() is not threading.current_thread()
    return made


def test_who_may_wait_syncs_a_quick_disk_on_the_spot(waiting: Waiting) -> None:
    waiting.flush(quick_s=60)
    assert waiting.results == [None]
    waiting.flush(quick_s=60)
    assert waiting.results == [None, None]
    assert set(waiting.threads) == {threading.current_thread()}
    assert waiting.posted.empty()


def test_nobody_waits_for_a_disk_that_was_slow_last_time(waiting: Waiting) -> None:
    waiting.flush(quick_s=0)
    assert waiting.results == [None]
    for count in (2, 3):
        waiting.flush(quick_s=60 if count == 3 else 0)
        assert len(waiting.results) == count - 1
        waiting.posted.get(timeout=60)()
        assert waiting.threads[-1] is not threading.current_thread()
    waiting.flush(quick_s=60)
    assert len(waiting.results) == 4, "it was quick again"


def test_who_may_not_wait_never_does(waiting: Waiting) -> None:
    fill(waiting.log, 1)
    waiting.directory.flush([waiting.log], waiting.results.append)
    assert waiting.results == []
    waiting.posted.get(timeout=60)()
    assert waiting.results == [None]


def test_a_failed_sync_reaches_who_waits(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(flusher, "sync_data", fail)
    waiting.flush(quick_s=60)
    (error,) = waiting.results
    assert isinstance(error, StorageError)


def test_two_logs_are_not_worth_a_helper(directory: FileLogDirectory, posted: Posted, monkeypatch: pytest.MonkeyPatch) -> None:
    names: set[str] = set()
    monkeypatch.setattr(flusher, "sync_data", lambda descriptor: names.add(threading.current_thread().name))
    directory.flush(logs_of(directory, 2), lambda error: None)
    posted.get(timeout=60)()
    assert names == {"raftlake-flush"}


@pytest.mark.parametrize("count", [1, 10])
def test_an_error_on_any_thread_reaches_the_driver(
    directory: FileLogDirectory, posted: Posted, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    logs = logs_of(directory, count)
    bad = os.stat(logs[-1].path / "00000000000000000000.log").st_ino

    def sync(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(flusher, "sync_data", sync)
    results: list[StorageError | None] = []
    directory.flush(logs, results.append)
    posted.get(timeout=60)()
    assert len(results) == 1
    assert f"many-{count - 1}/00000000000000000000.log" in str(results[0])


def test_what_is_appended_during_a_flush_belongs_to_the_next(
    directory: FileLogDirectory, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    may_sync = threading.Event()

    def sync(descriptor: int) -> None:
        assert may_sync.wait(60)
        synced.append(descriptor)

    monkeypatch.setattr(flusher, "sync_data", sync)
    (log,) = logs_of(directory, 1)
    directory.flush([log], lambda error: None)
    fill(log, 1)
    may_sync.set()
    posted.get(timeout=60)()
    directory.flush([log], lambda error: None)
    directory.close()
    assert len(synced) == 2


def test_the_epoch_file_is_written_after_the_flush_was_reported(directory: FileLogDirectory, posted: Posted) -> None:
    (log,) = logs_of(directory, 1)
    directory.flush([log], lambda error: None)
    posted.get(timeout=60)()
    posted.get(timeout=60)()
    assert (log.path / "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"


def test_an_epoch_file_that_cannot_be_written_stops_the_log(
    directory: FileLogDirectory, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log,) = logs_of(directory, 1)
    (log.path / "leader-epoch-checkpoint.tmp").mkdir()
    results: list[StorageError | None] = []
    directory.flush([log], results.append)
    posted.get(timeout=60)()
    posted.get(timeout=60)()
    assert results == [None], "the bytes are durable"
    directory.flush([log], results.append)
    posted.get(timeout=60)()
    assert "leader-epoch-checkpoint" in str(results[1])


def test_a_flush_thread_that_dies_does_not_die_unheard(
    directory: FileLogDirectory, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces: list[object] = []
    monkeypatch.setattr(threading, "excepthook", traces.append)
    monkeypatch.setattr(flusher, "sync_work", lambda work: 1 // 0)
    directory.flush(logs_of(directory, 1), lambda error: None)
    with pytest.raises(InvariantViolation, match="flush thread"):
        posted.get(timeout=60)()
    directory.abandon()
    assert len(traces) == 1


def test_close_finishes_the_flush_but_reports_nothing(tmp_path: Path, posted: Posted) -> None:
    threads = threading.enumerate()
    directory = FileLogDirectory(tmp_path, post=posted.put)
    (log,) = logs_of(directory, 1)
    results: list[StorageError | None] = []
    directory.flush([log], results.append)
    directory.close()
    while not posted.empty():
        posted.get()()
    assert results == []
    assert [thread.name for thread in threading.enumerate() if thread not in threads] == []
