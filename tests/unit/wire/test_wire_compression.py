"""Compression codecs: the framings that Kafka's Java classes demand, and bounds on what hostile payloads can take."""

from __future__ import annotations

import mmap
import struct
import tracemalloc
import zlib

import cramjam
import pytest

from raftlake.errors import CorruptBatch
from raftlake.wire import compression
from raftlake.wire.compression import Compression, PayloadTooLarge, compress, decompress, decompress_counting

TEXT = b"".join(b"flight %d, delayed by %d minutes; " % (n, n * 7 % 60) for n in range(12_000))
NOISE = b"".join(zlib.crc32(b"%d" % n).to_bytes(4, "big") for n in range(50_000))


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("content", [b"", b"x", TEXT, NOISE], ids=["empty", "byte", "text", "noise"])
def test_round_trip(codec: Compression, content: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, content))) == content
    assert bytes(decompress(codec, bytearray(compress(codec, memoryview(content))), max(len(content), 1))) == content


def test_lz4_blocks_are_independent_and_small() -> None:
    """Kafka's KafkaLZ4BlockInputStream refuses linked blocks; another decoder proves that the header's checksum is right."""
    frame = compress(Compression.LZ4, TEXT)
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0x20
    assert frame[-4:] == bytes(4)
    assert bytes(cramjam.lz4.decompress(frame)) == TEXT
    (first,) = struct.unpack_from("<I", frame, 7)
    assert bytes(cramjam.lz4.decompress_block(frame[11 : 11 + first], output_len=65536)) == TEXT[:65536]


def test_lz4_frames_of_others_are_read() -> None:
    """librdkafka and others write linked blocks, larger ones, and checksums."""
    assert bytes(decompress(Compression.LZ4, bytes(cramjam.lz4.compress(TEXT)))) == TEXT


