"""What a driver of the second tour tells, and when it ends."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pandas
import pytest
from pyspark.errors import StreamingQueryException

from raftlake.quickstart import state_driver
from raftlake.quickstart.state_driver import finish, follow, teller


class Query:
    """A streaming query, each look at which shows one more report."""

    def __init__(self, *reports: tuple[int, int], error: Exception | None = None, wanted: threading.Event) -> None:
        self._reports = [{"batchId": number, "numInputRows": rows} for number, rows in reports]
        self._shown = 0
        self._error = error
        self._wanted = wanted
        self.is_stopped = False

    def exception(self) -> Exception | None:
        return self._error if self._shown == len(self._reports) else None

    @property
    def recentProgress(self) -> list[dict[str, int]]:
        self._shown = min(self._shown + 1, len(self._reports))
        if self._shown == len(self._reports) and self._error is None:
            self._wanted.set()
        return self._reports[: self._shown]

    def processAllAvailable(self) -> None:
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def events(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_driver, "POLL_SECONDS", 0)


def test_each_batch_with_rows_is_told_once(out: io.StringIO) -> None:
    wanted = threading.Event()
    query: Any = Query((0, 10), (0, 10), (1, 0), (2, 5), wanted=wanted)
    assert follow(query, wanted, teller(out))
    assert [(told["number"], told["rows"]) for told in events(out)] == [(0, 10), (2, 5)]


def test_an_error_of_the_query_is_told(out: io.StringIO) -> None:
    wanted = threading.Event()
    query: Any = Query((0, 10), error=StreamingQueryException("fenced"), wanted=wanted)
    assert not follow(query, wanted, teller(out))
    assert [told["event"] for told in events(out)] == ["batch", "failed"]
    assert "fenced" in events(out)[-1]["error"]


def test_the_causes_of_an_error_are_told(out: io.StringIO) -> None:
    """A task that was fenced fails its job, whose error says that a state store could not commit."""
    error, cause, root = (StreamingQueryException(text) for text in ("no commit", "task", "no longer owns this checkpoint"))
    error._cause, cause._cause = cause, root  # type: ignore[attr-defined]
    wanted = threading.Event()
    query: Any = Query((0, 10), error=error, wanted=wanted)
    assert not follow(query, wanted, teller(out))
    told = events(out)[-1]["error"]
    assert all(text in told for text in ("no commit", "task", "no longer owns this checkpoint"))


def test_the_end_is_the_statistics(monkeypatch: pytest.MonkeyPatch, out: io.StringIO) -> None:
    frame = pandas.DataFrame([("AA", 5, 7)], columns=["carrier", "hour", "flights"])
    monkeypatch.setattr(state_driver, "statistics_of", lambda spark: frame)
    query: Any = Query(wanted=threading.Event())
    finish(SimpleNamespace(), query, teller(out))  # type: ignore[arg-type]
    assert events(out) == [{"event": "statistics", "rows": [["AA", 5, 7]]}]
    assert query.is_stopped


def test_an_error_at_the_end_is_told(out: io.StringIO) -> None:
    query: Any = Query(error=StreamingQueryException("late"), wanted=threading.Event())
    finish(SimpleNamespace(), query, teller(out))  # type: ignore[arg-type]
    assert [told["event"] for told in events(out)] == ["failed"]


PROGRAM = """
import sys, threading
from raftlake.quickstart.state_driver import Input, own_output, teller
tell = teller(own_output())
print("of the JVM")
wishes = Input(sys.stdin)
tell("running", run="r")
wishes.is_end_wanted.wait()
tell("statistics", rows=[])
threading.Event().wait()
"""


def test_output_is_events_alone_and_the_end_of_the_input_ends_the_group() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    assert json.loads(process.stdout.readline()) == {"event": "running", "run": "r"}
    process.stdin.write("end\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline()) == {"event": "statistics", "rows": []}
    output, error = process.communicate(timeout=30)
    assert process.returncode == -9
    assert (output, error) == ("", "") or "of the JVM" in error
