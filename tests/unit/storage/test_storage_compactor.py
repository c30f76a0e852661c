"""Passes beside the driver's thread: a real worker, one that is killed, one that cannot be started, and giving up."""

from __future__ import annotations

import io
import os
import pickle
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compactdisk import GROUP, SEGMENT_BYTES, fill_keys, newest_values, put, request_for
from raftlake.background import NICENESS
from raftlake.errors import DamagedData, DiskFull, InvariantViolation, StorageError
from raftlake.ports.driver import Compacted
from raftlake.raft.types import Offset, OffsetAndEpoch
from raftlake.storage import compaction_worker
from raftlake.storage.cleaned import CleanedGroup
from raftlake.storage.compaction_calls import PassFailed, Told, tell
from raftlake.storage.compaction_pass import CompactionJob
from raftlake.storage.compactor import Compactor, WorkerProcess
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.log import FileLog

WAIT_SECONDS = 60


class Driver:
    """The driver's thread: what is posted runs when the test says so."""

    def __init__(self) -> None:
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.results: list[Compacted | StorageError | None] = []

    def run_one(self) -> None:
        self.posted.get(timeout=WAIT_SECONDS)()

    def result(self) -> Compacted | StorageError | None:
        while not self.results:
            self.run_one()
        (result,) = self.results
        self.results.clear()
        return result


class Place:
    def __init__(self, path: Path, start: Callable[[CompactionJob], object]) -> None:
        self.driver = Driver()
        self.directory = FileLogDirectory(path, segment_bytes=SEGMENT_BYTES, post=self.driver.posted.put)
        self.directory._compactor._start = start  # type: ignore[assignment]
        self.log: FileLog = self.directory.open(GROUP)
        fill_keys(self.log, 6)

    def begin(self, **changes: object) -> None:
        self.log.compact(request_for(self.log, **changes), self.driver.results.append)


class ScriptedWorker:
    """Tells what a test gives to it, and waits for more until it is killed."""

    def __init__(self, *told: Told | Exception) -> None:
        self._told: queue.SimpleQueue[Told | Exception] = queue.SimpleQueue()
        for each in told:
            self._told.put(each)
        self.is_killed = threading.Event()
        self.is_reaped = False

    def tell(self, told: Told | Exception) -> None:
        self._told.put(told)

    def receive(self) -> Told:
        told = self._told.get(timeout=WAIT_SECONDS)
        if isinstance(told, Exception):
            raise told
        return told

    def how_it_ended(self) -> str:
        return "it fell asleep"

    def kill(self) -> None:
        self.is_killed.set()
        self._told.put(EOFError("killed"))

    def reap(self) -> None:
        self.is_reaped = True


Make = Callable[..., Place]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Place] = []

    def build(start: Callable[[CompactionJob], object] = WorkerProcess) -> Place:
        made.append(Place(tmp_path, start))
        return made[-1]

    yield build
    for place in made:
        place.directory.abandon()


DID = Compacted(clean_until=Offset(9), bytes_before=9, bytes_after=5, records_removed=4, next_horizon_ms=None)


def test_a_worker_process_does_the_pass(make: Make) -> None:
    place = make()
    values, segments = newest_values(place.log), len(place.log.segments())
    place.begin()
    put(place.log, [("while", "it works")])
    result = place.driver.result()
    assert isinstance(result, Compacted) and result.records_removed > 20
    assert newest_values(place.log) == values | {b"while": b"it works"}
    assert len(place.log.segments()) < segments
    assert threading.current_thread().name == "MainThread"
    assert place.log.compacted_until == result.clean_until
    place.begin(dirty_from=result.clean_until)
    assert isinstance(place.driver.result(), Compacted)


def test_damage_is_told_by_the_worker_as_by_other_reads(make: Make) -> None:
    place = make()
    path = place.log.path / f"{place.log.segment_bases[1]:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    place.begin()
    result = place.driver.result()
    assert isinstance(result, DamagedData) and result.offset >= place.log.segment_bases[1]
    assert str(path) in str(result)


