"""Bytes that are no request, on both listeners: a node closes such a connection and goes on."""

from __future__ import annotations

import contextlib
import random
import socket
import struct

import pytest
from siegekit import Siege

pytestmark = pytest.mark.process

CONNECTIONS = 60
#: Header of a request as Kafka frames it: length, API key, version, correlation id.
_HEADER = struct.Struct(">ihhi")


def send(port: int, data: bytes) -> None:
    """Send all of it, or as much as is taken before the connection is closed."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass


def test_random_bytes_on_both_listeners(siege: Siege) -> None:
    draw = random.Random(1)
    with siege.attack("random bytes"):
        for _ in range(CONNECTIONS):
            for node in siege.quorum.nodes.values():
                send(node.port, draw.randbytes(draw.randrange(1, 4096)))
                send(node.http_port, draw.randbytes(draw.randrange(1, 4096)))


def test_frames_with_every_api_key_and_a_random_body(siege: Siege) -> None:
    draw = random.Random(2)
    with siege.attack("framed garbage"):
        for key in (*range(100), 10100, -1, 32767):
            for node in siege.quorum.nodes.values():
                body = draw.randbytes(draw.randrange(0, 512))
                version = draw.choice((0, 1, 2, 5, 12, -1, 32767))
                send(node.port, _HEADER.pack(len(body) + 8, key, version, 7) + body)


def test_a_length_that_promises_the_largest_frame(siege: Siege) -> None:
    with siege.attack("frames of 2 GiB and of 100 MiB that never come"), contextlib.ExitStack() as stack:
        for node in siege.quorum.nodes.values():
            for length in (2**31 - 1, -1, 100 << 20):
                connection = stack.enter_context(socket.create_connection((node.address.split(":")[0], node.port), timeout=5))
                with contextlib.suppress(OSError):
                    connection.sendall(struct.pack(">i", length) + b"x" * 1000)
