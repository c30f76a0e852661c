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

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import AdoptRequest, CopyRequest, Lineage, ReadRequest, RemoteSegment, SearchRequest
from raftlake.raft.types import Epoch, Offset

#: Of the time of a call that delta-rs may spend on one request to a store: a call makes several.
_PARTS = 4
_LENGTH = struct.Struct(">Q")
#: Bytes that are read at once.
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """Where the tables are, and whose. The store's options are those of delta-rs (`AWS_ENDPOINT_URL`, ...)."""

    uri: str
    cluster_id: str
    #: Secrets are among them.
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: When a call is given up; None where it never is.
    request_seconds: float | None = None

    def options(self) -> dict[str, str]:
        """The store's options, with an end to what delta-rs tries again by itself: its own is three minutes. A store that does
        not answer is then named with its own words, before the call is given up."""
        if self.request_seconds is None:
            return dict(self.storage_options)
        part = f"{max(1, round(self.request_seconds * 1000 / _PARTS))}ms"
        return {"retry_timeout": part, "timeout": part, **self.storage_options}


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """`RemoteTier.claim` as a value."""

    lineage: Lineage
    leader_epoch: Epoch


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """`RemoteTier.check` as a value."""

    lineage: Lineage
    segment: RemoteSegment


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    """`RemoteTier.delete` as a value."""

    lineage: Lineage
    leader_epoch: Epoch
    until: Offset


@dataclass(frozen=True, slots=True)
class DropRequest:
    """`RemoteTier.drop` as a value."""

    group: GroupId
    partitions: int


@dataclass(frozen=True, slots=True)
class AcceptRequest:
    """`RemoteTier.accept` as a value."""

    group: GroupId
    begin: Offset | None
    reach: Offset | None


@dataclass(frozen=True, slots=True)
class FindRequest:
    """`RemoteTier.find` as a value."""

    lineage: Lineage
    offset: Offset


@dataclass(frozen=True, slots=True)
class OldestRequest:
    """`RemoteTier.oldest` as a value."""

    lineage: Lineage
    count: int


@dataclass(frozen=True, slots=True)
class FactsRequest:
    """`RemoteTier.facts` as a value."""

    of: Lineage | GroupId


#: What leaders do. A check reads a whole file: it waits in their line, and no consumer waits for it.
LeaderCall = CopyRequest | ClaimRequest | CheckRequest | DeleteRequest | DropRequest | AdoptRequest | AcceptRequest
#: What reads a bounded piece, for somebody who waits.
ReaderCall = ReadRequest | SearchRequest | FindRequest | OldestRequest | FactsRequest
TierCall = LeaderCall | ReaderCall


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
