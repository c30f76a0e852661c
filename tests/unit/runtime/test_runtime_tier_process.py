"""The node's side of the tier, with workers that are no processes: deadlines, deaths, pauses, the end, the thread of answers.

Real workers: process/test_tier_process.py.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contract.tier_contract import GROUP, LINEAGE, segment
from raftlake.ports.tier import (
    AdoptRequest,
    CopyRequest,
    LineageEnd,
    ReadRequest,
    RemoteSegment,
    SearchRequest,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, Offset
from raftlake.runtime import tier_process
from raftlake.runtime.tier_process import PAUSE_SECONDS_MAX, REAP_SECONDS_MAX, TierProcess, WorkerProcess
from raftlake.tier.calls import (
    CheckRequest,
    ClaimRequest,
    DeleteRequest,
    DropRequest,
    FactsRequest,
    FindRequest,
    OldestRequest,
    TierCall,
    TierSettings,
)
from waitkit import wait_until

SETTINGS = TierSettings(uri="s3://bucket/tier", cluster_id="c")
PATIENCE_SECONDS = 60.0
DONE = LineageEnd(None)
FOUND = TierError(TierFailure.ABSENT, "no copy holds it")


class FakeWorker:
    """Answers as its list says: with a value, by raising, or never."""

    def __init__(self, behaviour: list[Any]) -> None:
        self.behaviour = behaviour
        self.asked: list[tuple[TierCall, float]] = []
        self.stalls = threading.Event()
        self.killed = threading.Event()

    def ask(self, call: TierCall, timeout_seconds: float) -> Any:
        self.asked.append((call, timeout_seconds))
        answer = self.behaviour.pop(0)
        if answer == "stall":
            self.stalls.set()
            assert self.killed.wait(PATIENCE_SECONDS)
            raise EOFError("killed")
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def how_it_ended(self) -> str:
        return "it fell asleep"

    def kill(self) -> None:
        self.killed.set()


class Node:
    """A driver's thread, which is the test's, and the tier of its node."""

    def __init__(self) -> None:
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.workers: list[FakeWorker] = []
        #: What each worker that is started will do; an OSError stands for a start that fails.
        self.plans: list[Any] = []
        self.pauses: list[float] = []
        self.tier = TierProcess(
            lambda: SETTINGS, timeout_seconds=7.0, post=self.posted.put, start=self.start, pause=self.pauses.append
        )

    def start(self, settings: TierSettings) -> FakeWorker:
        assert settings is SETTINGS
        plan = self.plans.pop(0)
        if isinstance(plan, OSError):
            raise plan
        self.workers.append(FakeWorker(plan))
        return self.workers[-1]

    def claim(self, epoch: int = 1) -> list[Any]:
        """Begin a claim; the list gets its answers."""
        answers: list[Any] = []
        self.tier.claim(LINEAGE, Epoch(epoch), lambda answer: answers.append((answer, threading.current_thread())))
        return answers

    def wait(self, answers: list[Any]) -> Any:
        end = time.monotonic() + PATIENCE_SECONDS
        while not answers:
            try:
                self.posted.get(timeout=1.0)()
            except queue.Empty:
                assert self.is_alive and time.monotonic() < end, "nobody answers any more"
        ((answer, thread),) = answers
        assert thread is threading.current_thread()
        return answer

    @property
    def is_alive(self) -> bool:
        """Each lane that has begun has its thread."""
        return all(lane._thread.is_alive() for lane in (self.tier.leaders, self.tier.readers) if lane._is_started)

    def ask(self) -> Any:
        return self.wait(self.claim())


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.tier.close()
    for lane in (node.tier.leaders, node.tier.readers):
        if lane._is_started:
            lane._thread.join(PATIENCE_SECONDS)
            assert not lane._thread.is_alive()


def unknown(answer: Any) -> str:
    assert isinstance(answer, TierError) and answer.failure is TierFailure.UNKNOWN, answer
    return answer.reason


#: What `threading.Thread.start` raises where the machine, or the user, has no task left.
NO_THREAD = RuntimeError("can't start new thread")


def raises(error: Exception) -> Callable[..., Any]:
    def call(*_: Any) -> Any:
        raise error

    return call


def test_a_node_that_calls_nothing_has_no_worker_and_no_thread(node: Node) -> None:
    assert not node.tier.leaders._thread.is_alive() and not node.tier.readers._thread.is_alive()
    node.tier.close()
    assert node.workers == []


def test_calls_go_to_one_worker_in_their_order(node: Node) -> None:
    request = segment(0, "a")
    node.plans = [[DONE, TierError(TierFailure.FENCED, "later leader"), DONE]]
    answers: list[Any] = []
    first = node.claim(3)
    node.tier.copy(request, lambda answer: answers.append((answer, threading.current_thread())))
    last = node.claim(4)
    assert (first, answers, last) == ([], [], [])
    assert node.wait(last) == DONE
    assert node.wait(first) == DONE and node.wait(answers).failure is TierFailure.FENCED
    (worker,) = node.workers
    assert worker.asked == [(ClaimRequest(LINEAGE, Epoch(3)), 7.0), (request, 7.0), (ClaimRequest(LINEAGE, Epoch(4)), 7.0)]
    assert node.pauses == []


def test_a_call_without_an_answer_in_time_is_unknown_and_costs_the_worker(node: Node) -> None:
    """Aiven 820: a copy hung forever, and nothing was said."""
    node.plans = [[TimeoutError()], [DONE]]
    answers, others = node.claim(), node.claim()
    assert unknown(node.wait(answers)) == "no answer from the tier at s3://bucket/tier in 7 s"
    assert node.wait(others) == DONE
    assert len(node.workers) == 2
    assert node.workers[0].killed.is_set() and not node.workers[1].killed.is_set()


@pytest.mark.parametrize("end", [EOFError("closed"), BrokenPipeError("gone"), ConnectionResetError("reset")], ids=repr)
def test_a_worker_that_dies_makes_its_call_unknown_and_another_one_is_started(node: Node, end: Exception) -> None:
    node.plans = [[DONE, end], [DONE]]
    assert node.ask() == DONE
    assert str(end) in unknown(node.ask())
    assert node.ask() == DONE
    assert node.pauses == [0.1]


def test_pauses_double_up_to_a_limit_and_an_answer_ends_them(node: Node) -> None:
    deaths = 12
    node.plans = [[EOFError()] for _ in range(deaths)] + [[DONE, EOFError()], [DONE]]
    for _ in range(deaths):
        unknown(node.ask())
    assert node.ask() == DONE
    assert node.pauses == [min(0.1 * 2**n, PAUSE_SECONDS_MAX) for n in range(deaths)]
    assert PAUSE_SECONDS_MAX in node.pauses
    unknown(node.ask())
    assert node.ask() == DONE
    assert node.pauses[deaths:] == [0.1]


def test_a_worker_that_cannot_be_started_is_an_answer_too(node: Node) -> None:
    node.plans = [OSError("too many open files"), [DONE]]
    assert unknown(node.ask()) == "the tier's worker ended: too many open files: it could not be started"
    assert node.ask() == DONE


@pytest.mark.parametrize("place", ["ask", "how_it_ended", "kill"])
def test_an_error_that_nobody_expects_is_an_answer_and_the_lane_goes_on(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """Nothing was copied or read any more, until the node was started again."""
    node.plans = [[DONE, EOFError("gone")], [DONE]]
    assert node.ask() == DONE
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(FakeWorker, place, raises(NO_THREAD))
        answers = node.claim()
        assert unknown(node.wait(answers)) == f"a call of the tier failed in this node: {NO_THREAD!r}"
    assert node.ask() == DONE
    assert len(answers) == 1 and len(node.workers) == 2, "a worker in the middle of something is not asked again"
    assert node.workers[0].killed.is_set() or place == "kill"
    assert node.pauses == [0.1]
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [NO_THREAD]


def test_a_lane_whose_thread_cannot_be_started_tries_again_with_the_next_call(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.plans = [[DONE]]
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(threading.Thread, "start", raises(NO_THREAD))
        assert unknown(node.ask()) == "the tier's thread could not be started: can't start new thread"
    assert node.workers == []
    assert node.ask() == DONE


def test_a_worker_is_reaped_also_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be a zombie, and its descriptors would stay open."""
    worker = WorkerProcess()
    monkeypatch.setattr(threading.Thread, "start", raises(NO_THREAD))
    monkeypatch.setattr(tier_process, "REAP_SECONDS_MAX", PATIENCE_SECONDS)
    for _ in range(2):
        worker.kill()
        assert worker._process.returncode == -signal.SIGKILL and worker._socket.fileno() == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(worker._lifeline)


