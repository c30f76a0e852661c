"""Long work beside the loop: in order, on the driver's thread when it is done, and ended with the node."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest

from raftlake.errors import MachineError
from raftlake.replica.aside.later_turns import LATER_MS
from raftlake.runtime.aside import ThreadAside
from replica_cluster import Cluster


def test_jobs_are_done_elsewhere_one_after_another_and_told_in_order() -> None:
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    aside = ThreadAside(posted.put)
    threads: list[int] = []
    told: list[int] = []

    def job(number: int) -> int:
        threads.append(threading.get_ident())
        return number

    for number in range(50):
        aside.submit(lambda number=number: job(number), told.append)
    assert not told
    for _ in range(50):
        posted.get(timeout=30)()
    aside.close()
    assert told == list(range(50))
    assert len(set(threads)) == 1 and threads[0] != threading.get_ident()


def test_the_end_waits_for_the_job_under_way_and_drops_the_others() -> None:
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    aside = ThreadAside(posted.put)
    began, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> str:
        began.set()
        may_end.wait(30)
        done.append("first")
        return "first"

    aside.submit(first, done.append)
    aside.submit(lambda: done.append("second"), lambda _: None)
    assert began.wait(30)
    threading.Timer(0.01, may_end.set).start()
    aside.close()
    assert done == ["first"]
    assert posted.qsize() == 1, "what was dropped is not told"


def no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_machine_without_a_thread_for_it_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(MachineError, match=r"can't start new thread; .*ulimit -u"):
            ThreadAside(lambda callback: None)
    ThreadAside(lambda callback: None).close()


def test_no_job_needs_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs before, and a while without any, keep the one that there is. Each job is told once."""
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    aside = ThreadAside(posted.put)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    told: list[int | None] = []
    for job in (lambda: 1, lambda: 2, fail):
        aside.submit(job, told.append)
    for _ in range(3):
        posted.get(timeout=30)()
    aside.submit(lambda: 4, told.append)
    posted.get(timeout=30)()
    aside.close()
    assert told == [1, 2, None, 4] and posted.empty()


def fail() -> int:
    raise OSError(12, "Cannot allocate memory")


def test_a_job_that_raises_is_told_as_none_and_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    aside = ThreadAside(posted.put)
    told: list[int | None] = []
    for job in (lambda: 1, fail, lambda: 2, fail):
        aside.submit(job, told.append)
    for _ in range(4):
        posted.get(timeout=30)()
    aside.close()
    assert told == [1, None, 2, None]
    assert caplog.text.count("a job aside failed") == 2


def test_without_a_thread_jobs_are_done_in_later_turns_and_one_that_raises_stops_nothing() -> None:
    cluster = Cluster(1)
    aside = cluster.leader().record_checks.line.aside
    told: list[int | None] = []
    for job in (fail, lambda: 1):
        aside.submit(job, told.append)
    assert not told
    cluster.run(LATER_MS + 1)
    assert told == [None, 1]
