"""Ctrl-C, SIGTERM and SIGHUP while the tour runs in its thread: what runs is ended, once. Nothing of it reaches the user."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from raftlake.quickstart.stop import Interrupted, Stop, run_stoppable

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[dict[signal.Signals, object]]:
    """What is set before a test: as in a terminal, although the whole run may ignore some (nohup, a shell's `&`)."""
    before = {signum: signal.signal(signum, signal.SIG_DFL) for signum in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield {signum: signal.getsignal(signum) for signum in SIGNALS}
    for signum, handler in before.items():
        signal.signal(signum, handler)
    logging.disable(logging.NOTSET)


def send(signum: signal.Signals) -> None:
    os.kill(os.getpid(), signum)


def test_without_a_signal_the_outcome_is_that_of_the_work(handlers: dict[signal.Signals, object]) -> None:
    done: list[str] = []
    run_stoppable(lambda: done.append(threading.current_thread().name), Stop())
    assert done == ["quickstart"]

    def fail() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        run_stoppable(fail, Stop())
    assert {signum: signal.getsignal(signum) for signum in SIGNALS} == handlers


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_ends_what_runs_and_its_errors_are_not_told(signum: signal.Signals) -> None:
    stop, ended, trail = Stop(), threading.Event(), list[str]()
    stop.on_request(ended.set)

    def work() -> None:
        send(signum)
        assert ended.wait(60)
        trail.append("ended")
        raise OSError("the JVM is gone")

    with pytest.raises(Interrupted):
        run_stoppable(work, stop)
    assert trail == ["ended"], "it was waited for"
    assert logging.root.manager.disable == logging.CRITICAL
    assert {signal.getsignal(each) for each in SIGNALS} == {signal.SIG_IGN}, "a second Ctrl-C changes nothing"


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_counts_also_when_the_work_has_just_ended(signum: signal.Signals) -> None:
    with pytest.raises(Interrupted):
        run_stoppable(lambda: send(signum), stop := Stop())
    assert stop.is_requested


def test_a_tour_outlives_its_terminal_under_nohup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    run_stoppable(lambda: send(signal.SIGHUP), stop := Stop())
    assert not stop.is_requested


def test_the_work_stops_where_it_looks() -> None:
    stop = Stop()
    stop.check()
    stop.sleep(0)
    stop.request()
    for look in (stop.check, lambda: stop.sleep(3600)):
        with pytest.raises(Interrupted):
            look()


def test_what_starts_too_late_is_ended_at_once_and_each_only_once() -> None:
    stop, ended = Stop(), list[str]()
    stop.on_request(lambda: ended.append("early"))
    stop.request()
    assert ended == []
    stop.end_all()
    stop.on_request(lambda: ended.append("late"))
    stop.end_all()
    assert ended == ["early", "late"]
