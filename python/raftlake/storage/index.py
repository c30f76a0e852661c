"""The sparse offset and time index of one segment, in memory and in Kafka's `.index` and `.timeindex` files.

An offset entry is (last offset of a batch, where the batch begins), one for each `INDEX_INTERVAL` bytes; a time entry is
(largest timestamp so far, last offset of the batch that holds it). Both are relative to the segment's base offset on disk:
8 bytes (i32, i32) and 12 bytes (i64, i32), big endian. They are hints: a reader checks the batch that an entry leads to,
and they can be rebuilt from the segment at any time. So they are synced only when a segment is sealed; those of the active
segment grow with it now and then, so that a start need not walk all of it.
"""

from __future__ import annotations

import operator
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain, islice

#: Kafka's `log.index.interval.bytes`.
INDEX_INTERVAL = 4096
OFFSET_ENTRY_SIZE = 8
TIME_ENTRY = struct.Struct(">qi")


def is_ascending(values: Sequence[int]) -> bool:
    return all(map(operator.lt, values, islice(values, 1, None)))


class SegmentIndex:
    """Both indexes of one segment, grown batch by batch."""

    __slots__ = (
        "_bytes_since_entry",
        "base_offset",
        "last_offsets",
        "positions",
        "time_offsets",
        "times",
        "timestamp_ms_max",
        "timestamp_offset",
    )

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.last_offsets = array("q")
        self.positions = array("q")
        self.times = array("q")
        self.time_offsets = array("q")
        #: Over all batches, -1 when none has a timestamp; and the last offset of the batch that holds it.
        self.timestamp_ms_max = -1
        self.timestamp_offset = base_offset
        self._bytes_since_entry = 0

    def note(self, end_offset: int, position: int, size: int, timestamp_ms_max: int) -> None:
        """A batch was appended at `position`."""
        if timestamp_ms_max > self.timestamp_ms_max:
            self.note_timestamp(end_offset, timestamp_ms_max)
        if self._bytes_since_entry > INDEX_INTERVAL:
            self.last_offsets.append(end_offset - 1)
            self.positions.append(position)
            self._note_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += size

    def note_timestamp(self, end_offset: int, timestamp_ms_max: int) -> None:
        if timestamp_ms_max > self.timestamp_ms_max:
            self.timestamp_ms_max = timestamp_ms_max
            self.timestamp_offset = end_offset - 1

    def _note_time(self) -> None:
        if self.timestamp_ms_max > (self.times[-1] if self.times else -1):
            self.times.append(self.timestamp_ms_max)
            self.time_offsets.append(self.timestamp_offset)

    def position_for(self, offset: int) -> int:
        """A batch boundary at or before the batch that holds `offset`."""
        found = bisect_right(self.last_offsets, offset) - 1
        return self.positions[found] if found >= 0 else 0

    def boundary_within(self, limit: int, position_max: int) -> int:
        """The furthest known batch boundary at or below `position_max` behind which no batch ends above `limit`."""
        found = min(bisect_left(self.last_offsets, limit), bisect_right(self.positions, position_max)) - 1
        return self.positions[found] if found >= 0 else 0

    def before_timestamp(self, timestamp_ms: int) -> tuple[int, int | None]:
        """The last offset of a batch up to which all are older than `timestamp_ms`, or the one before the base; and the batch's
        position, where the entry tells it. The first that is not older lies at most two intervals behind it."""
        following = bisect_left(self.times, timestamp_ms)
        before = self.time_offsets[following - 1] if following else self.base_offset - 1
        # A time entry is made at an offset entry. At the offset entry before that one no time was beyond the time entry before.
        made_at = len(self.last_offsets)
        if following < len(self.times):
            made_at = bisect_left(self.last_offsets, self.time_offsets[following])
        if made_at and self.last_offsets[made_at - 1] > before:
            return self.last_offsets[made_at - 1], self.positions[made_at - 1]
        return before, None

    def times_around(self, timestamp_ms: int) -> list[tuple[int, int]]:
        """The last time entry before `timestamp_ms` and the first that is not, as (last offset of its batch, time)."""
        following = bisect_left(self.times, timestamp_ms)
        near = range(max(following - 1, 0), min(following + 1, len(self.times)))
        return [(self.time_offsets[each], self.times[each]) for each in near]

    def truncate(self, end_offset: int, position: int) -> None:
        """Forget the batches at or behind `position`; the caller notes the timestamps again from `timestamp_offset` on."""
        keep = bisect_left(self.positions, position)
        del self.last_offsets[keep:], self.positions[keep:]
        keep = bisect_left(self.time_offsets, end_offset)
        del self.times[keep:], self.time_offsets[keep:]
        self.timestamp_ms_max = self.times[-1] if self.times else -1
        self.timestamp_offset = self.time_offsets[-1] if self.times else self.base_offset
        self._bytes_since_entry = position - self.positions[-1] if self.positions else position

    def encode(self) -> tuple[bytes, bytes]:
        """The contents of `.index` and `.timeindex` of a sealed segment (the largest timestamp gets an entry of its own)."""
        self._note_time()
        offsets = array("i", chain.from_iterable(zip(self._relative(self.last_offsets), self.positions, strict=True)))
        times = b"".join(map(TIME_ENTRY.pack, self.times, self._relative(self.time_offsets)))
        return _big_endian(offsets).tobytes(), times

    def encode_from(self, offset_count: int, time_count: int) -> tuple[bytes, bytes]:
        """What the two files lack when they hold so many entries."""
        new = zip(self._relative(self.last_offsets[offset_count:]), self.positions[offset_count:], strict=True)
        offsets = array("i", chain.from_iterable(new))
        times = map(TIME_ENTRY.pack, self.times[time_count:], self._relative(self.time_offsets[time_count:]))
        return _big_endian(offsets).tobytes(), b"".join(times)

    def _relative(self, offsets: Iterable[int]) -> list[int]:
        return [offset - self.base_offset for offset in offsets]


