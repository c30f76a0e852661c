"""Framing against a plain model: the same frames, and the same refusal, however the bytes are cut into reads."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from raftlake.errors import WireError
from raftlake.wire import framing
from raftlake.wire.framing import FrameDecoder

FRAME_BYTES_MAX = 5000


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which small inputs reach every path: staging, large frames, their growth."""
    monkeypatch.setattr(framing, "STAGING_BYTES", 64)
    monkeypatch.setattr(framing, "FRAME_BYTES_FIRST", 100)


def feed(stream: bytes, cuts: list[int]) -> tuple[list[bytes], bool]:
    """The frames and whether the stream was refused; reads hold at most cuts[i] bytes, in turn."""
    decoder = FrameDecoder(FRAME_BYTES_MAX)
    frames: list[bytes] = []
    position = turn = 0
    try:
        while position < len(stream):
            buffer = decoder.get_buffer(-1)
            assert len(buffer) > 0
            size = min(len(buffer), cuts[turn % len(cuts)], len(stream) - position)
            buffer[:size] = stream[position : position + size]
            frames += map(bytes, decoder.buffer_updated(size))
            position += size
            turn += 1
        if decoder.failure is not None:
            raise decoder.failure
    except WireError:
        return frames, True
    return frames, False


def model(stream: bytes) -> tuple[list[bytes], bool]:
    frames: list[bytes] = []
    while len(stream) >= 4:
        size = int.from_bytes(stream[:4], "big", signed=True)
        if not 0 <= size <= FRAME_BYTES_MAX:
            return frames, True
        if len(stream) < 4 + size:
            break
        frames.append(stream[4 : 4 + size])
        stream = stream[4 + size :]
    return frames, False


sizes = st.one_of(st.integers(0, 10), st.integers(50, 130), st.integers(300, FRAME_BYTES_MAX))
frames = st.tuples(sizes, st.binary(min_size=1, max_size=3)).map(lambda drawn: (drawn[1] * drawn[0])[: drawn[0]])
streams = st.lists(frames, max_size=6).map(lambda contents: b"".join(len(c).to_bytes(4, "big") + c for c in contents))
tails = st.one_of(
    st.just(b""),
    st.binary(max_size=8),
    st.sampled_from((-1, FRAME_BYTES_MAX + 1)).map(lambda n: n.to_bytes(4, "big", signed=True) + b"more"),
)


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(streams, tails, st.lists(st.integers(1, 400), min_size=1, max_size=5))
def test_cuts_do_not_matter(stream: bytes, tail: bytes, cuts: list[int]) -> None:
    expected = model(stream + tail)
    assert feed(stream + tail, cuts) == expected
    assert feed(stream + tail, [1 << 30]) == expected


@hypothesis.settings(max_examples=20, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(streams, tails)
def test_one_byte_at_a_time(stream: bytes, tail: bytes) -> None:
    assert feed(stream + tail, [1]) == model(stream + tail)