def test_nobody_waits_for_a_worker_that_hangs_in_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = WorkerProcess()
    ended = worker._process.wait
    waits: list[float | None] = []

    def hangs(timeout: float | None = None) -> int:
        waits.append(timeout)
        raise subprocess.TimeoutExpired("worker", timeout or 0.0)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(threading.Thread, "start", raises(NO_THREAD))
        meanwhile.setattr(worker._process, "wait", hangs)
        worker.kill()
    assert waits == [REAP_SECONDS_MAX] and worker._socket.fileno() == -1
    ended()


def test_a_close_ends_a_call_that_never_returns_and_answers_all(node: Node) -> None:
    node.plans = [[DONE, "stall"]]
    assert node.ask() == DONE
    answers, waiting = node.claim(), node.claim()
    assert node.workers[0].stalls.wait(PATIENCE_SECONDS)
    node.tier.close()
    unknown(node.wait(answers))
    assert unknown(node.wait(waiting)) == "the node is stopping"
    assert node.workers[0].killed.is_set()
    assert len(node.workers) == 1
    # And who comes later.
    assert unknown(node.ask()) == "the node is stopping"


def test_a_loop_that_is_closed_is_not_told(node: Node) -> None:
    told = threading.Event()

    def closed(callback: Callable[[], None]) -> None:
        told.set()
        raise RuntimeError("Event loop is closed")

    tier = TierProcess(lambda: SETTINGS, timeout_seconds=7.0, post=closed, start=lambda _: FakeWorker([DONE]))
    tier.claim(LINEAGE, Epoch(1), lambda answer: pytest.fail("told"))
    assert told.wait(PATIENCE_SECONDS)
    tier.close()
    tier.leaders._thread.join(PATIENCE_SECONDS)
    assert not tier.leaders._thread.is_alive()


