"""Long work in slices: each ends in time, and what else the loop has to do comes in between."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from raftlake.runtime.slices import Slices


class Machine:
    """A loop whose timers a test runs, and a clock that work takes time of."""

    def __init__(self) -> None:
        self.us = 0
        self.later: list[tuple[float, Callable[[], None]]] = []
        #: When each slice ended, as far as its work was not over.
        self.pauses: list[int] = []

    def call_later(self, seconds: float, call: Callable[..., None], *given: Any) -> None:
        self.pauses.append(self.us)
        self.later.append((seconds, lambda: call(*given)))

    def turn(self) -> None:
        seconds, call = self.later.pop(0)
        self.us += int(seconds * 1e6)
        call()

    def work(self, pieces: int, us: int) -> Generator[None, None, str]:
        for _ in range(pieces):
            self.us += us
            yield
        return "all"


def slices(machine: Machine) -> Slices:
    loop: Any = machine
    return Slices(loop, lambda: machine.us, slice_us=1000, pause=0.002)


def test_a_slice_ends_with_the_piece_that_goes_beyond_its_time() -> None:
    machine, told = Machine(), list[Any]()
    slices(machine).run(machine.work(10, 300), told.append)
    assert (machine.us, told) == (1200, [])
    machine.turn()
    assert (machine.us, told) == (1200 + 2000 + 1200, [])
    machine.turn()
    assert told == ["all"] and machine.later == [] and len(machine.pauses) == 2


def test_short_work_is_done_at_once() -> None:
    machine, told = Machine(), list[Any]()
    slices(machine).run(machine.work(3, 10), told.append)
    assert told == ["all"] and machine.later == []


def test_two_works_take_turns() -> None:
    machine, told = Machine(), list[Any]()
    both = slices(machine)
    both.run(machine.work(4, 600), lambda _: told.append("long"))
    both.run(machine.work(2, 600), lambda _: told.append("short"))
    while machine.later:
        machine.turn()
    assert told == ["short", "long"]


def test_work_that_fails_is_told_and_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Generator[None, None, str]:
        yield
        raise KeyError("bug")

    machine, told = Machine(), list[Any]()
    slices(machine).run(broken(), told.append)
    assert told == [None] and "failed amid work in slices" in caplog.text
