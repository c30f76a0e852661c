"""The HTTP front of a node: its routes as one small ASGI application on uvicorn's httptools protocol, sharing the
node's event loop.

Owns routing, what every answer carries (X-Raftlake-Offset: the offset that it reflects) and the bounds that the protocol
class leaves open: connections and the size of a request's head. Handlers return whole responses or raise `HttpError`; only
a watch writes by itself.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from uvicorn.config import Config
from uvicorn.server import ServerState

from raftlake.errors import InvariantViolation, RaftlakeError, StorageError
from raftlake.replica.node import ReplicaNode
from raftlake.replica.opaque import no_keys
from raftlake.runtime.http_base import (
    ByteBudget,
    HttpError,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    header_lines,
    json_bytes,
    unavailable,
)
from raftlake.runtime.http_connection import ABORT, BoundedHttpProtocol
from raftlake.runtime.http_kv import KvHandlers
from raftlake.runtime.http_ops import OpsHandlers
from raftlake.runtime.http_watch import Watchers
from raftlake.runtime.metrics import NodeMetrics

logger = logging.getLogger("raftlake.http")
T = TypeVar("T")

KEEP_ALIVE_SECONDS = 75
#: How often connections are looked at that may have to be ended.
SWEEP_SECONDS = 5.0
#: An answer is handed over in pieces of this size, each when the one before it has nearly gone.
PIECE_BYTES = 256 * 1024
#: Answers of more than one piece that may be on their way at the same time.
LARGE_ANSWERS_BYTES_MAX = 128 * 1024 * 1024
KEY_VALUE_PATHS = (b"/v1/kv", b"/v1/txn", b"/v1/watch")

Handler = Callable[[Request], Awaitable[Response]]
KeyHandler = Callable[[Request, bytes], Awaitable[Response]]


class HttpFront:
    """The application and the connections that it serves."""

    def __init__(
        self,
        node: ReplicaNode,
        metrics: NodeMetrics,
        *,
        connections_max: int,
        on_fatal: Callable[[RaftlakeError], None],
        watchers: Watchers | None = None,
    ) -> None:
        self._node = node
        self._on_fatal = on_fatal
        self._watchers = watchers or Watchers(node)
        self._server: asyncio.Server | None = None
        self._state = ServerState()
        self._connections_max = connections_max
        self._sweeper: asyncio.TimerHandle | None = None
        self._answers = ByteBudget(LARGE_ANSWERS_BYTES_MAX, "too many bytes of answers are on their way; try again")
        kv, ops = KvHandlers(node, metrics), OpsHandlers(node, metrics)
        self._key_routes: Mapping[str, KeyHandler] = {"GET": kv.get, "HEAD": kv.get, "PUT": kv.put, "DELETE": kv.delete}
        self._routes: Mapping[bytes, Mapping[str, Handler]] = {
            b"/v1/kv": _reading(kv.list),
            b"/v1/txn": {"POST": kv.txn},
            b"/v1/quorum": _reading(ops.quorum),
            b"/metrics": _reading(ops.metrics),
            b"/health/live": _reading(ops.live),
            b"/health/ready": _reading(ops.ready),
        }

    # --- life ---

    async def start(self, listening: socket.socket) -> None:
        """Serve on a socket that is bound and listens."""
        config = Config(
            self,
            loop="none",
            http=BoundedHttpProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        config.load()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: BoundedHttpProtocol(config, self._state, self._connections_max), sock=listening
        )
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def close(self) -> None:
        """Take no new connection or request; requests under way are answered, watches end."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._watchers.close()
        for connection in list(self._state.connections):
            connection.shutdown()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.end_overdue(loop.time())
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def end_overdue(self, now: float) -> None:
        """End the connections whose clients have taken too long for something."""
        for connection in list(self._state.connections):
            assert isinstance(connection, BoundedHttpProtocol)
            connection.end_if_overdue(now)

    @property
    def connection_count(self) -> int:
        return len(self._state.connections)

    async def abandon(self) -> None:
        """Answer what is still under way as what it is: a read that was not served, a write whose outcome is unknown."""
        # A task that has not begun yet could not answer.
        await asyncio.sleep(0)
        for task in list(self._state.tasks):
            task.cancel()
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """After `close`: wait until the requests that were under way are answered."""
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks))

    # --- requests ---

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request.from_scope(scope, receive)
        try:
            if self._node.config.is_opaque and request.path.startswith(KEY_VALUE_PATHS):
                raise HttpError(404, no_keys(self._node.config))
            if request.path == b"/v1/watch":
                await self._watch(request, send, scope)
                return
            response = await self._handler_of(request)(request)
        except HttpError as error:
            response = error.response()
        except asyncio.CancelledError:
            # The node stops. Nobody waits for this task but its client, so it may still say so.
            response = _given_up(request).response()
        except (InvariantViolation, StorageError) as error:
            self._on_fatal(error)
            response = Response(500, json_bytes({"error": "this node is stopping"}))
        except Exception:
            # A bug in one answer must not end the process; uvicorn would drop the connection without a word.
            logger.exception("failed to serve %s %s", request.method, request.path.decode("ascii", "replace"))
            response = Response(500, json_bytes({"error": "internal error, see the node's log"}))
        if len(response.body) <= PIECE_BYTES:
            await self._send(response, send)
            return
        try:
            with self._answers.hold(len(response.body)):
                await self._send(response, send)
        except HttpError as error:
            await self._send(error.response(), send)

    async def _send(self, response: Response, send: Send) -> None:
        headers = header_lines(response, self._node.kv.machine.applied_offset)
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        body = memoryview(response.body)
        for start in range(0, len(body), PIECE_BYTES):
            piece = bytes(body[start : start + PIECE_BYTES])
            await send({"type": "http.response.body", "body": piece, "more_body": start + PIECE_BYTES < len(body)})
        if not body:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _handler_of(self, request: Request) -> Handler:
        if request.path.startswith(b"/v1/kv/"):
            key_handler = _for_method(self._key_routes, request)
            return lambda asked: key_handler(asked, asked.path[len(b"/v1/kv/") :])
        routes = self._routes.get(request.path)
        if routes is None:
            raise HttpError(404, f"no such path: {request.path.decode('ascii', 'replace')}")
        return _for_method(routes, request)

    async def _watch(self, request: Request, send: Send, scope: Scope) -> None:
        _for_method({"GET": None}, request)
        try:
            await self._watchers.serve(request, send)
        except (TimeoutError, asyncio.CancelledError):
            # The reader takes nothing: what is still buffered for it would keep the connection open for good.
            scope["extensions"][ABORT]()


def _given_up(request: Request) -> HttpError:
    """What a request is answered that cannot be waited for any more."""
    if request.method in ("GET", "HEAD"):
        return unavailable("this node is stopping; ask another one")
    return HttpError(504, "this node is stopping; whether the write happened, or still will, is unknown")


def _reading(handler: Handler) -> Mapping[str, Handler]:
    return {"GET": handler, "HEAD": handler}


def _for_method(routes: Mapping[str, T], request: Request) -> T:
    """The route of the method; 405 names the ones that there are."""
    if request.method not in routes:
        allowed = ", ".join(routes)
        raise HttpError(
            405, f"{request.method} is not allowed here; allowed: {allowed}", headers=((b"allow", allowed.encode()),)
        )
    return routes[request.method]
