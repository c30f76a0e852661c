"""Does a node answer at an address, and whom does it follow? ApiVersions and Metadata requests, as any Kafka client begins.

For tools that have to know whether a quorum is alive without joining it; raises nothing for one that is not.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from raftlake.replica.config import Endpoint

_REQUEST = struct.Struct(">ihhih")
_HEAD = struct.Struct(">ii")
_SHORT = struct.Struct(">h")
_API = struct.Struct(">hhh")
_INT = struct.Struct(">i")
METADATA = 3
API_VERSIONS = 18
CORRELATION = 4_711
#: More than any answer without topics holds.
ANSWER_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """Something speaks the protocol; what it did not say is None, -1 and nothing."""

    cluster_id: str | None = None
    leader_id: int = -1
    #: Where clients reach the nodes that it knows.
    nodes: Mapping[int, Endpoint] = field(default_factory=dict)


def answers(endpoint: Endpoint, timeout_seconds: float) -> bool:
    """Whether something at `endpoint` speaks the protocol."""
    return ask(endpoint, timeout_seconds) is not None


def ask(endpoint: Endpoint, timeout_seconds: float) -> Answer | None:
    """What the node at `endpoint` says of its quorum; None when nothing there speaks the protocol."""
    try:
        with socket.create_connection((endpoint.host, endpoint.port), timeout_seconds) as connection:
            connection.settimeout(timeout_seconds)
            if _request(connection, API_VERSIONS, 0, b"") is None:
                return None
            return _ask_leader(connection)
    except (OSError, UnicodeError):
        return None


def served_apis(endpoint: Endpoint, timeout_seconds: float) -> frozenset[int] | None:
    """The keys of the APIs that a listener names; None when nothing there speaks the protocol."""
    try:
        with socket.create_connection((endpoint.host, endpoint.port), timeout_seconds) as connection:
            connection.settimeout(timeout_seconds)
            answer = _request(connection, API_VERSIONS, 0, b"")
            return None if answer is None else _parse_api_versions(answer)
    except (OSError, UnicodeError, struct.error):
        return None


def _ask_leader(connection: socket.socket) -> Answer:
    """A node that hangs or closes now has answered all the same."""
    try:
        # Version 2, no topics.
        answer = _request(connection, METADATA, 2, _INT.pack(0))
        return Answer() if answer is None else _parse_metadata(answer)
    except (OSError, struct.error, UnicodeDecodeError):
        return Answer()


def _request(connection: socket.socket, api_key: int, version: int, body: bytes) -> bytes | None:
    """The body of the answer; None when it is none. Raises OSError."""
    # No client id.
    connection.sendall(_REQUEST.pack(_REQUEST.size - 4 + len(body), api_key, version, CORRELATION, -1) + body)
    head = _receive(connection, _HEAD.size)
    if len(head) < _HEAD.size:
        return None
    size, correlation = _HEAD.unpack(head)
    if correlation != CORRELATION or not _INT.size <= size <= ANSWER_BYTES_MAX:
        return None
    return _receive(connection, size - _INT.size)


def _receive(connection: socket.socket, size: int) -> bytes:
    """`size` bytes, or fewer where the other side closed."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            break
        data += part
    return data


def _parse_api_versions(answer: bytes) -> frozenset[int]:
    """Version 0 behind its correlation id: error, keys with their first and last versions. Raises struct.error."""
    (count,) = _INT.unpack_from(answer, _SHORT.size)
    start = _SHORT.size + _INT.size
    rows = _API.iter_unpack(answer[start : start + count * _API.size])
    return frozenset(key for key, _, _ in rows)


def _parse_metadata(answer: bytes) -> Answer:
    """Version 2 behind its correlation id: nodes (id, host, port, rack), cluster id, controller id. Raises
    struct.error, UnicodeDecodeError."""
    (count,) = _INT.unpack_from(answer)
    position = _INT.size
    nodes: dict[int, Endpoint] = {}
    for _ in range(count):
        (node_id,) = _INT.unpack_from(answer, position)
        host, position = _string(answer, position + _INT.size)
        (port,) = _INT.unpack_from(answer, position)
        _, position = _string(answer, position + _INT.size)
        nodes[node_id] = Endpoint(host or "", port)
    cluster_id, position = _string(answer, position)
    return Answer(cluster_id, _INT.unpack_from(answer, position)[0], nodes)


def _string(answer: bytes, position: int) -> tuple[str | None, int]:
    (size,) = _SHORT.unpack_from(answer, position)
    start = position + _SHORT.size
    return (None, start) if size < 0 else (answer[start : start + size].decode(), start + size)
