"""Long work beside the loop: in order, on the driver's thread when it is done, and ended with the node."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from raftlake.runtime.aside import ThreadAside


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
