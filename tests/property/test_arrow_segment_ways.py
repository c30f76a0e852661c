"""Segments: the compiled way and the plain way give the same rows, marks and batches, and batches come back to the byte."""

from __future__ import annotations

from typing import Any

import hypothesis
import pyarrow as pa
from crc32c import crc32c
from hypothesis import strategies as st

from raftlake.arrow.records import NOT_CANONICAL, KernelLoader, decode_segment, encode_segment, segment_schema
from raftlake.errors import CorruptBatch
from raftlake.wire.batches import Record, build_batch, decode_records, parse_header
from raftlake.wire.compression import Compression
from recordways import COMPILED, PLAIN

payloads = st.one_of(st.none(), st.binary(max_size=12), st.integers(60, 140).map(lambda size: b"p" * size))
headers = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=4))), max_size=3).map(tuple)
times = st.one_of(st.just(-1), st.integers(0, 1 << 41), st.sampled_from((0, 1, (1 << 53) - 1)))
records = st.lists(st.builds(Record, st.just(0), times, payloads, payloads, headers), min_size=1, max_size=8)
codecs = st.sampled_from([codec.name.lower() for codec in Compression])


@st.composite
def segments(draw: st.DrawFn) -> list[bytearray]:
    """Consecutive batches of all kinds."""
    batches: list[bytearray] = []
    offset, epoch = draw(st.integers(0, 1 << 40)), draw(st.integers(0, 5))
    for content in draw(st.lists(records, min_size=1, max_size=5)):
        epoch += draw(st.integers(0, 2))
        producer = draw(st.sampled_from(((-1, -1, -1), (7, 0, 0), ((1 << 62), 30_000, (1 << 31) - 1))))
        batches.append(
            build_batch(
                content,
                base_offset=offset,
                leader_epoch=epoch,
                timestamp_ms=-1,
                compression=draw(codecs),
                control=draw(st.booleans()),
                transactional=draw(st.booleans()),
                log_append_time=draw(st.booleans()),
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=producer[2],
            )
        )
        offset += len(content)
    return batches


def decode(batches: list[bytearray], loader: KernelLoader, **pieces: int) -> pa.Table:
    segment = b"".join(batches)
    ends = parse_header(batches[0]).base_offset, parse_header(batches[-1]).end_offset
    about: dict[str, Any] = {"topic": "t", "partition": 3, "segment_id": "s", "incarnation": 1}
    rows = decode_segment(segment, base_offset=ends[0], end_offset=ends[1], loader=loader, **about, **pieces)
    return pa.Table.from_batches(rows, segment_schema())


@hypothesis.given(segments(), st.integers(1, 12))
def test_rows_and_batches(batches: list[bytearray], piece_rows: int) -> None:
    compiled, plain = (decode(batches, loader, piece_rows=piece_rows) for loader in (COMPILED, PLAIN))
    compiled.validate(full=True)
    assert compiled.equals(plain)
    wanted = [record for batch in batches for record in decode_records(batch, include_control=True)]
    assert compiled["offset"].to_pylist() == [record.offset for record in wanted]
    assert compiled["value"].to_pylist() == [record.value for record in wanted]
    assert compiled["timestamp"].cast(pa.int64()).to_pylist() == [record.timestamp_ms * 1000 for record in wanted]
    attributes = [parse_header(batch).attributes for batch in batches for _ in range(parse_header(batch).record_count)]
    assert compiled["batch_attributes"].to_pylist() == attributes
    for loader in (COMPILED, PLAIN):
        again = list(encode_segment(compiled, loader))
        assert len(again) == len(batches)
        for batch, made in zip(batches, again, strict=True):
            if parse_header(batch).is_compressed:
                assert list(decode_records(made, include_control=True)) == list(decode_records(batch, include_control=True))
                assert parse_header(made)._replace(crc=0, length=0) == parse_header(batch)._replace(crc=0, length=0)
            else:
                assert bytes(made) == bytes(batch)


@hypothesis.settings(max_examples=300)
@hypothesis.given(records, st.booleans(), st.data())
def test_a_changed_payload_is_refused_marked_or_comes_back(
    content: list[Record], append_time: bool, data: st.DataObject
) -> None:
    """The CRC is right, the payload and the times are changed: both ways agree, and a batch without the mark comes back."""
    batch = build_batch(content, base_offset=5, leader_epoch=1, timestamp_ms=5, log_append_time=append_time)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.one_of(st.integers(61, len(batch) - 1), st.integers(27, 42)))
        batch[position] = data.draw(st.sampled_from((0, 1, 2, 7, 0x7F, 0x80, 0xFF)))
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    outcomes: list[Any] = []
    for loader in (COMPILED, PLAIN):
        try:
            outcomes.append(decode([batch], loader))
        except CorruptBatch:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]
    if outcomes[0] is not None:
        (again,) = encode_segment(outcomes[0], COMPILED)
        is_marked = bool(outcomes[0]["batch_attributes"][0].as_py() & NOT_CANONICAL)
        assert (bytes(again) == bytes(batch)) is not is_marked
