"""One line for dear work: what takes long takes turns with everything else, however many ask for it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from raftlake.runtime.work_line import Work, WorkLine


class Machine:
    """A loop whose callbacks a test runs, and a clock that work takes time of."""

    def __init__(self) -> None:
        self.us = 0
        self.soon: list[Callable[[], None]] = []
        #: Pauses in microseconds, and what follows them.
        self.later: list[tuple[int, Callable[[], None]]] = []
        self.did: list[str] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.later.append((round(seconds * 1e6), call))

    def turn(self) -> list[str]:
        """One slice; what was done in it."""
        self.did = []
        if self.soon:
            self.soon.pop(0)()
        else:
            pause, call = self.later.pop(0)
            self.us += pause
            call()
        assert len(self.soon) + len(self.later) <= 1, "one slice is to come at most"
        return self.did

    def line(self) -> WorkLine:
        loop: Any = self
        return WorkLine(loop, lambda: self.us, slice_us=1000, pause=0.002)


class Request:
    def __init__(self, machine: Machine, name: str, us: int, again: int = 0) -> None:
        self.machine, self.name, self.us, self.again = machine, name, us, again

    def take_turn(self) -> bool:
        self.machine.us += self.us
        self.machine.did.append(self.name)
        self.again -= 1
        return self.again >= 0


def test_nothing_is_done_within_the_call_that_enters() -> None:
    machine = Machine()
    line = machine.line()
    line.enter(Request(machine, "a", 10))
    assert machine.did == [] and line.count == 1
    assert machine.turn() == ["a"] and line.count == 0


def test_a_dear_request_is_alone_in_its_turn_and_a_pause_as_long_follows() -> None:
    machine = Machine()
    line = machine.line()
    for name in ("a", "b", "c"):
        line.enter(Request(machine, name, 300_000))
    for name in ("a", "b", "c"):
        assert machine.turn() == [name]
        assert [pause for pause, _ in machine.later] == [300_000]
    # Who comes in the pause after the last one waits until it is over.
    line.enter(Request(machine, "d", 10))
    assert machine.soon == []
    assert machine.turn() == ["d"]
    machine.turn()
    assert machine.later == [] and machine.soon == []


def test_cheap_work_shares_a_slice() -> None:
    machine = Machine()
    line = machine.line()
    for number in range(5):
        line.enter(Request(machine, str(number), 300))
    assert machine.turn() == ["0", "1", "2", "3"]
    assert [pause for pause, _ in machine.later] == [2000], "a pause has a least length"
    assert machine.turn() == ["4"]


def test_after_an_idle_time_no_pause_is_owed() -> None:
    machine = Machine()
    line = machine.line()
    line.enter(Request(machine, "a", 300))
    machine.turn()
    machine.turn()
    line.enter(Request(machine, "b", 300))
    assert len(machine.soon) == 1 and machine.turn() == ["b"]


def test_work_in_pieces_is_finished_before_the_next_begins() -> None:
    machine = Machine()
    line = machine.line()
    line.enter(Request(machine, "long", 600, again=4))
    line.enter(Request(machine, "short", 600))
    seen = [machine.turn() for _ in range(3)]
    assert seen == [["long", "long"], ["long", "long"], ["long", "short"]]


def test_who_has_left_gets_no_turn() -> None:
    machine = Machine()
    line = machine.line()
    requests = [Request(machine, name, 600, again=3) for name in "abc"]
    for request in requests:
        line.enter(request)
    line.leave(requests[1])
    assert machine.turn() == ["a", "a"]
    line.leave(requests[0])
    assert machine.turn() == ["c", "c"] and line.count == 1


def test_who_enters_twice_has_one_place() -> None:
    machine = Machine()
    line = machine.line()
    request = Request(machine, "a", 10)
    line.enter(request)
    line.enter(request)
    assert machine.turn() == ["a"] and line.count == 0


def test_who_enters_in_its_own_turn_goes_behind_the_others() -> None:
    machine = Machine()
    line = machine.line()

    class Again(Request):
        def take_turn(self) -> bool:
            super().take_turn()
            line.enter(self)
            return False

    line.enter(Again(machine, "again", 2000))
    line.enter(Request(machine, "other", 2000))
    assert [machine.turn() for _ in range(4)] == [["again"], ["other"], ["again"], ["again"]]


def test_a_failure_costs_its_own_work_alone(caplog: pytest.LogCaptureFixture) -> None:
    machine, told = Machine(), list[Any]()
    line = machine.line()

    class Broken(Request):
        def take_turn(self) -> bool:
            raise KeyError("bug")

    def broken() -> Generator[None, None, str]:
        yield
        raise KeyError("second bug")

    line.enter(Broken(machine, "broken", 10))
    line.enter(Work(broken(), told.append))
    line.enter(Request(machine, "sound", 10))
    assert machine.turn() == ["sound"]
    assert told == [None] and "failed in the line" in caplog.text and "failed amid work of the line" in caplog.text


def test_a_generator_is_told_what_it_returned() -> None:
    machine, told = Machine(), list[Any]()

    def pieces() -> Generator[None, None, str]:
        for _ in range(3):
            machine.us += 600
            yield
        return "all"

    line = machine.line()
    line.enter(Work(pieces(), told.append))
    machine.turn()
    assert told == []
    machine.turn()
    assert told == ["all"]
