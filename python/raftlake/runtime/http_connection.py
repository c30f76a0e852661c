"""One connection of the HTTP front: uvicorn's protocol class with the bounds that it lacks.

Owns how many connections there may be, how large the head of a request, and how long a client may take: for a head, between
two pieces of a body, and to take some of an answer. A client that has sent its request may wait as long as it likes, and one
that says nothing between two requests is ended by uvicorn's own keep-alive time. `end_overdue` is told the time.
"""

from __future__ import annotations

import asyncio

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

#: Request line and headers together; the key in a path has at most 1024 bytes, three times that when percent-encoded.
HEAD_BYTES_MAX = 64 * 1024
#: From the connection, or the first byte of a further request, to the end of its head.
HEAD_SECONDS = 20.0
#: Without any byte amid a body, or with none taken of an answer.
STALL_SECONDS = 30.0
#: The key under which a handler finds the call that drops its connection (`scope["extensions"]`).
ABORT = "raftlake.abort"

TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedHttpProtocol(HttpToolsProtocol):
    """See the module."""

    def __init__(self, config: Config, server_state: ServerState, connections_max: int) -> None:
        super().__init__(config=config, server_state=server_state, app_state={})
        self._connections_max = connections_max
        #: What came of the head of a request so far; None while its body is coming or its answer is.
        self._head_bytes: int | None = 0
        self._is_first = True
        self._is_amid_body = False
        #: When a head began, when bytes last came, and when some of an answer was last taken.
        self._head_since = self._heard_at = self._taken_at = self.loop.time()
        self._untaken = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._connections_max:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        if self._head_bytes is not None:
            if self._head_bytes == 0 and not self._is_first:
                self._head_since = self._heard_at
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes is not None and self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: self.transport.abort}  # type: ignore[dict-item]

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        self._is_first, self._is_amid_body = False, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head_bytes = 0
        self._is_amid_body = False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taken_at = self.loop.time()
        self._untaken = self.transport.get_write_buffer_size()

    def end_if_overdue(self, now: float) -> None:
        """End the connection when its client has taken too long for something."""
        if self.flow.write_paused:
            untaken = self.transport.get_write_buffer_size()
            if untaken < self._untaken:
                self._taken_at, self._untaken = now, untaken
            elif now - self._taken_at > STALL_SECONDS:
                self.transport.abort()
        elif self.transport.is_closing():
            return
        elif self._is_amid_body:
            if not self.flow.read_paused and now - self._heard_at > STALL_SECONDS:
                self.transport.abort()
        elif (
            self._head_bytes is not None and (self._head_bytes > 0 or self._is_first) and now - self._head_since > HEAD_SECONDS
        ):
            self.transport.write(TOO_SLOW)
            self.transport.close()
