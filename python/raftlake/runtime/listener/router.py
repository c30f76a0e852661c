"""What a connection of the Kafka listener may hold of a node, and what it asks of the listener that owns it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from raftlake.ports.driver import ListenerUse
from raftlake.raft.types import NodeId
from raftlake.runtime.listener.frame_room import FrameRoom
from raftlake.runtime.work_line import WorkLine
from raftlake.wire.api import RequestHeader

#: A connection, which knows its router.
C_contra = TypeVar("C_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one connection may hold of this node's memory."""

    #: The largest frame that is accepted (`socket.request.max.bytes`).
    request_bytes_max: int = 100 * 1024 * 1024
    #: Requests that were started and whose answers have not left.
    requests_max: int = 256
    #: Checks of its records that are done beside the loop; above it no further request is started.
    checks_aside_max: int = 8
    #: Bytes of those requests; one request is always allowed.
    unanswered_bytes_max: int = 32 * 1024 * 1024
    #: Unsent answer bytes above which no further request is started.
    unsent_bytes_max: int = 4 * 1024 * 1024
    #: A client's connection on which nothing comes and nothing is under way for so long is closed (`connections.max.idle.ms`).
    idle_seconds: float = 600.0
    #: The same for one that stops amid a request, or takes nothing of what is being sent to it.
    stall_seconds: float = 30.0
    #: A connection whose dear request has not had its turn for so long is closed: clients wait no longer, by their defaults.
    turn_seconds: float = 30.0


class Router(Protocol[C_contra]):
    """What a connection needs from the listener that owns it."""

    use: ListenerUse
    limits: ConnectionLimits
    room: FrameRoom
    #: Where dear requests wait.
    line: WorkLine

    def opened(self, connection: C_contra) -> bool:
        """Count the connection; False when it is one too many."""

    def claim(self, connection: C_contra, node_id: NodeId) -> bool:
        """The other side says that it is a node. Sets `connection.is_peer` where a place of that node is free."""

    def note_fault(self, connection: C_contra, reason: object) -> None:
        """Say that the other side broke the protocol, at a bounded rate."""

    def note_bug(self, doing: str, error: Exception) -> None:
        """Say what went wrong here, at a bounded rate."""

    def closed(self, connection: C_contra) -> None:
        """The connection is gone."""

    def reserve(self, connection: C_contra, size: int, is_fetch: bool) -> bool:
        """Room for a request of `size` bytes among those of all connections; when False, `start_waiting` is called later."""

    def hold_unsent(self, size: int) -> None:
        """Answers of `size` bytes lie in the buffer of a connection that takes no more (negative: no longer)."""

    def release(self, size: int) -> None:
        """A request of `size` bytes is answered."""

    def send_later(self, connection: C_contra) -> None:
        """Call `connection.send_answers` once what is answered now has been answered."""

    def is_dear(self, header: RequestHeader, message: object) -> bool:
        """Whether a request whose frame is small takes long."""

    def route(self, connection: C_contra, header: RequestHeader, message: object, reply: Callable[[object], None]) -> None:
        """Serve one request; `reply` is called once, now or later. Raises `WireError` when it breaks the protocol."""
