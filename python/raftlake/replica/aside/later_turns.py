"""`ports.Aside` without a thread: each job is done in a turn to come. And what becomes of a job that raises, in any `Aside`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from raftlake.replica.engine import Engine

logger = logging.getLogger("raftlake.aside")

LATER_MS = 1

T = TypeVar("T")


def result_of(job: Callable[[], T]) -> T | None:
    """What `job` returns; None, after an entry in the log, where it raises."""
    try:
        return job()
    except Exception:
        # Memory that ran out, or a bug. Neither may stop the node, nor keep those behind the job waiting for ever.
        logger.exception("a job aside failed")
        return None


class LaterTurns:
    """`ports.Aside` for a node whose shell has no threads: simulated ones, and those of tests."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def submit(self, job: Callable[[], T], done: Callable[[T | None], None]) -> None:
        self._engine.timers.schedule(self._engine.now_ms + LATER_MS, lambda: done(result_of(job)))
