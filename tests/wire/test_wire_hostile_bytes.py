"""Hostile bytes on a node's port: the connection they came on may die, the node and everybody else's connections may not."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from raftlake import LocalQuorum

pytestmark = pytest.mark.process


@pytest.fixture
def address(quorum: LocalQuorum) -> tuple[str, int]:
    host, port = quorum.bootstrap_servers.split(",")[0].rsplit(":", 1)
    return host, int(port)


@contextlib.contextmanager
def connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=10) as connection:
        yield connection


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def api_versions_request(correlation_id: int, version: int = 0, key: int = 18) -> bytes:
    return frame(struct.pack(">hhih", key, version, correlation_id, -1))


def receive_frame(connection: socket.socket) -> bytes:
    """One whole answer; b"" when the node closed the connection instead."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        try:
            chunk = connection.recv(65536)
        except ConnectionResetError:
            return b""
        if not chunk:
            return b""
        data += chunk
    return data[4:]


def require_serving(address: tuple[str, int]) -> None:
    with connected(address) as connection:
        connection.sendall(api_versions_request(7))
        answer = receive_frame(connection)
    correlation_id, error = struct.unpack_from(">ih", answer)
    assert (correlation_id, error) == (7, 0)


def send_hostile(connection: socket.socket, data: bytes) -> None:
    """Send and tell the node that nothing follows; it may have hung up in between."""
    with contextlib.suppress(ConnectionError, BrokenPipeError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def require_closed(connection: socket.socket) -> None:
    """The node closes; whatever it says before that is bounded."""
    received = 0
    while True:
        try:
            chunk = connection.recv(65536)
        except ConnectionResetError:
            return
        if not chunk:
            return
        received += len(chunk)
        assert received < 1_000_000


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), id="tls"),
        pytest.param(struct.pack(">i", -1) + b"x" * 100, id="negative-size"),
        pytest.param(struct.pack(">i", 2**31 - 1) + b"x" * 100, id="oversized"),
        pytest.param(struct.pack(">i", 0), id="empty-frame"),
        pytest.param(frame(b"\x00"), id="header-of-one-byte"),
        pytest.param(frame(struct.pack(">hhih", 999, 0, 1, -1)), id="unknown-api-key"),
        pytest.param(frame(struct.pack(">hhih", 0, 99, 1, -1)), id="unknown-produce-version"),
        pytest.param(frame(struct.pack(">hhih", 18, 0, 1, 30_000)), id="client-id-longer-than-the-frame"),
        pytest.param(frame(struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 2**31 - 1)), id="array-longer-than-the-frame"),
        pytest.param(frame(struct.pack(">hhih", 3, 9, 1, -1) + b"\x00" + b"\xff" * 10), id="endless-varint"),
        pytest.param(bytes(2), id="half-a-size"),
        pytest.param(struct.pack(">i", 1000) + bytes(10), id="half-a-frame"),
    ],
)
def test_the_connection_dies_and_the_node_serves(address: tuple[str, int], data: bytes) -> None:
    with connected(address) as bystander:
        with connected(address) as hostile:
            send_hostile(hostile, data)
            require_closed(hostile)
        bystander.sendall(api_versions_request(3))
        assert struct.unpack_from(">i", receive_frame(bystander)) == (3,)
    require_serving(address)


def test_an_unknown_version_of_api_versions_is_answered(address: tuple[str, int]) -> None:
    """KIP-511: error 35 in a version 0 body that lists what is supported, so that a newer client can step down."""
    with connected(address) as connection:
        names_and_tags = b"\x00" + b"\x07client" + b"\x021" + b"\x00"  # header tags, software name and version, body tags
        connection.sendall(frame(struct.pack(">hhih", 18, 77, 11, -1) + names_and_tags))
        answer = receive_frame(connection)
        correlation_id, error, count = struct.unpack_from(">ihi", answer)
        assert (correlation_id, error) == (11, 35)
        ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])}
        assert ranges[18][0] == 0
        # the same connection goes on with a version that both know
        connection.sendall(api_versions_request(12))
        assert struct.unpack_from(">ih", receive_frame(connection)) == (12, 0)


def test_private_requests_are_not_advertised(address: tuple[str, int]) -> None:
    """Clients that map API keys to an enumeration fail on keys that they do not know."""
    with connected(address) as connection:
        connection.sendall(api_versions_request(1))
        answer = receive_frame(connection)
    count = struct.unpack_from(">i", answer, 6)[0]
    keys = [key for key, _low, _high in struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])]
    assert max(keys) < 100
    assert {0, 1, 2, 3, 18, 52, 53, 54, 55} <= set(keys)


def test_requests_of_one_connection_are_answered_in_order(address: tuple[str, int]) -> None:
    with connected(address) as connection:
        connection.sendall(b"".join(api_versions_request(number) for number in range(200)))
        assert [struct.unpack_from(">i", receive_frame_of(connection))[0] for _ in range(200)] == list(range(200))


def receive_frame_of(connection: socket.socket) -> bytes:
    """Exactly one answer, leaving the next one in the socket."""
    size = struct.unpack(">i", receive_exactly(connection, 4))[0]
    return receive_exactly(connection, size)


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        assert chunk, "closed in the middle of an answer"
        data += chunk
    return data


def test_one_byte_at_a_time_is_a_request_too(address: tuple[str, int]) -> None:
    with connected(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in api_versions_request(5):
            connection.sendall(bytes([byte]))
        assert struct.unpack_from(">i", receive_frame(connection)) == (5,)


def test_connections_that_say_nothing_cost_nobody_else(address: tuple[str, int]) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(connected(address))
        require_serving(address)
    require_serving(address)


def test_random_frames_kill_nothing(address: tuple[str, int], record_property: pytest.RecordProperty) -> None:
    """Well-framed nonsense for every API key and version. The seed is printed, so that a failure can be replayed."""
    seed = int(os.environ.get("RAFTLAKE_FUZZ_SEED", random.SystemRandom().randrange(2**32)))
    record_property("seed", seed)
    print(f"RAFTLAKE_FUZZ_SEED={seed}")
    rng = random.Random(seed)
    for _ in range(300):
        header = struct.pack(
            ">hhih",
            rng.choice([0, 1, 2, 3, 10, 18, 19, 20, 22, 23, 32, 52, 53, 54, 55, 59, 60, 10595, 10650]),
            rng.randrange(-1, 20),
            1,
            -1,
        )
        with connected(address) as connection:
            send_hostile(connection, frame(header + rng.randbytes(rng.randrange(200))))
            require_closed(connection)
    require_serving(address)
