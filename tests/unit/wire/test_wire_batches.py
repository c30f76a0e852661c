"""Record batches: layout against another implementation, validation, stamping, tolerance of what a log may hold."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from raftlake.errors import CorruptBatch, InvariantViolation
from raftlake.wire.batch_header import CRC_START, require_crc
from raftlake.wire.batch_records import seal_batch
from raftlake.wire.batches import (
    HEADER_BYTES,
    Compression,
    Record,
    build_batch,
    decode_batch,
    decode_records,
    end_of_batches,
    iterate_headers,
    parse_header,
    stamp,
    stamp_time,
    validate,
)

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value", (("h", b"1"), ("é", None))),
    Record(1, 1_700_000_000_005, None, b"", ()),
    Record(2, 1_699_999_999_990, b"", None, ()),
    Record(3, 1_700_000_100_000, b"k" * 70, b"v" * 20_000, ()),
]


def resealed(batch: bytearray) -> bytearray:
    """The batch with a right CRC again after a change."""
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[CRC_START:])))
    return batch


def test_bytes_are_those_of_another_implementation() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, 5, 3, 9, 1 << 20)
    for index, record in enumerate(RECORDS):
        builder.append(index, record.timestamp_ms, record.key, record.value, list(record.headers))
    ours = build_batch(RECORDS, timestamp_ms=0, producer_id=5, producer_epoch=3, base_sequence=9)
    theirs = bytes(builder.build())
    # kafka-python leaves the epoch at 0 where the producer does not know it; the CRC does not cover it.
    assert ours[16:] == theirs[16:]
    assert ours[:12] == theirs[:12]


def test_another_implementation_reads_what_was_built() -> None:
    theirs = DefaultRecordBatch(bytes(build_batch(RECORDS, timestamp_ms=0, base_offset=40)))
    assert theirs.validate_crc()
    found = [(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in theirs]
    assert found == [(40 + record.offset, *record[1:]) for record in RECORDS]


def test_a_header_says_what_was_asked_for() -> None:
    batch = build_batch(
        RECORDS,
        base_offset=100,
        leader_epoch=7,
        timestamp_ms=0,
        compression="zstd",
        producer_id=11,
        producer_epoch=2,
        base_sequence=30,
        transactional=True,
    )
    (header,) = validate(b"" + bytes(batch))
    assert (header.base_offset, header.last_offset, header.end_offset, header.record_count) == (100, 103, 104, 4)
    assert (header.leader_epoch, header.magic, header.size, header.end_position) == (7, 2, len(batch), len(batch))
    assert (header.base_timestamp_ms, header.timestamp_ms_max) == (1_700_000_000_000, 1_700_000_100_000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 2, 30)
    assert header.compression is Compression.ZSTD
    assert header.is_transactional and not header.is_control and not header.is_log_append_time


def test_records_without_a_time_get_the_batches() -> None:
    batch = build_batch([Record(value=b"a"), Record(value=b"b", timestamp_ms=9)], timestamp_ms=5)
    assert [record.timestamp_ms for record in decode_records(batch)] == [5, 9]


def test_log_append_time_is_one_time_for_all() -> None:
    batch = build_batch(RECORDS, timestamp_ms=123, log_append_time=True)
    assert parse_header(batch).is_log_append_time
    assert {record.timestamp_ms for record in decode_records(batch)} == {123}


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(InvariantViolation):
        build_batch([], timestamp_ms=0)


def test_stamping_keeps_the_crc() -> None:
    buffer = bytearray(b"\xee" * 3) + build_batch(RECORDS, timestamp_ms=0)
    stamp(buffer, 3, 1 << 40, 12)
    header = parse_header(buffer, 3)
    assert (header.base_offset, header.leader_epoch, header.position) == (1 << 40, 12, 3)
    require_crc(memoryview(buffer), header)
    stamp(memoryview(buffer)[3:], 0, 5, 13)
    assert validate(memoryview(buffer)[3:])[0].base_offset == 5


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("has_bit", [False, True])
def test_stamping_a_time_makes_it_the_time_of_all_records(compression: str, has_bit: bool) -> None:
    first = build_batch(RECORDS, timestamp_ms=0, compression=compression)
    last = build_batch(RECORDS, timestamp_ms=0, compression=compression, log_append_time=has_bit)
    buffer = bytearray(b"\xee" * 3) + first + last
    before = parse_header(buffer, 3 + len(first))
    stamp_time(buffer, before, 1_700_000_000_123)
    header = parse_header(buffer, before.position)
    require_crc(memoryview(buffer), header)
    assert header.is_log_append_time and header.timestamp_ms_max == 1_700_000_000_123
    assert header.base_timestamp_ms == before.base_timestamp_ms and header.compression == before.compression
    records = decode_batch(buffer, header)
    assert [(each.value, each.timestamp_ms) for each in records] == [(each.value, 1_700_000_000_123) for each in RECORDS]
    assert buffer[: before.position] == b"\xee" * 3 + first, "its neighbours stay as they are"


def test_several_batches_in_one_buffer() -> None:
    one, two = build_batch(RECORDS[:1], timestamp_ms=0), build_batch(RECORDS, timestamp_ms=0, base_offset=1)
    headers = validate(one + two)
    assert [header.position for header in headers] == [0, len(one)]
    assert [record.offset for record in decode_batch(one + two, headers[1])] == [1, 2, 3, 4]
    assert validate(b"") == []


def test_a_partial_batch_at_the_end_is_left_out_when_reading() -> None:
    batch = build_batch(RECORDS, timestamp_ms=0)
    for length in (5, HEADER_BYTES - 1, HEADER_BYTES, len(batch) - 1):
        buffer = batch + batch[:length]
        assert len(list(iterate_headers(buffer))) == 1
        assert end_of_batches(buffer) == len(RECORDS)
        assert len(list(decode_records(buffer))) == len(RECORDS)
        with pytest.raises(CorruptBatch):
            validate(buffer)


@pytest.mark.parametrize("before", [[], RECORDS], ids=["alone", "behind another"])
def test_a_batch_without_records_keeps_its_offsets(before: list[Record]) -> None:
    """Kafka's compaction leaves such batches; this one has nothing but its header, and is the last of the buffer."""
    empty = build_batch(RECORDS, timestamp_ms=0, base_offset=4)[:HEADER_BYTES]
    struct.pack_into(">i", empty, 8, HEADER_BYTES - 12)
    struct.pack_into(">i", empty, 57, 0)
    buffer = (build_batch(before, timestamp_ms=0) if before else bytearray()) + resealed(empty)
    last = list(iterate_headers(buffer))[-1]
    assert (last.base_offset, last.end_offset, last.record_count, last.end_position) == (4, 8, 0, len(buffer))
    assert [record.offset for record in decode_records(buffer)] == list(range(len(before)))
    assert end_of_batches(buffer) == 8


