"""The records of one batch by columns: where each lies in the payload, its deltas, its key, and whether it has a value.

Made for compaction, which copies records or leaves them out, and so needs neither values nor headers. Many records are read
together by numpy, few of them one by one in plain Python, where numbers of one byte are read in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from raftlake.errors import CorruptBatch, WireError
from raftlake.wire.batch_header import HEADER_BYTES, BatchHeader
from raftlake.wire.compression import decompress
from raftlake.wire.primitives import BytesLike, read_varlong
from raftlake.wire.record_fields import BLOCK_RECORDS, TOGETHER_MIN, Octets, RecordFields, record_ends

#: How a length of -1 is written, which means null.
_NULL = 0x01
#: Set in the first byte of a number that is longer or negative.
_NOT_PLAIN = 0x81


@dataclass(slots=True)
class RecordColumns:
    """Each list has an entry for each record, in the order of the batch. Deltas are relative to the header of the batch."""

    #: The uncompressed records.
    payload: bytes
    #: Where each record ends in the payload. It begins where the one before ends.
    ends: list[int] = field(default_factory=list)
    time_deltas_ms: list[int] = field(default_factory=list)
    offset_deltas: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    #: Those without a value.
    tombstones: list[bool] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ends)


def read_columns(buffer: BytesLike, header: BatchHeader) -> RecordColumns:
    """The records of the batch that `header` was parsed from. The caller has checked the CRC. Raises CorruptBatch for what are
    no records with ascending offsets of the batch."""
    content = memoryview(buffer)[header.position + HEADER_BYTES : header.end_position]
    columns = RecordColumns(bytes(decompress(header.compression, content)))
    count = header.record_count
    try:
        if count >= TOGETHER_MIN:
            _take_together(columns, count)
        _take_each(columns, count)
        _require_order(columns, header.last_offset_delta)
    except (IndexError, WireError) as error:
        reason = "its records end early" if isinstance(error, IndexError) else str(error)
        raise CorruptBatch(f"batch at offset {header.base_offset}: {reason}") from error
    return columns


def _require_order(columns: RecordColumns, delta_max: int) -> None:
    before = -1
    for delta in columns.offset_deltas:
        if delta <= before:
            raise WireError(f"offset delta {delta} behind {before}")
        before = delta
    if before > delta_max:
        raise WireError(f"offset delta {before} is outside of the batch")


def _take_together(columns: RecordColumns, count: int) -> None:
    """As many of the first records as are beyond doubt."""
    data = columns.payload
    octets = np.frombuffer(data, np.uint8)
    while len(columns) < count:
        begin = columns.ends[-1] if columns.ends else 0
        ends = record_ends(data, begin, min(BLOCK_RECORDS, count - len(columns)))
        if not ends or not _take_block(columns, octets, begin, ends):
            return


def _take_block(columns: RecordColumns, octets: Octets, begin: int, ends: list[int]) -> bool:
    """The records between `begin` and `ends`. False where one is in doubt, and then none is taken."""
    limits = np.array(ends, np.int64)
    begins = np.empty_like(limits)
    begins[0] = begin
    begins[1:] = limits[:-1]
    fields = RecordFields(octets, begins)
    length = fields.take_int()
    is_sound = (length & 1 == 0) & (fields.positions + (length >> 1) == limits)
    fields.positions += 1
    times = fields.take_long()
    deltas = fields.take_int()
    sizes = fields.take_int()
    is_keyless = sizes == _NULL
    firsts = fields.positions.copy()
    lasts = firsts + (sizes >> 1)
    fields.positions = lasts.copy()
    value_sizes = fields.take_int()
    is_sound &= (deltas & 1 == 0) & ((sizes & 1 == 0) | is_keyless) & (fields.positions < limits)
    if fields.is_astray or not bool(is_sound.all()):
        return False
    data = columns.payload
    keys: list[bytes | None] = [data[first:last] for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)]
    for index in np.flatnonzero(is_keyless).tolist():
        keys[index] = None
    columns.keys += keys
    columns.ends += ends
    columns.time_deltas_ms += times.tolist()
    columns.offset_deltas += (deltas >> 1).tolist()
    columns.tombstones += (value_sizes == _NULL).tolist()
    return True


def _take_each(columns: RecordColumns, count: int) -> None:
    """The records that are left. Numbers of one byte are read in place: a call for each would take half of the time."""
    data = columns.payload
    size, position = len(data), columns.ends[-1] if columns.ends else 0
    for _ in range(len(columns), count):
        byte = data[position]
        length, position = read_varlong(data, position) if byte & _NOT_PLAIN else (byte >> 1, position + 1)
        end = position + length
        position += 1
        byte = data[position]
        time_delta, position = read_varlong(data, position) if byte & _NOT_PLAIN else (byte >> 1, position + 1)
        byte = data[position]
        offset_delta, position = read_varlong(data, position) if byte & _NOT_PLAIN else (byte >> 1, position + 1)
        byte = data[position]
        length, position = read_varlong(data, position) if byte & _NOT_PLAIN else (byte >> 1, position + 1)
        key = None
        if length >= 0:
            key = data[position : position + length]
            position += length
        value_length, position = read_varlong(data, position) if data[position] & _NOT_PLAIN else (0, position + 1)
        if not position < end <= size or length < -1:
            raise WireError(f"a record of {end - position} bytes behind its key, {size - position} are left")
        columns.ends.append(end)
        columns.time_deltas_ms.append(time_delta)
        columns.offset_deltas.append(offset_delta)
        columns.keys.append(key)
        columns.tombstones.append(value_length == -1)
        position = end
    if position != size:
        raise WireError(f"{size - position} bytes follow the last record")
