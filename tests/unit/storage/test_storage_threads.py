"""Threads that may fail to start. What each owner does without one is tested with the owner."""

from __future__ import annotations

import threading

import pytest

from raftlake.storage.threads import started


def test_a_thread_runs_what_it_was_given_under_its_name() -> None:
    seen: list[tuple[str, bool]] = []

    def note() -> None:
        seen.append((threading.current_thread().name, threading.current_thread().daemon))

    thread = started(note, "raftlake-test")
    assert thread is not None
    thread.join()
    assert seen == [("raftlake-test", True)]


def test_there_is_none_where_the_operating_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert started(lambda: None, "raftlake-test") is None
