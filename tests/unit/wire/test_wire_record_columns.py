"""The records of a batch by columns: the same for few and for many records, and nothing for what is no record."""

from __future__ import annotations

import pytest

from raftlake.errors import CorruptBatch
from raftlake.wire.batch_header import parse_header
from raftlake.wire.batch_records import Record, assemble_batch, build_batch
from raftlake.wire.primitives import write_varlong
from raftlake.wire.record_columns import read_columns
from raftlake.wire.record_fields import BLOCK_RECORDS, TOGETHER_MIN

COUNTS = (1, TOGETHER_MIN - 1, TOGETHER_MIN, BLOCK_RECORDS + 3)


def records_of(count: int) -> list[Record]:
    return [
        Record(
            key=None if i % 5 == 4 else b"k%d" % i * (1 + i % 40),
            value=None if i % 7 == 3 else b"v" * (i % 200),
            timestamp_ms=1_000 + (i * 37) % 500 * (1 if i % 2 else -1),
            headers=(("h", b"x"),) if i % 3 == 0 else (),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("count", COUNTS)
def test_columns_say_what_the_records_are(count: int, codec: str) -> None:
    records = records_of(count)
    batch = build_batch(records, base_offset=50, timestamp_ms=1, compression=codec)
    columns = read_columns(batch, parse_header(batch))
    assert len(columns) == count
    assert columns.keys == [record.key for record in records]
    assert columns.tombstones == [record.value is None for record in records]
    assert columns.offset_deltas == list(range(count))
    assert columns.time_deltas_ms == [record.timestamp_ms - records[0].timestamp_ms for record in records]
    assert columns.ends[-1] == len(columns.payload)


@pytest.mark.parametrize("count", [2, TOGETHER_MIN])
@pytest.mark.parametrize("delta", [0, 63, 64, -65, 1 << 35, -(1 << 35), (1 << 63) - 1, -(1 << 63)])
def test_times_of_every_width(delta: int, count: int) -> None:
    payload = b"".join(record(index, time=delta) for index in range(count))
    assert columns_of(payload, count).time_deltas_ms == [delta] * count


@pytest.mark.parametrize("count", [3, TOGETHER_MIN])
def test_a_sparse_batch_has_other_offsets(count: int) -> None:
    payload = b"".join(record(3 * index + 70) for index in range(count))
    assert columns_of(payload, count, last_offset_delta=3 * count + 70).offset_deltas == [3 * i + 70 for i in range(count)]


@pytest.mark.parametrize("count", [3, TOGETHER_MIN])
def test_null_may_be_written_in_more_bytes(count: int) -> None:
    payload = b"".join(record(index, key=b"\x81\x00", value=b"\x81\x00") for index in range(count))
    columns = columns_of(payload, count)
    assert columns.keys == [None] * count and columns.tombstones == [True] * count


BROKEN = {
    "an offset that is no later": lambda index: record(index - 1),
    "an offset behind the batch": lambda index: record(index + 1_000_000),
    "an offset below the batch": lambda index: record(-5),
    "a key longer than its record": lambda index: record(index, key=number(500) + b"k"),
    "a key of -2 bytes": lambda index: record(index, key=number(-2)),
    "a length of -1": lambda index: number(-1) + record(index)[1:],
    "a length that is too long": lambda index: number(1 << 40),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("count", [3, TOGETHER_MIN + 4])
def test_what_is_no_record_is_told(broken, count: int) -> None:  # type: ignore[no-untyped-def]
    for at in (1, count - 1):
        payload = b"".join(broken(index) if index == at else record(index) for index in range(count))
        with pytest.raises(CorruptBatch, match="batch at offset 50"):
            columns_of(payload, count)


@pytest.mark.parametrize("count", [3, TOGETHER_MIN + 4])
def test_the_count_is_the_number_of_records(count: int) -> None:
    payload = b"".join(record(index) for index in range(count))
    for told in (count - 1, count + 1):
        with pytest.raises(CorruptBatch):
            columns_of(payload, told, last_offset_delta=count + 1)


def number(value: int) -> bytes:
    out = bytearray()
    write_varlong(out, value)
    return bytes(out)


def record(index: int, *, time: int = 0, key: bytes = b"\x02k", value: bytes = b"\x02v") -> bytes:
    body = b"\x00" + number(time) + number(index) + key + value + b"\x00"
    return number(len(body)) + body


def columns_of(payload: bytes, count: int, last_offset_delta: int | None = None):  # type: ignore[no-untyped-def]
    batch = assemble_batch(
        payload,
        attributes=0,
        base_offset=50,
        leader_epoch=1,
        base_timestamp_ms=0,
        timestamp_ms_max=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
        last_offset_delta=last_offset_delta,
    )
    return read_columns(batch, parse_header(batch))
