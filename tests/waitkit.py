"""Waiting for real processes: for a condition, never for a time. The only sleep of the tests that start them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

POLL_SECONDS = 0.02


def wait_until(condition: Callable[[], object], what: str, seconds: float) -> Any:
    """The first true value of `condition`; AssertionError when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(POLL_SECONDS)
