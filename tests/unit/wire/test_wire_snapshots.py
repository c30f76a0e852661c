"""Snapshot files: Kafka's bytes, and a scanner that believes nothing without its CRC, order and footer."""

from __future__ import annotations

import pytest

from raftlake.errors import CorruptBatch
from raftlake.wire import snapshots
from raftlake.wire.batches import ControlType, Record, build_batch, decode_records
from raftlake.wire.snapshots import (
    SnapshotAssembler,
    SnapshotScanner,
    control_types,
    data_batch,
    footer_batch,
    header_batch,
)

EPOCH = 7


def snapshot(*chunks: bytes, epoch: int = EPOCH) -> bytes:
    data = header_batch(epoch, 1000, 900)
    for offset, chunk in enumerate(chunks, 1):
        data += data_batch(offset, epoch, 1000, [chunk])
    return data + footer_batch(len(chunks) + 1, epoch, 1000)


def scan(data: bytes, epoch: int = EPOCH) -> list[bytes]:
    """The data values of a snapshot that ends as it should."""
    scanner = SnapshotScanner(lambda position, size: data[position : position + size], len(data), epoch)
    values: list[bytes] = []
    while (batch := scanner.next()) is not None:
        values += [record.value or b"" for record in decode_records(batch.data)]
    assert scanner.is_complete and scanner.position == len(data)
    return values


def test_what_was_written_is_read_in_order() -> None:
    assert scan(snapshot(b"one", b"two")) == [b"one", b"two"]
    assert scan(snapshot()) == []


def test_the_header_is_kafkas() -> None:
    """SnapshotHeaderRecord v0: version 0, the last contained timestamp, no tags; key: version 0, type 3."""
    (record,) = decode_records(header_batch(EPOCH, 1000, 900), include_control=True)
    assert record.key == bytes.fromhex("00000003")
    assert record.value == bytes.fromhex("0000" + "0000000000000384" + "00")


def test_the_header_says_of_which_offset_the_snapshot_is() -> None:
    """In a tag that Kafka passes over. Kafka's own snapshots do not say it; then the name alone counts."""
    (record,) = decode_records(header_batch(EPOCH, 1000, 900, end_offset=12), include_control=True)
    assert record.value == bytes.fromhex("0000" + "0000000000000384" + "01" + "8653" + "08" + "000000000000000c")
    for told, asked, fits in ((12, 12, True), (12, 13, False), (12, None, True), (None, 13, True), (0, 13, False)):
        data = header_batch(EPOCH, 1000, 900, end_offset=told) + footer_batch(1, EPOCH, 1000)
        scanner = SnapshotScanner(lambda position, size, data=data: data[position : position + size], len(data), EPOCH, asked)
        if fits:
            assert scanner.next() is not None
        else:
            with pytest.raises(CorruptBatch, match=f"the snapshot of offset {told}"):
                scanner.next()


def test_the_footer_is_kafkas() -> None:
    (record,) = decode_records(footer_batch(4, EPOCH, 1000), include_control=True)
    assert (record.key, record.value, record.offset) == (bytes.fromhex("00000004"), bytes.fromhex("000000"), 4)


def test_more_control_records_share_the_batch_of_the_header() -> None:
    more = Record(key=bytes.fromhex("00000005"), value=bytes.fromhex("0000000100"))
    data = header_batch(EPOCH, 1000, 900, [more]) + footer_batch(2, EPOCH, 1000)
    scanner = SnapshotScanner(lambda position, size: data[position : position + size], len(data), EPOCH)
    first = scanner.next()
    assert first is not None
    assert control_types(first.header, first.data) == [ControlType.SNAPSHOT_HEADER, ControlType.KRAFT_VERSION]
    assert scanner.next() is not None and scanner.next() is None


def test_every_bit_counts() -> None:
    good = snapshot(b"some value", b"another value")
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x10
        with pytest.raises(CorruptBatch):
            scan(bytes(bad))


def test_every_cut_is_found() -> None:
    good = snapshot(b"some value", b"another value")
    for length in range(len(good)):
        with pytest.raises(CorruptBatch):
            scan(good[:length])