def test_snappy_is_written_as_xerial_and_read_raw_as_well() -> None:
    framed = compress(Compression.SNAPPY, TEXT)
    assert framed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    assert bytes(decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)))) == TEXT


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_the_limit_holds_to_the_byte(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    assert len(decompress(codec, packed, len(TEXT))) == len(TEXT)
    with pytest.raises(CorruptBatch, match="more than the allowed"):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_a_bomb_takes_no_more_than_its_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(32 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(codec, bomb, 1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_a_size_that_raw_snappy_claims_is_checked_before_it_is_allocated() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + b"xx"
    for payload in (claim, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(claim)) + claim):
        with pytest.raises(CorruptBatch, match="more than the allowed"):
            decompress(Compression.SNAPPY, payload)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_damage_is_refused(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    with pytest.raises(CorruptBatch):
        decompress(codec, packed[: len(packed) // 2])
    with pytest.raises(CorruptBatch):
        decompress(codec, b"this is not compressed at all")


def test_snappy_block_lengths_are_checked() -> None:
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for length in (0, -5, 100):
        with pytest.raises(CorruptBatch, match="snappy block"):
            decompress(Compression.SNAPPY, header + struct.pack(">i", length) + b"ab")


def test_the_words_that_growing_depends_on() -> None:
    """`_decompress_growing` tells a full output from damage by cramjam's words: a release that changes them must fail here."""
    for codec in (cramjam.lz4, cramjam.zstd):
        with pytest.raises(cramjam.DecompressionError, match="failed to write whole buffer"):
            codec.decompress_into(codec.compress(TEXT), bytearray(10))


# --- payloads that hold nothing ------------------------------------------------------------------------------------------

_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def _xerial(block: bytes, count: int) -> bytes:
    packed = bytes(cramjam.snappy.compress_raw(block))
    return _XERIAL + (struct.pack(">i", len(packed)) + packed) * count


@pytest.mark.parametrize("block", [b"", b"x"], ids=["empty", "of one byte"])
def test_snappy_blocks_that_hold_little_are_not_all_looked_at(block: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 MiB of them took seconds, and 700 MiB of memory."""
    looked: list[int] = []
    decompress_block = compression._decompress_snappy_block
    monkeypatch.setattr(compression, "_decompress_snappy_block", lambda *given: (looked.append(1), decompress_block(*given))[1])
    with pytest.raises(PayloadTooLarge):
        decompress(Compression.SNAPPY, _xerial(block, 100_000), 4 << 20)
    assert 4_000 < len(looked) < 5_000
    content, cost = decompress_counting(Compression.SNAPPY, _xerial(block, 1_000), 4 << 20)
    assert (bytes(content), cost) == (block * 1_000, 1_000 * 1_024)


_EMPTY_FRAME = {codec: compress(codec, b"") for codec in (Compression.LZ4, Compression.ZSTD)}
_SKIPPABLE = struct.pack("<II", 0x184D2A50, 0)
_GZIP = zlib.compressobj(6, wbits=31)
_NOTHING = {
    "gzip blocks": (
        Compression.GZIP,
        _GZIP.compress(b"") + _GZIP.flush(zlib.Z_SYNC_FLUSH) + b"\x00\x00\x00\xff\xff" * 20_000 + _GZIP.flush(),
    ),
    "lz4 frames": (Compression.LZ4, _EMPTY_FRAME[Compression.LZ4] * 10_000),
    "lz4 skippable frames": (Compression.LZ4, _EMPTY_FRAME[Compression.LZ4] + _SKIPPABLE * 10_000),
    "lz4 blocks": (
        Compression.LZ4,
        _EMPTY_FRAME[Compression.LZ4][:-4] + b"\x00\x00\x00\x80" * 20_000 + bytes(4),
    ),
    "zstd frames": (Compression.ZSTD, _EMPTY_FRAME[Compression.ZSTD] * 10_000),
    "zstd skippable frames": (Compression.ZSTD, _EMPTY_FRAME[Compression.ZSTD] + _SKIPPABLE * 10_000),
    "zstd blocks": (Compression.ZSTD, b"\x28\xb5\x2f\xfd\x00\x58" + bytes(3) * 30_000 + b"\x01\x00\x00"),
}


@pytest.mark.parametrize(("codec", "payload"), _NOTHING.values(), ids=_NOTHING)
def test_what_holds_nothing_costs_eight_times_its_size(codec: Compression, payload: bytes) -> None:
    content, cost = decompress_counting(codec, payload, 1 << 20)
    assert len(content) == 0
    assert cost >= 8 * (len(payload) - 256) > 400_000


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
@pytest.mark.parametrize("content", [b"", b"x", b"x" * 2_000, TEXT, NOISE], ids=["empty", "byte", "few", "text", "noise"])
def test_what_compressors_write_costs_hardly_more_than_its_content(codec: Compression, content: bytes) -> None:
    cost = decompress_counting(codec, compress(codec, content), 1 << 20)[1]
    assert len(content) <= cost <= 1.01 * len(content) + 1_024


@pytest.mark.parametrize("behind", [b"x", zlib.compress(b"", wbits=31), zlib.compress(TEXT, wbits=31)])
def test_gzip_ends_where_its_first_member_ends(behind: bytes) -> None:
    """Java reads on in a second member and librdkafka does not: what one of them cannot read is not taken."""
    payload = zlib.compress(TEXT, wbits=31) + behind
    with pytest.raises(CorruptBatch, match="bytes follow"):
        decompress_counting(Compression.GZIP, payload, 1 << 20, is_new=True)
    assert bytes(decompress(Compression.GZIP, payload)) == TEXT, "logs hold what earlier releases took"


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_memory_that_the_system_has_not_is_told_as_such(codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    """mmap says OSError, and what decompresses in a thread knew only MemoryError."""

    def refuse(*given: object) -> mmap.mmap:
        raise OSError(12, "Cannot allocate memory")

    packed = compress(codec, bytes(60 << 20))
    monkeypatch.setattr(compression.mmap, "mmap", refuse)
    with pytest.raises(MemoryError, match="no memory for"):
        decompress(codec, packed)
    assert decompress(codec, compress(codec, TEXT)) == TEXT
