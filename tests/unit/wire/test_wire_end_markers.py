"""The markers that end transactions: their bytes, and what is read from batches that hold one, none or a damaged one."""

from __future__ import annotations

import struct

import pytest

from raftlake.errors import CorruptBatch
from raftlake.wire.batches import (
    EndMarker,
    OtherControl,
    Record,
    build_batch,
    decode_records,
    end_marker_batch,
    leader_change_batch,
    parse_control_record,
    parse_end_marker,
    parse_header,
    read_end_marker,
)

#: `MemoryRecords.withEndTransactionMarker(7, 123, 2, 7, 1, new EndTransactionMarker(ABORT, 4))` of Kafka 4.3.1.
ABORT_OF_KAFKA = bytes.fromhex(
    "000000000000000700000042000000020259f50138003000000000000000000000007b000000000000007b"
    "00000000000000070001ffffffff000000012000000008000000000c00000000000400"
)


def marker(*, commit: bool = False, epoch: int = 1, coordinator_epoch: int = 4) -> EndMarker:
    return EndMarker(producer_id=7, epoch=epoch, commit=commit, coordinator_epoch=coordinator_epoch)


def control(key: bytes | None, value: bytes | None) -> bytes:
    fields = {"producer_id": 7, "producer_epoch": 1, "control": True, "transactional": True}
    return bytes(build_batch([Record(key=key, value=value)], timestamp_ms=1, **fields))  # type: ignore[arg-type]


def test_the_bytes_are_those_of_kafka() -> None:
    assert bytes(end_marker_batch(marker(), 123, base_offset=7, leader_epoch=2)) == ABORT_OF_KAFKA


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("epoch", [0, 32_767])
@pytest.mark.parametrize("coordinator_epoch", [0, -1, (1 << 31) - 1])
def test_what_is_written_is_read(commit: bool, epoch: int, coordinator_epoch: int) -> None:
    written = marker(commit=commit, epoch=epoch, coordinator_epoch=coordinator_epoch)
    batch = end_marker_batch(written, 99)
    assert read_end_marker(batch) == written
    header = parse_header(batch)
    assert header.is_control and header.is_transactional and header.base_sequence == -1 and header.record_count == 1
    assert (header.producer_id, header.producer_epoch, header.timestamp_ms_max) == (7, epoch, 99)


def test_the_value_says_version_and_epoch_and_the_key_the_outcome() -> None:
    for commit in (False, True):
        (record,) = decode_records(end_marker_batch(marker(commit=commit), 1), include_control=True)
        assert (record.key, record.value) == (struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 4))


def test_other_batches_are_no_markers() -> None:
    assert read_end_marker(build_batch([Record(key=b"\0\0\0\0", value=bytes(6))], timestamp_ms=1, transactional=True)) is None
    assert read_end_marker(leader_change_batch(0, 1, 5, 1, (1,), (1,))) is None
    assert parse_control_record(struct.pack(">hh", 0, 1), bytes(6)) == OtherControl(type=1)


def test_a_control_batch_that_compaction_has_emptied_is_no_marker() -> None:
    batch = bytearray(end_marker_batch(marker(), 1)[:61])
    struct.pack_into(">i", batch, 8, 49)
    struct.pack_into(">i", batch, 57, 0)
    assert read_end_marker(batch) is None


def test_a_newer_version_is_read_as_the_first() -> None:
    assert parse_end_marker(struct.pack(">hh", 3, 1), struct.pack(">hi", 1, 9) + b"more") == (True, 9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, bytes(6)),
        (b"\0\0\0", bytes(6)),
        (struct.pack(">hh", 0, 0), None),
        (struct.pack(">hh", 0, 1), bytes(5)),
        (struct.pack(">hh", -1, 1), bytes(6)),
        (struct.pack(">hh", 0, 1), struct.pack(">hi", -1, 3)),
    ],
)
def test_a_damaged_marker_is_told(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        read_end_marker(control(key, value))


@pytest.mark.parametrize("position", [22, 50, 70])
def test_flipped_bits_are_told(position: int) -> None:
    batch = end_marker_batch(marker(), 1)
    batch[position] ^= 4
    with pytest.raises(CorruptBatch):
        read_end_marker(batch)


def test_a_batch_that_is_cut_off_is_told() -> None:
    batch = end_marker_batch(marker(), 1)
    for size in (0, 60, 61, len(batch) - 1):
        with pytest.raises(CorruptBatch):
            read_end_marker(batch[:size])
