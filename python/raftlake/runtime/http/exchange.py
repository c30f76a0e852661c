"""One HTTP request and its answer: the body as the handler takes it, the handler itself, and a whole answer or a stream.

Knows no route and no parser. What a request costs here decides how many a node serves: a handler is a coroutine that is
stepped without a task, its answer leaves in one write, and all that become ready in one turn of the loop are resumed by one
callback (`Waiter`). A large answer leaves in pieces, each when the client has taken most of the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from http import HTTPStatus
from typing import Any, Generic, Protocol, TypeVar, cast

from raftlake.runtime.http.base import Hold, HttpError, Request, Response

T = TypeVar("T")

#: An answer of more is handed over in pieces of this size.
PIECE_BYTES = 256 * 1024
#: Of a body that the handler has not asked for yet; more waits in the socket.
BODY_BYTES_BUFFERED = 64 * 1024
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class Waiter(Generic[T]):
    """What a handler awaits: a value that comes once. `set` may be called from anywhere on the loop's thread, and the handler
    goes on later, in a callback of its own."""

    __slots__ = ("_is_set", "_value", "resume")

    def __init__(self) -> None:
        self._is_set = False
        self._value: T | None = None
        #: Schedules the handler; its runner fills it in.
        self.resume: Callable[[], None] | None = None

    def set(self, value: T) -> None:
        """Only the first value counts."""
        if self._is_set:
            return
        self._is_set = True
        self._value = value
        if self.resume is not None:
            self.resume()

    def __await__(self) -> Generator[Waiter[T], None, T]:
        if not self._is_set:
            yield self
        return cast("T", self._value)


class App(Protocol):
    """What an exchange asks of the front."""

    exchanges: dict[Exchange, None]

    def serve(self, request: Request) -> Coroutine[Waiter[Any], None, Response]:
        """The answer; never raises."""

    def stream(self, exchange: Exchange) -> asyncio.Task[None] | None:
        """A task that answers by itself, for the requests that are no single answer; None for all others."""

    def soon(self, call: Callable[[], None]) -> None:
        """Run `call` in this or the next turn of the loop, outside of what runs now."""

    def head(self, response: Response) -> bytes:
        """The header lines of a whole answer."""

    def answer_in_pieces(self, exchange: Exchange, response: Response) -> None:
        """Answer with a body of more than PIECE_BYTES, as the client takes it."""

    def finished(self, exchange: Exchange) -> None:
        """The exchange is answered, or its client is gone."""


class Carrier(Protocol):
    """What an exchange asks of its connection."""

    @property
    def app(self) -> App: ...

    @property
    def transport(self) -> asyncio.Transport: ...

    @property
    def is_lost(self) -> bool:
        """The client has closed it."""

    def hold_reading(self) -> None:
        """Leave what comes of the body in the socket."""

    def let_read(self) -> None:
        """Take more of the body."""

    async def drain(self) -> None:
        """Wait until the client has taken most of what was written."""

    def exchange_ended(self, exchange: Exchange) -> None:
        """The exchange is answered; the next one may begin."""


class Exchange:
    """One request and its answer."""

    def __init__(
        self, connection: Carrier, line: tuple[str, bytes, bytes], headers: list[tuple[bytes, bytes]], version: str
    ) -> None:
        self.connection = connection
        method, path, query = line
        self.request = Request(method, path, query, tuple(headers), self, version)
        self.keep_alive = True
        self.expects_continue = False
        self.is_answered = False
        self.task: asyncio.Task[None] | None = None
        #: Called when the client is gone.
        self.on_gone: Callable[[], None] | None = None
        self._body: list[bytes] = []
        self._body_size = 0
        self._is_whole = False
        self._broken: str | None = None
        self._waiter: Waiter[None] | None = None
        self._coroutine: Coroutine[Waiter[Any], None, Response] | None = None
        self._is_stream = False
        self._is_chunked = True
        #: What the answer takes of a budget.
        self._hold: Hold | None = None

    @property
    def is_gone(self) -> bool:
        """The client has closed the connection."""
        return self.connection.is_lost

    # --- running the handler ---

    def start(self) -> None:
        app = self.connection.app
        app.exchanges[self] = None
        self.task = app.stream(self)
        if self.task is None:
            self._coroutine = app.serve(self.request)
            self._step()

    def _step(self) -> None:
        coroutine = self._coroutine
        if coroutine is None or self.is_answered:
            return
        try:
            waiter = coroutine.send(None)
        except StopIteration as stop:
            self.answer(stop.value)
        else:
            waiter.resume = self._resume

    def _resume(self) -> None:
        self.connection.app.soon(self._step)

    def cancel(self) -> None:
        """The node stops: let the handler say so."""
        if self.task is not None:
            self.task.cancel()
            return
        if self.is_answered:
            return
        coroutine = self._coroutine
        if coroutine is None:
            # A large answer is leaving, and its client takes its time.
            self.abort()
            return
        try:
            coroutine.throw(asyncio.CancelledError())
        except StopIteration as stop:
            self.answer(stop.value)

    # --- the request's body ---

    def feed(self, data: bytes) -> None:
        if self.is_answered:
            return
        self._body.append(data)
        self._body_size += len(data)
        if self._body_size > BODY_BYTES_BUFFERED:
            self.connection.hold_reading()
        self._wake()

    def end_body(self) -> None:
        self._is_whole = True
        self._wake()

    def break_body(self, why: str) -> None:
        """What comes is no body; nothing behind it can be understood either."""
        self._broken = why
        self.keep_alive = False
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.set(None)

    async def piece(self) -> tuple[bytes, bool]:
        """The next piece of the body, and whether more follows. Raises HttpError when the client is gone."""
        while self._broken is not None or (not self._body and not self._is_whole):
            if self._broken is not None:
                raise HttpError(400, self._broken)
            if self.connection.is_lost:
                raise HttpError(400, "the request ended before its body did")
            if self.expects_continue:
                self.expects_continue = False
                self.connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.connection.let_read()
            self._waiter = Waiter()
            await self._waiter
        data = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        self._body_size = 0
        return data, not self._is_whole

    # --- the answer ---

    def answer(self, response: Response) -> None:
        """All of it."""
        connection = self.connection
        self._hold = response.hold
        if connection.is_lost or self._is_stream:
            self._end()
        elif len(response.body) > PIECE_BYTES and self.request.method != "HEAD":
            self._coroutine = None
            connection.app.answer_in_pieces(self, response)
        else:
            connection.transport.write(self._head(response) + (b"" if self.request.method == "HEAD" else response.body))
            self._end()

    def _head(self, response: Response) -> bytes:
        lines = STATUS_LINES[response.status] + self.connection.app.head(response)
        return lines + (b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")

    async def write_whole(self, response: Response) -> None:
        """`answer` in pieces. Waits for the client; the watch on connections drops one that takes nothing."""
        connection = self.connection
        connection.transport.write(self._head(response))
        body = memoryview(response.body)
        for start in range(0, len(body), PIECE_BYTES):
            await connection.drain()
            if connection.is_lost:
                break
            connection.transport.write(body[start : start + PIECE_BYTES])
        self._end()

    def begin_stream(self, headers: list[tuple[bytes, bytes]]) -> None:
        """A 200 whose body comes in pieces: chunks, or before HTTP/1.1 all that comes until the connection ends."""
        self._is_stream = True
        self._is_chunked = self.request.version != "1.0"
        # Each piece is taken before the next one is asked for.
        self.connection.transport.set_write_buffer_limits(high=0)
        lines = [b"%s: %s\r\n" % header for header in headers]
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if self._is_chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        self.connection.transport.write(STATUS_LINES[200] + b"".join(lines) + b"\r\n")

    async def write_piece(self, data: bytes) -> None:
        """Returns when the connection has taken it. Waits for ever when the client does not read: bound it."""
        if data and not self.connection.is_lost:
            self.connection.transport.write(b"%x\r\n%s\r\n" % (len(data), data) if self._is_chunked else data)
        await self.connection.drain()

    def end_stream(self) -> None:
        if not self.connection.is_lost:
            self.connection.transport.set_write_buffer_limits()
            if self._is_chunked:
                self.connection.transport.write(b"0\r\n\r\n")
        self._end()

    def abort(self) -> None:
        """Drop the connection with what is still buffered for it."""
        self.connection.transport.abort()
        self._end()

    def _end(self) -> None:
        if self._hold is not None:
            self._hold.release()
        if not self.is_answered:
            self.is_answered = True
            self._body.clear()
            # Both know this exchange. As cycles they, and their bodies, would all wait for the garbage collector.
            self._coroutine = None
            del self.request
            self.connection.app.finished(self)
            self.connection.exchange_ended(self)

    def on_lost(self) -> None:
        self._wake()
        if self.on_gone is not None:
            self.on_gone()
        if self.task is not None:
            return
        # A handler that waits for the quorum goes on: what it began is under way. It is not told to the client.
        self.connection.app.finished(self)
