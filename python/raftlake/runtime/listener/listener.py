"""The Kafka listener: accepts connections and gives each request to whom it belongs.

A peer's RPC is translated and goes to `node.receive`, everything else to `node.handle`; `listener.apis` says what is served
where, when peers have a listener of their own. How many connections there may be is for `admission` to say.

What goes wrong while a request is served is one of three things: the client's bytes (close that connection), a broken
invariant or a failed disk (the node stops), or a bug in one answer (log it and close that connection: no request may
end the process).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from raftlake.errors import InvariantViolation, RaftlakeError, StorageError, TooManyFiles, WireError
from raftlake.ports.driver import ListenerUse, PeerConnection
from raftlake.ports.peer_rpcs import PeerReply, PeerRpc
from raftlake.raft.types import NodeId, Offset
from raftlake.replica.config import ClientContext
from raftlake.runtime.admission import OTHERS_MAX, AddressLimit, Admission, Guest, Peers
from raftlake.runtime.listener.api_versions import answer_api_versions
from raftlake.runtime.listener.apis import require_for_clients, require_for_peers
from raftlake.runtime.listener.connection import Connection
from raftlake.runtime.listener.frame_room import FrameRoom
from raftlake.runtime.listener.request import DEAR_PARTITIONS
from raftlake.runtime.listener.router import ConnectionLimits
from raftlake.runtime.log import event
from raftlake.runtime.peers.codec import PeerCodec, source_of
from raftlake.runtime.refusal_log import RefusalLog
from raftlake.runtime.work_line import WorkLine
from raftlake.wire.api import ApiKey, RequestHeader
from raftlake.wire.produce import ProduceRequest

#: Requests that list the partitions of very many topics in their answers, by a few bytes.
PARTITIONS_TOLD = frozenset({ApiKey.METADATA, ApiKey.DESCRIBE_LOG_DIRS})

logger = logging.getLogger("raftlake.listener")

#: `ApiKey.name` takes longer than all else that is done to count a request.
API_NAMES: Mapping[int, str] = {key: key.name for key in ApiKey}

#: How long a connection above the limits may wait with its first request.
FIRST_REQUEST_SECONDS = 2.0
#: Bytes of the requests that are being served, over all connections; beyond it connections wait for each other.
STARTED_BYTES_MAX = 256 * 1024 * 1024
#: Answers that lie in the buffers of connections which take no more; beyond it no consumer's Fetch is started.
UNSENT_BYTES_MAX = 256 * 1024 * 1024
#: How often connections are looked at that may have to be ended.
SWEEP_SECONDS = 5.0


class ServedNode(Protocol):
    """What a listener needs of `replica.node.ReplicaNode`."""

    def receive(self, connection: PeerConnection, rpc: PeerRpc, reply: Callable[[PeerReply], None]) -> None: ...

    def handle(
        self, header: RequestHeader, message: object, client: ClientContext, reply: Callable[[object], None]
    ) -> None: ...

    def finalized_kraft_version(self) -> tuple[int, Offset]: ...

    def finalized_transaction_version(self) -> int: ...


class RequestMetrics(Protocol):
    """What is counted here: `metrics.NodeMetrics`."""

    def count_request(self, api: str) -> None: ...

    def count_refused(self, setting: str) -> None: ...

    def start_commit(self) -> int: ...

    def note_commit(self, started_us: int) -> None: ...


class Listener:
    """`on_fatal` is told of what must stop the node; `notice_alive` of each peer that is heard of. `partitions_told` says how
    many partitions the answer to a request for Metadata lists. `line` is that of all listeners."""

    def __init__(
        self,
        node: ServedNode,
        codec: PeerCodec,
        *,
        limits: ConnectionLimits,
        connections_max: int,
        others_max: int = OTHERS_MAX,
        addresses: AddressLimit,
        peers: Peers,
        use: ListenerUse = ListenerUse.SHARED,
        room: FrameRoom,
        line: WorkLine,
        partitions_told: Callable[[object], int],
        started_bytes_max: int = STARTED_BYTES_MAX,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
        on_fatal: Callable[[RaftlakeError], None],
        notice_alive: Callable[[NodeId], None],
        metrics: RequestMetrics,
    ) -> None:
        self.use = use
        self._takes_peers = use.takes_peers
        self.limits = limits
        self.room = room
        self.line = line
        self._partitions_told = partitions_told
        self._node = node
        self._codec = codec
        self._admission = Admission(
            connections_max=connections_max,
            others_max=others_max,
            addresses=addresses,
            peers=peers if use.takes_peers else None,
            turn_away=self._turn_away,
        )
        self._refusals = RefusalLog(logger)
        self._faults = RefusalLog(logger, logging.INFO)
        self._bugs = RefusalLog(logger, logging.ERROR)
        self._started_bytes_max = started_bytes_max
        self._unsent_bytes_max = unsent_bytes_max
        self._on_fatal = on_fatal
        self._notice_alive = notice_alive
        self._metrics = metrics
        self._connections: dict[Connection, None] = {}
        #: Connections above the limits whose first request has not come yet.
        self._pending: dict[Connection, asyncio.TimerHandle] = {}
        self._started_bytes = 0
        self._unsent_bytes = 0
        self._sweeper: asyncio.TimerHandle | None = None
        #: Connections that wait for room among the requests of all.
        self._waiting: dict[Connection, None] = {}
        #: Connections with answers that have not been written.
        self._unsent: list[Connection] = []
        self._server: asyncio.Server | None = None
        self._all_closed = asyncio.Event()

    # --- life ---

    async def start(self, listening: socket.socket) -> None:
        """Accept connections on a socket that is bound and listens."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), sock=listening)
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def close(self) -> None:
        """Close every connection; what has been answered is still sent."""
        self.stop_accepting()
        for connection in list(self._connections):
            connection.close()

    async def wait_closed(self) -> None:
        """After `close`: wait until what was answered has been sent and every connection is gone."""
        if self._connections:
            await self._all_closed.wait()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # --- connections ---

    def opened(self, connection: Connection) -> bool:
        """Count a connection; False when it is one too many."""
        self._connections[connection] = None
        self._all_closed.clear()
        setting = self._admission.open(connection)
        if setting is not None:
            self._refuse(connection, setting)
            return False
        if self._admission.is_pending(connection):
            loop = asyncio.get_running_loop()
            self._pending[connection] = loop.call_later(FIRST_REQUEST_SECONDS, self._end_pending, connection)
        return True

    def claim(self, connection: Connection, node_id: NodeId) -> bool:
        """Its first request, or a replica's Fetch, says that it is a node's."""
        is_peer = self._admission.claim(connection, node_id)
        if is_peer:
            self._forget_pending(connection)
        return is_peer

    def closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._waiting.pop(connection, None)
        if not self._connections:
            self._all_closed.set()
        self._admission.close(connection)
        self._forget_pending(connection)

    def _forget_pending(self, connection: Connection) -> None:
        timer = self._pending.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def reserve(self, connection: Connection, size: int, is_fetch: bool) -> bool:
        """Room for one more request. A single one always has it, and so has a peer's: clients' requests wait for commits, and
        commits for the peers."""
        is_too_much = self._started_bytes > 0 and self._started_bytes + size > self._started_bytes_max
        if not connection.is_peer and (is_too_much or (is_fetch and self._unsent_bytes > self._unsent_bytes_max)):
            self._waiting[connection] = None
            return False
        self._started_bytes += size
        return True

    def release(self, size: int) -> None:
        self._started_bytes -= size
        self._wake_waiting()

    def hold_unsent(self, size: int) -> None:
        self._unsent_bytes += size
        if size < 0:
            self._wake_waiting()

    def send_later(self, connection: Connection) -> None:
        """Write the connection's answers when the turn is over, or the loop gets round to it."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self.send_answers)
        self._unsent.append(connection)

    def send_answers(self) -> None:
        """Write what has been answered: one system call for each connection, however many answers it got."""
        unsent, self._unsent = self._unsent, []
        for connection in unsent:
            connection.send_answers()

    def _wake_waiting(self) -> None:
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._start_waiting)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.end_overdue(loop.time())
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def end_overdue(self, now: float) -> None:
        """End the connections that have been idle or stuck for too long."""
        self._admission.settle()
        for connection in list(self._connections):
            fault = connection.fault_of(now)
            if fault is not None:
                level = logging.DEBUG if fault == "idle" else logging.INFO
                event(logger, level, "closing connection", peer=connection.host, reason=fault)
                connection.abort()

    def _start_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for connection in waiting:
            connection.start_waiting()

    def _end_pending(self, connection: Connection) -> None:
        if connection in self._pending:
            self._turn_away(connection, self._admission.setting)

    def _turn_away(self, connection: Guest, setting: str) -> None:
        assert isinstance(connection, Connection)
        self._refuse(connection, setting)
        connection.abort()

    def _refuse(self, connection: Connection, setting: str) -> None:
        self._metrics.count_refused(setting.partition("=")[0])
        self._refusals.note(asyncio.get_running_loop().time(), "refusing connection", peer=connection.host, reason=setting)

    def note_fault(self, connection: Connection, reason: object) -> None:
        """The other side broke the protocol. Its client id may be as long as a request."""
        now = asyncio.get_running_loop().time()
        self._faults.note(now, "closing connection", peer=connection.host, client=connection.client_id, reason=reason)

    def note_bug(self, doing: str, error: Exception) -> None:
        """A request that shows it can be sent a thousand times a second."""
        self._bugs.note_bug(asyncio.get_running_loop().time(), doing, error)

    # --- requests ---

    def is_dear(self, header: RequestHeader, message: object) -> bool:
        return header.api_key in PARTITIONS_TOLD and self._partitions_told(message) > DEAR_PARTITIONS

    def route(self, connection: Connection, header: RequestHeader, message: object, reply: Callable[[object], None]) -> None:
        try:
            self._route(connection, header, message, reply)
        except WireError:
            raise
        except TooManyFiles as error:
            # It was only read for this request. The client asks again.
            self.note_fault(connection, error)
            connection.abort()
        except (StorageError, InvariantViolation) as error:
            self._on_fatal(error)
            connection.abort()
        except AssertionError as error:
            logger.exception("an assertion failed")
            self._on_fatal(InvariantViolation(f"assertion failed while serving api key {header.api_key}: {error}"))
            connection.abort()
        except Exception as error:  # noqa: BLE001
            # A bug in serving one request must not become a way to stop nodes.
            self.note_bug(f"failed to serve {ApiKey(header.api_key).name} version {header.api_version}", error)
            connection.abort()

    def _route(self, connection: Connection, header: RequestHeader, message: object, reply: Callable[[object], None]) -> None:
        api = header.api_key
        self._metrics.count_request(API_NAMES[api])
        if not self._takes_peers:
            require_for_peers(self.use, header, message)
        rpc = self._codec.decode_request(header, message, from_peers=self._takes_peers)
        source = None if rpc is None else source_of(rpc)
        if source is not None and source >= 0:
            # Kafka's own replicas give client ids of other kinds.
            connection.claim(source)
        if connection in self._pending:
            self._forget_pending(connection)
            self._refuse(connection, self._admission.setting)
            raise WireError("too many connections")
        if rpc is not None:
            if source is not None and source >= 0:
                self._notice_alive(source)
            self._node.receive(connection.peer, rpc, lambda answer: reply(self._codec.encode_reply(header, rpc, answer)))
            return
        if api is ApiKey.API_VERSIONS:
            finalized, transaction_version = self._node.finalized_kraft_version(), self._node.finalized_transaction_version()
            reply(answer_api_versions(header.api_version, self.use, finalized, transaction_version))
            return
        if self.use is ListenerUse.PEERS:
            require_for_clients(self.use, header)
        if isinstance(message, ProduceRequest) and message.acks == -1:
            reply = self._timed(reply)
        self._node.handle(header, message, connection.client(header.client_id), reply)

    def _timed(self, reply: Callable[[object], None]) -> Callable[[object], None]:
        """An append with acks=all is answered when it is committed."""
        started_us = self._metrics.start_commit()

        def timed(answer: object) -> None:
            self._metrics.note_commit(started_us)
            reply(answer)

        return timed
