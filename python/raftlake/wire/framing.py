"""Cuts a byte stream into Kafka frames: a big-endian i32 size, then that many bytes.

Shaped for `asyncio.BufferedProtocol` without importing it: the transport fills what `get_buffer` returned and reports how much.
Small frames are copied out of one staging buffer, many per read; a large frame is received straight into its own memory, which
begins to grow with the next read: a caller that does not want it yet stops reading. Each frame owns its memory, so slices of it
may be kept and stamped in place.

Invariants: the frames do not depend on how the bytes were cut into reads; memory held is bounded by what was received
(times four) plus the staging buffer, not by what a size prefix claims.
"""

from __future__ import annotations

from raftlake.errors import WireError
from raftlake.wire.primitives import I32

#: One read takes at most this much while frames are small.
STAGING_BYTES = 64 * 1024
#: Memory that is given to a large frame with its second read; more follows as its bytes arrive.
FRAME_BYTES_FIRST = 1 << 20
#: How an answer begins, and requests.
_HTTP = frozenset((b"HTTP", b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI"))
#: Enough of a frame to tell who sends it.
BEGINNING_BYTES = 256


def spoken(size: int) -> list[str]:
    """The protocol whose first four bytes were taken for the size of a frame; empty where that is none of the usual ones."""
    begins = size.to_bytes(4, "big", signed=True)
    if begins in _HTTP:
        return ["HTTP"]
    # A record of a handshake, or an alert.
    return ["TLS"] if begins[0] in (0x15, 0x16) and begins[1] == 3 else []


class FrameDecoder:
    """One connection's receiving side. `frame_bytes_max` bounds the size of a frame without its prefix."""

    __slots__ = ("_filled", "_frame", "_frame_bytes_max", "_frame_size", "_staged", "_staging", "failure")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._staging = bytearray(STAGING_BYTES)
        self._staged = 0
        #: The large frame under way (None: frames are cut from the staging buffer), its whole size and what arrived.
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._filled = 0
        #: Set when a bad size followed good frames: those were returned, and every later call raises this.
        self.failure: WireError | None = None

    @property
    def large_bytes(self) -> int:
        """The size of the large frame under way, without its prefix; 0 when there is none."""
        return self._frame_size if self._frame is not None else 0

    @property
    def beginning(self) -> bytes:
        """What the large frame under way begins with, as far as it has come."""
        return b"" if self._frame is None else bytes(memoryview(self._frame)[: min(self._filled, BEGINNING_BYTES)])

    def close(self) -> None:
        """No more bytes come: give the memory back."""
        self._frame, self._filled, self._staged = None, 0, 0
        self._staging = bytearray()

    @property
    def is_amid_frame(self) -> bool:
        """Whether a frame has begun that is not complete."""
        return self._frame is not None or self._staged > 0

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Where the next bytes go; never empty. The hint of the transport is not needed."""
        if self.failure is not None:
            raise self.failure
        frame = self._frame
        if frame is None:
            return memoryview(self._staging)[self._staged :]
        if self._filled == len(frame):
            # Grown here and by a copy: the transport may still hold the old memory while `buffer_updated` runs.
            grown = bytearray(min(self._frame_size, max(FRAME_BYTES_FIRST, 4 * len(frame))))
            grown[: self._filled] = frame
            self._frame = frame = grown
        return memoryview(frame)[self._filled :]

    def buffer_updated(self, count: int) -> list[bytearray]:
        """`count` bytes were written into the last buffer: the frames that are complete now, without their size prefix.

        Raises WireError for a negative or oversized size; if complete frames precede it in this read, they are returned and
        `failure` is set instead, so that a caller handles them first and then closes the connection.
        """
        if self.failure is not None:
            raise self.failure
        frame = self._frame
        if frame is None:
            self._staged += count
            return self._cut_staging()
        self._filled += count
        if self._filled < self._frame_size:
            return []
        self._frame = None
        return [frame]

    def _cut_staging(self) -> list[bytearray]:
        staging, staged = self._staging, self._staged
        frames: list[bytearray] = []
        position = 0
        while staged - position >= 4:
            (size,) = I32.unpack_from(staging, position)
            if not 0 <= size <= self._frame_bytes_max:
                hint = "".join(f": the other end speaks {protocol}, and not Kafka's protocol" for protocol in spoken(size))
                self.failure = WireError(f"frame of {size} bytes, allowed are 0 to {self._frame_bytes_max}{hint}")
                if frames:
                    return frames
                raise self.failure
            end = position + 4 + size
            if end > staged:
                if size > STAGING_BYTES - 4:
                    self._begin_large(size, position + 4)
                    return frames
                break
            frames.append(staging[position + 4 : end])
            position = end
        self._staged = staged - position
        if position and self._staged:
            staging[: self._staged] = staging[position:staged]
        return frames

    def _begin_large(self, size: int, start: int) -> None:
        """The rest of the staging buffer is the beginning of a frame that does not fit into it."""
        self._filled = self._staged - start
        self._frame = self._staging[start : self._staged]
        self._frame_size = size
        self._staged = 0
