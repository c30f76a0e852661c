"""One connection to a peer: what it tells its channel, and what no longer once it is dropped."""

from __future__ import annotations

from typing import Any

from raftlake.errors import WireError
from raftlake.runtime.peers.connection import PeerSocket


class Heard:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.lost: list[Exception | None] = []
        self.garbage: list[WireError] = []

    def on_frame(self, connection: PeerSocket, frame: bytearray) -> None:
        self.frames.append(bytes(frame))

    def on_lost(self, connection: PeerSocket, error: Exception | None) -> None:
        self.lost.append(error)

    def on_garbage(self, connection: PeerSocket, error: WireError) -> None:
        self.garbage.append(error)


class Transport:
    aborted = False

    def abort(self) -> None:
        self.aborted = True


def connected() -> tuple[Heard, PeerSocket, Transport]:
    heard, transport = Heard(), Transport()
    connection = PeerSocket(heard, 100)
    made: Any = transport
    connection.connection_made(made)
    return heard, connection, transport


def receive(connection: PeerSocket, data: bytes) -> None:
    while data:
        buffer = connection.get_buffer(len(data))
        piece, data = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(piece)] = piece
        connection.buffer_updated(len(piece))


def test_frames_and_the_end_are_told() -> None:
    heard, connection, _ = connected()
    receive(connection, b"\x00\x00\x00\x02ab\x00\x00\x00\x01c")
    connection.connection_lost(None)
    connection.connection_lost(None)
    assert heard.frames == [b"ab", b"c"] and heard.lost == [None] and not connection.is_open


def test_a_frame_that_is_too_large_is_garbage() -> None:
    heard, connection, _ = connected()
    receive(connection, b"\x00\x00\x00\x02ab\x7f\x00\x00\x00")
    assert heard.frames == [b"ab"] and len(heard.garbage) == 1


def test_a_connection_that_was_dropped_reports_nothing_more() -> None:
    heard, connection, transport = connected()
    connection.drop()
    connection.connection_lost(ConnectionResetError())
    assert transport.aborted and heard.lost == []
