"""What a connection of the Kafka listener has to do with the line of dear work: its place there, and its late answers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

from raftlake.runtime.sockets import has_hung_up
from raftlake.runtime.work_line import WorkLine


class Owner(Protocol):
    """A connection."""

    def start_waiting(self) -> None:
        """Start the dear request whose turn it is, and what came behind it."""

    def abort(self) -> None: ...

    def fail_by_bug(self, doing: str, error: Exception) -> None: ...


class Turn:
    """The turn of a connection's next dear request."""

    __slots__ = ("_line", "_now", "_owner", "_since", "has_come", "socket")

    def __init__(self, line: WorkLine, now: Callable[[], float], owner: Owner) -> None:
        self._line = line
        self._now = now
        self._owner = owner
        self._since: float | None = None
        #: From the beginning of the turn until a dear request has used it.
        self.has_come = False
        #: Of the connection, once there is one.
        self.socket: socket.socket | None = None

    def wait(self) -> None:
        if self._since is None:
            self._since = self._now()
            self._line.enter(self)

    def leave(self) -> None:
        """Nothing waits for it any more."""
        self._since = None
        self._line.leave(self)

    def is_overdue(self, now: float, patience: float) -> bool:
        return self._since is not None and now - self._since > patience

    def take_turn(self) -> bool:
        self._since = None
        if self.socket is not None and has_hung_up(self.socket.fileno()):
            # A connection with a request that waits is not read, so its end is not seen elsewhere.
            self._owner.abort()
            return False
        self.has_come = True
        try:
            self._owner.start_waiting()
        except Exception as error:  # noqa: BLE001
            self._owner.fail_by_bug("failed to start a request that waited for its turn", error)
        finally:
            self.has_come = False
        return False


class LateAnswer:
    """The answer to a dear request that came after its turn: it is encoded in another one."""

    __slots__ = ("_encode",)

    def __init__(self, encode: Callable[[], None]) -> None:
        self._encode = encode

    def take_turn(self) -> bool:
        self._encode()
        return False
