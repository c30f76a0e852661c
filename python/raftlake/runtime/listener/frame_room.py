"""Room for the large request frames that are on their way to a node, over all of its connections.

Owns: who may receive a frame that does not fit into its connection's small buffer, and who waits. A frame's whole size is
taken before more than its beginning is read, so that those who were let in can always finish. A frame gets at most half of
what is free: however much is being sent by however many, what is left serves smaller frames, and the smaller a frame the
longer. Peers always get room, because what clients wait for waits for them. Knows no sockets and no clock; a connection that
waits is one whose socket is not read. Invariant: what clients were let in with never exceeds `bytes_max`, which is at least
the largest frame.
"""

from __future__ import annotations

from typing import Protocol


class Waiter(Protocol):
    """A connection: who asks for room, and waits when there is none."""

    def start_waiting(self) -> None:
        """There may be room now: ask again."""


class FrameRoom:
    """`queued.max.request.bytes`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        #: What the frames that were let in will hold when they are whole.
        self.held = 0
        #: In the order of their coming, with the sizes of their frames.
        self._waiting: dict[Waiter, int] = {}

    @property
    def is_short(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def take(self, waiter: Waiter, size: int, *, is_peer: bool) -> bool:
        """Room for a frame of `size` bytes; when False, `start_waiting` is called once it may have come."""
        if is_peer or self._fits(size):
            self._waiting.pop(waiter, None)
            self.held += size
            return True
        self._waiting[waiter] = size
        return False

    def leave(self, size: int) -> None:
        """A frame is being served, or will never be whole."""
        self.held -= size
        for waiter, waiting_size in list(self._waiting.items()):
            if self._fits(waiting_size):
                del self._waiting[waiter]
                waiter.start_waiting()

    def forget(self, waiter: Waiter) -> None:
        """It waits no longer."""
        self._waiting.pop(waiter, None)

    def _fits(self, size: int) -> bool:
        return self.held == 0 or size <= (self._bytes_max - self.held) // 2
