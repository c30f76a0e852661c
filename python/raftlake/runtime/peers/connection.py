"""One connection of a node to a peer: requests out, answers in. What they mean, and what becomes of them, is its channel's."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from raftlake.errors import WireError
from raftlake.ports.peer_rpcs import PeerReply, PeerRpc
from raftlake.raft.events import FailureReason
from raftlake.wire.api import ApiKey, encode_request
from raftlake.wire.framing import FrameDecoder

DoneCallback = Callable[[PeerReply | FailureReason], None]


class Channel(Protocol):
    """Who opened the connection, and is told what happens on it."""

    def on_frame(self, connection: PeerSocket, frame: bytearray) -> None: ...

    def on_lost(self, connection: PeerSocket, error: Exception | None) -> None: ...

    def on_garbage(self, connection: PeerSocket, error: WireError) -> None: ...


@dataclass(slots=True)
class PeerRequest:
    """An RPC on its way; `deadline` is in loop time."""

    rpc: PeerRpc
    done: DoneCallback
    deadline: float
    api_key: ApiKey
    version: int
    message: object
    correlation_id: int = -1


class PeerSocket(asyncio.BufferedProtocol):
    """One established connection; everything is decided by the channel that opened it."""

    def __init__(self, channel: Channel, response_bytes_max: int) -> None:
        self._channel = channel
        self._decoder = FrameDecoder(response_bytes_max)
        self._transport: asyncio.Transport | None = None
        #: Sent and unanswered, in the order of their correlation ids.
        self.unanswered: deque[PeerRequest] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods without the base class.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._channel.on_lost(self, exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._decoder.buffer_updated(nbytes):
                self._channel.on_frame(self, frame)
            if self._decoder.failure is not None:
                raise self._decoder.failure
        except WireError as error:
            self._channel.on_garbage(self, error)

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def write(self, request: PeerRequest, client_id: str) -> None:
        assert self._transport is not None
        self.unanswered.append(request)
        self._transport.writelines(
            encode_request(request.api_key, request.version, request.correlation_id, client_id, request.message)
        )

    def drop(self) -> None:
        """Close at once and report nothing more to the channel."""
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.abort()
