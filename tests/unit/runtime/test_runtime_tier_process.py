"""The node's side of the tier, with workers that are no processes: deadlines, deaths, pauses, the end, the thread of answers.

Real workers: process/test_tier_process.py.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contract.tier_contract import LINEAGE, segment
from raftlake.ports.tier import LineageEnd, TierError, TierFailure
from raftlake.raft.types import Epoch
from raftlake.runtime.tier_process import PAUSE_SECONDS_MAX, TierProcess
from raftlake.tier.calls import ClaimRequest, TierCall, TierSettings

SETTINGS = TierSettings(uri="s3://bucket/tier", cluster_id="c")
PATIENCE_SECONDS = 60.0
DONE = LineageEnd(None)


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
        while not answers:
            self.posted.get(timeout=PATIENCE_SECONDS)()
        ((answer, thread),) = answers
        assert thread is threading.current_thread()
        return answer

    def ask(self) -> Any:
        return self.wait(self.claim())


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.tier.close()
    if node.tier._is_started:
        node.tier._thread.join(PATIENCE_SECONDS)
        assert not node.tier._thread.is_alive()


def unknown(answer: Any) -> str:
    assert isinstance(answer, TierError) and answer.failure is TierFailure.UNKNOWN, answer
    return answer.reason


def test_a_node_that_calls_nothing_has_no_worker_and_no_thread(node: Node) -> None:
    assert not node.tier._thread.is_alive()
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
    assert "too many open files" in unknown(node.ask())
    assert node.ask() == DONE


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
    tier._thread.join(PATIENCE_SECONDS)
    assert not tier._thread.is_alive()
