"""One version of a simulated log: its batches, its epochs, and how much of it is synced.

Plain values with a few questions; which of several versions a crash brings back is decided in `disk`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import crc32c

from raftlake.errors import InvariantViolation
from raftlake.ports.driver import BatchSpan, SegmentInfo
from raftlake.raft.types import Epoch, Offset
from raftlake.wire.aborted_index import AbortedTransaction, marker_offset_of
from raftlake.wire.batches import parse_header


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
    #: `ports.AbortedIndex`, and how many of its entries are durable.
    aborted: list[AbortedTransaction] = field(default_factory=list)
    aborted_synced: int = 0
    #: Where segments begin: whatever begun them, it is not said again.
    rolled: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else self.start

    def cut(self, count: int) -> LogImage:
        """A copy that holds the first `count` batches."""
        ends = self.ends[:count]
        end = ends[-1] if ends else self.start
        aborted = [entry for entry in self.aborted if entry.last_offset < end]
        return LogImage(
            start=self.start,
            batches=self.batches[:count],
            ends=ends,
            epochs=[entry for index, entry in enumerate(self.epochs) if entry[1] < end or (index == 0 and self.start > 0)],
            synced_end=min(self.synced_end, end),
            inherited_end=end,
            points=dict(self.points),
            aborted=aborted,
            aborted_synced=min(self.aborted_synced, len(aborted)),
            rolled={offset for offset in self.rolled if offset <= end},
        )

    def exchange(self, old: Sequence[StoredBatch], new: Sequence[StoredBatch], first_end: int) -> bool:
        """Put `new` in the place of `old`, neighbours that fill whole segments, and make one segment of them, durably. The
        aborted transactions of the first segment, which ended at `first_end`, stay; those of the others go. Returns False where
        `old` is not here."""
        base, end = old[0].base, old[-1].end
        first = bisect_right(self.ends, base)
        last = first + len(old)
        if self.batches[first:last] != list(old):
            return False
        self.batches[first:last] = new
        self.ends[first:last] = [batch.end for batch in new]
        self.rolled -= {offset for offset in self.rolled if base < offset < end}
        if base <= self.synced_end:
            self.synced_end = max(self.synced_end, end)
        gone = slice(*(bisect_left(self.aborted, offset, key=marker_offset_of) for offset in (first_end, end)))
        self.aborted_synced -= max(0, min(gone.stop, self.aborted_synced) - gone.start)
        del self.aborted[gone]
        return True


class Segments:
    """Where the segments of a log begin and end. Worked out once for each batch, because an image only grows, but for its
    start."""

    def __init__(self) -> None:
        self._closed: list[SegmentInfo] = []
        #: Base offset, size and newest timestamp of the active one.
        self._active = (0, 0, -1)
        #: What that was worked out from: an image that begins there, and so many of its batches.
        self._known: tuple[LogImage | None, int, int] = (None, 0, 0)

    def of(self, image: LogImage) -> list[SegmentInfo]:
        batches = image.batches
        known, start, count = self._known
        if known is not image or start != image.start:
            count = 0
            self._closed, self._active = [], (image.start, 0, -1)
        base, size, latest_ms = self._active
        for index in range(count, len(batches)):
            batch = batches[index]
            if size and batch.base in image.rolled:
                self._closed.append(SegmentInfo(Offset(base), Offset(batch.base), size, latest_ms))
                base, size, latest_ms = batch.base, 0, -1
            size += len(batch.data)
            latest_ms = max(latest_ms, batch.timestamp_ms)
        self._active, self._known = (base, size, latest_ms), (image, image.start, len(batches))
        last = SegmentInfo(Offset(base), Offset(image.end), size, latest_ms)
        if size and image.end in image.rolled:
            return [*self._closed, last, SegmentInfo(Offset(image.end), Offset(image.end), 0, -1)]
        return [*self._closed, last]


def stored(data: bytes) -> StoredBatch:
    """The batch that these bytes are."""
    header = parse_header(data)
    return StoredBatch(header.base_offset, header.end_offset, header.leader_epoch, header.timestamp_ms_max, data)


def span_of(batch: StoredBatch) -> BatchSpan:
    return BatchSpan(batch.base, batch.end, batch.epoch, batch.timestamp_ms, len(batch.data))


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
