"""The size of a simulated disk: what is free on it, what else fills it up, and the ballast of its node.

A disk has room without end unless a fault fills it: then so many bytes are left, every write takes from them, and one that
does not fit is refused as a real disk refuses it, with nothing written. The ballast is given up once and comes back with the
room, as `storage.room` has it. Deleting gives nothing back: whatever fills the disk takes that too.
"""

from __future__ import annotations

from raftlake.errors import DiskFull
from raftlake.ports.driver import Room

#: Bytes of a disk that is not full: nothing that a run writes matters to it.
ENDLESS = 1 << 40
BALLAST_BYTES = 1_000


class Space:
    """Kept over restarts of the node."""

    def __init__(self) -> None:
        self._free_bytes: int | None = None
        self._has_ballast = True
        #: Writes that found no room.
        self.refused = 0

    @property
    def is_filled(self) -> bool:
        return self._free_bytes is not None

    @property
    def room(self) -> Room:
        free_bytes = ENDLESS if self._free_bytes is None else self._free_bytes
        return Room(free_bytes=free_bytes, total_bytes=2 * ENDLESS)

    def fill(self, free_bytes: int) -> None:
        """Something takes all but so many bytes."""
        self._free_bytes = free_bytes

    def empty(self) -> None:
        """There is room again, and a ballast is made."""
        self._free_bytes = None
        self._has_ballast = True

    def give_up_ballast(self) -> bool:
        if self._free_bytes is None or not self._has_ballast:
            return False
        self._has_ballast = False
        self._free_bytes += BALLAST_BYTES
        return True

    def take(self, size: int, doing: str, *, is_needed: bool = True) -> None:
        """A write of `size` bytes; one that is needed may take the ballast. Raises DiskFull, and nothing was written."""
        if self._free_bytes is None:
            return
        if size > self._free_bytes and not (is_needed and self.give_up_ballast() and size <= self._free_bytes):
            self.refused += 1
            raise DiskFull(f"simulated: cannot {doing}: no space left")
        self._free_bytes -= size
