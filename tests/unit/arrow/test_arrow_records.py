"""Arrow and record batches: the columns that Spark sees, the forms of input that it hands over, and when loops are compiled."""

from __future__ import annotations

import pyarrow as pa
import pytest

from raftlake.arrow import loading as records_loading
from raftlake.arrow.kernels import TIME_MS_MAX
from raftlake.arrow.records import HEADERS_TYPE, KernelLoader, decode_to_arrow, encode_from_arrow, record_schema
from raftlake.errors import CorruptBatch, InvariantViolation, RequestRejected
from raftlake.wire.batches import HEADER_BYTES, Record, assemble_batch, build_batch, decode_records, parse_header
from raftlake.wire.shown import without_raft_records
from recordways import COMPILED, PLAIN, both_ways


@both_ways
def test_the_columns_are_those_of_sparks_kafka_source(loader: KernelLoader) -> None:
    created = build_batch([Record(0, 1_700_000_000_123, b"k", b"v", (("h", b"1"), ("n", None)))], timestamp_ms=0, base_offset=4)
    appended = build_batch([Record(0, 5, None, None)], timestamp_ms=1_700_000_000_999, base_offset=5, log_append_time=True)
    table = decode_to_arrow([created + appended], topic="flights", partition=2, include_headers=True, loader=loader)
    assert table.schema == record_schema(include_headers=True)
    assert [field.name for field in table.schema] == (
        ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    )
    first, second = table.to_pylist()
    assert first["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert (first["key"], first["value"], first["topic"], first["partition"], first["offset"]) == (b"k", b"v", "flights", 2, 4)
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)
    assert (first["timestampType"], second["timestampType"]) == (0, 1)
    assert second["timestamp"].microsecond == 999_000
    narrow = decode_to_arrow([created], topic="flights", partition=2, loader=loader)
    assert narrow.schema == record_schema(include_headers=False)


@both_ways
def test_nothing_gives_an_empty_batch(loader: KernelLoader) -> None:
    control = build_batch([Record(key=b"\0\0\0\2", value=b"")], timestamp_ms=0, control=True)
    emptied = without_raft_records(bytes(control), [parse_header(control)])
    for buffers in (
        [],
        [b""],
        [control],
        [emptied],
        [emptied, emptied],
        [build_batch([Record()], timestamp_ms=0, base_offset=9)],
    ):
        table = decode_to_arrow(buffers, topic="t", partition=0, end_offset=9, include_headers=True, loader=loader)
        assert table.num_rows == 0
        assert table.schema == record_schema(include_headers=True)


@both_ways
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_batch_without_records_has_offsets_and_no_rows(loader: KernelLoader, place: int) -> None:
    control = build_batch([Record(key=b"\0\0\0\2")] * 3, timestamp_ms=0, base_offset=7, control=True)
    batches = [build_batch([Record(value=b"%d" % n)], timestamp_ms=0, base_offset=n) for n in (1, 9)]
    batches.insert(place, bytearray(without_raft_records(bytes(control), [parse_header(control)])))
    for buffers in (batches, [b"".join(batches)]):
        table = decode_to_arrow(buffers, topic="t", partition=0, end_offset=99, include_headers=True, loader=loader)
        assert table["offset"].to_pylist() == [1, 9]


@both_ways
def test_only_asked_offsets(loader: KernelLoader) -> None:
    batch = build_batch([Record(value=b"%d" % n) for n in range(10)], timestamp_ms=0, base_offset=100)
    table = decode_to_arrow([batch], topic="t", partition=0, start_offset=103, end_offset=106, loader=loader)
    assert table["offset"].to_pylist() == [103, 104, 105]
    assert table["value"].to_pylist() == [b"3", b"4", b"5"]


@both_ways
def test_a_partial_batch_at_the_end_is_left_out(loader: KernelLoader) -> None:
    batch = build_batch([Record(value=b"v")], timestamp_ms=0)
    assert decode_to_arrow([batch + batch[:-1]], topic="t", partition=0, loader=loader).num_rows == 1


@both_ways
def test_damage_is_refused(loader: KernelLoader) -> None:
    batch = build_batch([Record(value=b"v" * 50)], timestamp_ms=0)
    batch[-5] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        decode_to_arrow([batch], topic="t", partition=0, loader=loader)
    future = build_batch([Record(timestamp_ms=1 << 55, value=b"v")], timestamp_ms=0)
    with pytest.raises(CorruptBatch, match="timestamp"):
        decode_to_arrow([future], topic="t", partition=0, loader=loader)


@both_ways
def test_more_than_the_limit_is_refused_with_advice(loader: KernelLoader) -> None:
    batch = build_batch([Record(value=bytes(100_000))] * 3, timestamp_ms=0, compression="zstd")
    with pytest.raises(RequestRejected, match="fewer offsets"):
        decode_to_arrow([batch] * 4, topic="t", partition=0, decoded_bytes_max=1_000_000, loader=loader)
    with pytest.raises(CorruptBatch, match="more than the allowed"):
        decode_to_arrow([batch], topic="t", partition=0, decompressed_bytes_max=100_000, loader=loader)


