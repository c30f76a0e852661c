"""The HTTP front of a node: its routes, on the node's event loop.

Owns routing, what every answer carries (X-Raftlake-Offset: the offset that it reflects), which connections and requests there
are, and their end. Handlers return whole responses or raise `HttpError`; only a watch writes by itself.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from typing import Any, TypeVar

from raftlake.errors import InvariantViolation, RaftlakeError, StorageError, TooManyFiles
from raftlake.replica.node import ReplicaNode
from raftlake.replica.opaque import no_keys
from raftlake.runtime.admission import AddressLimit
from raftlake.runtime.http.base import ByteBudget, HttpError, Request, Response, head_bytes, json_bytes, unavailable
from raftlake.runtime.http.connection import HttpConnection
from raftlake.runtime.http.exchange import Exchange, Waiter
from raftlake.runtime.http.hosts import AllowedHosts
from raftlake.runtime.http.kv import KvHandlers
from raftlake.runtime.http.ops import OpsHandlers
from raftlake.runtime.http.tier import TierHandlers
from raftlake.runtime.http.watch import HEARTBEAT_SECONDS, Watchers
from raftlake.runtime.http.watch import STALL_SECONDS as WATCH_STALL_SECONDS
from raftlake.runtime.metrics import NodeMetrics
from raftlake.runtime.refusal_log import RefusalLog
from raftlake.runtime.work_line import WorkLine

logger = logging.getLogger("raftlake.http")
T = TypeVar("T")

#: How often connections are looked at that may have to be ended.
SWEEP_SECONDS = 5.0
#: Answers of more than one piece that may be on their way at the same time.
LARGE_ANSWERS_BYTES_MAX = 128 * 1024 * 1024
#: Of a path, in the log.
PATH_TOLD_MAX = 200
KEY_VALUE_PATHS = (b"/v1/kv", b"/v1/txn", b"/v1/watch")
OPS_PATHS = (b"/metrics", b"/health/live", b"/health/ready")

Handler = Callable[[Request], Coroutine[Waiter[Any], None, Response]]
KeyHandler = Callable[[Request, bytes], Coroutine[Waiter[Any], None, Response]]


class Serves(Enum):
    """What a front is for. The quorum is described by all of them."""

    ALL = "all"
    #: Keys; health and metrics have a listener of their own (`http.ops.listener`).
    DATA = "data"
    #: Health and metrics, which slow clients of the other one cannot keep waiting.
    OPS = "ops"


class HttpFront:
    """The application and the connections that it serves."""

    def __init__(
        self,
        node: ReplicaNode,
        metrics: NodeMetrics,
        ops: OpsHandlers,
        *,
        serves: Serves = Serves.ALL,
        connections_max: int,
        addresses: AddressLimit,
        hosts: AllowedHosts,
        on_fatal: Callable[[RaftlakeError], None],
        line: WorkLine,
        watch_line: WorkLine,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        watch_stall_seconds: float = WATCH_STALL_SECONDS,
    ) -> None:
        self._node = node
        self._on_fatal = on_fatal
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self.connections: dict[HttpConnection, None] = {}
        #: Requests under way.
        self.exchanges: dict[Exchange, None] = {}
        self._all_ended: asyncio.Future[None] | None = None
        self._soon: list[Callable[[], None]] = []
        self._answers = ByteBudget(LARGE_ANSWERS_BYTES_MAX, "too many bytes of answers are on their way; try again")
        self._watchers = Watchers(
            node, watch_line, self._answers, heartbeat_seconds=heartbeat_seconds, stall_seconds=watch_stall_seconds
        )
        self._writers: dict[asyncio.Task[None], None] = {}
        self._connections_max = connections_max
        self._addresses = addresses
        self._hosts = hosts
        self._metrics = metrics
        self._refusals = RefusalLog(logger)
        self._bugs = RefusalLog(logger, logging.ERROR)
        self._serves = serves
        kv, tier = KvHandlers(node, metrics, self._answers, line), TierHandlers(node, ops.root)
        self._key_routes: Mapping[str, KeyHandler] = {"GET": kv.get, "HEAD": kv.get, "PUT": kv.put, "DELETE": kv.delete}
        self._routes: dict[bytes, Mapping[str, Handler]] = {
            b"/v1/quorum": _reading(ops.quorum),
            b"/v1/tier": _reading(tier.status),
        }
        if serves is not Serves.OPS:
            self._routes |= {b"/v1/kv": _reading(kv.list), b"/v1/txn": {"POST": kv.txn}}
        if serves is not Serves.OPS:
            self._routes[b"/v1/tier/rebuild-metadata"] = {"POST": tier.rebuild}
        if serves is not Serves.DATA:
            self._routes |= dict(zip(OPS_PATHS, map(_reading, (ops.metrics, ops.live, ops.ready)), strict=True))

    # --- life ---

    async def start(self, listening: socket.socket) -> None:
        """Serve on a socket that is bound and listens."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: HttpConnection(self, loop), sock=listening)
        self._sweep()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.end_overdue(loop.time())
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def end_overdue(self, now: float) -> None:
        """End the connections whose clients have taken too long for something."""
        for connection in list(self.connections):
            connection.end_if_overdue(now)

    def close(self) -> None:
        """Take no new connection or request; requests under way are answered, watches end."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._watchers.close()
        for connection in list(self.connections):
            connection.shut_down()

    @property
    def connection_count(self) -> int:
        return len(self.connections)

    async def abandon(self) -> None:
        """Answer what is still under way as what it is: a read that was not served, a write whose outcome is unknown."""
        # A task that has not begun yet could not answer.
        await asyncio.sleep(0)
        for exchange in list(self.exchanges):
            exchange.cancel()
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """After `close`: wait until the requests that were under way are answered."""
        while self.exchanges:
            if self._all_ended is None:
                self._all_ended = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._all_ended)

    # --- what the connections ask ---

    def opened(self, connection: HttpConnection) -> bool:
        setting = f"max.connections={self._connections_max}" if len(self.connections) >= self._connections_max else None
        if not self._addresses.has_room(connection.host):
            setting = self._addresses.setting
        if setting is not None:
            self._metrics.count_refused(setting.partition("=")[0])
            now = asyncio.get_running_loop().time()
            self._refusals.note(now, "refusing connection", peer=connection.host, reason=setting)
            return False
        self._addresses.take(connection.host)
        self.connections[connection] = None
        return True

    def closed(self, connection: HttpConnection) -> None:
        if self.connections.pop(connection, True) is None:
            self._addresses.leave(connection.host)

    def soon(self, call: Callable[[], None]) -> None:
        """See `exchange.App`: one callback of the loop for all that is asked for in a turn."""
        if not self._soon:
            asyncio.get_running_loop().call_soon(self._run_soon)
        self._soon.append(call)

    def _run_soon(self) -> None:
        calls, self._soon = self._soon, []
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001
                # It costs that connection, and nothing else.
                self._note_bug("failed to go on with a request", error)

    def finished(self, exchange: Exchange) -> None:
        self.exchanges.pop(exchange, None)
        if self._all_ended is not None and not self.exchanges:
            self._all_ended.set_result(None)
            self._all_ended = None

    def answer_in_pieces(self, exchange: Exchange, response: Response) -> None:
        writer = asyncio.get_running_loop().create_task(self._write_large(exchange, response))
        self._writers[writer] = None
        writer.add_done_callback(lambda done: self._writers.pop(done))

    async def _write_large(self, exchange: Exchange, response: Response) -> None:
        try:
            hold = response.hold or self._answers.take(len(response.body))
        except HttpError as error:
            exchange.answer(error.response())
            return
        try:
            await exchange.write_whole(response)
        finally:
            hold.release()

    def head(self, response: Response) -> bytes:
        return head_bytes(response, self._node.kv.machine.applied_offset)

    def stream(self, exchange: Exchange) -> asyncio.Task[None] | None:
        request = exchange.request
        if request.path != b"/v1/watch" or request.method != "GET" or self._node.config.is_opaque or self._serves is Serves.OPS:
            return None
        return asyncio.get_running_loop().create_task(self._watch(request, exchange))

    async def serve(self, request: Request) -> Response:
        try:
            self._hosts.check(request)
            self._require_served(request.path)
            return await self._answer(request)
        except HttpError as error:
            return error.response()
        except asyncio.CancelledError:
            # The node stops. Only the client waits for this task, so it may still be answered.
            return _given_up(request).response()
        except TooManyFiles as error:
            self._refusals.note(asyncio.get_running_loop().time(), "refusing request", reason=error)
            return unavailable(error.for_clients).response()
        except (InvariantViolation, StorageError) as error:
            self._on_fatal(error)
            return Response(500, json_bytes({"error": "this node is stopping"}))
        except Exception as error:  # noqa: BLE001
            # A bug in one answer must not end the process.
            path = request.path[:PATH_TOLD_MAX].decode("ascii", "replace")
            self._note_bug(f"failed to serve {request.method} {path}", error)
            return Response(500, json_bytes({"error": "internal error, see the node's log"}))

    # --- requests ---

    def _require_served(self, path: bytes) -> None:
        """404 for what is served elsewhere, or by other quorums."""
        if self._serves is Serves.DATA and path in OPS_PATHS:
            raise HttpError(404, "health and metrics are served at http.ops.listener alone")
        if path.startswith(KEY_VALUE_PATHS):
            if self._serves is Serves.OPS:
                raise HttpError(404, "keys are served at http.listener; this is http.ops.listener")
            if self._node.config.is_opaque:
                raise HttpError(404, no_keys(self._node.config))

    def _answer(self, request: Request) -> Coroutine[Waiter[Any], None, Response]:
        path = request.path
        if path.startswith(b"/v1/kv/"):
            return _for_method(self._key_routes, request)(request, path[len(b"/v1/kv/") :])
        if path == b"/v1/watch":
            _for_method({"GET": None}, request)
        routes = self._routes.get(path)
        if routes is None:
            raise HttpError(404, f"no such path: {path.decode('ascii', 'replace')!r}")
        return _for_method(routes, request)(request)

    async def _watch(self, request: Request, exchange: Exchange) -> None:
        try:
            self._hosts.check(request)
            await self._watchers.serve(request, exchange)
        except HttpError as error:
            exchange.answer(error.response())
        except (TimeoutError, asyncio.CancelledError):
            # The reader takes nothing: what is still buffered for it would keep the connection open for good.
            exchange.abort()
        except Exception as error:  # noqa: BLE001
            self._note_bug("failed to serve a watch", error)
            exchange.abort()

    def _note_bug(self, doing: str, error: Exception) -> None:
        """A request that shows it can be sent a thousand times a second."""
        self._bugs.note_bug(asyncio.get_running_loop().time(), doing, error)


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
