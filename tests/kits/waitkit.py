"""Waiting for real processes: for a condition, never for a time. The only sleep of the tests that start them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import IO, Any

POLL_SECONDS = 0.02
#: A story that is spoiled so often is not spoiled by chance.
ATTEMPTS = 6


def wait_until(condition: Callable[[], object], what: str, seconds: float) -> Any:
    """The first true value of `condition`; AssertionError when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(POLL_SECONDS)


def attempt(story: Callable[[], object], what: str) -> Any:
    """The first true value of a story that real processes may spoil by what is allowed to them: to elect another leader, say.
    AssertionError when all tries were spoiled."""
    for _ in range(ATTEMPTS):
        value = story()
        if value:
            return value
    raise AssertionError(f"not in {ATTEMPTS} tries: {what}")


class Lines:
    """The lines of a process's output as they come. A line that does not come is a failure and no hang."""

    def __init__(self, stream: IO[str]) -> None:
        self.found: list[str] = []
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stream:
            self.found.append(line)

    def require(self, line: str, seconds: float) -> None:
        """Wait for the next line, which must be this one."""
        wait_until(lambda: self.found or not self._thread.is_alive(), f"the line {line!r}", seconds)
        assert self.found, f"the output has ended without the line {line!r}"
        assert self.found.pop(0) == line

    def rest(self) -> list[str]:
        """What came besides, up to the end of the output: the process has ended."""
        self._thread.join()
        self._stream.close()
        return self.found
