"""Kafka's producer state files, `<offset>.snapshot`: who has written to a log below that offset, and with which sequences.

Layout (ProducerStateManager, version 1): version i16, CRC-32C u32 of all that follows, count i32, entries of fixed size. Kafka
writes one entry for each producer id; several are read as one after the other, so that the last one counts. Knows bytes only.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from raftlake.errors import CorruptBatch

VERSION = 1
_HEAD = struct.Struct(">hIi")
_COUNTED_FROM = 6
HEAD_BYTES = _HEAD.size
#: One `ProducerRow`.
ENTRY = struct.Struct(">qhiqiqiq")


class ProducerRow(NamedTuple):
    """One batch of a producer."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    #: Records of the batch, less one.
    offset_delta: int
    timestamp_ms: int
    #: Of transactions: none here.
    coordinator_epoch: int = -1
    transaction_first_offset: int = -1


def encode(rows: Sequence[ProducerRow]) -> bytes:
    """The whole file."""
    return encode_packed(b"".join(ENTRY.pack(*row) for row in rows))


def encode_packed(rows: bytes | memoryview) -> bytes:
    """The whole file; the rows are encoded already."""
    digest = Digest(len(rows) // ENTRY.size)
    digest.add(rows)
    return b"".join((digest.head(), rows))


class Digest:
    """What stands in front of `count` rows that are written piece by piece."""

    __slots__ = ("_count", "_crc")

    def __init__(self, count: int) -> None:
        self._count = count
        self._crc = crc32c(_HEAD.pack(VERSION, 0, count)[_COUNTED_FROM:])

    def add(self, rows: bytes | memoryview) -> None:
        """The next encoded rows."""
        self._crc = crc32c(rows, self._crc)

    def head(self) -> bytes:
        """Once all rows were added. It has HEAD_BYTES."""
        return _HEAD.pack(VERSION, self._crc, self._count)


def decode(data: bytes) -> list[ProducerRow]:
    """The entries of a file. Raises CorruptBatch."""
    return [ProducerRow(*fields) for fields in ENTRY.iter_unpack(packed_rows(data))]


def packed_rows(data: bytes) -> memoryview:
    """The encoded entries of a file. Raises CorruptBatch."""
    if len(data) < _HEAD.size:
        raise CorruptBatch(f"{len(data)} bytes are no producer state")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptBatch(f"producer state of version {version}, known is {VERSION}")
    if crc != crc32c(memoryview(data)[_COUNTED_FROM:]):
        raise CorruptBatch("producer state: CRC mismatch")
    if len(data) != _HEAD.size + count * ENTRY.size:
        raise CorruptBatch(f"producer state: {len(data)} bytes for {count} entries")
    return memoryview(data)[_HEAD.size :]