def test_reads_begin_with_the_worker_that_was_started_before_the_node() -> None:
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    early, later = FakeWorker([None, EOFError("gone")]), FakeWorker([None])
    started = [later]
    tier = TierProcess(
        lambda: SETTINGS,
        timeout_seconds=7.0,
        post=posted.put,
        start=lambda _: started.pop(),
        pause=lambda _: None,
        reader=early,
    )

    def find() -> Any:
        answers: list[Any] = []
        tier.find(LINEAGE, Offset(0), answers.append)
        while not answers:
            posted.get(timeout=PATIENCE_SECONDS)()
        return answers[0]

    assert find() is None and started == [later]
    assert "gone" in unknown(find())
    assert find() is None and not started and early.killed.is_set()
    tier.close()
    assert later.killed.is_set()


def test_a_worker_that_was_started_before_the_node_ends_with_it_though_nobody_has_read() -> None:
    early = FakeWorker([])
    tier = TierProcess(
        lambda: SETTINGS, timeout_seconds=7.0, post=lambda callback: None, start=lambda _: FakeWorker([]), reader=early
    )
    assert tier.leaders._worker is None
    tier.close()
    assert early.killed.is_set()


# --- two lanes -------------------------------------------------------------------------------------------------------------


def segment_of(request: CopyRequest) -> RemoteSegment:
    """What a copy may answer."""
    return RemoteSegment(
        segment_id=request.segment_id,
        base_offset=request.base_offset,
        end_offset=request.end_offset,
        leader_epoch=request.leader_epoch,
        epochs=request.epochs,
        timestamp_ms_max=-1,
        log_bytes=1,
        size=1,
        crc=1,
        file="f",
    )


