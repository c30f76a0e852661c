"""Compression codecs: the framings that Kafka's Java classes demand, and bounds on what hostile payloads can take."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import cramjam
import pytest

from raftlake.errors import CorruptBatch
from raftlake.wire.compression import Compression, compress, decompress

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
