"""The slow reader of closed segments: it finds what decays on a disk before somebody needs it.

Owns where it is in one log. Each batch is checked by its CRC, by the chain of offsets, and its epoch (which no CRC covers)
against the epoch history. Raises; repairs nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from raftlake.raft.types import Offset
from raftlake.storage.epochs import Entry
from raftlake.storage.scan import WINDOW_LARGE, BatchAt, BrokenBatch, walk
from raftlake.storage.segment import Segment

#: A batch takes 8 µs however small it is: 4 MiB of tiny ones took 0.4 s at a time.
BATCH_BYTES_MIN = 4 * 1024


class Scrub:
    """Of one log. `read_on` goes back only where the log was cut; what is deleted meanwhile it passes over."""

    __slots__ = ("_base", "_next", "_position")

    def __init__(self) -> None:
        #: The segment that is being read, up to which byte, and the offset that begins there.
        self._base = Offset(-1)
        self._position = 0
        self._next = Offset(0)

    def cut(self, end_offset: Offset) -> None:
        """The log is about to end at `end_offset`: what will stand behind it has other batches in other places."""
        if end_offset < self._next:
            self._base, self._position, self._next = Offset(-1), 0, end_offset

    def replaced(self, base: Offset, end: Offset) -> None:
        """The segments of [base, end) have given way to a new one: its batches are in other places."""
        if base <= self._base < end:
            self._base, self._position, self._next = Offset(-1), 0, base

    def read_on(self, closed: Sequence[Segment], epochs: Sequence[Entry], size_max: int) -> int:
        """Read about `size_max` bytes, where a batch counts for BATCH_BYTES_MIN at least; how many they counted for, fewer when
        the last of `closed` was done. Raises BrokenBatch."""
        read = 0
        while read < size_max:
            segment = next((each for each in closed if each.end_offset > self._next), None)
            if segment is None:
                self._base, self._position, self._next = Offset(-1), 0, Offset(0)
                return read
            read += self._read(segment, epochs, size_max - read)
        return read

    def _read(self, segment: Segment, epochs: Sequence[Entry], size_max: int) -> int:
        if segment.base_offset != self._base:
            self._base, self._position, self._next = segment.base_offset, 0, segment.base_offset
        begin, cost = self._position, 0
        batches = walk(
            segment.file.descriptor(), segment.path, begin, segment.size,
            offset=self._next, check_crc=True, window=min(WINDOW_LARGE, size_max),
        )  # fmt: skip
        for batch in batches:
            require_epoch(segment.path, batch, epochs)
            self._position, self._next = batch.position + batch.size, batch.end_offset
            cost += max(batch.size, BATCH_BYTES_MIN)
            if cost >= size_max:
                break
        else:
            if self._next != segment.end_offset:
                raise BrokenBatch(segment.path, self._position, self._next, "the segment ends too early")
        return cost


def require_epoch(path: Path, batch: BatchAt, epochs: Sequence[Entry]) -> None:
    """Raises BrokenBatch when the epoch history says another epoch than the batch."""
    index = bisect_right(epochs, batch.base_offset, key=lambda entry: entry[1]) - 1
    if index >= 0 and epochs[index][0] != batch.epoch:
        reason = f"its leader epoch is {batch.epoch}, but the epoch history says {epochs[index][0]}"
        raise BrokenBatch(path, batch.position, batch.base_offset, reason)
