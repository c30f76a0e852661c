"""The loop's side of `ReplicaNode`: when it runs its turns and its timers, and what happens when it can go on no longer.

Owns: one turn per loop iteration however many inputs asked for one (callbacks of `call_soon` run after every socket that was
ready has been read, so a turn sees them all), one timer for the node's next deadline, and the watch over `node.fatal`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from raftlake.errors import InvariantViolation, RaftlakeError
from raftlake.ports.driver import Clock
from raftlake.replica.node import ReplicaNode
from raftlake.runtime.http.connection import HttpConnection
from raftlake.runtime.listener.connection import Connection
from raftlake.runtime.refusal_log import RefusalLog
from raftlake.storage.descriptors import NO_DESCRIPTORS

logger = logging.getLogger("raftlake.node")


class Driver:
    """`on_stopped` is called once, with the reason, when the node can go on no longer. `after_turn` runs after each turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, on_stopped: Callable[[RaftlakeError], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._on_stopped = on_stopped
        self._node: ReplicaNode | None = None
        self._is_turn_requested = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_stopped = False
        self._refusals = RefusalLog(logger)
        self.after_turn: Callable[[], None] | None = None

    def attach(self, node: ReplicaNode) -> None:
        """The node exists; turns that were asked for meanwhile run now."""
        self._node = node
        self._loop.set_exception_handler(self._on_exception)

    def request_turn(self) -> None:
        if not self._is_turn_requested:
            self._is_turn_requested = True
            self._loop.call_soon(self._run_turn)

    def stop(self) -> None:
        """No further turn or timer."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def fail(self, error: RaftlakeError) -> None:
        """Stop for good."""
        if not self._is_stopped:
            self.stop()
            self._on_stopped(error)

    # --- turns ---

    def _run_turn(self) -> None:
        self._is_turn_requested = False
        node = self._node
        if node is None or self._is_stopped:
            return
        node.run_turn()
        self._after(node)
        if self.after_turn is not None:
            self.after_turn()

    def _on_timer(self) -> None:
        self._timer = None
        node = self._node
        if node is None or self._is_stopped:
            return
        node.on_deadline()
        self._after(node)

    def _after(self, node: ReplicaNode) -> None:
        if node.fatal is not None:
            self.fail(node.fatal)
            return
        deadline_ms = node.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            # A timer that fires too early does no harm and is armed anew: cheaper than moving it on every turn.
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_later(max(deadline_ms - self._clock.now_ms(), 0) / 1000, self._on_timer)

    # --- exceptions ---

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """What no caller caught. On a connection from outside it costs that connection; anywhere else it means that the
        driver was left in a state which it cannot explain, and the node stops."""
        error = context.get("exception")
        message = str(context.get("message", "unhandled exception"))
        exception = error if isinstance(error, BaseException) else None
        if "socket" in context and isinstance(exception, OSError) and exception.errno in NO_DESCRIPTORS:
            # asyncio could not accept a connection, and tries again in a second.
            self._refusals.note(loop.time(), "refusing connections: too many files are open; raise ulimit -n", reason=exception)
            return
        logger.error("%s", message, exc_info=exception)
        is_outside = isinstance(context.get("protocol"), Connection | HttpConnection)
        if exception is None or is_outside or "task" in context or "future" in context:
            return
        if not isinstance(exception, RaftlakeError):
            exception = InvariantViolation(f"{message}: {type(exception).__name__}: {exception}{_advice(exception)}")
        self.fail(exception)


def _advice(error: BaseException) -> str:
    is_known = isinstance(error, OSError) and error.errno in NO_DESCRIPTORS
    return "; raise the limit of open files of this process (ulimit -n, LimitNOFILE)" if is_known else ""