def test_a_killed_worker_is_an_error_of_its_pass(make: Make) -> None:
    started: list[WorkerProcess] = []

    def start(job: CompactionJob) -> WorkerProcess:
        worker = WorkerProcess(job)
        started.append(worker)
        os.kill(worker.pid, signal.SIGKILL)
        return worker

    place = make(start)
    values = newest_values(place.log)
    place.begin()
    result = place.driver.result()
    assert isinstance(result, StorageError) and str(result).endswith(": it was killed by SIGKILL")
    assert newest_values(place.log) == values
    assert not list(place.log.path.glob("*.cleaned"))
    place.directory._compactor._start = WorkerProcess
    place.begin()
    assert isinstance(place.driver.result(), Compacted)


def test_a_worker_that_cannot_be_started_is_an_error_of_its_pass(make: Make) -> None:
    def start(job: CompactionJob) -> WorkerProcess:
        raise OSError("no more processes")

    place = make(start)
    place.begin()
    assert "no more processes" in str(place.driver.result())


def test_a_thread_that_cannot_be_started_is_an_error_of_its_pass(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error reached the node's loop, and each later pass was a second one at a time: that stopped the node."""
    place = make()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for _ in range(2):
            place.begin()
            result = place.driver.result()
            assert isinstance(result, StorageError) and "no further thread" in str(result)
    place.begin()
    assert isinstance(place.driver.result(), Compacted)


def test_errors_arrive_as_what_they_are() -> None:
    for error in (DiskFull("full"), StorageError("bad"), DamagedData("torn", offset=7)):
        again = PassFailed.of(error).error()
        assert type(again) is type(error) and str(again) == str(error)
    again = PassFailed.of(DamagedData("torn", offset=7)).error()
    assert isinstance(again, DamagedData) and again.offset == 7


def test_a_worker_ends_when_the_node_does(make: Make, tmp_path: Path) -> None:
    """The job is a directory that cannot be read to its end: a pipe in the place of a segment holds the worker up. Until then
    the worker stands back."""
    place = make()
    base = place.log.segment_bases[0]
    path = place.log.path / f"{base:020d}.log"
    path.rename(tmp_path / "kept")
    os.mkfifo(path)
    job: list[CompactionJob] = []
    place.directory._compactor._start = lambda each: job.append(each) or ScriptedWorker(DID)  # type: ignore[func-returns-value]
    place.begin()
    place.driver.result()
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    worker = WorkerProcess(job[0], compaction_worker.__name__)
    with path.open("wb"):
        # The worker has opened the other end.
        assert worker._process.poll() is None
        assert os.getpriority(os.PRIO_PROCESS, worker._process.pid) == min(19, niceness + NICENESS)
        worker._socket.shutdown(2)
        assert worker._process.wait(WAIT_SECONDS) == 0
    worker.reap()


def test_the_worker_watches_for_the_end_of_the_node(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make(lambda job: ScriptedWorker(DID))
    ended = threading.Event()
    monkeypatch.setattr(compaction_worker.os, "_exit", lambda status: ended.set())
    source, node = os.pipe()
    told = io.BytesIO()
    with os.fdopen(node, "wb") as to, os.fdopen(source, "rb") as at_worker:
        job = CompactionJob(directory=str(place.log.path), sources=(), request=request_for(place.log), salt=bytes(16))
        tell(to, job)
        compaction_worker.serve(at_worker, told)
        assert not ended.is_set()
        to.close()
        assert ended.wait(WAIT_SECONDS)
    assert isinstance(pickle.loads(told.getvalue()), Compacted)


# --- giving up ---------------------------------------------------------------------------------------------------------------


ENDINGS: dict[str, Callable[[Place], object]] = {
    "truncation": lambda place: place.log.truncate_to(Offset(2)),
    "reset": lambda place: place.log.reset(OffsetAndEpoch(Offset(500), 7)),  # type: ignore[arg-type]
    "retention": lambda place: place.log.advance_start(place.log.segment_bases[1]),
    "deletion": lambda place: place.directory.delete([GROUP]),
}


@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS.keys())
def test_a_pass_over_what_is_gone_is_given_up(make: Make, end: Callable[[Place], object]) -> None:
    worker = ScriptedWorker()
    place = make(lambda job: worker)
    place.begin()
    bases = tuple(place.log.segment_bases[:2])
    ends = place.log.segment_bases[2]
    worker.tell(CleanedGroup(base_offset=bases[0], end_offset=ends, size=9, timestamp_ms_max=1, sources=bases))
    on_its_way = place.driver.posted.get(timeout=WAIT_SECONDS)
    end(place)
    on_its_way()
    assert worker.is_killed.wait(WAIT_SECONDS)
    assert place.driver.result() is None
    assert worker.is_reaped, "no file of the pass appears any more"


def test_a_cut_above_the_pass_leaves_it_alone(make: Make) -> None:
    worker = ScriptedWorker()
    place = make(lambda job: worker)
    put(place.log, [("a", "b")])
    place.begin()
    place.log.truncate_to(place.log.segment_bases[-1])
    worker.tell(DID)
    assert place.driver.result() == DID


def test_a_closed_directory_reports_nothing(make: Make) -> None:
    worker = ScriptedWorker()
    place = make(lambda job: worker)
    place.begin()
    place.directory.close()
    assert worker.is_killed.is_set() and worker.is_reaped
    while not place.driver.posted.empty():
        place.driver.run_one()
    assert place.driver.results == []


def test_one_pass_at_a_time(make: Make) -> None:
    worker = ScriptedWorker()
    place = make(lambda job: worker)
    place.begin()
    with pytest.raises(InvariantViolation):
        place.begin()
    job = CompactionJob(directory="x", sources=(), request=request_for(place.log), salt=b"")
    with pytest.raises(InvariantViolation):
        place.directory._compactor.begin(job, print, print)
    worker.tell(DID)
    assert place.driver.result() == DID


def test_a_group_that_cannot_be_installed_ends_the_pass(make: Make) -> None:
    """Its file is missing: the log goes on with the old segments."""
    bases: list[Offset] = []
    worker = ScriptedWorker()
    place = make(lambda job: worker)
    values = newest_values(place.log)
    bases = list(place.log.segment_bases[:3])
    for first in (0, 1):
        group = CleanedGroup(
            base_offset=bases[first], end_offset=bases[first + 1], size=9, timestamp_ms_max=1, sources=(bases[first],)
        )
        worker.tell(group)
    place.begin()
    result = place.driver.result()
    assert isinstance(result, StorageError) and "cleaned" in str(result)
    assert worker.is_killed.is_set()
    assert newest_values(place.log) == values
    put(place.log, [("a", "b")])


def test_without_a_loop_a_pass_is_done_at_once(tmp_path: Path) -> None:
    directory = FileLogDirectory(tmp_path, segment_bytes=SEGMENT_BYTES, post=None)
    log = directory.open(GROUP)
    fill_keys(log, 4)
    told: list[object] = []
    log.compact(request_for(log), told.append)
    assert isinstance(told[0], Compacted)
    directory.close()


def test_a_compactor_alone_runs_on_no_thread_without_a_pass() -> None:
    compactor = Compactor(lambda callback: None)
    before = threading.active_count()
    compactor.close()
    assert threading.active_count() == before


def test_the_worker_stands_back_before_its_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        monkeypatch.setattr(compaction_worker.sys, "argv", ["worker", str(os.dup(theirs.fileno()))])
        monkeypatch.setattr(compaction_worker.signal, "signal", lambda number, action: None)
        monkeypatch.setattr(compaction_worker, "stand_back", lambda: done.append("stood back"))
        monkeypatch.setattr(compaction_worker, "serve", lambda source, to: done.append("served"))
        compaction_worker.main()
    assert done == ["stood back", "served"]