@both_ways
@pytest.mark.parametrize("record", [Record(value=b"v" * 100), Record(key=b"k" * 100), Record(key=b"k" * 50, value=b"v" * 50)])
def test_the_limit_is_in_bytes_of_keys_and_values_and_holds_to_the_byte(loader: KernelLoader, record: Record) -> None:
    batch = build_batch([record] * 2, timestamp_ms=0)
    # The compiled way counts what goes around keys and values too.
    held = 200 if loader is PLAIN else len(batch) - HEADER_BYTES
    arrow = [decode_to_arrow([batch], topic="t", partition=0, decoded_bytes_max=limit, loader=loader) for limit in (held, 999)]
    assert [table.num_rows for table in arrow] == [2, 2]
    with pytest.raises(RequestRejected, match="fewer offsets"):
        decode_to_arrow([batch], topic="t", partition=0, decoded_bytes_max=held - 1, loader=loader)


def batch_around(payload: bytes, *, count: int = 1, base_ms: int = 0) -> bytearray:
    """A batch whose CRC is right, whatever its payload holds."""
    return assemble_batch(
        payload,
        attributes=0,
        base_offset=0,
        leader_epoch=0,
        base_timestamp_ms=base_ms,
        timestamp_ms_max=base_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


#: One record without key, value and headers.
SMALLEST = b"\x0c\x00\x00\x00\x01\x01\x00"


def test_more_records_than_fit_are_refused_before_memory_is_taken_for_them() -> None:
    for count in (2, 1 << 30):
        with pytest.raises(CorruptBatch, match=f"{count} records in 7 bytes"):
            decode_to_arrow([batch_around(SMALLEST, count=count)], topic="t", partition=0, loader=COMPILED)
    assert decode_to_arrow([batch_around(SMALLEST)], topic="t", partition=0, loader=COMPILED).num_rows == 1


@both_ways
@pytest.mark.parametrize(
    ("base_ms", "delta"), [(TIME_MS_MAX, 1), (-TIME_MS_MAX, -1), (TIME_MS_MAX, 0), (-TIME_MS_MAX, 0)], ids=repr
)
def test_times_that_arrow_cannot_hold_are_refused(loader: KernelLoader, base_ms: int, delta: int) -> None:
    zigzag = bytes([2 * delta if delta >= 0 else -2 * delta - 1])
    batch = batch_around(SMALLEST[:2] + zigzag + SMALLEST[3:], base_ms=base_ms)
    if delta:
        with pytest.raises(CorruptBatch):
            decode_to_arrow([batch], topic="t", partition=0, loader=loader)
    else:
        table = decode_to_arrow([batch], topic="t", partition=0, loader=loader)
        assert table["timestamp"].cast(pa.int64()).to_pylist() == [base_ms * 1000]


@both_ways
@pytest.mark.parametrize(
    "headers",
    [b"\x02\x01\x01", b"\x02\x02\xff\x01", b"\x02\x00\x03", b"\x02\x00\x04x", b"\x02\x00\x01\x00", b"\x04\x00\x01\x00"],
    ids=["null name", "name no text", "value of -2", "value beyond", "bytes behind", "one too few"],
)
def test_damaged_headers_are_refused(loader: KernelLoader, headers: bytes) -> None:
    sound = b"\x02\x02n\x02v"
    for content, is_sound in ((sound, True), (headers, False)):
        body = SMALLEST[1:-1] + content
        # In the second record of two: the first one's headers are sound.
        first = SMALLEST[1:-1] + sound
        second = body[:2] + b"\x02" + body[3:]
        batch = batch_around(bytes([2 * len(first)]) + first + bytes([2 * len(second)]) + second, count=2)
        if is_sound:
            table = decode_to_arrow([batch], topic="t", partition=0, include_headers=True, loader=loader)
            assert table["headers"].to_pylist() == [[{"key": "n", "value": b"v"}]] * 2
        else:
            with pytest.raises(CorruptBatch):
                decode_to_arrow([batch], topic="t", partition=0, include_headers=True, loader=loader)


def rows_of(batches: list[bytearray]) -> list[Record]:
    return [record._replace(offset=0) for batch in batches for record in decode_records(batch)]


@both_ways
@pytest.mark.parametrize(
    "type_", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view(), pa.string_view()]
)
def test_keys_and_values_of_any_width(loader: KernelLoader, type_: pa.DataType) -> None:
    column = pa.array(["a", None, "", "ccc"], pa.string()).cast(type_)
    chunked = pa.chunked_array([column[:1], column[1:]])
    for given in (column, chunked):
        found = rows_of(encode_from_arrow(given, given, timestamp_ms=7, loader=loader))
        assert [(record.key, record.value, record.timestamp_ms) for record in found] == [
            (b"a", b"a", 7),
            (None, None, 7),
            (b"", b"", 7),
            (b"ccc", b"ccc", 7),
        ]