def _big_endian(values: array[int]) -> array[int]:
    if sys.byteorder == "little":
        values.byteswap()
    return values


def parse_offset_index(data: bytes, base_offset: int) -> tuple[array[int], array[int]]:
    """(last offsets, positions) of an `.index` file. Raises ValueError when it cannot be one."""
    if len(data) % OFFSET_ENTRY_SIZE:
        raise ValueError(f"{len(data)} bytes are no whole number of entries")
    values = array("i")
    values.frombytes(data)
    _big_endian(values)
    last_offsets = array("q", [base_offset + relative for relative in values[0::2]])
    positions = array("q", values[1::2])
    if not is_ascending(last_offsets) or not is_ascending(positions) or (positions and positions[0] <= 0):
        raise ValueError("entries are not in order")
    return last_offsets, positions


def parse_time_index(data: bytes, base_offset: int) -> tuple[array[int], array[int]]:
    """(timestamps in ms, last offsets) of a `.timeindex` file. Raises ValueError when it cannot be one."""
    if len(data) % TIME_ENTRY.size:
        raise ValueError(f"{len(data)} bytes are no whole number of entries")
    entries = list(TIME_ENTRY.iter_unpack(data))
    times = array("q", [time for time, _ in entries])
    offsets = array("q", [base_offset + relative for _, relative in entries])
    if not is_ascending(times) or not is_ascending(offsets) or (times and times[0] < 0):
        raise ValueError("entries are not in order")
    return times, offsets


def load(offset_data: bytes, time_data: bytes, base_offset: int, end_offset: int, size: int) -> SegmentIndex:
    """The index of a sealed segment of `size` bytes from its two files. Raises ValueError when they do not fit it."""
    index = SegmentIndex(base_offset)
    index.last_offsets, index.positions = parse_offset_index(offset_data, base_offset)
    index.times, index.time_offsets = parse_time_index(time_data, base_offset)
    if index.positions and (index.positions[-1] >= size or index.last_offsets[-1] >= end_offset):
        raise ValueError("entries lie behind the end of the segment")
    if index.times:
        index.timestamp_ms_max, index.timestamp_offset = index.times[-1], index.time_offsets[-1]
        if index.timestamp_offset >= end_offset:
            raise ValueError("time entries lie behind the end of the segment")
    index.truncate(end_offset, size)
    return index


def load_part(offset_data: bytes, time_data: bytes, base_offset: int, limit: int) -> SegmentIndex:
    """What the two files of a growing segment say of the batches below `limit`. Raises ValueError when they are damaged."""
    index = SegmentIndex(base_offset)
    index.last_offsets, index.positions = parse_offset_index(offset_data, base_offset)
    index.times, index.time_offsets = parse_time_index(time_data, base_offset)
    keep = bisect_left(index.last_offsets, limit)
    del index.last_offsets[keep:], index.positions[keep:]
    keep = bisect_left(index.time_offsets, limit)
    del index.times[keep:], index.time_offsets[keep:]
    return index
