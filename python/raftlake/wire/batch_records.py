"""Records inside batches of format v2: building a batch from records, and reading them back, in plain Python.

Owns the encoding of a record (zigzag varints for lengths and deltas) and the assembly of a batch around a payload. Meant
for small numbers of records: control records, key-value commands, clients that produce line by line. Reading and writing
in bulk, to and from Arrow, is in `arrow/`.

`Record` is a named tuple for the same reason as `BatchHeader`: one is made per record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from raftlake.errors import CorruptBatch, InvariantViolation, WireError
from raftlake.wire.batch_header import (
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    iterate_headers,
    require_crc,
)
from raftlake.wire.compression import DECOMPRESSED_BYTES_MAX, Compression, compress, decompress
from raftlake.wire.primitives import BytesLike, read_varlong, write_varlong

#: The header but for its CRC, which is written last.
_BEFORE_CRC = struct.Struct(">qiib")
_CRC = struct.Struct(">I")
_AFTER_CRC = struct.Struct(">hiqqqhii")


class Record(NamedTuple):
    """One record. `timestamp_ms` is milliseconds since 1970; when building, -1 stands for the batch's. A header's value may
    be null."""

    offset: int = 0
    timestamp_ms: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamp_ms: int,
    compression: str = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    control: bool = False,
    transactional: bool = False,
    log_append_time: bool = False,
) -> bytearray:
    """One batch of `records` (at least one) at consecutive offsets from `base_offset`; their own offsets are not looked at.

    `timestamp_ms` is given to records without a timestamp; with `log_append_time` it is the batch's time for all of them.
    `compression` is none, gzip, snappy, lz4 or zstd.
    """
    if not records:
        raise InvariantViolation("a record batch holds at least one record")
    codec = Compression[compression.upper()]
    times = [timestamp_ms if record.timestamp_ms < 0 or log_append_time else record.timestamp_ms for record in records]
    payload = encode_records(records, times)
    attributes = codec | log_append_time * TIMESTAMP_TYPE_BIT | transactional * TRANSACTIONAL_BIT | control * CONTROL_BIT
    return assemble_batch(
        payload if codec is Compression.NONE else compress(codec, payload),
        attributes=attributes,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        base_timestamp_ms=times[0],
        timestamp_ms_max=max(times),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )


def encode_records(records: Sequence[Record], times_ms: Sequence[int]) -> bytearray:
    """The uncompressed payload of a batch that holds `records` at consecutive offsets, with these times. The first is the
    batch's base time."""
    payload = bytearray()
    for delta, record in enumerate(records):
        _write_record(payload, record, times_ms[delta] - times_ms[0], delta)
    return payload


def assemble_batch(
    payload: BytesLike,
    *,
    attributes: int,
    base_offset: int,
    leader_epoch: int,
    base_timestamp_ms: int,
    timestamp_ms_max: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
    last_offset_delta: int | None = None,
) -> bytearray:
    """A batch around an encoded (and, where the attributes say so, compressed) payload of `record_count` records. See
    `seal_batch`."""
    batch = bytearray(HEADER_BYTES)
    batch += payload
    seal_batch(
        batch,
        attributes=attributes,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        base_timestamp_ms=base_timestamp_ms,
        timestamp_ms_max=timestamp_ms_max,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
        last_offset_delta=last_offset_delta,
    )
    return batch


def seal_batch(
    batch: bytearray | memoryview,
    *,
    attributes: int,
    base_offset: int,
    leader_epoch: int,
    base_timestamp_ms: int,
    timestamp_ms_max: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
    last_offset_delta: int | None = None,
) -> None:
    """Write the header of a batch whose payload is already in place, from byte 61 to the end. A batch of a compacted log has
    more offsets than records: then `last_offset_delta` is given."""
    _BEFORE_CRC.pack_into(batch, 0, base_offset, len(batch) - PREFIX_BYTES, leader_epoch, MAGIC)
    _AFTER_CRC.pack_into(
        batch,
        CRC_START,
        attributes,
        record_count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp_ms,
        timestamp_ms_max,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _CRC.pack_into(batch, _BEFORE_CRC.size, crc32c(memoryview(batch)[CRC_START:]))


def _write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(1)
    write_varlong(body, timestamp_delta)
    write_varlong(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varlong(body, len(record.headers))
    for name, value in record.headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, value)
    write_varlong(out, len(body))
    out += body


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
        return
    write_varlong(out, len(value))
    out += value


def decode_records(
    buffer: BytesLike, *, include_control: bool = False, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """The records of all whole batches in `buffer`, in order; a partial batch at the end is left out.

    Raises CorruptBatch on a CRC mismatch or an undecodable payload. Control records only with `include_control`.
    """
    view = memoryview(buffer)
    for header in iterate_headers(view):
        if header.is_control and not include_control:
            continue
        yield from decode_batch(view, header, decompressed_bytes_max=decompressed_bytes_max)


def decode_batch(
    buffer: BytesLike, header: BatchHeader, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """The records of the batch that `header` was parsed from; CorruptBatch when its CRC or its payload is damaged."""
    view = memoryview(buffer)
    require_crc(view, header)
    content = view[header.position + HEADER_BYTES : header.end_position]
    # Bytes of records are copied once, from `bytes`, which slices faster than a memoryview.
    payload = bytes(decompress(header.compression, content, decompressed_bytes_max))
    try:
        return _decode_payload(payload, header)
    except (IndexError, UnicodeDecodeError, WireError) as error:
        raise CorruptBatch(f"batch at offset {header.base_offset}: {error}") from error


def _decode_payload(payload: bytes, header: BatchHeader) -> list[Record]:
    records: list[Record] = []
    position = 0
    append_time_ms = header.timestamp_ms_max if header.is_log_append_time else None
    for _ in range(header.record_count):
        length, position = read_varlong(payload, position)
        end = position + length
        if length < 0 or end > len(payload):
            raise WireError(f"record of {length} bytes, {len(payload) - position} are left")
        timestamp_delta, position = read_varlong(payload, position + 1)
        offset_delta, position = read_varlong(payload, position)
        key, position = _read_bytes(payload, position, end)
        value, position = _read_bytes(payload, position, end)
        count, position = read_varlong(payload, position)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if count:
            headers, position = _read_headers(payload, position, end, count)
        if position != end:
            raise WireError(f"record ends at byte {position}, its length says {end}")
        if not 0 <= offset_delta <= header.last_offset_delta:
            raise WireError(f"offset delta {offset_delta} is outside of the batch")
        timestamp_ms = header.base_timestamp_ms + timestamp_delta if append_time_ms is None else append_time_ms
        records.append(Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers))
    if position != len(payload):
        raise WireError(f"{len(payload) - position} bytes follow the last record")
    return records


def _read_bytes(payload: bytes, position: int, limit: int) -> tuple[bytes | None, int]:
    length, position = read_varlong(payload, position)
    if length == -1:
        return None, position
    end = position + length
    if length < 0 or end > limit:
        raise WireError(f"field of {length} bytes does not fit into its record")
    return payload[position:end], end


def _read_headers(payload: bytes, position: int, limit: int, count: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    # A header has at least two bytes: its key's and its value's length.
    if count < 0 or 2 * count > limit - position:
        raise WireError(f"{count} headers do not fit into their record")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(payload, position, limit)
        if name is None:
            raise WireError("a header's key is null")
        value, position = _read_bytes(payload, position, limit)
        headers.append((name.decode(), value))
    return tuple(headers), position
