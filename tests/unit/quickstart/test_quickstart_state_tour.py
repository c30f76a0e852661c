"""What makes the second tour fail: a driver that begins in the wrong place, is not fenced, or writes after the takeover."""

from __future__ import annotations

import io
import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from raftlake.errors import ConfigError, MachineError
from raftlake.quickstart import state_tour, tour
from raftlake.quickstart.data import GROUP, MEASURES
from raftlake.quickstart.state_tour import FILES_PREFIX, OWNER_KEY, Driver, StateTour, frame_of, require_next
from raftlake.quickstart.stop import Interrupted, Stop
from raftlake.quickstart.tour import QuickstartFailed


class Told:
    """A driver that has told this, and does nothing."""

    def __init__(self, number: int, *batches: int, error: str = "", rows: object = ()) -> None:
        self.number = number
        self.batches = list(batches)
        self.process = SimpleNamespace(pid=1000 + number)
        self.signals: list[signal.Signals] = []
        self.is_killed = False
        self.wants_end = False
        self._events = {
            "written": [{}],
            "running": [{"run": f"run-{number}"}],
            "batch": [{"number": batch} for batch in batches],
            "failed": [{"error": error}],
            "statistics": [{"rows": rows}],
        }

    def of(self, event: str) -> list[dict[str, Any]]:
        return self._events[event]

    def await_event(self, event: str, is_wanted: Any = lambda told: True) -> dict[str, Any]:
        return next(told for told in self._events[event] if is_wanted(told))

    def signal(self, number: signal.Signals) -> None:
        self.signals.append(number)

    def kill(self) -> None:
        self.is_killed = True

    def ask_for_the_end(self) -> None:
        self.wants_end = True


class Keys:
    """The keys of a client, whose files somebody may write after they were listed once."""

    def __init__(self, owner: str, *, changes: bool = False) -> None:
        self.kv = self
        self._owner = json.dumps({"run": owner, "host": "b", "pid": 7}).encode()
        self._changes = changes
        self._lists = 0

    def get(self, key: str) -> SimpleNamespace | None:
        return SimpleNamespace(value=self._owner) if key == OWNER_KEY else None

    def list(self, prefix: str, limit: int) -> SimpleNamespace:
        assert prefix == FILES_PREFIX and limit > 1000
        self._lists += 1
        version = 5 + (self._lists > 1 and self._changes)
        entries = [("offsets/0", 1), ("offsets/1", version)]
        return SimpleNamespace(entries=[SimpleNamespace(key=prefix + key, version=at) for key, at in entries])


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def state_story(said: io.StringIO, tmp_path: Path) -> StateTour:
    return StateTour(Console(file=said, width=200), tmp_path, None, Stop())


FENCED = "x\nCheckpointFencedException: `raftlake://q/d': run run-2 no longer owns this checkpoint of query 7c, and ...\n\tat Y"


def rows_of_one_group() -> list[list[object]]:
    return [["AA", 5, *range(len(MEASURES))]]


def test_a_driver_goes_on_where_the_other_ended() -> None:
    for began in (4, 5):
        require_next(Told(1, 0, 3), Told(2, began, 9))  # type: ignore[arg-type]


@pytest.mark.parametrize("began", [0, 3, 6])
def test_a_driver_that_begins_elsewhere_fails_the_tour(began: int) -> None:
    with pytest.raises(QuickstartFailed, match=f"driver 2 began with batch {began}, and driver 1 ended with 3"):
        require_next(Told(1, 0, 3), Told(2, began))  # type: ignore[arg-type]


def test_the_older_driver_is_paused_before_the_newer_one_begins(state_story: StateTour, said: io.StringIO) -> None:
    second, third = Told(2, 4, 7, error=FENCED), Told(3, 8, 12, rows=rows_of_one_group())

    def start() -> Any:
        assert second.signals == [signal.SIGSTOP]
        return third

    frame, error = state_story._fence(second, start, Keys("run-3"))  # type: ignore[arg-type]
    assert second.signals == [signal.SIGSTOP, signal.SIGCONT]
    assert third.wants_end
    assert list(frame.columns) == [*GROUP, *MEASURES] and error == FENCED
    state_story._show_fenced(second, error)  # type: ignore[arg-type]
    text = said.getvalue()
    assert "changed none of the 2 files" in text and "run-3 on host b, process 7" in text
    assert "run run-2 no longer owns this checkpoint" in text and "\tat Y" not in text


def test_a_checkpoint_that_another_run_owns_fails_the_tour(state_story: StateTour) -> None:
    second, third = Told(2, 4, 7), Told(3, 8, rows=rows_of_one_group())
    with pytest.raises(QuickstartFailed, match="driver 3 should own the checkpoint"):
        state_story._fence(second, lambda: third, Keys("run-2"))  # type: ignore[arg-type,return-value]


