"""What a node and its tier worker send each other: pickled values with their length in front, over a pair of sockets.

Both ends are the same version of the same program on one machine, and no one else holds the sockets.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raftlake.ports.tier import CopyRequest, Lineage
from raftlake.raft.types import Epoch

_LENGTH = struct.Struct(">Q")
#: Bytes that are read at once.
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """Where the tables are, and whose. The store's options are those of delta-rs (`AWS_ENDPOINT_URL`, ...)."""

    uri: str
    cluster_id: str
    storage_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """`RemoteTier.claim` as a value."""

    lineage: Lineage
    leader_epoch: Epoch


TierCall = CopyRequest | ClaimRequest


def send(to: socket.socket, value: Any) -> None:
    """Send a value as one message."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    to.sendall(_LENGTH.pack(len(data)))
    to.sendall(data)


def receive(source: socket.socket, before_read: Callable[[], None] = lambda: None) -> Any:
    """The next message. EOFError where the other end has closed. `before_read` is called before each wait."""
    (length,) = _LENGTH.unpack(_exactly(source, _LENGTH.size, before_read))
    return pickle.loads(_exactly(source, length, before_read))


def _exactly(source: socket.socket, size: int, before_read: Callable[[], None]) -> bytearray:
    data = bytearray()
    while len(data) < size:
        before_read()
        part = source.recv(min(_READ_BYTES, size - len(data)))
        if not part:
            raise EOFError(f"the other end closed after {len(data)} of {size} bytes")
        data += part
    return data
