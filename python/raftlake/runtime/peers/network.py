"""The way out to the other nodes: `ports.Network` over TCP.

Four connections to each peer, opened when first needed: one for Fetch, one for Vote, BeginQuorumEpoch and EndQuorumEpoch, one
for FetchSnapshot and for what a replica asks that recovers from the remote tier, and one for what this node forwards
(proposals, ReadOffset). Answers on a connection come in request order,
so a parked Fetch or a proposal that waits for its commit must not stand in front of a vote.

Keeps the promises of `ports.Network`: `done` exactly once and never from within `send`. A peer that does not answer costs
its requests a TIMED_OUT and the connection, which is opened anew; a peer whose process is gone is reported at once.
Knows no Raft: `PeerCodec` turns values into messages and back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from raftlake.errors import ErrorCode, WireError
from raftlake.ports.driver import KraftVersions
from raftlake.ports.peer_rpcs import ControlRpc, EpochEndRpc, FetchRpc, FetchSnapshotRpc, LocalStartRpc, MarkersRpc, PeerRpc
from raftlake.raft.config import RaftConfig
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NodeId
from raftlake.replica.config import Endpoint
from raftlake.runtime.admission import plain_address
from raftlake.runtime.log import event
from raftlake.runtime.peers.address import AddressRefused, PeerAddresses, connect_to_any
from raftlake.runtime.peers.codec import PeerCodec, peer_client_id
from raftlake.runtime.peers.connection import DoneCallback, PeerRequest, PeerSocket
from raftlake.runtime.peers.endpoint_probe import ProbeFailed, ask_kraft_versions
from raftlake.runtime.refusal_log import RefusalLog
from raftlake.wire.api import decode_response

logger = logging.getLogger("raftlake.peers")

UnreachableCallback = Callable[[NodeId], None]
ForeignCallback = Callable[[NodeId, Endpoint], None]
_CHANNELS = ("fetch", "control", "snapshot", "forward")
_CHANNEL_OF: Mapping[type[PeerRpc], str] = {
    ControlRpc: "control",
    FetchSnapshotRpc: "snapshot",
    LocalStartRpc: "snapshot",
    EpochEndRpc: "snapshot",
    MarkersRpc: "snapshot",
}


class _Channel:
    """Requests of one kind to one peer, over one connection at a time."""

    def __init__(self, network: TcpNetwork, peer: NodeId, addresses: Sequence[Endpoint], name: str) -> None:
        self._network = network
        self._peer = peer
        #: Where the peer may be. Where a connection is refused, the next attempt goes to the next address.
        self._addresses = deque(addresses)
        self._name = name
        self._loop = network.loop
        self._connection: PeerSocket | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._backoff_ms = 0
        self._waiting: deque[PeerRequest] = deque()
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._was_connected = False

    # --- requests ---

    def send(self, request: PeerRequest) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        request.correlation_id = self._correlation_id
        if self._connection is not None:
            self._connection.write(request, self._network.client_id)
        else:
            self._waiting.append(request)
            self._connect()
        if self._timer is None:
            self._timer = self._loop.call_at(request.deadline, self._on_deadline)

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    @property
    def is_in_touch(self) -> bool:
        """Connected, or about to be: what waits for the connection goes out then."""
        return self._connection is not None or self._connecting is not None

    def stays(self, addresses: Sequence[Endpoint]) -> bool:
        """The peer is known to be at the first of `addresses`. False when this channel leads elsewhere already."""
        if self._addresses[0] != addresses[0] and (self._connection is not None or self._connecting is not None):
            return False
        self._addresses = deque(addresses)
        return True

    def on_frame(self, connection: PeerSocket, frame: bytearray) -> None:
        if connection is not self._connection:
            return
        if not connection.unanswered:
            raise WireError("an answer without a request")
        request = connection.unanswered[0]
        correlation_id, message = decode_response(request.api_key, request.version, frame)
        if correlation_id != request.correlation_id:
            raise WireError(f"answer {correlation_id} to request {request.correlation_id}")
        reply = self._network.codec.decode_reply(request.rpc, message)
        for named in getattr(message, "node_endpoints", ()):
            # A leader that this node has not heard of yet; what the log says of it comes later and goes first.
            if named.node_id not in self._network.addresses:
                self._network.meet(NodeId(named.node_id), named.host, named.port)
        connection.unanswered.popleft()
        self._backoff_ms = 0
        if getattr(reply, "error", None) is ErrorCode.INCONSISTENT_CLUSTER_ID and self._network.on_foreign is not None:
            self._network.on_foreign(self._peer, self._addresses[0])
        request.done(reply)

    def retire(self) -> None:
        """The peer is reached elsewhere: what was sent or waits here has failed."""
        unanswered = [*self._sent(), *self._waiting]
        self.close()
        for request in unanswered:
            self._loop.call_soon(request.done, FailureReason.DISCONNECTED)

    def close(self) -> None:
        """The node stops: no request is reported any more."""
        for handle in (self._timer, self._retry, self._connecting):
            if handle is not None:
                handle.cancel()
        self._waiting.clear()
        if self._connection is not None:
            self._connection.drop()
            self._connection = None

    # --- connecting ---

    def reconnect_now(self) -> None:
        """The peer is known to live: do not sit out the backoff."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
            self._backoff_ms = 0
            self._connect()

    def _connect(self) -> None:
        if self._connecting is None and self._retry is None:
            self._connecting = self._loop.create_task(self._open())

    async def _open(self) -> None:
        limit = self._network.response_bytes_max
        try:
            async with asyncio.timeout(self._network.timing.request_timeout_ms / 1000):
                address = self._addresses[0]
                found = await self._network.allowed.resolve(address)
                transport, connection = await connect_to_any(
                    found, lambda at: self._loop.create_connection(lambda: PeerSocket(self, limit), at, address.port)
                )
        except (OSError, TimeoutError) as error:
            self._on_connect_failed(error)
            return
        except Exception as error:  # noqa: BLE001
            self._network.note_bug("connecting to a peer failed unexpectedly", error)
            self._on_connect_failed(error)
            return
        finally:
            self._connecting = None
        if not connection.is_open:
            # It was closed before this task ran again.
            self._on_connect_failed(ConnectionResetError("closed at once"))
            return
        self._network.note_reached(self._peer, transport)
        self._connection = connection
        self._was_connected = True
        event(logger, logging.DEBUG, "connected", peer=self._peer, address=address, channel=self._name)
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            connection.write(request, self._network.client_id)

    def _on_connect_failed(self, error: Exception) -> None:
        self._back_off()
        address = self._addresses[0]
        if isinstance(error, AddressRefused):
            self._network.note_refused(self._peer, error)
        event(logger, logging.DEBUG, "cannot connect", peer=self._peer, address=address, channel=self._name, reason=error)
        self._addresses.rotate(-1)
        failed, self._waiting = self._waiting, deque()
        if isinstance(error, ConnectionError) and self._was_connected:
            self._report_unreachable()
        for request in failed:
            request.done(FailureReason.DISCONNECTED)

    def _back_off(self) -> None:
        """The next attempt waits: quorum.retry.backoff.ms, doubled each time up to quorum.retry.backoff.max.ms."""
        timing = self._network.timing
        self._backoff_ms = min(max(self._backoff_ms * 2, timing.retry_backoff_ms), timing.retry_backoff_ms_max)
        self._retry = self._loop.call_later(self._backoff_ms / 1000, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        if self._waiting:
            self._connect()

    # --- failures ---

    def on_lost(self, connection: PeerSocket, error: Exception | None) -> None:
        """The peer closed or reset the connection."""
        if connection is self._connection:
            reason = error or "closed"
            if self._peer < 0:
                # A number that stands for an address of the settings says nothing to people.
                reason = f"{reason}; quorum.bootstrap.servers has to name a listener for peers"
            told: dict[str, object] = {"address": self._addresses[0], "channel": self._name, "reason": reason}
            event(logger, logging.INFO, "peer closed connection", peer=self._peer, **told)
            self._abandon(connection, FailureReason.DISCONNECTED)
            self._report_unreachable()

    def _report_unreachable(self) -> None:
        """What is forwarded may be an API that the peer does not know, which costs the connection and is no news about the peer
        (Kafka's own nodes do that). A group that depends on the peer has a connection of another kind to it."""
        if self._name != "forward":
            self._network.on_unreachable(self._peer)

    def on_garbage(self, connection: PeerSocket, error: WireError) -> None:
        """The peer broke the protocol; it is not gone, so this is no news about it."""
        if connection is self._connection:
            event(logger, logging.WARNING, "closing connection", peer=self._peer, channel=self._name, reason=error)
            self._abandon(connection, FailureReason.DISCONNECTED)

    def _abandon(self, connection: PeerSocket, reason: FailureReason) -> None:
        self._connection = None
        connection.drop()
        self._back_off()
        failed, connection.unanswered = connection.unanswered, deque()
        for request in failed:
            request.done(reason)

    def _on_deadline(self) -> None:
        """The oldest request may be overdue. On an established connection the answers behind it cannot come before its own,
        so all of them fail with it and the connection is opened anew."""
        self._timer = None
        now = self._loop.time()
        connection = self._connection
        if connection is not None and connection.unanswered and connection.unanswered[0].deadline <= now:
            event(logger, logging.INFO, "peer does not answer", peer=self._peer, channel=self._name)
            self._abandon(connection, FailureReason.TIMED_OUT)
        expired = []
        while self._waiting and self._waiting[0].deadline <= now:
            expired.append(self._waiting.popleft())
        for request in expired:
            request.done(FailureReason.TIMED_OUT)
        self._arm()

    def _arm(self) -> None:
        deadlines = [queue[0].deadline for queue in (self._waiting, self._sent()) if queue]
        if deadlines and self._timer is None:
            self._timer = self._loop.call_at(min(deadlines), self._on_deadline)

    def _sent(self) -> deque[PeerRequest]:
        return self._connection.unanswered if self._connection is not None else deque()


class TcpNetwork:
    """`ports.Network`. `on_unreachable` is called when an established connection was closed by the peer, or when a connect
    was refused by a peer that had been connected before, `on_foreign` when a peer says that it is of another cluster."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        node_id: NodeId,
        peers: Mapping[NodeId, Endpoint],
        timing: RaftConfig,
        codec: PeerCodec,
        on_unreachable: UnreachableCallback,
        response_bytes_max: int,
        allowed: PeerAddresses | None = None,
        on_foreign: ForeignCallback | None = None,
    ) -> None:
        self.loop = loop
        self.allowed = allowed or PeerAddresses()
        self.client_id = peer_client_id(node_id)
        self.timing = timing
        self.codec = codec
        self.on_unreachable = on_unreachable
        self.on_foreign = on_foreign
        self.response_bytes_max = response_bytes_max
        self._node_id = node_id
        #: Where each peer is reached; negative numbers stand for addresses whose node is not known.
        self.addresses: dict[NodeId, Endpoint] = {}
        #: The address that a connection to each of them led to last.
        self.reached_at: dict[NodeId, str] = {}
        self._refusals = RefusalLog(logger)
        self._bugs = RefusalLog(logger, logging.ERROR)
        #: What the settings say, which may be newer than the log: voters that all have moved could not tell each other.
        self._given = dict(peers)
        self._channels: dict[NodeId, dict[str, _Channel]] = {}
        self._probes: set[asyncio.Task[KraftVersions | FailureReason]] = set()
        for peer, address in peers.items():
            self.meet(peer, address.host, address.port)

    def meet(self, peer: NodeId, host: str, port: int) -> None:
        """See `ports.Network`. A new address of a known peer replaces its connections; what is under way there has failed."""
        address = Endpoint(host, port)
        if self.addresses.get(peer) == address:
            return
        self.addresses[peer] = address
        if peer == self._node_id:
            return
        known = list(dict.fromkeys([address, self._given.get(peer, address)]))
        channels = self._channels.setdefault(peer, {})
        for name in _CHANNELS:
            channel = channels.get(name)
            if channel is None or not channel.stays(known):
                channels[name] = _Channel(self, peer, known, name)
                if channel is not None:
                    channel.retire()

    def probe(self, host: str, port: int, done: Callable[[KraftVersions | FailureReason], None]) -> None:
        """See `ports.Network`."""
        task = self.loop.create_task(self._probe(Endpoint(host, port)))
        self._probes.add(task)

        def answered(task: asyncio.Task[KraftVersions | FailureReason]) -> None:
            self._probes.discard(task)
            if not task.cancelled():
                done(task.result())

        task.add_done_callback(answered)

    async def _probe(self, address: Endpoint) -> KraftVersions | FailureReason:
        """What the endpoint said is for the log alone: anybody may name an address. A failure takes as long as no answer
        does, or its time would tell what is there."""
        gives_up_at = self.loop.time() + self.timing.request_timeout_ms / 1000
        found = await self._ask(address)
        if isinstance(found, ProbeFailed):
            event(logger, logging.WARNING, "endpoint of a voter not confirmed", address=address, reason=found.detail)
            await asyncio.sleep(max(0.0, gives_up_at - self.loop.time()))
            return found.reason
        event(logger, logging.INFO, "endpoint of a voter confirmed", address=address, versions=found)
        return found

    async def _ask(self, address: Endpoint) -> KraftVersions | ProbeFailed:
        try:
            return await ask_kraft_versions(address, self.client_id, self.timing.request_timeout_ms / 1000, self.allowed)
        except Exception as error:  # noqa: BLE001
            # Anybody may name an address, and be there. Nothing that comes of it ends the node.
            self.note_bug("asking an endpoint failed unexpectedly", error)
            return ProbeFailed(FailureReason.DISCONNECTED, repr(error))

    def send(self, peer: NodeId, rpc: PeerRpc, done: DoneCallback) -> None:
        channels = self._channels.get(peer)
        if channels is None:
            self.loop.call_soon(done, FailureReason.DISCONNECTED)
            return
        timeout_ms = self.timing.request_timeout_ms
        if isinstance(rpc, FetchRpc):
            channel = channels["fetch"]
            timeout_ms += rpc.wait_ms_max
        else:
            channel = channels[_CHANNEL_OF.get(type(rpc), "forward")]
        api_key, version, message = self.codec.encode_request(peer, rpc)
        channel.send(PeerRequest(rpc, done, self.loop.time() + timeout_ms / 1000, api_key, version, message))

    def connected_peers(self) -> list[NodeId]:
        return [peer for peer, channels in self._channels.items() if any(each.is_connected for each in channels.values())]

    def peers_in_touch(self) -> list[NodeId]:
        """Those that are connected or being connected. A peer closes a connection that is idle for long and runs on."""
        return [peer for peer, channels in self._channels.items() if any(each.is_in_touch for each in channels.values())]

    def notice_alive(self, peer: NodeId) -> None:
        """A request of `peer` arrived, so its process runs and listens."""
        for channel in self._channels.get(peer, {}).values():
            channel.reconnect_now()

    def note_reached(self, peer: NodeId, transport: asyncio.BaseTransport) -> None:
        """Where a peer was reached, it lives: requests from there may well be its own."""
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.reached_at[peer] = plain_address(name[0])

    def note_refused(self, peer: NodeId, error: AddressRefused) -> None:
        self._refusals.note(self.loop.time(), "not connecting to a peer", peer=peer, reason=error)

    def note_bug(self, message: str, error: Exception) -> None:
        self._bugs.note_bug(self.loop.time(), message, error)

    def close(self) -> None:
        """Close every connection; requests under way are not reported any more."""
        for channels in self._channels.values():
            for channel in channels.values():
                channel.close()
        for task in self._probes:
            task.cancel()