@both_ways
def test_absent_columns_are_null(loader: KernelLoader) -> None:
    values = pa.array([b"v", b"w"])
    assert rows_of(encode_from_arrow(None, values, timestamp_ms=1, loader=loader)) == [
        Record(0, 1, None, b"v"),
        Record(0, 1, None, b"w"),
    ]
    assert rows_of(encode_from_arrow(pa.nulls(1), None, timestamp_ms=1, loader=loader)) == [Record(0, 1)]
    assert encode_from_arrow(None, None, timestamp_ms=1, loader=loader) == []
    assert encode_from_arrow(pa.array([], pa.binary()), pa.chunked_array([], pa.binary()), timestamp_ms=1, loader=loader) == []


@both_ways
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit(loader: KernelLoader, unit: str) -> None:
    times = pa.array([1_700_000_000, None], pa.timestamp("s", tz="Europe/Berlin")).cast(pa.timestamp(unit, tz="Europe/Berlin"))
    found = rows_of(encode_from_arrow(None, pa.array([b"a", b"b"]), None, times, timestamp_ms=9, loader=loader))
    assert [record.timestamp_ms for record in found] == [1_700_000_000_000, 9]


@both_ways
def test_microseconds_are_cut_to_milliseconds(loader: KernelLoader) -> None:
    times = pa.array([1_999, 2_000], pa.timestamp("us"))
    found = rows_of(encode_from_arrow(None, pa.array([b"a", b"b"]), None, times, timestamp_ms=9, loader=loader))
    assert [record.timestamp_ms for record in found] == [1, 2]


@both_ways
def test_headers_null_empty_and_sliced(loader: KernelLoader) -> None:
    lists = [[{"key": "a", "value": b"1"}], None, [], [{"key": "b", "value": None}, {"key": "a", "value": b""}]]
    column = pa.array(lists, HEADERS_TYPE)
    expected = [(("a", b"1"),), (), (), (("b", None), ("a", b""))]
    for first in range(4):
        values = pa.array([b"v"] * (4 - first))
        found = rows_of(encode_from_arrow(None, values, column[first:], timestamp_ms=1, loader=loader))
        assert [record.headers for record in found] == expected[first:]


@both_ways
def test_a_null_list_that_spans_elements_is_empty(loader: KernelLoader) -> None:
    items = pa.array([{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}], HEADERS_TYPE.value_type)
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), items, type=HEADERS_TYPE, mask=pa.array([True, False]))
    found = rows_of(encode_from_arrow(None, pa.array([b"v", b"w"]), column, timestamp_ms=1, loader=loader))
    assert [record.headers for record in found] == [(), (("b", b"2"),)]


@both_ways
def test_batches_are_cut_by_size(loader: KernelLoader) -> None:
    values = pa.array([b"v" * 400] * 10 + [b"big" * 1000] + [b"v"])
    batches = encode_from_arrow(
        None, values, timestamp_ms=1, batch_bytes_max=1000, base_sequence=0, producer_id=1, loader=loader
    )
    counts = [parse_header(batch).record_count for batch in batches]
    assert counts == [2, 2, 2, 2, 2, 1, 1]
    assert [parse_header(batch).base_sequence for batch in batches] == [0, 2, 4, 6, 8, 10, 11]
    assert all(len(batch) <= 1000 for batch, count in zip(batches, counts, strict=True) if count > 1)


def test_both_ways_write_the_same_bytes() -> None:
    values = pa.array([b"v" * n for n in range(50)])
    times = pa.array(range(50), pa.timestamp("ms"))
    ways = [encode_from_arrow(values, values, None, times, timestamp_ms=1, loader=loader) for loader in (PLAIN, COMPILED)]
    assert ways[0] == ways[1]


def test_columns_must_have_one_length() -> None:
    with pytest.raises(InvariantViolation, match="different lengths"):
        encode_from_arrow(pa.array([b"a"]), pa.array([b"a", b"b"]), timestamp_ms=1)


@both_ways
def test_a_header_without_a_key_cannot_be_written(loader: KernelLoader) -> None:
    for item in ({"key": None, "value": b"1"}, None):
        headers = pa.array([[item]], HEADERS_TYPE)
        with pytest.raises(RequestRejected, match="null key"):
            encode_from_arrow(None, pa.array([b"v"]), headers, timestamp_ms=1, loader=loader)


def test_loops_are_loaded_once_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = KernelLoader(plain_rows_max=10)
    assert loader.kernels_for(6) is None
    assert loader.kernels_for(4) is None
    kernels = loader.kernels_for(1)
    assert kernels is not None
    assert loader.kernels_for(0) is kernels
    monkeypatch.setattr(records_loading, "find_spec", lambda name: None)
    assert KernelLoader(plain_rows_max=0).kernels_for(1 << 40) is None