@pytest.mark.parametrize("length", [-13, -12, 0, HEADER_BYTES - 13])
def test_the_end_of_batches_is_not_looked_for_behind_an_impossible_length(length: int) -> None:
    assert end_of_batches(b"") == 0
    buffer = build_batch(RECORDS, timestamp_ms=0) + build_batch(RECORDS, timestamp_ms=0, base_offset=4)
    assert end_of_batches(memoryview(buffer)) == 8
    struct.pack_into(">i", buffer, 8, length)
    with pytest.raises(CorruptBatch, match=f"batch at byte 0 claims {length} bytes"):
        end_of_batches(buffer)


def test_control_batches_are_read_only_when_asked_for() -> None:
    buffer = build_batch([Record(key=b"\0\0\0\2", value=b"")], timestamp_ms=0, control=True) + build_batch(
        RECORDS, timestamp_ms=0, base_offset=1
    )
    assert [record.offset for record in decode_records(buffer)] == [1, 2, 3, 4]
    assert [record.offset for record in decode_records(buffer, include_control=True)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("position", [17, 21, 40, HEADER_BYTES, -1])
def test_tampering_is_found_by_the_crc(position: int) -> None:
    batch = build_batch(RECORDS, timestamp_ms=0)
    batch[position] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        validate(batch)
    with pytest.raises(CorruptBatch, match="CRC"):
        list(decode_records(batch))


def test_what_a_right_crc_does_not_excuse() -> None:
    def changed(position: int, content: bytes) -> bytearray:
        batch = build_batch(RECORDS, timestamp_ms=0)
        batch[position : position + len(content)] = content
        return resealed(batch)

    with pytest.raises(CorruptBatch, match="magic 1"):
        validate(changed(16, b"\1"))
    with pytest.raises(CorruptBatch, match="less than its header"):
        validate(changed(8, (48).to_bytes(4, "big")))
    with pytest.raises(CorruptBatch, match="less than its header"):
        validate(changed(8, (-1 & 0xFFFFFFFF).to_bytes(4, "big")))
    with pytest.raises(CorruptBatch, match="are left"):
        validate(changed(8, (1 << 30).to_bytes(4, "big")))
    with pytest.raises(CorruptBatch, match="5 records, last offset delta 3"):
        validate(changed(57, (5).to_bytes(4, "big")))
    with pytest.raises(CorruptBatch, match="0 records"):
        validate(changed(57, bytes(4)))
    with pytest.raises(CorruptBatch, match="codec 5"):
        validate(changed(22, b"\5"))


def test_reading_refuses_a_payload_that_contradicts_itself() -> None:
    def batch_of(payload: bytes, count: int) -> bytearray:
        batch = bytearray(HEADER_BYTES) + payload
        seal_batch(
            batch,
            attributes=0,
            base_offset=0,
            leader_epoch=0,
            base_timestamp_ms=0,
            timestamp_ms_max=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=count,
        )
        return batch

    record = b"\x0c\x00\x00\x00\x01\x01\x00"
    assert list(decode_records(batch_of(record, 1))) == [Record(0, 0)]
    for payload, count in (
        (record + b"\x00", 1),  # bytes after the last record
        (record, 2),  # one record too few
        (b"\x0a" + record[1:], 1),  # a record that is longer than it says
        (b"\x0e" + record[1:] + b"\x00", 1),  # and one that is shorter
        (record[:4] + b"\x03\x01\x00", 1),  # a key of -2 bytes
        (record[:4] + b"\x7e\x01\x00", 1),  # a key beyond its record
        (record[:6] + b"\x7e", 1),  # 63 headers in no bytes
        (b"\x0c\x00\x00\x02\x01\x01\x00", 1),  # an offset outside of the batch
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1),  # a header whose key is null
        (b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01", 1),  # a header whose key is not UTF-8
        (b"\xff" * 11, 1),  # a varint without end
    ):
        with pytest.raises(CorruptBatch):
            list(decode_records(batch_of(payload, count)))


def test_a_batch_may_not_decompress_beyond_its_limit() -> None:
    batch = build_batch([Record(value=bytes(1 << 20))], timestamp_ms=0, compression="zstd")
    assert len(batch) < 1000
    assert len(list(decode_records(batch))) == 1
    with pytest.raises(CorruptBatch, match="more than the allowed 100000 bytes"):
        list(decode_records(batch, decompressed_bytes_max=100_000))
