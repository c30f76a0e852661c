"""Passes of compaction beside the driver's thread: a process for each pass, and a thread that listens to it.

`Compactor` belongs to a data directory and runs one pass at a time. It knows nothing of logs: a log gives it a job, and hears
of each group of segments, and then once of the end. All callbacks come on the driver's thread. A worker that is killed, by
whoever, is a StorageError of its pass and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from raftlake.errors import InvariantViolation, StorageError
from raftlake.ports.driver import Compacted
from raftlake.storage.cleaned import CleanedGroup
from raftlake.storage.compaction_calls import PassFailed, Told, tell
from raftlake.storage.compaction_pass import CompactionJob, perform
from raftlake.storage.threads import started
from raftlake.storage.worker_ending import how_it_ended

Post = Callable[[Callable[[], None]], None]
OnGroup = Callable[[CleanedGroup], None]
#: How the pass ended; None when it was given up.
OnEnd = Callable[[Compacted | StorageError | None], None]


class Worker(Protocol):
    """A started worker, at work on its job."""

    def receive(self) -> Told:
        """The next message. EOFError or another OSError where the worker is gone."""

    def kill(self) -> None:
        """End it, whatever it does. May be called twice, and by another thread."""

    def how_it_ended(self) -> str:
        """Of one that is gone, in words. May wait a moment."""

    def reap(self) -> None:
        """Wait for its end, which was reached or asked for, and let go of it."""


class WorkerProcess:
    """A child process, on the other end of a pair of sockets, which closes with this process, whatever ends it."""

    def __init__(self, job: CompactionJob, module: str = "raftlake.storage.compaction_worker") -> None:
        self._socket, connection = socket.socketpair()
        with connection:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", module, str(connection.fileno())],
                    pass_fds=[connection.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                )
            except OSError:
                self._socket.close()
                raise
        self._messages = self._socket.makefile("rb")
        try:
            with self._socket.makefile("wb") as to:
                tell(to, job)
        except OSError:
            self.kill()
            self.reap()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def receive(self) -> Told:
        told: Told = pickle.load(self._messages)
        return told

    def kill(self) -> None:
        self._process.kill()

    def how_it_ended(self) -> str:
        return how_it_ended(self._process)

    def reap(self) -> None:
        self._process.wait()
        self._messages.close()
        self._socket.close()


class Pass:
    """One pass under way, as its log sees it."""

    def __init__(self, on_group: OnGroup, on_end: OnEnd) -> None:
        self._on_group = on_group
        self._on_end = on_end
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._is_given_up = False

    def give_up(self) -> None:
        """No group is told any more. The end is told later."""
        with self._lock:
            self._is_given_up = True
            if self._worker is not None:
                self._worker.kill()

    def take(self, worker: Worker) -> None:
        """Called by the pass's thread."""
        with self._lock:
            self._worker = worker
            if self._is_given_up:
                worker.kill()

    def let_go(self) -> None:
        """Called by the pass's thread: the worker is about to be reaped."""
        with self._lock:
            self._worker = None

    def group(self, group: CleanedGroup) -> None:
        if not self._is_given_up:
            self._on_group(group)

    def end(self, result: Compacted | StorageError | None) -> None:
        self._on_end(None if self._is_given_up else result)


class Compactor:
    """`post` runs a callback on the driver's thread later; with None a pass is done, and its end told, before `begin` returns.
    `start` makes a worker."""

    def __init__(self, post: Post | None, *, start: Callable[[CompactionJob], Worker] = WorkerProcess) -> None:
        self._post = post
        self._start = start
        self._current: Pass | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def begin(self, job: CompactionJob, on_group: OnGroup, on_end: OnEnd) -> Pass:
        """Begin a pass. Raises InvariantViolation while there is one."""
        if self._current is not None:
            raise InvariantViolation("two passes of compaction at a time in one data directory")

        def ended(result: Compacted | StorageError | None) -> None:
            self._current = self._thread = None
            on_end(result)

        current = self._current = Pass(on_group, ended)
        if self._post is None:
            _perform_here(job, current)
        else:
            self._begin_aside(job, current, self._post)
        return current

    def _begin_aside(self, job: CompactionJob, current: Pass, post: Post) -> None:
        self._thread = started(lambda: self._run(job, current, post), "raftlake-compaction")
        if self._thread is None:
            failed = StorageError(f"cannot compact {job.directory}: the operating system gives the process no further thread")
            self._report(post, lambda: current.end(failed))

    def close(self) -> None:
        """Kill the worker, and report nothing more."""
        self._is_closed = True
        if self._current is not None:
            self._current.give_up()
        if self._thread is not None:
            self._thread.join()

    def _run(self, job: CompactionJob, current: Pass, post: Post) -> None:
        """On the thread of the pass."""

        def report(callback: Callable[[], None]) -> None:
            self._report(post, callback)

        result: Compacted | StorageError = StorageError(f"the thread that compacts {job.directory} ended with an exception")
        try:
            result = self._listen(job, current, report)
        finally:
            report(lambda: current.end(result))

    def _report(self, post: Post, callback: Callable[[], None]) -> None:
        def unless_closed() -> None:
            if not self._is_closed:
                callback()

        # A loop that is closed takes no more callbacks.
        with contextlib.suppress(RuntimeError):
            post(unless_closed)

    def _listen(
        self, job: CompactionJob, current: Pass, report: Callable[[Callable[[], None]], None]
    ) -> Compacted | StorageError:
        try:
            worker = self._start(job)
        except OSError as error:
            return StorageError(f"cannot start a worker to compact {job.directory}: {error}")
        current.take(worker)
        try:
            while True:
                told = worker.receive()
                if isinstance(told, Compacted):
                    return told
                if isinstance(told, PassFailed):
                    return told.error()
                report(lambda group=told: current.group(group))  # type: ignore[misc]
        except (EOFError, OSError, pickle.PickleError) as error:
            how = worker.how_it_ended()
            worker.kill()
            return StorageError(f"the worker that compacts {job.directory} ended: {error}: {how}")
        finally:
            current.let_go()
            worker.reap()


def _perform_here(job: CompactionJob, current: Pass) -> None:
    groups = perform(job)
    try:
        while True:
            current.group(next(groups))
    except StopIteration as end:
        current.end(end.value)
    except StorageError as error:
        current.end(error)
