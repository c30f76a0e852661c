"""`ports.RemoteTier` by processes beside the node: a store that is slow, or never answers, costs the event loop nothing.

There are two lanes, each with a thread and a worker of its own. One makes the calls of leaders, of which a copy may take long.
The other reads for consumers and followers, which do not wait for copies. A lane begins with its first call.

The thread of a lane talks to its worker, one call at a time, and posts the answers to the loop. A call that has no answer in
time is UNKNOWN, and its worker is killed: what that one has sent may still have its effect, which a claim settles. The next
call starts a new worker, after a pause that doubles with each worker that fails.

The node itself imports neither delta-rs nor pyarrow for this.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import (
    AdoptRequest,
    CopyRequest,
    FoundRecord,
    Lineage,
    LineageEnd,
    LineageFacts,
    ReadRequest,
    RemoteFile,
    RemoteSegment,
    RemoteState,
    SearchRequest,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, Offset
from raftlake.runtime.log import event
from raftlake.tier.calls import (
    AcceptRequest,
    CheckRequest,
    ClaimRequest,
    DeleteRequest,
    DropRequest,
    FactsRequest,
    FindRequest,
    OldestRequest,
    TierCall,
    TierSettings,
    receive,
    send,
)

if TYPE_CHECKING:
    # It stands on the engine, for which no early reader waits.
    from raftlake.runtime.aside import Post

logger = logging.getLogger("raftlake.tier")

_STOPPING = "the node is stopping"
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.1, 30.0
#: For the end of a worker that was killed, where no thread can be started that waits for it.
REAP_SECONDS_MAX = 1.0


class Worker(Protocol):
    """A started worker."""

    def ask(self, call: TierCall, timeout_seconds: float) -> Any:
        """The answer. TimeoutError where it does not come in time; EOFError or another OSError where the worker is gone."""

    def how_it_ended(self) -> str:
        """Of one that is gone, in words. May wait a moment."""

    def kill(self) -> None:
        """End it, whatever it does. May be called twice, and by another thread. Raises nothing."""


class WorkerProcess:
    """A child process, on the other end of a pair of sockets. It also has one end of a pipe: the other one closes with this
    process, whatever ends it. Before the first call it has to be told its settings."""

    def __init__(self, settings: TierSettings | None = None, module: str = "raftlake.tier.worker") -> None:
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            self._socket, connection = socket.socketpair()
            theirs.enter_context(connection)
            ours.enter_context(self._socket)
            end, self._lifeline = os.pipe()
            theirs.callback(os.close, end)
            ours.callback(os.close, self._lifeline)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(connection.fileno()), str(end)],
                pass_fds=[connection.fileno(), end],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
            self._ours = ours.pop_all()
        if settings is not None:
            self.tell(settings)

    def tell(self, settings: TierSettings) -> None:
        """The settings, once. OSError where the worker is gone; it is killed then."""
        try:
            send(self._socket, settings)
        except OSError:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, call: TierCall, timeout_seconds: float) -> Any:
        end = time.monotonic() + timeout_seconds

        def before_read() -> None:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)

        before_read()
        send(self._socket, call)
        return receive(self._socket, before_read)

    def how_it_ended(self) -> str:
        # A reader that is started early does not wait for the imports of the storage.
        from raftlake.storage.worker_ending import how_it_ended

        return how_it_ended(self._process)

    def kill(self) -> None:
        self._process.kill()
        with contextlib.suppress(OSError):
            # Who waits for an answer in another thread hears of it.
            self._socket.shutdown(socket.SHUT_RDWR)
        # A process in the middle of a read from a disk that hangs ends when the disk lets it: nobody may wait for that.
        try:
            threading.Thread(target=self._reap, name="raftlake-tier-reaper", daemon=True).start()
        except RuntimeError:
            # The machine, or the user, has no task left.
            self._reap(REAP_SECONDS_MAX)

    def _reap(self, timeout_seconds: float | None = None) -> None:
        # A process that ends later is reaped by `subprocess`, when the next one is started.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_seconds)
        self._ours.close()


@dataclass(slots=True)
class _Call:
    what: TierCall
    done: Callable[[Any], None]


class Lane:
    """A thread and its worker: calls are made one after another, in their order. See `TierProcess`."""

    def __init__(
        self,
        settings: Callable[[], TierSettings],
        name: str,
        *,
        timeout_seconds: float,
        post: Post,
        start: Callable[[TierSettings], Worker],
        pause: Callable[[float], object] | None,
        worker: Worker | None = None,
    ) -> None:
        """`worker`: one that was started already."""
        self._settings = settings
        self._timeout_seconds = timeout_seconds
        self._post = post
        self._start = start
        self._closing = threading.Event()
        self._pause = pause or self._closing.wait
        self._pause_seconds = 0.0
        #: None wakes the thread for its end.
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._worker = worker
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_started = False

    # --- the driver's thread ---

    def close(self) -> None:
        """End the worker and the thread. Calls that have no answer yet are told that they have none."""
        with self._lock:
            self._closing.set()
            worker, self._worker = self._worker, None
        self._calls.put(None)
        if worker is not None:
            worker.kill()

    def submit(self, what: TierCall, done: Callable[[Any], None]) -> None:
        """Make a call, behind those before it."""
        refusal = _STOPPING if self._closing.is_set() else self._start_thread()
        if refusal:
            self._post(lambda: done(TierError(TierFailure.UNKNOWN, refusal)))
            return
        self._calls.put(_Call(what, done))

    def _start_thread(self) -> str:
        """With the first call: a node without one needs no thread. Why there is none; "" where it runs."""
        if not self._is_started:
            try:
                self._thread.start()
            except RuntimeError as error:
                # The machine, or the user, has no task left. The next call tries again.
                return f"the tier's thread could not be started: {error}"
            self._is_started = True
        return ""

    # --- the tier's thread ---

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                answer = self._answer(call.what)
            except Exception as error:
                # The thread goes on: nobody else answers the calls behind this one.
                logger.exception("a call of the tier failed in this node")
                answer = self._fail(error)
            # A loop that is closed takes no more callbacks.
            with contextlib.suppress(RuntimeError):
                self._post(lambda call=call, answer=answer: call.done(answer))  # type: ignore[misc]

    def _answer(self, call: TierCall) -> Any:
        if self._pause_seconds:
            self._pause(self._pause_seconds)
        reason, worker = _STOPPING, None
        try:
            worker = self._current()
            if worker is not None:
                answer = worker.ask(call, self._timeout_seconds)
                self._pause_seconds = 0.0
                return answer
        except TimeoutError:
            reason = f"no answer from the tier at {self._settings().uri} in {self._timeout_seconds:g} s"
        except (EOFError, OSError, MemoryError, pickle.PickleError) as error:
            how = "it could not be started" if worker is None else worker.how_it_ended()
            reason = f"the tier's worker ended: {error}: {how}"
        self._give_up(reason)
        return TierError(TierFailure.UNKNOWN, reason)

    def _fail(self, error: Exception) -> TierError:
        """What the worker is about is not known: it goes too."""
        failed = TierError(TierFailure.UNKNOWN, f"a call of the tier failed in this node: {error!r}")
        self._give_up(failed.reason)
        return failed

    def _current(self) -> Worker | None:
        """The worker; None while the node stops."""
        with self._lock:
            if not self._closing.is_set() and self._worker is None:
                self._worker = self._start(self._settings())
            return self._worker

    def _give_up(self, reason: str) -> None:
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
        if not self._closing.is_set():
            self._pause_seconds = min(max(2 * self._pause_seconds, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)
            event(logger, logging.WARNING, "the tier's worker was given up", reason=reason, pause_seconds=self._pause_seconds)


class TierProcess:
    """`settings` are asked for when a worker is started. `post` runs a callback on the driver's thread later
    (`loop.call_soon_threadsafe`). `start` makes a worker, and `pause` waits that many seconds or until `close`. `reader` is a
    worker for reads that was started already."""

    def __init__(
        self,
        settings: Callable[[], TierSettings],
        *,
        timeout_seconds: float,
        post: Post,
        start: Callable[[TierSettings], Worker] = WorkerProcess,
        pause: Callable[[float], object] | None = None,
        reader: Worker | None = None,
    ) -> None:
        def lane(name: str, worker: Worker | None = None) -> Lane:
            return Lane(settings, name, timeout_seconds=timeout_seconds, post=post, start=start, pause=pause, worker=worker)

        self.leaders = lane("raftlake-tier")
        self.readers = lane("raftlake-tier-reads", reader)

    def close(self) -> None:
        """End the workers. Calls that have no answer yet are told that they have none."""
        self.leaders.close()
        self.readers.close()

    # --- calls of leaders ---

    def copy(self, request: CopyRequest, done: Callable[[RemoteSegment | TierError], None]) -> None:
        self.leaders.submit(request, done)

    def claim(self, lineage: Lineage, leader_epoch: Epoch, done: Callable[[LineageEnd | TierError], None]) -> None:
        self.leaders.submit(ClaimRequest(lineage, leader_epoch), done)

    def check(self, lineage: Lineage, segment: RemoteSegment, done: Callable[[TierError | None], None]) -> None:
        self.leaders.submit(CheckRequest(lineage, segment), done)

    def delete(self, lineage: Lineage, leader_epoch: Epoch, until: Offset, done: Callable[[Offset | TierError], None]) -> None:
        self.leaders.submit(DeleteRequest(lineage, leader_epoch, until), done)

    def drop(self, group: GroupId, partitions: int, done: Callable[[TierError | None], None]) -> None:
        self.leaders.submit(DropRequest(group, partitions), done)

    def adopt(self, request: AdoptRequest, done: Callable[[LineageFacts | TierError], None]) -> None:
        self.leaders.submit(request, done)

    def accept(
        self,
        group: GroupId,
        begin: Offset | None,
        reach: Offset | None,
        done: Callable[[LineageFacts | TierError], None],
    ) -> None:
        self.leaders.submit(AcceptRequest(group, begin, reach), done)

    # --- calls that read for somebody who waits ---

    def read(self, request: ReadRequest, done: Callable[[bytes | TierError], None]) -> None:
        self.readers.submit(request, done)

    def search(self, request: SearchRequest, done: Callable[[FoundRecord | TierError | None], None]) -> None:
        self.readers.submit(request, done)

    def find(self, lineage: Lineage, offset: Offset, done: Callable[[RemoteState | TierError], None]) -> None:
        self.readers.submit(FindRequest(lineage, offset), done)

    def oldest(self, lineage: Lineage, count: int, done: Callable[[tuple[RemoteFile, ...] | TierError], None]) -> None:
        self.readers.submit(OldestRequest(lineage, count), done)

    def facts(self, lineage: Lineage | GroupId, done: Callable[[LineageFacts | TierError], None]) -> None:
        self.readers.submit(FactsRequest(lineage), done)