def test_a_write_after_the_takeover_fails_the_tour(state_story: StateTour) -> None:
    second, third = Told(2, 4, 7, error=FENCED), Told(3, 8, rows=rows_of_one_group())
    with pytest.raises(QuickstartFailed, match="changed files of the checkpoint after driver 3"):
        state_story._fence(second, lambda: third, Keys("run-3", changes=True))  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("error", ["OutOfMemoryError", FENCED.replace("run-2", "run-1"), ""])
def test_a_driver_that_fails_otherwise_fails_the_tour(state_story: StateTour, error: str) -> None:
    with pytest.raises(QuickstartFailed, match="driver 2 should have been fenced"):
        state_story._show_fenced(Told(2), error)  # type: ignore[arg-type]


def test_driver_1_is_killed_before_driver_2_begins(state_story: StateTour, said: io.StringIO) -> None:
    first, second = Told(1, 0, 3), Told(2, 4)

    def start() -> Any:
        assert first.is_killed
        return second

    assert state_story._kill(first, start) is second  # type: ignore[arg-type,comparison-overlap]
    assert "kill -9 of driver 1 after batch 3" in said.getvalue() and "went on with batch 4" in said.getvalue()


def test_statistics_are_integers() -> None:
    frame = frame_of([["AA", 5.0, *map(float, range(len(MEASURES)))]])
    assert [str(kind) for kind in frame.dtypes[1:]] == ["int64"] * (1 + len(MEASURES))


def test_a_missing_jar_is_one_line_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise ConfigError("no jar here")

    monkeypatch.setattr("pyspark_raftlake.jvm.require_jar", missing)
    monkeypatch.setattr(tour, "require_spark", lambda: None)
    assert state_tour.StateTour is StateTour
    assert tour.run(tmp_path / "tour", 10, StateTour) == 1
    assert "failed: no jar here" in capsys.readouterr().out
    assert not list((tmp_path / "tour").iterdir())


def test_a_missing_connector_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark_raftlake.jvm", None)
    with pytest.raises(MachineError, match="pip install"):
        state_tour.require_raftlake_jar()


# --- a driver process ------------------------------------------------------------------------------------------------

EVENTS = """
import json, sys
print(json.dumps({"event": "running", "run": "r"}), flush=True)
for number in range(3):
    print(json.dumps({"event": "batch", "number": number}), flush=True)
if sys.stdin.readline() == "end\\n":
    print(json.dumps({"event": "statistics", "rows": []}), flush=True)
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    popen = state_tour.subprocess.Popen

    def started(command: list[str], **options: Any) -> Any:
        if command[0] == "sh":
            return popen(command, **options)
        assert json.loads(command[-1]) == {"topic": "t", "directory": str(tmp_path / "driver")}
        return popen([sys.executable, "-c", EVENTS], **options)

    monkeypatch.setattr(state_tour.subprocess, "Popen", started)
    made = Driver(2, tmp_path / "driver", {"topic": "t"}, Stop())
    yield made
    made.kill()


def test_events_are_awaited(driver: Driver) -> None:
    assert driver.await_event("batch", lambda told: told["number"] == 2)["number"] == 2
    assert driver.batches == [0, 1, 2]
    driver.ask_for_the_end()
    assert driver.await_event("statistics")["rows"] == []


def test_the_last_words_of_a_driver_that_has_ended_count(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine they are read later than its end is seen."""
    seen = threading.Event()
    poll = driver.process.poll
    events = driver.events

    class Late(list[dict[str, Any]]):
        def append(self, told: dict[str, Any]) -> None:
            if told["event"] == "statistics":
                assert seen.wait(30)
            super().append(told)

    def polled() -> int | None:
        ended = driver.process.wait(30) if poll() is None else poll()
        seen.set()
        return ended

    driver.await_event("batch", lambda told: told["number"] == 2)
    driver.events = Late(events)
    monkeypatch.setattr(driver.process, "poll", polled)
    driver.ask_for_the_end()
    assert driver.await_event("statistics")["rows"] == []


def test_a_driver_that_ends_early_fails_the_tour(driver: Driver) -> None:
    driver.await_event("running")
    driver.kill()
    with pytest.raises(QuickstartFailed, match="driver 2 has ended before its event 'statistics'"):
        driver.await_event("statistics")


def test_a_paused_driver_ends_with_the_tour(driver: Driver) -> None:
    driver.await_event("running")
    driver.signal(signal.SIGSTOP)
    # As when the process of the tour is gone.
    driver._guard.communicate(timeout=30)
    assert driver.process.wait(timeout=30) == -signal.SIGKILL


def test_an_error_of_a_driver_fails_the_tour(driver: Driver) -> None:
    driver.events.append({"event": "failed", "error": "because"})
    with pytest.raises(QuickstartFailed, match="driver 2 failed: because"):
        driver.await_event("statistics")
    assert driver.await_event("failed")["error"] == "because"


def test_no_driver_starts_when_the_tour_is_to_end(tmp_path: Path) -> None:
    stop = Stop()
    stop.request()
    with pytest.raises(Interrupted):
        Driver(1, tmp_path / "late", {}, stop)
