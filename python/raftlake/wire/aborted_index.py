"""Kafka's index of aborted transactions, `<base offset>.txnindex`: entries of fixed size in the order of their markers.

Layout of an entry (AbortedTxn, version 0): version i16, producer id i64, first offset i64, last offset i64 (that of the
marker), last stable offset i64. The file has neither head nor checksum. Knows bytes only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from raftlake.errors import CorruptBatch

VERSION = 0
ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """A transaction of one partition that a marker has aborted."""

    producer_id: int
    #: Of its first batch.
    first_offset: int
    #: Of its marker.
    last_offset: int
    #: Where the earliest transaction begins that was open behind the marker; else the offset behind the marker. No transaction
    #: whose marker comes later begins before it.
    last_stable_offset: int


def marker_offset_of(entry: AbortedTransaction) -> int:
    """What the entries are sorted by."""
    return entry.last_offset


def encode(entries: Sequence[AbortedTransaction]) -> bytes:
    """The entries as they stand in the file."""
    return b"".join([ENTRY.pack(VERSION, *entry) for entry in entries])


def decode(data: bytes | memoryview, base_offset: int, end_offset: int | None = None) -> Iterator[AbortedTransaction]:
    """The entries, whose markers lie in [base_offset, end_offset). Raises CorruptBatch where they cannot be what was written:
    bytes that are left over, an unknown version, markers that do not ascend or lie elsewhere."""
    if len(data) % ENTRY.size:
        raise CorruptBatch(f"index of aborted transactions: {len(data)} bytes are no whole entries of {ENTRY.size}")
    before = base_offset - 1
    for version, *fields in ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if version != VERSION:
            raise CorruptBatch(f"index of aborted transactions: an entry of version {version}, known is {VERSION}")
        is_possible = 0 <= entry.first_offset < entry.last_offset and entry.first_offset != entry.last_stable_offset
        if not is_possible or entry.last_stable_offset > entry.last_offset + 1 or entry.producer_id < 0:
            raise CorruptBatch(f"index of aborted transactions: {entry} cannot be")
        if entry.last_offset <= before or (end_offset is not None and entry.last_offset >= end_offset):
            raise CorruptBatch(f"index of aborted transactions: a marker at {entry.last_offset} behind {before}")
        yield entry
        before = entry.last_offset


def overlapping(entries: Iterator[AbortedTransaction], end_offset: int) -> tuple[list[AbortedTransaction], bool]:
    """Of entries in the order of their markers: those that begin below `end_offset`; and whether no later one can, so that
    reading on is of no use."""
    found: list[AbortedTransaction] = []
    for entry in entries:
        if entry.first_offset < end_offset:
            found.append(entry)
        if entry.last_stable_offset >= end_offset:
            return found, True
    return found, False
