"""Framing: who owns the memory of a frame, how much a size prefix can claim, and what comes before a refusal."""

from __future__ import annotations

import tracemalloc

import pytest

from raftlake.errors import WireError
from raftlake.wire.framing import BEGINNING_BYTES, FRAME_BYTES_FIRST, STAGING_BYTES, FrameDecoder


def put(decoder: FrameDecoder, content: bytes) -> list[bytearray]:
    """One read of `content`, which must fit into the buffer."""
    buffer = decoder.get_buffer(-1)
    buffer[: len(content)] = content
    return decoder.buffer_updated(len(content))


def put_all(decoder: FrameDecoder, content: bytes) -> list[bytearray]:
    frames: list[bytearray] = []
    while content:
        size = min(len(content), len(decoder.get_buffer(-1)))
        frames += put(decoder, content[:size])
        content = content[size:]
    return frames


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def test_frames_own_their_memory() -> None:
    decoder = FrameDecoder(1 << 20)
    first, second = put(decoder, framed(b"abc") + framed(b"defg"))
    put(decoder, framed(b"zzzzzzzzzzzz"))
    first[0:1] = b"X"
    assert (first, second) == (b"Xbc", b"defg")


def test_an_empty_frame_is_a_frame() -> None:
    assert put(FrameDecoder(10), bytes(8)) == [b"", b""]


def test_a_large_frame_is_received_into_its_own_memory() -> None:
    size = 3 * STAGING_BYTES
    decoder = FrameDecoder(1 << 20)
    assert put(decoder, framed(b"s") + size.to_bytes(4, "big") + b"begin") == [b"s"]
    buffer = decoder.get_buffer(-1)
    assert len(buffer) == size - 5
    buffer[:] = b"x" * len(buffer)
    (frame,) = decoder.buffer_updated(len(buffer))
    assert frame == b"begin" + b"x" * (size - 5)
    buffer[0:1] = b"y"
    assert frame[5:6] == b"y"
    assert put(decoder, framed(b"next")) == [b"next"]


def test_a_frame_of_the_staging_buffers_size() -> None:
    for size in (STAGING_BYTES - 5, STAGING_BYTES - 4, STAGING_BYTES - 3, STAGING_BYTES):
        content = bytes(range(256)) * (size // 256 + 1)
        assert put_all(FrameDecoder(1 << 20), framed(content[:size]) + framed(b"n")) == [content[:size], b"n"]


def test_memory_follows_what_arrived_and_not_what_was_claimed() -> None:
    decoder = FrameDecoder(512 << 20)
    tracemalloc.start()
    try:
        put(decoder, (500 << 20).to_bytes(4, "big") + b"x")
        assert len(decoder.get_buffer(-1)) <= FRAME_BYTES_FIRST
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 2 * FRAME_BYTES_FIRST


def test_a_frame_that_grows_is_whole() -> None:
    content = b"".join(n.to_bytes(4, "big") for n in range(9 * FRAME_BYTES_FIRST // 4 + 3))
    (frame,) = put_all(FrameDecoder(64 << 20), framed(content))
    assert frame == content


@pytest.mark.parametrize("size", [-1, -(1 << 31), 101, (1 << 31) - 1])
def test_bad_sizes_are_refused(size: int) -> None:
    decoder = FrameDecoder(100)
    with pytest.raises(WireError, match="frame of"):
        put(decoder, size.to_bytes(4, "big", signed=True))
    with pytest.raises(WireError):
        decoder.get_buffer(-1)
    with pytest.raises(WireError):
        decoder.buffer_updated(1)


@pytest.mark.parametrize(
    ("begins", "protocol"),
    [(b"HTTP", "HTTP"), (b"GET ", "HTTP"), (b"POST", "HTTP"), (b"\x16\x03\x01\x02", "TLS"), (b"\x15\x03\x03\x00", "TLS")],
)
def test_another_protocol_is_named(begins: bytes, protocol: str) -> None:
    with pytest.raises(WireError, match=f"the other end speaks {protocol}, and not Kafka's protocol"):
        put(FrameDecoder(100 << 20), begins)


def test_a_bad_size_that_is_no_protocol_names_none() -> None:
    for begins in (b"HTTQ", b"\x16\x04\x00\x00", b"\x7f\x03\x00\x00"):
        with pytest.raises(WireError, match="frame of") as refused:
            put(FrameDecoder(100 << 20), begins)
        assert "speaks" not in str(refused.value)


def test_good_frames_before_a_bad_size_are_not_lost() -> None:
    decoder = FrameDecoder(100)
    assert put(decoder, framed(b"good") + b"\xff" * 4) == [b"good"]
    assert decoder.failure is not None
    with pytest.raises(WireError):
        decoder.get_buffer(-1)


def test_a_frame_is_under_way_from_its_first_byte_to_its_last() -> None:
    decoder = FrameDecoder(1 << 20)
    assert not decoder.is_amid_frame
    whole = framed(b"abc")
    for byte in whole[:-1]:
        assert put(decoder, bytes([byte])) == []
        assert decoder.is_amid_frame, "a size that has begun counts too"
        assert decoder.large_bytes == 0 and decoder.beginning == b""
    assert put(decoder, whole[-1:]) == [b"abc"]
    assert not decoder.is_amid_frame
    assert put(decoder, framed(b"x") + b"\0") == [b"x"]
    assert decoder.is_amid_frame


def test_the_beginning_of_a_large_frame_is_what_has_come_of_it() -> None:
    """Memory that is given ahead of the bytes is no part of it."""
    size = 2 * FRAME_BYTES_FIRST
    decoder = FrameDecoder(1 << 30)
    put(decoder, size.to_bytes(4, "big") + b"begin")
    assert (decoder.large_bytes, decoder.beginning, decoder.is_amid_frame) == (size, b"begin", True)
    assert len(decoder.get_buffer(-1)) > BEGINNING_BYTES
    assert decoder.beginning == b"begin"
    put(decoder, b"x" * BEGINNING_BYTES)
    assert decoder.beginning == b"begin" + b"x" * (BEGINNING_BYTES - 5)


@pytest.mark.parametrize("begun", [b"\0\0", (1 << 20).to_bytes(4, "big") + b"large"], ids=["small", "large"])
def test_nothing_is_under_way_after_the_end(begun: bytes) -> None:
    decoder = FrameDecoder(1 << 30)
    put(decoder, begun)
    assert decoder.is_amid_frame
    decoder.close()
    assert (decoder.is_amid_frame, decoder.large_bytes, decoder.beginning) == (False, 0, b"")


def test_the_largest_allowed_frame_passes() -> None:
    assert put(FrameDecoder(100), framed(b"x" * 100)) == [b"x" * 100]