def test_nothing_follows_the_footer() -> None:
    with pytest.raises(CorruptBatch, match="follow the snapshot's footer"):
        scan(snapshot(b"one") + data_batch(3, EPOCH, 1000, [b"more"]))


def test_a_snapshot_of_another_epoch_or_without_its_header_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="epoch 7"):
        scan(snapshot(b"one"), epoch=8)
    with pytest.raises(CorruptBatch, match="header"):
        scan(data_batch(0, EPOCH, 1000, [b"one"]) + footer_batch(1, EPOCH, 1000))


def test_a_gap_is_found() -> None:
    with pytest.raises(CorruptBatch, match="expected are 1"):
        scan(header_batch(EPOCH, 1000, 900) + footer_batch(2, EPOCH, 1000))


def test_a_tag_that_is_not_ours_says_nothing_about_the_offset() -> None:
    """Kafka may add fields to its header; ours may stand between them."""
    ours = bytes.fromhex("8653" + "08" + "000000000000000c")
    for tags, fits in ((b"\x01" + b"\x05\x08" + bytes(8), True), (b"\x02" + b"\x05\x01x" + ours, True), (b"\x01" + ours, True)):
        value = bytes.fromhex("0000" + "0000000000000384") + tags
        first = build_batch([Record(key=b"\0\0\0\3", value=value)], leader_epoch=EPOCH, timestamp_ms=1000, control=True)
        data = bytes(first) + footer_batch(1, EPOCH, 1000)
        scanner = SnapshotScanner(lambda position, size, data=data: data[position : position + size], len(data), EPOCH, 12)
        assert (scanner.next() is not None) == fits


def test_a_batch_that_claims_more_than_any_batch_holds_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = snapshot(b"x" * 2000)
    monkeypatch.setattr(snapshots, "BATCH_BYTES_MAX", 2000)
    with pytest.raises(CorruptBatch, match="claims"):
        scan(data)
    with pytest.raises(CorruptBatch, match="claims"):
        SnapshotAssembler(EPOCH).feed(data)
    monkeypatch.setattr(snapshots, "BATCH_BYTES_MAX", 3000)
    assert scan(data) == [b"x" * 2000]


# --- in pieces ---------------------------------------------------------------------------------------------------------------


def assemble(data: bytes, size: int) -> tuple[list[int], SnapshotAssembler]:
    """The numbers of the batches of a snapshot that comes in pieces of `size` bytes."""
    assembler = SnapshotAssembler(EPOCH)
    numbers: list[int] = []
    for start in range(0, len(data), size):
        assert not assembler.is_complete
        numbers += [number for number, _ in assembler.feed(data[start : start + size])]
    return numbers, assembler


@pytest.mark.parametrize("size", [1, 7, 61, 62, 100, 1 << 20])
def test_pieces_of_any_size_make_the_same_snapshot(size: int) -> None:
    data = snapshot(b"some value", b"another value")
    numbers, assembler = assemble(data, size)
    assert numbers == [0, 1, 2, 3] and assembler.is_complete


@pytest.mark.parametrize("size", [1, 61, 1 << 20])
def test_what_follows_the_footer_is_refused_in_its_piece_and_in_a_later_one(size: int) -> None:
    data = snapshot(b"one")
    with pytest.raises(CorruptBatch, match="1 bytes follow the snapshot's footer"):
        SnapshotAssembler(EPOCH).feed(data + b"x")
    _, assembler = assemble(data, size)
    with pytest.raises(CorruptBatch, match="1 bytes follow the snapshot's footer"):
        assembler.feed(b"x")
    assert not assembler.is_complete


@pytest.mark.parametrize("length", [-1, 0, 48, snapshots.BATCH_BYTES_MAX, (1 << 31) - 13])
def test_an_impossible_size_is_refused_with_the_head_of_its_batch(length: int) -> None:
    """To wait for the rest of it would keep all that comes in memory."""
    bad = bytearray(snapshot(b"one"))
    bad[8:12] = length.to_bytes(4, "big", signed=True)
    assembler = SnapshotAssembler(EPOCH)
    assert assembler.feed(bad[:60]) == []
    with pytest.raises(CorruptBatch, match="claims"):
        assembler.feed(bad[60:61])
