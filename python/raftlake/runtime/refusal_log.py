"""Refusals in the log, at a bounded rate: whoever is refused can come again at once, and must not fill the disk with that.

The first one is told at once, and then one line each `EVERY_SECONDS` that says how many were not told. Knows no clock.
"""

from __future__ import annotations

import logging

from raftlake.runtime.log import event

EVERY_SECONDS = 5.0


class RefusalLog:
    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._told_at: float | None = None
        self._untold = 0

    def note(self, now: float, message: str, **facts: object) -> None:
        """One refusal, `now` in seconds."""
        if self._told_at is not None and now - self._told_at < EVERY_SECONDS:
            self._untold += 1
            return
        if self._untold:
            facts["untold"] = self._untold
        self._told_at, self._untold = now, 0
        event(self._logger, logging.WARNING, message, **facts)
