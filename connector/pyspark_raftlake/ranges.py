"""Which offsets one batch reads and how they are cut into tasks: arithmetic only, in whole numbers.

The rules are those of Spark's Kafka connector, so that a job that moves keeps its shape: `maxOffsetsPerTrigger` is shared out
in proportion to what each partition has waiting, and `minPartitions` splits the large ranges only. Control records of the log
occupy offsets, so a range may hold fewer rows than offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark_raftlake.offsets import Offsets, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}) of {self.topic}-{self.partition}"


def limit_offsets(offsets_max: int, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """End offsets for a batch of about `offsets_max` offsets: each partition gets its share of what is waiting, rounded down,
    but at least one offset, so that small partitions do not starve. Partitions without a start or without news keep `end`."""
    waiting = {partition: end[partition] - begin for partition, begin in start.items() if end.get(partition, begin) > begin}
    total = sum(waiting.values())
    limited = dict(end)
    for partition, size in waiting.items():
        share = max(1, offsets_max * size // total)
        limited[partition] = min(end[partition], start[partition] + share)
    return limited


def count_offsets(start: Offsets, end: Offsets) -> int:
    """Offsets between two positions, over the partitions that have both."""
    return sum(max(0, end[partition] - begin) for partition, begin in start.items() if partition in end)


def split_ranges(
    ranges: Iterable[OffsetRange], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """The tasks of a batch: empty ranges dropped, none longer than `records_max`, and about `partitions_min` of them.

    When there are fewer ranges than `partitions_min`, the large ones are split in proportion to their size; a range whose share
    is a single task stays whole, and does not count in the shares of the others.
    """
    pieces = [piece for range_ in ranges if range_.size > 0 for piece in _cut_by_size(range_, records_max)]
    if partitions_min is None or len(pieces) >= partitions_min:
        return pieces
    total = sum(piece.size for piece in pieces)
    large = [piece for piece in pieces if _share(piece.size, total, partitions_min) > 1]
    large_total = sum(piece.size for piece in large)
    large_parts = max(1, partitions_min - (len(pieces) - len(large)))
    split: list[OffsetRange] = []
    for piece in pieces:
        is_large = _share(piece.size, total, partitions_min) > 1
        split += _cut(piece, _share(piece.size, large_total, large_parts) if is_large else 1)
    return split


def _cut_by_size(range_: OffsetRange, records_max: int | None) -> list[OffsetRange]:
    return [range_] if records_max is None else _cut(range_, -(-range_.size // records_max))


def _share(size: int, total: int, parts: int) -> int:
    """size / total of the parts, rounded half up, at least one."""
    return max(1, (2 * size * parts + total) // (2 * total))


def _cut(range_: OffsetRange, parts: int) -> list[OffsetRange]:
    """`parts` pieces whose sizes differ by at most one; fewer when there are not enough offsets."""
    pieces: list[OffsetRange] = []
    start = range_.start
    parts = min(parts, range_.size)
    for part in range(parts):
        end = start + (range_.end - start) // (parts - part)
        pieces.append(replace(range_, start=start, end=end))
        start = end
    return pieces
