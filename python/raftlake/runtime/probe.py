"""Does a node answer at an address? One ApiVersions request, as any Kafka client begins.

For tools that have to know whether a quorum is alive without joining it; raises nothing for one that is not.
"""

from __future__ import annotations

import socket
import struct

from raftlake.replica.config import Endpoint

_REQUEST = struct.Struct(">ihhih")
_HEAD = struct.Struct(">ii")
API_VERSIONS = 18
CORRELATION = 4_711


def answers(endpoint: Endpoint, timeout_seconds: float) -> bool:
    """Whether something at `endpoint` speaks the protocol."""
    try:
        with socket.create_connection((endpoint.host, endpoint.port), timeout_seconds) as connection:
            connection.settimeout(timeout_seconds)
            # Version 0, no client id, no body.
            connection.sendall(_REQUEST.pack(_REQUEST.size - 4, API_VERSIONS, 0, CORRELATION, -1))
            head = b""
            while len(head) < _HEAD.size:
                part = connection.recv(_HEAD.size - len(head))
                if not part:
                    return False
                head += part
    except OSError:
        return False
    return int(_HEAD.unpack(head)[1]) == CORRELATION
