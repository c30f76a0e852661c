"""Batches as consumers are shown them: which control batches are emptied, what an empty one says, and what stays."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest

from raftlake.wire.batch_header import CRC_START, require_crc
from raftlake.wire.batches import (
    HEADER_BYTES,
    BatchHeader,
    ControlType,
    Record,
    VoterEntry,
    build_batch,
    decode_records,
    iterate_headers,
    leader_change_batch,
    parse_header,
    voters_batch,
)
from raftlake.wire.shown import end_of_empty, without_raft_records

VOTERS = tuple(
    VoterEntry(node_id=node_id, directory_id=bytes([node_id]) * 16, endpoints=(("PLAINTEXT", "h", 9090 + node_id),))
    for node_id in (1, 2, 3)
)


def data_batch(offset: int, *values: bytes, **fields: object) -> bytes:
    records = [Record(value=value) for value in values]
    return bytes(build_batch(records, base_offset=offset, leader_epoch=7, timestamp_ms=1_000, **fields))  # type: ignore[arg-type]


def control_batch(offset: int, type_: int, **fields: object) -> bytes:
    record = Record(key=struct.pack(">hh", 0, type_), value=b"\0\0\0\0\0\0")
    return bytes(build_batch([record], base_offset=offset, leader_epoch=7, timestamp_ms=2_000, control=True, **fields))  # type: ignore[arg-type]


def shown(*batches: bytes) -> bytes:
    data = b"".join(batches)
    return without_raft_records(data, [header for header in iterate_headers(data) if header.is_control])


def summary(header: BatchHeader) -> tuple[int, int, int]:
    return header.base_offset, header.end_offset, header.leader_epoch


def test_the_batch_of_a_new_leader_is_empty_at_the_same_offsets() -> None:
    real = leader_change_batch(5, 7, 2_000, 1, (1, 2, 3), (1, 2), VOTERS)
    before = parse_header(real)
    assert before.record_count == 3
    empty = shown(real)
    assert len(empty) == HEADER_BYTES
    (header,) = iterate_headers(empty)
    require_crc(memoryview(empty), header)
    assert summary(header) == summary(before) == (5, 8, 7)
    assert (header.record_count, header.last_offset_delta, header.attributes, header.magic) == (0, 2, 0, 2)
    assert (header.base_timestamp_ms, header.timestamp_ms_max) == (-1, before.timestamp_ms_max)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert list(decode_records(empty, include_control=True)) == []


def test_the_empty_batch_has_the_bytes_that_kafka_writes() -> None:
    """As `DefaultRecordBatch.writeEmptyHeader` lays them out; only the CRC is not spelled out."""
    empty = shown(leader_change_batch(5, 7, 2_000, 1, (1,), (1,), VOTERS))
    fields = struct.pack(">hiqqqhii", 0, 2, -1, 2_000, -1, -1, -1, 0)
    assert empty[:17] == struct.pack(">qiib", 5, 49, 7, 2)
    assert empty[CRC_START:] == fields


@pytest.mark.parametrize("type_", [ControlType.LEADER_CHANGE, 3, 4, 5, ControlType.KRAFT_VOTERS])
def test_each_kind_of_control_record_of_raft_is_emptied(type_: int) -> None:
    (header,) = iterate_headers(shown(control_batch(3, type_)))
    assert (header.record_count, header.is_control, *summary(header)) == (0, False, 3, 4, 7)


@pytest.mark.parametrize("type_", [ControlType.ABORT, ControlType.COMMIT, -1, 7])
def test_a_marker_of_a_transaction_and_what_nobody_knows_stay(type_: int) -> None:
    marker = control_batch(3, type_, transactional=True, producer_id=9, producer_epoch=1)
    assert shown(marker) == marker


def test_a_marker_beside_a_batch_of_raft_stays_where_it_is() -> None:
    marker = control_batch(3, ControlType.COMMIT, transactional=True, producer_id=9, producer_epoch=1)
    batches = (control_batch(2, ControlType.LEADER_CHANGE), marker, control_batch(4, ControlType.KRAFT_VOTERS), marker)
    data = shown(*batches)
    assert data[HEADER_BYTES:].startswith(marker) and data.endswith(marker)
    assert [header.record_count for header in iterate_headers(data)] == [0, 1, 0, 1]


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_control_record_without_a_type_stays(key: bytes | None) -> None:
    batch = bytes(build_batch([Record(key=key)], timestamp_ms=0, control=True))
    assert shown(batch) == batch


def test_a_damaged_control_batch_stays() -> None:
    batch = bytearray(control_batch(3, ControlType.LEADER_CHANGE))
    batch[-1] ^= 1
    assert shown(bytes(batch)) == bytes(batch)


@pytest.mark.parametrize("order", ["c", "d", "cd", "dc", "cdc", "dcd", "ccdd", "ddccdcd"], ids=lambda order: f"order-{order}")
def test_everything_else_keeps_its_bytes_and_the_offsets_have_no_gap(order: str) -> None:
    offset, batches = 4, []
    for kind in order:
        batch = voters_batch(offset, 7, 2_000, VOTERS, kraft_version=1) if kind == "c" else data_batch(offset, b"a", b"b" * 90)
        batches.append(batch)
        offset = parse_header(batch).end_offset
    data = shown(*batches)
    headers = list(iterate_headers(data))
    assert [summary(header) for header in headers] == [summary(parse_header(batch)) for batch in batches]
    assert all(first.end_offset == second.base_offset for first, second in pairwise(headers))
    assert headers[-1].end_position == len(data)
    for kind, header, batch in zip(order, headers, batches, strict=True):
        require_crc(memoryview(data), header)
        assert kind == "c" or data[header.position : header.end_position] == batch


def test_without_a_control_batch_nothing_is_copied() -> None:
    data = data_batch(0, b"a") + data_batch(1, b"b")
    assert without_raft_records(data, []) is data
    marked = data + control_batch(2, ControlType.ABORT)
    assert without_raft_records(marked, list(iterate_headers(marked))[2:]) is marked


def test_the_end_of_batches_without_records() -> None:
    empty = shown(leader_change_batch(5, 7, 0, 1, (1,), (1,), VOTERS), control_batch(8, ControlType.KRAFT_VOTERS))
    assert end_of_empty(empty) == 9
    assert end_of_empty(empty[:HEADER_BYTES]) == 8
    assert end_of_empty(empty + data_batch(9, b"a")) is None
    assert end_of_empty(data_batch(4, b"a") + empty) is None
    assert end_of_empty(control_batch(8, ControlType.COMMIT)) is None, "a marker is a record"
    assert end_of_empty(b"") is None
