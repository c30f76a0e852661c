"""The bytes of a snapshot of the key space, cut into chunks that each fit into one log record.

A chunk is {u8 kind, body}: first a header (u8 format, u64 applied offset, u64 number of entries), then chunks of entries
(each {u16 key length, key, i64 version, u32 value length, value}), then an empty footer. Knows nothing of the state
machine; the invariant is that `decode` returns either every entry of a complete snapshot or raises WireError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from raftlake.errors import WireError
from raftlake.kv.commands import KEY_BYTES_MAX, VALUE_BYTES_MAX

Row = tuple[str, int, bytes]

#: A chunk is closed once it is longer than this; one more entry of the largest size may stand at its end.
CHUNK_BYTES = 64 << 10

_FORMAT = 1
_HEADER, _ENTRIES, _FOOTER = 0, 1, 2
_HEADER_BODY = struct.Struct(">BBQQ")
_KEY_LENGTH = struct.Struct(">H")
_VERSION_AND_LENGTH = struct.Struct(">qI")


def encode(applied_offset: int, entry_count: int, rows: Iterable[Row]) -> Iterator[bytes]:
    """The chunks of a snapshot that ends at `applied_offset` (exclusive) and holds `entry_count` rows."""
    yield _HEADER_BODY.pack(_HEADER, _FORMAT, applied_offset, entry_count)
    chunk = bytearray([_ENTRIES])
    for key, version, value in rows:
        encoded = key.encode()
        chunk += _KEY_LENGTH.pack(len(encoded)) + encoded + _VERSION_AND_LENGTH.pack(version, len(value))
        chunk += value
        if len(chunk) > CHUNK_BYTES:
            yield bytes(chunk)
            chunk = bytearray([_ENTRIES])
    if len(chunk) > 1:
        yield bytes(chunk)
    yield bytes([_FOOTER])


def decode(chunks: Iterable[bytes | bytearray | memoryview]) -> tuple[int, list[Row]]:
    """(applied offset, rows) of a complete snapshot; WireError when it is damaged or cut short."""
    iterator = iter(chunks)
    header = bytes(next(iterator, b""))
    if len(header) != _HEADER_BODY.size or header[0] != _HEADER:
        raise WireError("snapshot does not begin with its header")
    _, format_, applied_offset, entry_count = _HEADER_BODY.unpack(header)
    if format_ != _FORMAT:
        raise WireError(f"snapshot has format {format_}, known is {_FORMAT}")
    rows: list[Row] = []
    complete = False
    for piece in iterator:
        chunk = bytes(piece)
        if complete or not chunk:
            raise WireError("snapshot has an empty chunk or goes on after its footer")
        if chunk[0] == _ENTRIES:
            rows.extend(_decode_rows(chunk))
        elif chunk == bytes([_FOOTER]):
            complete = True
        else:
            raise WireError(f"snapshot has a chunk of unknown kind {chunk[0]}")
    if not complete or len(rows) != entry_count:
        raise WireError(f"snapshot is cut short: {len(rows)} of {entry_count} entries")
    return applied_offset, rows


def _decode_rows(chunk: bytes) -> Iterator[Row]:
    position = 1
    try:
        while position < len(chunk):
            (length,) = _KEY_LENGTH.unpack_from(chunk, position)
            position += _KEY_LENGTH.size
            key = chunk[position : position + length].decode()
            position += length
            version, value_length = _VERSION_AND_LENGTH.unpack_from(chunk, position)
            position += _VERSION_AND_LENGTH.size
            value = chunk[position : position + value_length]
            position += value_length
            if not 1 <= length <= KEY_BYTES_MAX or version < 1 or value_length > VALUE_BYTES_MAX or position > len(chunk):
                raise WireError("snapshot entry is out of bounds")
            yield key, version, value
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"undecodable snapshot entry: {error}") from error
