"""The bytes of a snapshot of the key space, cut into chunks that each fit into one log record.

A chunk is {u8 kind, body}: first a header (u8 format, u64 applied offset, u64 number of entries), then chunks of entries
(each {u16 key length, key, i64 version, u32 value length, value}), then an empty footer. Knows nothing of the state
machine; `restoration` puts the chunks together and checks that none is missing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from raftlake.errors import WireError
from raftlake.kv.commands import KEY_BYTES_MAX, VALUE_BYTES_MAX
from raftlake.kv.keyspace import ROW_HEAD, Row

#: A chunk is closed once its values are longer than this; one more entry of the largest size may stand at its end.
CHUNK_BYTES = 64 << 10

_FORMAT = 1
_HEADER, _ENTRIES, _FOOTER = 0, 1, 2
_HEADER_BODY = struct.Struct(">BBQQ")
_KEY_LENGTH = struct.Struct(">H")

#: The last chunk.
FOOTER = bytes([_FOOTER])


def encode_header(applied_offset: int, entry_count: int) -> bytes:
    """The first chunk of a snapshot that ends at `applied_offset` (exclusive) and holds `entry_count` rows."""
    return _HEADER_BODY.pack(_HEADER, _FORMAT, applied_offset, entry_count)


def encode_rows(rows: Sequence[Row]) -> bytes:
    """One chunk of entries."""
    chunk = bytearray([_ENTRIES])
    for key, row in rows:
        encoded = key.encode()
        chunk += _KEY_LENGTH.pack(len(encoded))
        chunk += encoded
        chunk += row
    return bytes(chunk)


def decode_header(chunk: bytes) -> tuple[int, int]:
    """(applied offset, number of entries) of the first chunk; WireError when it is none."""
    if len(chunk) != _HEADER_BODY.size or chunk[0] != _HEADER:
        raise WireError("snapshot does not begin with its header")
    _, format_, applied_offset, entry_count = _HEADER_BODY.unpack(chunk)
    if format_ != _FORMAT:
        raise WireError(f"snapshot has format {format_}, known is {_FORMAT}")
    return applied_offset, entry_count


def decode_rows(chunk: bytes) -> Iterator[Row]:
    """The rows of a chunk of entries; WireError for any other chunk and on damage."""
    if chunk[:1] != bytes([_ENTRIES]):
        raise WireError(f"snapshot has a chunk of unknown kind {chunk[:1].hex() or 'nothing'}")
    return _decode_rows(chunk)


def _decode_rows(chunk: bytes) -> Iterator[Row]:
    position = 1
    try:
        while position < len(chunk):
            (length,) = _KEY_LENGTH.unpack_from(chunk, position)
            position += _KEY_LENGTH.size
            key = chunk[position : position + length].decode()
            position += length
            version, value_length = ROW_HEAD.unpack_from(chunk, position)
            end = position + ROW_HEAD.size + value_length
            if not 1 <= length <= KEY_BYTES_MAX or version < 1 or value_length > VALUE_BYTES_MAX or end > len(chunk):
                raise WireError("snapshot entry is out of bounds")
            yield key, chunk[position:end]
            position = end
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"undecodable snapshot entry: {error}") from error
