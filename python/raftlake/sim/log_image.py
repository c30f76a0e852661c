"""One version of a simulated log: its batches, its epochs, and how much of it is synced.

Plain values with a few questions; which of several versions a crash brings back is decided in `disk`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import crc32c

from raftlake.errors import InvariantViolation
from raftlake.ports import BatchSpan
from raftlake.raft.types import Epoch, Offset


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One record batch as it lies in the log."""

    base: int
    end: int
    epoch: int
    timestamp_ms: int
    data: bytes


@dataclass(slots=True)
class LogImage:
    """One version of a log. Images differ only where a truncation or reset lies between them."""

    start: int = 0
    batches: list[StoredBatch] = field(default_factory=list)
    #: End offset of each batch, for binary search.
    ends: list[int] = field(default_factory=list)
    #: Of a log that begins above 0 the first entry is the epoch of the record before its start.
    epochs: list[tuple[Epoch, Offset]] = field(default_factory=list)
    #: End offset (exclusive) that a completed flush covers.
    synced_end: int = 0
    #: Up to this end offset it took over the batches of the image before it.
    inherited_end: int = 0
    #: Beside the batches: `ports.StartPoints`. All of them are durable.
    points: dict[Offset, tuple[bytes, bytes]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else self.start

    def cut(self, count: int) -> LogImage:
        """A copy that holds the first `count` batches."""
        ends = self.ends[:count]
        end = ends[-1] if ends else self.start
        return LogImage(
            start=self.start,
            batches=self.batches[:count],
            ends=ends,
            epochs=[entry for index, entry in enumerate(self.epochs) if entry[1] < end or (index == 0 and self.start > 0)],
            synced_end=min(self.synced_end, end),
            inherited_end=end,
            points=dict(self.points),
        )


def check_batch_bytes(span: BatchSpan, data: bytes) -> None:
    """Refuse bytes that a file log would cut away at its next recovery, or that say something else than their span."""
    base = int.from_bytes(data[0:8], "big")
    epoch = int.from_bytes(data[12:16], "big", signed=True)
    end = base + int.from_bytes(data[23:27], "big") + 1
    if (base, end, epoch) != (span.base_offset, span.end_offset, span.epoch):
        raise InvariantViolation(f"the batch header says [{base}, {end}) epoch {epoch}, its span {span}")
    if int.from_bytes(data[8:12], "big") + 12 != len(data):
        raise InvariantViolation(f"the batch header and its span disagree on the size: {span}")
    if int.from_bytes(data[17:21], "big") != crc32c.crc32c(memoryview(data)[21:]):
        raise InvariantViolation(f"the CRC of the batch at {base} is wrong before it reaches the disk")
