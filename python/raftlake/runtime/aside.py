"""`ports.Aside` as one thread: long work that needs nothing of the node, beside the event loop.

Its jobs run one after another. They spend their time in calls that let go of the interpreter's lock; elsewhere the lock changes
hands every few milliseconds. So the loop is never kept waiting for a whole job.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from raftlake.errors import MachineError
from raftlake.replica.aside.later_turns import result_of

T = TypeVar("T")
Post = Callable[[Callable[[], None]], None]


class ThreadAside:
    """`post` runs a callback on the driver's thread later (`loop.call_soon_threadsafe`). Raises MachineError where no thread
    can be started."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="raftlake-aside")
        try:
            # The pool starts its thread with the first job and keeps it. A job whose thread cannot start gets no answer.
            self._pool.submit(lambda: None)
        except RuntimeError as error:
            raise MachineError(f"no thread for long work: {error}; raise the limit of threads (ulimit -u, TasksMax)") from error

    def submit(self, job: Callable[[], T], done: Callable[[T | None], None]) -> None:
        def on_end(future: Future[T | None]) -> None:
            if not future.cancelled():
                self._post(lambda: done(future.result()))

        self._pool.submit(result_of, job).add_done_callback(on_end)

    def close(self) -> None:
        """Wait for the job under way; those behind it are dropped."""
        self._pool.shutdown(cancel_futures=True)
