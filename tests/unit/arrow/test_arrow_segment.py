"""A segment as Arrow rows: its columns, its pieces, what is refused, and which batches come back to the byte."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c

from raftlake.arrow.records import (
    KIND_ABORTED,
    KIND_CONTROL,
    NOT_CANONICAL,
    KernelLoader,
    SegmentDecoder,
    decode_segment,
    encode_segment,
    segment_schema,
)
from raftlake.errors import CorruptBatch
from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.batches import Record, assemble_batch, build_batch, parse_header, stamp
from raftlake.wire.control import leader_change_batch
from recordways import both_ways
from transactionkit import marker_batch


def rows_of(segment: bytes | bytearray, loader: KernelLoader, **more: Any) -> list[pa.RecordBatch]:
    base = parse_header(segment).base_offset
    end = more.pop("end_offset", None)
    if end is None:
        position, end = 0, base
        while position < len(segment):
            header = parse_header(segment, position)
            position, end = header.end_position, header.end_offset
    about = {"topic": "flights", "partition": 2, "segment_id": "s1", "incarnation": 4, "base_offset": base} | more
    return list(decode_segment(segment, end_offset=end, loader=loader, **about))


def table_of(segment: bytes | bytearray, loader: KernelLoader, **more: Any) -> pa.Table:
    return pa.Table.from_batches(rows_of(segment, loader, **more))


def batch_at(offset: int, *, count: int = 2, epoch: int = 1, **more: Any) -> bytearray:
    records = [Record(timestamp_ms=1_000 + n, key=b"k", value=b"v%d" % (offset + n)) for n in range(count)]
    return build_batch(records, base_offset=offset, leader_epoch=epoch, timestamp_ms=1_000, **more)


@both_ways
def test_the_columns_are_those_of_the_table(loader: KernelLoader) -> None:
    control = leader_change_batch(7, 3, 1_700_000_000_000, 1, (1, 2, 3), (1, 2))
    data = batch_at(8, epoch=3, producer_id=9, producer_epoch=2, base_sequence=40, transactional=True)
    table = table_of(control + data, loader)
    assert table.schema == segment_schema()
    assert " ".join(table.schema.names) == (
        "key value topic partition offset timestamp timestampType headers kind leader_epoch batch_base_offset batch_crc "
        "batch_attributes producer_id producer_epoch base_sequence segment_id incarnation"
    )
    first, second, third = table.to_pylist()
    assert (first["kind"], first["offset"], first["key"], first["batch_attributes"]) == (1, 7, b"\0\0\0\2", 0x20)
    assert (first["producer_id"], first["producer_epoch"], first["base_sequence"]) == (-1, -1, -1)
    assert (second["kind"], second["topic"], second["partition"], second["value"]) == (0, "flights", 2, b"v8")
    assert [row["batch_base_offset"] for row in (first, second, third)] == [7, 8, 8]
    assert [row["offset"] for row in (second, third)] == [8, 9]
    assert (third["producer_id"], third["producer_epoch"], third["base_sequence"]) == (9, 2, 40)
    assert (third["leader_epoch"], third["batch_attributes"]) == (3, 0x10)
    assert (third["segment_id"], third["incarnation"]) == ("s1", 4)
    assert third["batch_crc"] & 0xFFFFFFFF == parse_header(data).crc
    assert b"".join(encode_segment(table, loader)) == control + data


@both_ways
def test_a_record_without_a_time_comes_back_without_one(loader: KernelLoader) -> None:
    batch = build_batch([Record(value=b"x"), Record(value=b"y")], leader_epoch=1, timestamp_ms=-1)
    table = table_of(batch, loader)
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [-1000, -1000]
    assert table["batch_attributes"].to_pylist() == [0, 0]
    assert list(encode_segment(table, loader)) == [batch]


@both_ways
def test_pieces_end_between_batches_and_are_of_bounded_size(loader: KernelLoader) -> None:
    batches = [batch_at(offset, count=5) for offset in range(0, 60, 5)]
    segment = b"".join(batches)
    pieces = rows_of(segment, loader, piece_rows=10)
    assert [piece.num_rows for piece in pieces] == [10] * 6
    assert [piece.num_rows for piece in rows_of(segment, loader, piece_bytes=1)] == [5] * 12
    table = pa.Table.from_batches(pieces)
    assert table["offset"].to_pylist() == list(range(60))
    assert b"".join(encode_segment(table, loader)) == segment
    assert b"".join(encode_segment(table.slice(15, 20), loader)) == b"".join(batches[3:7])


@both_ways
def test_compressed_batches_are_cut_by_what_they_hold(loader: KernelLoader) -> None:
    batches = [
        build_batch([Record(0, 5, None, bytes(50_000))], base_offset=n, leader_epoch=1, timestamp_ms=5, compression="zstd")
        for n in range(4)
    ]
    pieces = rows_of(b"".join(batches), loader, piece_bytes=60_000)
    assert sum(piece.num_rows for piece in pieces) == 4
    again = list(encode_segment(pa.Table.from_batches(pieces), loader))
    assert [parse_header(batch).attributes for batch in again] == [4] * 4
    table = table_of(b"".join(again), loader)
    assert table.drop(["batch_crc"]) == pa.Table.from_batches(pieces).drop(["batch_crc"])
    assert table["batch_attributes"].to_pylist() == [4] * 4


def flip(batch: bytearray, position: int) -> bytearray:
    batch[position] ^= 1
    return batch


def restamped(batch: bytearray, offset: int, epoch: int) -> bytearray:
    stamp(batch, 0, offset, epoch)
    return batch


@both_ways
@pytest.mark.parametrize(
    ("second", "text"),
    [
        (flip(batch_at(2), -1), "offset 2.*CRC"),
        (flip(batch_at(2, compression="gzip"), -1), "offset 2.*CRC"),
        (batch_at(3), "begins at offset 3.*ends at 2"),
        (batch_at(1), "begins at offset 1.*ends at 2"),
        (batch_at(2, epoch=0), "offset 2.*epoch 0"),
        (restamped(batch_at(2), 2, -1), "offset 2.*epoch -1"),
        (batch_at(2)[:-1], "from offset 2 on"),
        (batch_at(2) + b"x", "from offset 4 on"),
    ],
    ids=["flipped", "flipped gzip", "gap", "overlap", "epoch back", "no epoch", "cut", "bytes behind"],
)
def test_what_is_no_gapless_segment_is_refused_with_its_offset(loader: KernelLoader, second: bytearray, text: str) -> None:
    segment = batch_at(0) + second
    with pytest.raises(CorruptBatch, match=text):
        rows_of(segment, loader, end_offset=4)


@both_ways
@pytest.mark.parametrize("end_offset", [1, 3])
def test_another_end_is_refused(loader: KernelLoader, end_offset: int) -> None:
    with pytest.raises(CorruptBatch, match=f"end at offset 2, and not at {end_offset}"):
        rows_of(batch_at(0), loader, end_offset=end_offset)


def crc_made(batch: bytearray) -> bytearray:
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


#: One record: attributes, time delta, offset delta, null key, null value, no headers.
BODY = b"\x00\x00\x00\x01\x01\x00"


def around(*bodies: bytes, base_ms: int = 5, max_ms: int = 5, attributes: int = 0) -> bytearray:
    """A batch of epoch 1 whose records are written out."""
    payload = b"".join(bytes([2 * len(body)]) + body for body in bodies)
    return assemble_batch(
        payload,
        attributes=attributes,
        base_offset=0,
        leader_epoch=1,
        base_timestamp_ms=base_ms,
        timestamp_ms_max=max_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=len(bodies),
    )


def empty_with_last_delta(delta: int) -> bytearray:
    """A batch that covers offsets and holds no record, as compaction leaves behind."""
    batch = around()
    batch[23:27] = delta.to_bytes(4, "big", signed=True)
    return crc_made(batch)


@both_ways
@pytest.mark.parametrize("delta", [-1, 0, 4])
def test_an_empty_batch_is_refused_and_not_waited_for(loader: KernelLoader, delta: int) -> None:
    """Fluss 3892: an offset without a record made tiering hang. A log of ours takes no such batch."""
    with pytest.raises(CorruptBatch, match="batch at offset 0: 0 records"):
        rows_of(empty_with_last_delta(delta), loader, end_offset=delta + 1)


@both_ways
def test_records_whose_offsets_are_not_the_headers_are_refused(loader: KernelLoader) -> None:
    second = BODY[:2] + b"\x02" + BODY[3:]
    assert table_of(around(BODY, second), loader)["offset"].to_pylist() == [0, 1]
    for bodies in ((BODY, BODY), (second, BODY), (second, second)):
        with pytest.raises(CorruptBatch, match="offsets"):
            rows_of(around(*bodies), loader)


@both_ways
@pytest.mark.parametrize(
    ("batch", "is_canonical"),
    [
        pytest.param(around(BODY), True, id="usual"),
        pytest.param(around(BODY, attributes=0x4000), True, id="unknown bit"),
        pytest.param(around(BODY, attributes=-0x8000), True, id="sign bit"),
        pytest.param(around(BODY, attributes=0x08), True, id="append time"),
        pytest.param(around(BODY, attributes=0x08, max_ms=9), False, id="append time put over it"),
        pytest.param(around(BODY, base_ms=4, max_ms=4), True, id="another base time"),
        pytest.param(around(BODY[:1] + b"\x02" + BODY[2:], base_ms=4), False, id="base time not the first's"),
        pytest.param(around(BODY, max_ms=6), False, id="maximum too high"),
        pytest.param(around(b"\x01" + BODY[1:]), False, id="record attributes"),
        pytest.param(around(BODY[:3] + b"\x81\x00" + BODY[4:]), False, id="long null key"),
        pytest.param(around(BODY[:5] + b"\x80\x00"), False, id="long count"),
    ],
)
def test_legal_batches_that_no_usual_client_writes_are_marked(
    loader: KernelLoader, batch: bytearray, is_canonical: bool
) -> None:
    table = table_of(batch, loader)
    (attributes,) = table["batch_attributes"].to_pylist()
    assert attributes & 0xFFFF == parse_header(batch).attributes & 0xFFFF
    assert bool(attributes & NOT_CANONICAL) is not is_canonical
    (again,) = encode_segment(table, loader)
    assert (bytes(again) == bytes(batch)) is is_canonical
    assert parse_header(again).attributes == parse_header(batch).attributes
    # What was made anew is the usual form.
    last = table_of(bytearray(again), loader)
    assert last.drop(["batch_crc", "batch_attributes"]) == table.drop(["batch_crc", "batch_attributes"])
    assert last["batch_attributes"].to_pylist() == [attributes & 0xFFFF]


@both_ways
@pytest.mark.parametrize("drop", [0, 1, 2, 5], ids=repr)
def test_rows_that_are_missing_are_refused_on_the_way_back(loader: KernelLoader, drop: int) -> None:
    table = table_of(batch_at(0, count=3) + batch_at(3, count=4), loader)
    part = pa.concat_tables([table.slice(0, drop), table.slice(drop + 1)])
    if drop == 2:
        # The end of a batch alone cannot be missed: its rows do not say how many they are. The CRC does.
        first, _ = encode_segment(part, loader)
        assert parse_header(first).crc != table["batch_crc"][0].as_py() & 0xFFFFFFFF
        return
    with pytest.raises(CorruptBatch, match="is missing"):
        list(encode_segment(part, loader))


@both_ways
def test_a_decoder_takes_a_segment_in_several_buffers(loader: KernelLoader) -> None:
    batches = [batch_at(0), batch_at(2, epoch=3), batch_at(4, epoch=3), batch_at(6, epoch=8)]
    decoder = SegmentDecoder(topic="t", partition=0, segment_id="s", incarnation=0, base_offset=0, loader=loader)
    pieces = [piece for batch in batches for piece in decoder.decode(batch)]
    decoder.finish(8)
    assert pa.Table.from_batches(pieces)["offset"].to_pylist() == list(range(8))
    assert decoder.epochs == [(1, 0), (3, 2), (8, 6)]


@both_ways
def test_large_numbers_of_rows_are_encoded_in_parts(loader: KernelLoader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlake.arrow.segment_batches._ROWS_TOGETHER", 7)
    segment = b"".join(batch_at(offset, count=5) for offset in range(0, 40, 5)) + batch_at(40, count=9) + batch_at(49, count=1)
    assert b"".join(encode_segment(table_of(segment, loader), loader)) == segment


def test_no_rows_are_no_batches() -> None:
    assert list(encode_segment(segment_schema().empty_table())) == []


@both_ways
def test_records_of_aborted_transactions_have_a_kind_of_their_own(loader: KernelLoader) -> None:
    """From the first record of each to its marker, of its producer alone, and not what is outside of a transaction."""
    of_9 = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
    batches = [
        batch_at(20, base_sequence=0, **of_9),
        batch_at(22, base_sequence=0, producer_id=8, producer_epoch=0, transactional=True),
        batch_at(24, base_sequence=0, producer_id=9, producer_epoch=0),
        marker_batch(9, base_offset=26),
        batch_at(27, base_sequence=2, **of_9),
        marker_batch(9, commit=True, base_offset=29),
        batch_at(30, base_sequence=4, **of_9),
    ]
    # The first one begins in an earlier segment, the last one ends in a later one; those of others have the same offsets.
    aborted = [
        AbortedTransaction(9, 30, 40, 41),
        AbortedTransaction(9, 5, 26, 27),
        AbortedTransaction(7, 0, 100, 101),
    ]
    table = table_of(b"".join(map(bytes, batches)), loader, base_offset=20, aborted=aborted)
    kinds = dict(zip(table["offset"].to_pylist(), table["kind"].to_pylist(), strict=True))
    assert {offset for offset, kind in kinds.items() if kind == KIND_ABORTED} == {20, 21, 30, 31}
    assert {offset for offset, kind in kinds.items() if kind == KIND_CONTROL} == {26, 29}
    assert b"".join(encode_segment(table, loader)) == b"".join(map(bytes, batches))
