"""The entries of Kafka's index of aborted transactions, and which of them a reader is told."""

from __future__ import annotations

import struct

import pytest

from raftlake.errors import CorruptBatch
from raftlake.wire.aborted_index import ENTRY, AbortedTransaction, decode, encode, marker_offset_of, overlapping

#: Producer 1 from 10 to 20 while another is open since 5; that one; and one for itself.
ENTRIES = [AbortedTransaction(1, 10, 20, 5), AbortedTransaction(2, 5, 30, 31), AbortedTransaction(1, 40, 41, 42)]


def test_an_entry_has_the_bytes_of_kafka() -> None:
    assert encode(ENTRIES[:1]) == struct.pack(">hqqqq", 0, 1, 10, 20, 5) and ENTRY.size == 34


def test_what_is_written_is_read() -> None:
    assert list(decode(encode(ENTRIES), 0)) == ENTRIES
    assert list(decode(encode(ENTRIES), 20, 42)) == ENTRIES
    assert list(decode(b"", 0)) == []
    assert [marker_offset_of(each) for each in ENTRIES] == [20, 30, 41]


@pytest.mark.parametrize(
    "data",
    [
        encode(ENTRIES)[:-1],
        encode(ENTRIES[1:] + ENTRIES[:1]),
        encode([ENTRIES[0], ENTRIES[0]]),
        bytes(34),
        b"\0\1" + encode(ENTRIES)[2:],
        encode([ENTRIES[0]._replace(first_offset=20)]),
        encode([ENTRIES[0]._replace(first_offset=-1)]),
        encode([ENTRIES[0]._replace(last_stable_offset=22)]),
        encode([ENTRIES[0]._replace(last_stable_offset=10)]),
        encode([ENTRIES[0]._replace(producer_id=-1)]),
    ],
)
def test_what_cannot_have_been_written_is_told(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        list(decode(data, 0))


@pytest.mark.parametrize(("base", "end"), [(21, None), (0, 41)])
def test_a_marker_in_another_segment_is_told(base: int, end: int | None) -> None:
    with pytest.raises(CorruptBatch):
        list(decode(encode(ENTRIES), base, end))


@pytest.mark.parametrize(
    ("end", "found", "is_over"),
    [
        (5, [], True),
        (6, [ENTRIES[1]], True),
        (10, [ENTRIES[1]], True),
        (11, ENTRIES[:2], True),
        (31, ENTRIES[:2], True),
        (32, ENTRIES[:2], True),
        (40, ENTRIES[:2], True),
        (41, ENTRIES, True),
        (43, ENTRIES, False),
    ],
)
def test_what_begins_below_the_end_is_found_and_no_more_is_read_than_can_be(
    end: int, found: list[AbortedTransaction], is_over: bool
) -> None:
    assert overlapping(iter(ENTRIES), end) == (found, is_over)


def test_reading_ends_where_nothing_earlier_is_open() -> None:
    read = iter(ENTRIES)
    assert overlapping(read, 31) == (ENTRIES[:2], True)
    assert list(read) == ENTRIES[2:]
