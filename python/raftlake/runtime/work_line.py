"""Dear work of all clients in one line, on the loop's own thread: one piece, then everything else that is ready.

Each request is bounded, and the sum of many is not. So what takes long waits here, one behind another, whatever connection and
listener it came by. Pieces are done for `slice_us`, or one piece that takes longer. A pause as long as the work follows, in
which the loop serves peers, timers, turns and small requests. So the line takes at most about half of the loop's time.

Who waits for a piece of work, and for how long, is for its owner to say: `leave` takes it out of the line.
The server has a second line for the node's own long work (samples, the metrics page, imports): clients do not delay that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import Generic, Protocol, TypeVar

logger = logging.getLogger("raftlake.node")
T = TypeVar("T")

SLICE_US = 2_000
PAUSE_SECONDS = 0.002


class Worker(Protocol):
    def take_turn(self) -> bool:
        """Do one piece of the work. True: there is more of it, and nothing behind it comes first."""


class Work(Generic[T]):
    """A generator that yields after each small piece. `done` is told what it returned; None when it failed, which is logged."""

    def __init__(self, pieces: Generator[None, None, T], done: Callable[[T | None], None]) -> None:
        self._pieces = pieces
        self._done = done

    def take_turn(self) -> bool:
        try:
            next(self._pieces)
        except StopIteration as end:
            self._done(end.value)
            return False
        except Exception:
            # A bug in it ends this work, and not the node.
            logger.exception("failed amid work of the line")
            self._done(None)
            return False
        return True


class WorkLine:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now_us: Callable[[], int],
        *,
        slice_us: int = SLICE_US,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        self._loop = loop
        # The loop's own clock stands still while a callback runs.
        self._now_us = now_us
        self._slice_us = slice_us
        self._pause = pause
        self._waiting: dict[Worker, None] = {}
        #: Whose work is under way.
        self._current: Worker | None = None
        #: A slice, or the end of a pause, is to come.
        self._is_going_on = False

    @property
    def count(self) -> int:
        return len(self._waiting) + (self._current is not None)

    def enter(self, worker: Worker) -> None:
        """Its turn comes later, never from within this call. Once, however often it is said before that."""
        self._waiting.setdefault(worker)
        if not self._is_going_on:
            self._is_going_on = True
            self._loop.call_soon(self._go_on)

    def run(self, pieces: Generator[None, None, T], done: Callable[[T | None], None]) -> None:
        """Enter `Work` that nothing takes out again."""
        self.enter(Work(pieces, done))

    def leave(self, worker: Worker) -> None:
        """What it waited for is wanted no more."""
        self._waiting.pop(worker, None)
        if self._current is worker:
            self._current = None

    def _go_on(self) -> None:
        began_us = self._now_us()
        took_us = 0
        while took_us < self._slice_us and (worker := self._next()) is not None:
            self._current = worker
            is_unfinished = self._take_turn(worker)
            # It may have left meanwhile, or entered anew.
            self._current = worker if is_unfinished and self._current is worker else None
            took_us = self._now_us() - began_us
        if took_us or self._next_is_there():
            self._loop.call_later(max(took_us / 1e6, self._pause), self._go_on)
        else:
            self._is_going_on = False

    def _next(self) -> Worker | None:
        if self._current is not None:
            return self._current
        worker = next(iter(self._waiting), None)
        if worker is not None:
            del self._waiting[worker]
        return worker

    def _next_is_there(self) -> bool:
        return self._current is not None or bool(self._waiting)

    def _take_turn(self, worker: Worker) -> bool:
        try:
            return worker.take_turn()
        except Exception:
            # A worker handles its own errors. What it did not handle must not end the line.
            logger.exception("failed in the line")
            return False
