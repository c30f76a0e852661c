"""Arrow and record batches: the compiled way and the plain way agree with each other and with the plain record reader."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis
import pyarrow as pa
from crc32c import crc32c
from hypothesis import strategies as st

from raftlake.arrow.records import HEADERS_TYPE, KernelLoader, decode_to_arrow, encode_from_arrow
from raftlake.errors import CorruptBatch
from raftlake.wire.batches import Record, build_batch, decode_records, parse_header, stamp
from raftlake.wire.compression import Compression
from recordways import COMPILED, PLAIN

payloads = st.one_of(st.none(), st.binary(max_size=12), st.integers(60, 140).map(lambda size: b"p" * size))
headers = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=4))), max_size=3).map(tuple)
times = st.one_of(st.integers(0, 1 << 41), st.sampled_from((0, 1, (1 << 53) - 1)))
records = st.lists(st.builds(Record, st.just(0), times, payloads, payloads, headers), min_size=1, max_size=8)
codecs = st.sampled_from([codec.name.lower() for codec in Compression])


@st.composite
def logs(draw: st.DrawFn) -> list[bytearray]:
    """Buffers of consecutive batches, some of them control batches or with the log's time."""
    buffers = [bytearray()]
    offset = draw(st.integers(0, 1 << 40))
    for content in draw(st.lists(records, max_size=4)):
        kind = draw(st.sampled_from(("data", "data", "control", "append time")))
        buffers[-1] += build_batch(
            content,
            base_offset=offset,
            timestamp_ms=77,
            compression=draw(codecs),
            control=kind == "control",
            log_append_time=kind == "append time",
        )
        offset += len(content)
        if draw(st.booleans()):
            buffers.append(bytearray())
    return buffers


def decode(buffers: list[bytearray], loader: KernelLoader, start: int, end: int) -> pa.RecordBatch:
    return decode_to_arrow(
        buffers, topic="t", partition=3, start_offset=start, end_offset=end, include_headers=True, loader=loader
    )


def row_of(record: Record) -> dict[str, Any]:
    items = [{"key": name, "value": value} for name, value in record.headers]
    return {"key": record.key, "value": record.value, "offset": record.offset, "headers": items or None}


@hypothesis.given(logs(), st.data())
def test_decoding(buffers: list[bytearray], data: st.DataObject) -> None:
    expected = [record for buffer in buffers for record in decode_records(buffer)]
    first = expected[0].offset if expected else 0
    start, end = first + data.draw(st.integers(-2, 30)), first + data.draw(st.integers(0, 40))
    compiled, plain = (decode(buffers, loader, start, end) for loader in (COMPILED, PLAIN))
    compiled.validate(full=True)
    assert compiled.equals(plain)
    wanted = [record for record in expected if start <= record.offset < end]
    assert compiled.select(["key", "value", "offset", "headers"]).to_pylist() == [row_of(record) for record in wanted]
    assert compiled["timestamp"].cast(pa.int64()).to_pylist() == [record.timestamp_ms * 1000 for record in wanted]
    assert decode_to_arrow(buffers, topic="t", partition=3, loader=COMPILED).equals(
        decode_to_arrow(buffers, topic="t", partition=3, loader=PLAIN)
    )


@hypothesis.settings(max_examples=300)
@hypothesis.given(records, codecs, st.data())
def test_a_damaged_payload_is_refused_or_read_alike(content: list[Record], codec: str, data: st.DataObject) -> None:
    """The CRC is right, the payload is not: both ways refuse, or both give the same rows (the damage hit a value)."""
    batch = build_batch(content, base_offset=5, timestamp_ms=5, compression=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.sampled_from((0, 1, 2, 7, 0x7F, 0x80, 0xFF)))
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    outcomes: list[Any] = []
    for loader in (COMPILED, PLAIN):
        try:
            outcomes.append(decode([batch], loader, 0, 1 << 62))
        except CorruptBatch:
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1]


def columns(content: list[Record]) -> dict[str, pa.Array]:
    return {
        "key": pa.array([record.key for record in content], pa.binary()),
        "value": pa.array([record.value for record in content], pa.binary()),
        "headers": pa.array([row_of(record)["headers"] for record in content], HEADERS_TYPE),
        "timestamps": pa.array([record.timestamp_ms * 1000 for record in content], pa.timestamp("us", tz="UTC")),
    }


@hypothesis.given(
    st.lists(records, min_size=1, max_size=3).map(lambda lists: list(itertools.chain(*lists))),
    codecs,
    st.integers(100, 400),
    st.data(),
)
def test_encoding(content: list[Record], codec: str, batch_bytes_max: int, data: st.DataObject) -> None:
    """Both ways put the same records, in order, into batches that a reader accepts; sequences follow each other."""
    table = columns(content)
    first = data.draw(st.integers(0, len(content) - 1))
    content = content[first:]
    sequence = data.draw(st.sampled_from((0, 5, (1 << 31) - 2)))
    for loader in (COMPILED, PLAIN):
        batches = encode_from_arrow(
            *(column.slice(first) for column in table.values()),
            timestamp_ms=1,
            batch_bytes_max=batch_bytes_max,
            compression=codec,
            producer_id=4,
            producer_epoch=2,
            base_sequence=sequence,
            loader=loader,
        )
        found: list[Record] = []
        for batch in batches:
            stamp(batch, 0, len(found), 1)
            header = parse_header(batch)
            assert (header.producer_id, header.producer_epoch) == (4, 2)
            assert header.base_sequence == (sequence + len(found)) % (1 << 31)
            assert len(batch) <= batch_bytes_max or header.record_count == 1 or codec != "none"
            inside = list(decode_records(batch))
            assert header.timestamp_ms_max == max(record.timestamp_ms for record in inside)
            found += inside
        assert [record._replace(offset=0) for record in found] == content
