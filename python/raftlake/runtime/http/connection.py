"""HTTP/1.1 on one connection: httptools' parser in, exchanges one at a time and in order.

Owns framing (keep-alive, pipelining), back-pressure both ways, how large the head of a request, and how long a client may take:
for a head, for a body and between two pieces of it, to take some of an answer, and between two requests. A client that has sent
its request may wait as long as it likes. `end_if_overdue` is told the time.

A request that asks for another protocol is served as if it had not asked. The parser passes over its body, so the body has a
parser of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol, cast

import httptools

from raftlake.runtime.http.base import HttpError
from raftlake.runtime.http.exchange import STATUS_LINES, App, Exchange

#: Request line and headers together; the key in a path has at most 1024 bytes, three times that when percent-encoded.
HEAD_BYTES_MAX = 64 * 1024
#: From the connection, or the first byte of a further request, to the end of its head.
HEAD_SECONDS = 20.0
#: Without any byte amid a body, or with none taken of an answer.
STALL_SECONDS = 30.0
#: From the end of a head to the end of its body, at the latest: a byte now and then is no silence.
BODY_SECONDS = 600.0
#: Between two requests.
KEEP_ALIVE_SECONDS = 75.0
TOO_LARGE = f"the head of the request is larger than {HEAD_BYTES_MAX} bytes"


class Front(App, Protocol):
    """What the connections of a front share."""

    def opened(self, connection: HttpConnection) -> bool:
        """Count the connection; False when it is one too many."""

    def closed(self, connection: HttpConnection) -> None:
        """The connection is gone."""


class HttpConnection(asyncio.Protocol):
    """One client. At most one exchange runs; requests behind it wait, and what is behind those waits in the socket."""

    transport: asyncio.Transport

    def __init__(self, app: Front, loop: asyncio.AbstractEventLoop) -> None:
        self.app = app
        self.host = ""
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        # What follows a request with `connection: close` is ignored instead of making that request an error.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        #: What has come of a head that has not ended, and what its parts have taken so far; a head may come whole.
        self._head_bytes: int | None = 0
        self._head_parts_bytes = 0
        #: How the body is framed that follows a head which asks for an upgrade; empty for others.
        self._framing_behind_upgrade = b""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._current: Exchange | None = None
        self._arriving: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._is_reading_held = False
        self._is_writing_paused = False
        self._drained: asyncio.Future[None] | None = None
        self._is_closing = False
        self.is_lost = False
        self._is_first = True
        #: When a head began, when bytes last came, when some of an answer was last taken, when the last answer ended.
        self._head_since = self._heard_at = self._taken_at = self._idle_since = loop.time()
        self._untaken = 0
        #: Whose body has been coming, and since when, as far as it was watched and not held back by us.
        self._slow: Exchange | None = None
        self._slow_since = 0.0

    # --- the connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses of asyncio's
        name = transport.get_extra_info("peername")
        self.host = name[0] if isinstance(name, tuple) else ""
        if not self.app.opened(self):
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.app.closed(self)
        self._waiting.clear()
        self.resume_writing()
        for exchange in (self._current, self._arriving):
            if exchange is not None:
                exchange.on_lost()

    def shut_down(self) -> None:
        """Answer what is under way, then close."""
        self._is_closing = True
        if self._current is None:
            self.transport.close()
        else:
            self._current.keep_alive = False

    def end_if_overdue(self, now: float) -> None:
        """End the connection when its client has taken too long for something."""
        if self._arriving is not self._slow or self._is_reading_held:
            self._slow, self._slow_since = self._arriving, now
        if self._is_writing_paused:
            untaken = self.transport.get_write_buffer_size()
            if untaken < self._untaken:
                self._taken_at, self._untaken = now, untaken
            elif now - self._taken_at > STALL_SECONDS:
                self.transport.abort()
        elif self.transport.is_closing():
            return
        elif self._arriving is not None:
            if not self._is_reading_held and (now - self._heard_at > STALL_SECONDS or now - self._slow_since > BODY_SECONDS):
                self.transport.abort()
        elif self._current is not None:
            return
        elif self._head_bytes or self._is_first:
            if now - self._head_since > HEAD_SECONDS:
                self._refuse(HttpError(408, "the head of the request took too long"))
        elif now - self._idle_since > KEEP_ALIVE_SECONDS:
            self.transport.close()

    # --- reading ---

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        self._heard_at = self._loop.time()
        if self._head_bytes is not None:
            if self._head_bytes == 0 and not self._is_first:
                self._head_since = self._heard_at
            self._head_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError:
            if self._arriving is None:
                is_large = self._head_parts_bytes > HEAD_BYTES_MAX
                self._refuse(HttpError(400, TOO_LARGE if is_large else "this is no HTTP/1.1 request"))
            else:
                self._refuse_body(self._arriving)
            return
        if self._head_bytes is not None and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(HttpError(400, TOO_LARGE))
        elif self._arriving is not None:
            # Its body is still coming; the handler may refuse it or take it in pieces.
            self._begin(self._arriving)

    def _feed(self, data: bytes) -> None:
        """Raises HttpParserError."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._framing_behind_upgrade:
                # What follows is of the other protocol.
                self._end_after_current()
                return
            self._parser = httptools.HttpRequestParser(_BodyAlone(self))
            self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self._parser.feed_data(b"POST / HTTP/1.1\r\nconnection: close\r\n" + self._framing_behind_upgrade + b"\r\n")
            self._parser.feed_data(data[upgrade.args[0] :])

    def _refuse(self, error: HttpError) -> None:
        """Answer what has no exchange, since its head never came to an end, as every other request is answered."""
        if self._current is None and not self.transport.is_closing():
            response = error.response()
            head = STATUS_LINES[response.status] + self.app.head(response) + b"connection: close\r\n\r\n"
            self.transport.write(head + response.body)
            self.transport.close()
        self._end_after_current()

    def _refuse_body(self, exchange: Exchange) -> None:
        """The head was sound, so the request has its turn; its handler waits for a body that will never be whole."""
        self._arriving = None
        exchange.break_body("the body of the request is malformed")
        self._end_after_current()
        self._begin(exchange)
        if self._current is None and not self._waiting:
            # It was answered before, without its body.
            self.transport.close()

    def _end_after_current(self) -> None:
        self._is_closing = True
        if self._waiting:
            self._waiting[-1].keep_alive = False
        elif self._current is not None:
            self._current.keep_alive = False

    def hold_reading(self) -> None:
        if not self._is_reading_held:
            self._is_reading_held = True
            self.transport.pause_reading()

    def let_read(self) -> None:
        if self._is_reading_held and not self.is_lost:
            self._is_reading_held = False
            self.transport.resume_reading()

    # --- what the parser says ---

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._head_parts_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))
        self._count(len(name) + len(value) + len(b": \r\n"))

    def _count(self, size: int) -> None:
        """Raises ValueError for a head that is too large; the parser makes an error of it."""
        self._head_parts_bytes += size
        if self._head_parts_bytes > HEAD_BYTES_MAX:
            raise ValueError(TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Raises ValueError for what is no target of ours; the parser makes an error of it."""
        self._head_bytes = None
        self._is_first = False
        parser = self._parser
        line = (parser.get_method().decode("ascii"), *split_target(self._url))
        version = parser.get_http_version()
        exchange = self._arriving = Exchange(self, line, self._headers, version)
        if parser.should_upgrade():
            self._framing_behind_upgrade = framing_of(self._headers)
        # What would follow an upgrade is of another protocol, so such a request is the last.
        exchange.keep_alive = version != "1.0" and parser.should_keep_alive() and not parser.should_upgrade()
        exchange.expects_continue = any(name == b"expect" and value.lower() == b"100-continue" for name, value in self._headers)

    def on_body(self, data: bytes) -> None:
        if self._arriving is not None:
            self._arriving.feed(data)

    def on_message_complete(self) -> None:
        if self._framing_behind_upgrade:
            # The head alone is complete.
            return
        self._end_message()

    def end_body_behind_upgrade(self) -> None:
        self._end_message()
        self._end_after_current()

    def _end_message(self) -> None:
        self._head_bytes = 0
        exchange, self._arriving = self._arriving, None
        if exchange is not None:
            exchange.end_body()
            self._begin(exchange)

    # --- one after the other ---

    def _begin(self, exchange: Exchange) -> None:
        """Start the exchange, or let it wait for its turn; nothing when that has happened."""
        if exchange is self._current or exchange.is_answered or exchange in self._waiting:
            return
        if self._current is not None or self._waiting or self._is_writing_paused:
            self._waiting.append(exchange)
            self.hold_reading()
            return
        self._current = exchange
        exchange.start()

    def exchange_ended(self, exchange: Exchange) -> None:
        if exchange is not self._current:
            return
        self._current = None
        if self.is_lost:
            return
        if not exchange.keep_alive or (self._is_closing and not self._waiting):
            self.transport.close()
            return
        if self._waiting:
            # Not from here: a thousand small requests in one packet would be a thousand frames deep.
            self.app.soon(self._begin_next)
            return
        self._idle_since = self._loop.time()
        self.let_read()

    def _begin_next(self) -> None:
        if self._current is None and self._waiting and not self._is_writing_paused and not self.is_lost:
            self._current = self._waiting.popleft()
            self._current.start()

    # --- writing ---

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self._taken_at = self._loop.time()
        self._untaken = self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None
        self._begin_next()

    async def drain(self) -> None:
        if self._is_writing_paused and not self.is_lost:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)


class _BodyAlone:
    """What a parser says of a body whose head another parser has read."""

    def __init__(self, connection: HttpConnection) -> None:
        self.on_body = connection.on_body
        self.on_message_complete = connection.end_body_behind_upgrade


def framing_of(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The lines of a head, their names in lower case, that say how long its body is; empty where there is no body."""
    lines = [(name, value) for name, value in headers if name in (b"content-length", b"transfer-encoding")]
    if all(name == b"content-length" and not value.strip(b"0 ") for name, value in lines):
        return b""
    return b"".join(b"%s: %s\r\n" % line for line in lines)


def split_target(url: bytes) -> tuple[bytes, bytes]:
    """(path, query) of a request target. Raises ValueError when it is none."""
    if not url.isascii():
        raise ValueError("the target is not ASCII")
    if url.startswith(b"/") and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path, query
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError as error:
        raise ValueError(str(error)) from error
    if parsed.path is None:
        raise ValueError("the target has no path")
    return parsed.path, parsed.query or b""
