"""Files of changes, byte for byte as Spark 4.2's own writers make them (StateStoreChangelogWriterV2 and V4)."""

from __future__ import annotations

import hashlib

import cramjam
import pytest

from raftlake.checkpoints.changelog_file import encode
from raftlake.checkpoints.lz4_blocks import BLOCK_BYTES, compress, xxh32
from raftlake.client.types import Record
from raftlake.errors import WrongState

LINEAGE = ((1, "a-1"), (2, "b-2"))
#: What Spark wrote of `CHANGES`.
V4 = (
    "4c5a34426c6f636b2586000000a40000003332a404f7210002763400535b7b2276657273696f6e223a312c22636865636b706f696e74556e69717565"
    "4964223a22612d31227d2c29001f32290004f008622d32227d5d01000000036b65790000000576616c75651100010200e01000000004676f6e65ffff"
    "ffff110d00406c6973740800506974656d200900e066726f6d00000005756e74696c004c5a34426c6f636b15000000000000000000000000"
)
V2 = (
    "4c5a34426c6f636b254b0000004f0000001cdb880ef0060002763201000000036b65790000000576616c75651100010200e01000000004676f6e65ff"
    "ffffff110d00406c6973740800506974656d200900e066726f6d00000005756e74696c004c5a34426c6f636b15000000000000000000000000"
)
V2_ZSTD = (
    "28b52ffd00485402008284101dc0258d01ffffffffe6dabdb75d7b6f420ec2f9cf7ae97f18db92909d026baec4ce8fd482dc5f205c79ff02a4de4fec"
    "ee6252c9fdc306991eedfc015484df182d38010033d004010000"
)
#: The SHA-256 of both with a value of three blocks behind the others.
LARGE_V4 = "3f9f8e6ce61726bed51ddc835babe07dd56034c480612c8301d64dff24375a44"
LARGE_V2 = "88d3447e54d2ccc5716e9ad7223d4065ffc8b8cd7805f0a2b5b8507c1285b1e3"


def change(key: bytes | None, value: bytes | None, op: bytes | None = None) -> Record:
    headers = () if op is None else (("op", op),)
    return Record(topic="t", partition=0, offset=7, timestamp_ms=0, key=key, value=value, headers=headers)


CHANGES = (
    change(b"key", b"value"),
    change(b"", b""),
    change(b"gone", None),
    change(b"list", b"item", b"merge"),
    change(b"from", b"until", b"range"),
)
LARGE = change(b"big", bytes(number % 251 for number in range(70_000)))


def test_changes_and_lineage_are_what_spark_writes() -> None:
    assert encode(CHANGES, LINEAGE, "lz4").hex() == V4
    assert encode(CHANGES, None, "lz4").hex() == V2
    assert hashlib.sha256(encode((*CHANGES, LARGE), LINEAGE, "lz4")).hexdigest() == LARGE_V4
    assert hashlib.sha256(encode((*CHANGES, LARGE), None, "lz4")).hexdigest() == LARGE_V2


def test_the_codec_of_the_query_is_taken() -> None:
    mine, sparks = encode(CHANGES, None, "zstd"), bytes.fromhex(V2_ZSTD)
    assert bytes(cramjam.zstd.decompress(mine)) == bytes(cramjam.zstd.decompress(sparks))
    with pytest.raises(WrongState, match=r"the query has .*compression\.codec=snappy, and .* with one of lz4, zstd alone"):
        encode(CHANGES, None, "snappy")


def test_what_is_no_change_is_refused_with_its_offset() -> None:
    with pytest.raises(WrongState, match="offset 7 of t-0 is no change of state"):
        encode([change(None, b"{}")], None, "lz4")
    with pytest.raises(WrongState, match="offset 7 of t-0 has an unknown header op: b'new'"):
        encode([change(b"key", b"value", b"new")], None, "lz4")


def test_more_ids_than_spark_reads_are_refused() -> None:
    with pytest.raises(WrongState, match="take over 65,535 bytes"):
        encode((), [(version, "x" * 36) for version in range(1000)], "lz4")


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 5])
def test_blocks_hold_the_content_whatever_its_size(size: int) -> None:
    content = bytes(number * number % 256 for number in range(size))
    stream, found, at = compress(content), b"", 0
    while at < len(stream):
        packed, raw, check = (int.from_bytes(stream[at + 9 + 4 * index : at + 13 + 4 * index], "little") for index in range(3))
        body = stream[at + 21 : at + 21 + packed]
        is_raw = stream[at + 8] & 0xF0 == 0x10
        block = body if is_raw else bytes(cramjam.lz4.decompress_block(body, output_len=raw))
        assert raw <= BLOCK_BYTES and len(block) == raw and check == (xxh32(block) & 0x0FFFFFFF if raw else 0)
        found, at = found + block, at + 21 + packed
    assert found == content and at == len(stream)


def test_noise_is_kept_as_it_is() -> None:
    noise = hashlib.shake_256(b"noise").digest(1000)
    assert noise in compress(noise)
