"""The start points of one simulated log: `ports.StartPoints` in memory.

Owns their durability: what `save` and `delete` returned from is durable, and each begins with a port call, at which the
machine may crash before anything has happened. The points lie in the images of the log, since a reset that a crash takes back
brings the old points back with the old log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from raftlake.errors import StorageError
from raftlake.raft.types import Offset
from raftlake.sim.disk.log_image import LogImage
from raftlake.sim.disk.power import ClosedLog
from raftlake.sim.disk.space import Space


class Images(Protocol):
    """The log that the points belong to."""

    @property
    def images(self) -> Sequence[LogImage]: ...


class Machine(Protocol):
    """See `disk.Machine`."""

    def port_call(self, name: str) -> None: ...


class SimulatedPointWriter:
    """See `ports.StartPointWriter`. Each piece is a port call."""

    def __init__(self, points: SimulatedStartPoints, offset: Offset, head_bytes: int) -> None:
        self._points = points
        self._offset = offset
        self._head_bytes = head_bytes
        self._rows: bytearray | None = bytearray()

    def append(self, rows: bytes) -> None:
        assert self._rows is not None
        self._points.take("append to start point", len(rows))
        self._rows += rows

    def finish(self, head: bytes, voters: bytes) -> None:
        assert self._rows is not None and len(head) == self._head_bytes
        self._points.take("finish start point", len(head) + len(voters))
        self._points.put(self._offset, head + self._rows, voters)
        self._rows = None

    def abandon(self) -> None:
        self._rows = None


class SimulatedStartPoints:
    """Kept, with its log, over restarts of the node."""

    def __init__(self, log: Images, machine: Machine, space: Space | None = None) -> None:
        self._log = log
        self._space = space or Space()
        self._machine = machine
        #: With the log.
        self.is_deleted = False

    @property
    def _points(self) -> dict[Offset, tuple[bytes, bytes]]:
        return self._log.images[-1].points

    @property
    def offsets(self) -> Sequence[Offset]:
        return sorted(self._points)

    def save(self, offset: Offset, producers: bytes, voters: bytes, *, sync: bool = True) -> None:
        del sync  # A node that stops in good order is not simulated.
        self.take("save start point", len(producers) + len(voters))
        self.put(offset, producers, voters)

    def begin(self, offset: Offset, head_bytes: int) -> SimulatedPointWriter:
        self._require_there()
        return SimulatedPointWriter(self, offset, head_bytes)

    def take(self, name: str, size: int) -> None:
        """The machine may crash here, or have no room."""
        self._machine.port_call(name)
        self._space.take(size, "save a start point", is_needed=False)

    def put(self, offset: Offset, producers: bytes, voters: bytes) -> None:
        """The point is there, durably."""
        self._require_there()
        self._points[offset] = producers, voters

    def load(self, offset: Offset) -> tuple[bytes, bytes]:
        self._require_there()
        found = self._points.get(offset)
        if found is None:
            raise StorageError(f"simulated: there is no start point at {offset}")
        return found

    def delete(self, offsets: Sequence[Offset]) -> None:
        if offsets:
            self._require_there()
            self._machine.port_call("delete start points")
            for offset in offsets:
                self._points.pop(offset, None)

    def _require_there(self) -> None:
        if self.is_deleted:
            raise ClosedLog("simulated: the directory of the start points is gone")

    def cut(self, end_offset: Offset) -> None:
        """The log is about to be cut to `end_offset`: whatever a crash brings back, no point tells of what is cut."""
        for image in self._log.images:
            for offset in [offset for offset in image.points if offset > end_offset]:
                del image.points[offset]

    def advance(self, start_offset: Offset) -> None:
        """The log begins at `start_offset` now: of the points up to there the last one stays."""
        for offset in [offset for offset in self.offsets if offset <= start_offset][:-1]:
            del self._points[offset]
