"""Hostile bytes: decoders return a message or raise WireError, and take no memory for what is only claimed."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from crc32c import crc32c
from hypothesis import strategies as st

import wiregen
from raftlake.errors import WireError
from raftlake.wire.api import (
    API_TABLE,
    ApiKey,
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_type,
    response_type,
)
from raftlake.wire.batches import (
    Record,
    build_batch,
    decode_records,
    iterate_headers,
    parse_control_record,
    parse_header,
    validate,
)
from raftlake.wire.compression import Compression, decompress

ALL_VERSIONS = [(api.key, version) for api in API_TABLE.values() for version in range(api.version_min, api.version_max + 1)]
versions = st.sampled_from(ALL_VERSIONS)


def survives(decode: Callable[..., Any], *arguments: Any) -> None:
    """Returns or raises WireError; anything else fails the test."""
    with contextlib.suppress(WireError):
        decode(*arguments)


@hypothesis.settings(max_examples=300)
@hypothesis.given(versions, st.binary(max_size=200))
def test_random_request_bodies(api: tuple[ApiKey, int], body: bytes) -> None:
    survives(decode_request, struct.pack(">hhih", *api, 1, -1) + body)


@hypothesis.given(st.binary(max_size=60))
def test_random_frames(frame: bytes) -> None:
    survives(decode_request, frame)


@hypothesis.settings(max_examples=300)
@hypothesis.given(versions, st.binary(max_size=200))
def test_random_responses(api: tuple[ApiKey, int], frame: bytes) -> None:
    survives(decode_response, *api, frame)


def hot_request(key: ApiKey, version: int) -> st.SearchStrategy[Any]:
    return wiregen.produce_requests(version) if key is ApiKey.PRODUCE else wiregen.fetch_requests(version)


def hot_response(key: ApiKey, version: int) -> st.SearchStrategy[Any]:
    return wiregen.produce_responses(version) if key is ApiKey.PRODUCE else wiregen.fetch_responses(version)


KIO_OR_HOT = [api for api in ALL_VERSIONS if api[0] not in wiregen.HOT[2:]]


def damaged(data: st.DataObject, frame: bytearray, first: int) -> bytearray:
    """A frame that was right, with some bytes behind `first` changed, cut off or inserted."""
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(min(first, len(frame)), len(frame)))
        match data.draw(st.sampled_from(("set", "cut", "insert"))):
            case "set" if position < len(frame):
                frame[position] = data.draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)))
            case "insert":
                frame[position:position] = data.draw(st.binary(min_size=1, max_size=5))
            case _:
                del frame[position:]
    return frame


@hypothesis.settings(max_examples=300)
@hypothesis.given(st.sampled_from(KIO_OR_HOT), st.data())
def test_damaged_requests(api: tuple[ApiKey, int], data: st.DataObject) -> None:
    strategy = hot_request(*api) if api[0] in wiregen.HOT else wiregen.kio_messages(request_type(*api))
    frame = bytearray(b"".join(encode_request(*api, 1, None, data.draw(strategy))))[4:]
    survives(decode_request, damaged(data, frame, 10))


@hypothesis.settings(max_examples=300)
@hypothesis.given(st.sampled_from(KIO_OR_HOT), st.data())
def test_damaged_responses(api: tuple[ApiKey, int], data: st.DataObject) -> None:
    strategy = hot_response(*api) if api[0] in wiregen.HOT else wiregen.kio_messages(response_type(*api))
    frame = bytearray(b"".join(encode_response(RequestHeader(*api, 1, None), data.draw(strategy))))[4:]
    survives(decode_response, *api, damaged(data, frame, 4))


@pytest.mark.parametrize("filler", [b"\xff", b"\x7f", b"\xff\xff\xff\xff\x0f", b"\x00", b"\x01", b"\x02"], ids=bytes.hex)
def test_lengths_that_claim_the_world_take_no_memory(filler: bytes) -> None:
    """A frame of 4 KiB costs a bounded multiple of itself, even if every length in it says 2^31 or every element is tiny."""
    body = filler * (4096 // len(filler))
    for key, version in ALL_VERSIONS:
        head = struct.pack(">hhih", key, version, 1, -1) + b"\x00" * API_TABLE[key].is_flexible(version)
        # Builds the codec: that memory is not the message's.
        survives(decode_request, head)
        survives(decode_response, key, version, b"")
        tracemalloc.start()
        try:
            survives(decode_request, head + body)
            survives(decode_response, key, version, body)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 2 << 20, (key, version)


records = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 1 << 41),
        st.one_of(st.none(), st.binary(max_size=20)),
        st.one_of(st.none(), st.binary(max_size=200)),
        st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=5,
)
codecs = st.sampled_from([codec.name.lower() for codec in Compression])


@hypothesis.given(st.binary(max_size=200))
def test_random_batches(garbage: bytes) -> None:
    survives(validate, garbage)
    survives(lambda: list(iterate_headers(garbage)))
    survives(lambda: list(decode_records(garbage)))


@hypothesis.settings(max_examples=200)
@hypothesis.given(records, codecs, st.data())
def test_a_changed_batch_is_refused(content: list[Record], codec: str, data: st.DataObject) -> None:
    """Any change behind the leader epoch is found: by the CRC, or by the fields in front of it."""
    batch = build_batch(content, timestamp_ms=5, compression=codec)
    position = data.draw(st.integers(16, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        validate(batch)


@hypothesis.settings(max_examples=200)
@hypothesis.given(records, codecs, st.data())
def test_a_damaged_payload_with_a_right_crc(content: list[Record], codec: str, data: st.DataObject) -> None:
    """A hostile producer computes a right CRC over nonsense: reading it must be safe all the same."""
    batch = build_batch(content, timestamp_ms=5, compression=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(57, len(batch) - 1))] = data.draw(st.integers(0, 255))
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    survives(lambda: list(decode_records(batch)))


@hypothesis.given(st.sampled_from(Compression), st.binary(max_size=100))
def test_compressed_garbage(codec: Compression, garbage: bytes) -> None:
    survives(decompress, codec, garbage, 1 << 20)


@hypothesis.given(
    st.one_of(st.none(), st.just(b"\0\0\0\2"), st.binary(max_size=6)), st.one_of(st.none(), st.binary(max_size=40))
)
def test_control_garbage(key: bytes | None, value: bytes | None) -> None:
    survives(parse_control_record, key, value)


@hypothesis.given(records, codecs)
def test_what_was_built_is_valid(content: list[Record], codec: str) -> None:
    batch = build_batch(content, base_offset=9, leader_epoch=3, timestamp_ms=5, compression=codec)
    assert validate(batch) == [parse_header(batch)]
    assert [record._replace(offset=0) for record in decode_records(batch)] == content
    assert [record.offset for record in decode_records(batch)] == list(range(9, 9 + len(content)))