READ = ReadRequest(lineage=LINEAGE, offset=Offset(3), end_offset=Offset(6), size_max=100)
ADOPT = AdoptRequest(
    group=GROUP, leader_epoch=Epoch(3), recovery="r", epochs=((Epoch(3), Offset(0)),), log_start=Offset(0), end_offset=Offset(9)
)
SEARCH = SearchRequest(lineage=LINEAGE, timestamp_ms=7, start_offset=Offset(0), end_offset=Offset(9))


def test_a_reader_does_not_wait_behind_a_copy(node: Node) -> None:
    node.plans = [["stall"], [b"batches"]]
    copied: list[Any] = []
    node.tier.copy(segment(0, "a"), lambda answer: copied.append((answer, threading.current_thread())))
    wait_until(lambda: node.workers, "a worker is started", PATIENCE_SECONDS)
    assert node.workers[0].stalls.wait(PATIENCE_SECONDS)
    answers: list[Any] = []
    node.tier.read(READ, lambda answer: answers.append((answer, threading.current_thread())))
    assert node.wait(answers) == b"batches" and copied == []
    assert [worker.asked for worker in node.workers] == [[(segment(0, "a"), 7.0)], [(READ, 7.0)]]
    node.workers[0].kill()
    unknown(node.wait(copied))
    assert not node.workers[1].killed.is_set()


def test_each_call_reaches_the_worker_of_its_lane_as_a_value(node: Node) -> None:
    made = segment_of(segment(0, "a"))
    leaders: list[Callable[[Callable[[Any], None]], None]] = [
        lambda done: node.tier.claim(LINEAGE, Epoch(1), done),
        lambda done: node.tier.check(LINEAGE, made, done),
        lambda done: node.tier.delete(LINEAGE, Epoch(2), Offset(6), done),
        lambda done: node.tier.drop(GROUP, 4, done),
        lambda done: node.tier.adopt(ADOPT, done),
    ]
    readers: list[Callable[[Callable[[Any], None]], None]] = [
        lambda done: node.tier.read(READ, done),
        lambda done: node.tier.search(SEARCH, done),
        lambda done: node.tier.find(LINEAGE, Offset(5), done),
        lambda done: node.tier.oldest(LINEAGE, 7, done),
        lambda done: node.tier.facts(GROUP, done),
    ]
    wanted = [
        [
            ClaimRequest(LINEAGE, Epoch(1)),
            CheckRequest(LINEAGE, made),
            DeleteRequest(LINEAGE, Epoch(2), Offset(6)),
            DropRequest(GROUP, 4),
            ADOPT,
        ],
        [READ, SEARCH, FindRequest(LINEAGE, Offset(5)), OldestRequest(LINEAGE, 7), FactsRequest(GROUP)],
    ]
    for number, calls in enumerate((leaders, readers)):
        node.plans = [list(range(len(calls)))]
        for place, begin in enumerate(calls):
            answers: list[Any] = []
            begin(lambda answer, answers=answers: answers.append((answer, threading.current_thread())))  # type: ignore[misc]
            assert node.wait(answers) == place
        assert [call for call, _ in node.workers[number].asked] == wanted[number]
    node.tier.close()
    assert all(worker.killed.is_set() for worker in node.workers)
