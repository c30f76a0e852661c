"""A client that says to be a node, frame by frame."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

from siegekit import Siege

from raftlake.ports.peer_rpcs import PeerRpc
from raftlake.raft.types import NodeId
from raftlake.runtime.peers.codec import PeerCodec, peer_client_id
from raftlake.wire.api import ApiKey, decode_response, encode_request
from raftlake.wire.ids import id_to_text

LENGTH = struct.Struct(">i")
A_TOPIC_ID = id_to_text(bytes(range(1, 17))).encode()
#: Reserved keys with values that mean nothing, or mean harm.
EVIL_KEYS = [
    ("/raftlake/nodes/evil", b"{}"),
    ("/raftlake/nodes/1", b"\xff"),
    ("/raftlake/nodes/2", b'{"host": "evil", "port": 1}'),
    ("/raftlake/cluster", b"[" * 10_000),
    ("/raftlake/producers/next", b"1" * 5_000),
    ("/raftlake/incarnation", b"{}"),
    ("/raftlake/topics/x", b'{"id": "%s", "partitions": 1000000000}' % A_TOPIC_ID),
    ("/raftlake/topics/../../../pwned", b'{"id": "%s", "partitions": 1}' % A_TOPIC_ID),
    ("/raftlake/topics/__cluster_metadata", b'{"id": "%s", "partitions": 1}' % A_TOPIC_ID),
]


class Forger:
    """A connection of somebody who says to be a node."""

    def __init__(self, address: str, claimed: int) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=10)
        self._claimed = NodeId(claimed)
        self._codec = PeerCodec(node_id=self._claimed, peers={})

    def close(self) -> None:
        self._socket.close()

    def patience(self, seconds: float) -> None:
        """How long an answer may take."""
        self._socket.settimeout(seconds)

    def say(self, rpc: PeerRpc) -> Any:
        key, version, message = self._codec.encode_request(NodeId(1), rpc)
        return self._codec.decode_reply(rpc, self.ask(key, version, message))

    def ask(self, key: ApiKey, version: int, message: Any) -> Any:
        """The answer."""
        self._socket.sendall(b"".join(encode_request(key, version, 1, peer_client_id(self._claimed), message)))
        head = self._take(LENGTH.size)
        _, answer = decode_response(key, version, memoryview(self._take(LENGTH.unpack(head)[0])))
        return answer

    def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            assert piece, "the connection was closed"
            data += piece
        return data


@contextlib.contextmanager
def forgers(siege: Siege, claimed: int) -> Iterator[list[Forger]]:
    with contextlib.ExitStack() as stack:
        found = [Forger(node.address, claimed) for node in siege.quorum.nodes.values()]
        for forger in found:
            stack.callback(forger.close)
        yield found
