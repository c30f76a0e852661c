"""Refusals and faults in the log, at a bounded rate: a client that causes one can come again at once, and must not fill the
disk.

The first one is told at once, and then one line each `EVERY_SECONDS` that says how many were not told. What a line quotes is
cut. Knows no clock.
"""

from __future__ import annotations

import logging

from raftlake.runtime.log import event

EVERY_SECONDS = 5.0
FACT_CHARACTERS_MAX = 300


class RefusalLog:
    def __init__(self, logger: logging.Logger, level: int = logging.WARNING) -> None:
        self._logger = logger
        self._level = level
        self._told_at: float | None = None
        self._untold = 0

    def note(self, now: float, message: str, **facts: object) -> None:
        """One refusal, `now` in seconds."""
        if self._is_due(now):
            facts = {name: cut(fact) for name, fact in facts.items()}
            event(self._logger, self._level, message, **facts, **self._take_untold())

    def note_bug(self, now: float, message: str, error: Exception) -> None:
        """One unexpected error, with its traceback."""
        if self._is_due(now):
            untold = "".join(f" {name}={count}" for name, count in self._take_untold().items())
            self._logger.log(self._level, "%s%s", message, untold, exc_info=error)

    def _is_due(self, now: float) -> bool:
        if self._told_at is not None and now - self._told_at < EVERY_SECONDS:
            self._untold += 1
            return False
        self._told_at = now
        return True

    def _take_untold(self) -> dict[str, int]:
        untold, self._untold = self._untold, 0
        return {"untold": untold} if untold else {}


def cut(fact: object) -> str:
    """A fact of a line, as long as a line can bear."""
    text = str(fact)
    return text if len(text) <= FACT_CHARACTERS_MAX else text[: FACT_CHARACTERS_MAX - 1] + "…"
