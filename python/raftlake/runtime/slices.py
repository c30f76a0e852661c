"""Long work on the loop's own thread, a little at a time: the loop serves everything else in between.

Work is a generator that yields after each small piece of it. A slice ends with the first piece that reaches beyond `slice_us`,
and the next one begins a pause later, so that work takes at most half of the loop's time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import TypeVar

logger = logging.getLogger("raftlake.node")
T = TypeVar("T")

SLICE_US = 2_000
PAUSE_SECONDS = 0.002


class Slices:
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

    def run(self, work: Generator[None, None, T], done: Callable[[T | None], None]) -> None:
        """Begin at once. `done` is told what the work returned, now or later; None when it failed, which is logged."""
        began_us = self._now_us()
        try:
            while True:
                next(work)
                if self._now_us() - began_us >= self._slice_us:
                    break
        except StopIteration as end:
            done(end.value)
        except Exception:
            # A bug in it ends this work, and not the node.
            logger.exception("failed amid work in slices")
            done(None)
        else:
            self._loop.call_later(self._pause, self.run, work, done)
