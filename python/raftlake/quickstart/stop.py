"""Ctrl-C in the quickstart, SIGTERM and SIGHUP: one line, at any moment.

The tour runs in a thread of its own, and the main thread does nothing but wait. So no signal arrives amid a library's code,
where the exception would be logged, wrapped or lost; and Spark, which sets a handler of its own from the main thread only, sets
none.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable

from raftlake.errors import RaftlakeError
from raftlake.runtime.stop_signals import stop_signals

#: For everything that runs to end, once it was told so. What has not ended then ends with this process.
END_SECONDS = 20
POLL_SECONDS = 0.05


class Interrupted(RaftlakeError):
    """The user does not want the rest."""


class Stop:
    """Whether the tour is to end, and what to end then. Everything but `request` is for threads, not for signal handlers."""

    def __init__(self) -> None:
        self.is_requested = False
        self._lock = threading.Lock()
        self._ends: list[Callable[[], None]] | None = []

    def request(self) -> None:
        self.is_requested = True

    def check(self) -> None:
        if self.is_requested:
            raise Interrupted("stopped")

    def sleep(self, seconds: float) -> None:
        self.check()
        time.sleep(seconds)
        self.check()

    def on_request(self, end: Callable[[], None]) -> None:
        """Call it when the tour is to end; at once, if that is the case already."""
        with self._lock:
            if self._ends is not None:
                self._ends.append(end)
                return
        end()

    def end_all(self) -> None:
        with self._lock:
            ends, self._ends = self._ends or [], None
        for end in ends:
            end()


def run_stoppable(work: Callable[[], None], stop: Stop) -> None:
    """Run `work` in a thread until it ends or one of `stop_signals` comes. Raises what it raised, or Interrupted; then those
    signals are ignored, for what is left to do is to end the process."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            failures.append(error)

    thread = threading.Thread(target=guarded, name="quickstart", daemon=True)
    before = {signum: signal.signal(signum, lambda *_: stop.request()) for signum in stop_signals()}
    thread.start()
    while thread.is_alive() and not stop.is_requested:
        thread.join(POLL_SECONDS)
    if stop.is_requested:
        for signum in before:
            signal.signal(signum, signal.SIG_IGN)
        # What py4j logs of calls that end with the JVM is no help.
        logging.disable(logging.CRITICAL)
        stop.end_all()
        thread.join(END_SECONDS)
        stop.check()
    for signum, handler in before.items():
        signal.signal(signum, handler)
    if failures:
        raise failures[0]
