"""Headers of record batches of format v2: parsing, validation, stamping. All that the append path looks at.

Owns the 61 bytes of a batch header and its CRC-32C, which covers everything from the attributes on. Knows no record, no
log and no protocol message: batches are passed on as opaque bytes, and the leader writes base offset and epoch into
place (`stamp`), which the CRC does not cover.

`BatchHeader` is a named tuple and not a dataclass because one is made per batch: a tuple from `struct` costs a quarter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from raftlake.errors import CorruptBatch
from raftlake.wire.compression import Compression
from raftlake.wire.primitives import BytesLike

MAGIC = 2
HEADER_BYTES = 61
#: Base offset and batch length, which `length` does not count.
PREFIX_BYTES = 12
#: Where the CRC begins to count: at the attributes.
CRC_START = 21

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
#: The base timestamp is the delete horizon of the batch (KIP-534).
DELETE_HORIZON_BIT = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_EPOCH = struct.Struct(">i")
_ATTRIBUTES = struct.Struct(">h")
_CRC = struct.Struct(">I")
_CRC_AT = 17
_TIMESTAMP_MAX_AT = 35


class BatchHeader(NamedTuple):
    """The header of a batch, and where in its buffer the batch begins. Timestamps are milliseconds since 1970, or -1."""

    base_offset: int
    #: Bytes of the batch after the first twelve.
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    timestamp_ms_max: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    #: Byte position in the buffer that was parsed.
    position: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + PREFIX_BYTES

    @property
    def end_position(self) -> int:
        return self.position + self.length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        """Exclusive."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """CorruptBatch for a codec that does not exist."""
        codec = self.attributes & CODEC_MASK
        if codec > Compression.ZSTD:
            raise CorruptBatch(f"batch at {self.base_offset}: compression codec {codec} does not exist")
        return Compression(codec)

    @property
    def is_compressed(self) -> bool:
        return bool(self.attributes & CODEC_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """From this time on compaction may remove the tombstones of the batch, or the marker (KIP-534). None where compaction
        has not set a time. The base timestamp holds the horizon, and the timestamps of the records still are relative to it."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_BIT else None


def parse_header(buffer: BytesLike, position: int = 0) -> BatchHeader:
    """The header at `position`, unchecked; CorruptBatch when fewer than 61 bytes are left."""
    try:
        fields = _HEADER.unpack_from(buffer, position)
    except struct.error as error:
        raise CorruptBatch(f"batch header at byte {position}: {len(buffer) - position} bytes are left") from error
    return tuple.__new__(BatchHeader, (*fields, position))


def iterate_headers(buffer: BytesLike) -> Iterator[BatchHeader]:
    """The headers of the whole batches in `buffer`, without checking CRCs. A partial batch at the end is left out;
    CorruptBatch for another magic or an impossible length."""
    position, limit = 0, len(buffer) - HEADER_BYTES
    while position <= limit:
        header = parse_header(buffer, position)
        _require_shape(header)
        end = header.end_position
        if end > len(buffer):
            return
        yield header
        position = end


def end_of_batches(buffer: BytesLike) -> int:
    """The exclusive end offset of the last of whole batches, 0 without a batch. Reads their lengths and the last header only,
    which is a quarter of the work of `iterate_headers`. CorruptBatch for an impossible length."""
    position, last, end = 0, -1, len(buffer)
    while position + HEADER_BYTES <= end:
        (length,) = _LENGTH.unpack_from(buffer, position + _LENGTH_AT)
        if length < HEADER_BYTES - PREFIX_BYTES:
            raise CorruptBatch(f"batch at byte {position} claims {length} bytes, less than its header")
        if position + length + PREFIX_BYTES > end:
            break
        last, position = position, position + length + PREFIX_BYTES
    return 0 if last < 0 else parse_header(buffer, last).end_offset


def _require_shape(header: BatchHeader) -> None:
    if header.magic != MAGIC:
        raise UnreadableBatch(f"batch at byte {header.position} has magic {header.magic}, only {MAGIC} is supported")
    if header.length < HEADER_BYTES - PREFIX_BYTES:
        raise CorruptBatch(f"batch at byte {header.position} claims {header.length} bytes, less than its header")


class UnreadableBatch(CorruptBatch):
    """Damage on the way did not bring this about: the batch was made so, and a repetition of it has the same fault."""


class TooManyBatches(CorruptBatch):
    """There are more batches than the caller takes."""


def validate(buffer: BytesLike, *, count_max: int | None = None, is_from_log: bool = False) -> list[BatchHeader]:
    """The headers of all batches in `buffer`, which must be whole, of magic 2, with matching CRCs and consistent counts. A
    batch has as many records as offsets. One that `is_from_log` may have fewer, or none: compaction has removed them.

    Raises CorruptBatch otherwise, UnreadableBatch for one that was made so, TooManyBatches at the first one beyond
    `count_max`. Records are not looked at: the CRC proves only that they are as their producer made them.
    """
    view = memoryview(buffer)
    total = len(view)
    headers: list[BatchHeader] = []
    position = 0
    while position < total:
        if len(headers) == count_max:
            raise TooManyBatches(f"more than {count_max} batches")
        header = parse_header(view, position)
        end = position + header.length + PREFIX_BYTES
        if header.magic != MAGIC or header.length < HEADER_BYTES - PREFIX_BYTES or end > total:
            _require_shape(header)
            raise CorruptBatch(f"batch at byte {position} claims {header.size} bytes, {total - position} are left")
        if crc32c(view[position + CRC_START : end]) != header.crc:
            raise CorruptBatch(f"batch at byte {position}: CRC mismatch")
        count, delta = header.record_count, header.last_offset_delta
        if (count < 1 or delta != count - 1) and not (is_from_log and 0 <= count <= delta):
            raise UnreadableBatch(f"batch at byte {position}: {count} records, last offset delta {delta}")
        if header.attributes & CODEC_MASK > Compression.ZSTD:
            raise UnreadableBatch(
                f"batch at byte {position}: compression codec {header.attributes & CODEC_MASK} does not exist"
            )
        headers.append(header)
        position = end
    return headers


def require_crc(buffer: memoryview, header: BatchHeader) -> None:
    """CorruptBatch unless the CRC of the batch that `header` was parsed from matches."""
    if crc32c(buffer[header.position + CRC_START : header.end_position]) != header.crc:
        raise CorruptBatch(f"batch at offset {header.base_offset}, byte {header.position}: CRC mismatch")


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at `position`; the CRC stays valid."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + PREFIX_BYTES, leader_epoch)


def stamp_time(buffer: bytearray | memoryview, header: BatchHeader, time_ms: int) -> None:
    """Make `time_ms` the time of all records of the batch that `header` was parsed from (LogAppendTime). The CRC covers it, and
    is made anew. The base timestamp stays: readers take the newest one for all."""
    position = header.position
    _ATTRIBUTES.pack_into(buffer, position + CRC_START, header.attributes | TIMESTAMP_TYPE_BIT)
    _OFFSET.pack_into(buffer, position + _TIMESTAMP_MAX_AT, time_ms)
    _CRC.pack_into(buffer, position + _CRC_AT, crc32c(memoryview(buffer)[position + CRC_START : header.end_position]))
