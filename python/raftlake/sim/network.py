"""The simulated network between nodes: `ports.Network` at the level of whole RPCs, passed as values.

Owns: which message arrives, when, and on which connection. Faults: loss, delay with a long tail (hence reordering), requests
that arrive twice, links cut in one or both directions, connections that reset. Refuses to know: what a message means
(apart from the one-Fetch-in-flight rule of the port) and why a fault happens (`faults` decides).

How connections are modelled. Fetch rounds of one node to another share a connection and therefore keep their order; it is
replaced after a timeout, a reset or a restart, and a round that still sits in the old one may arrive late, on the old one.
Every other request has its own connection, so those overtake each other freely. A request that arrives twice comes on a
fresh connection the second time, and the first answer counts. A forwarded proposal never arrives twice: it is not
idempotent, and no transport below it repeats it.

Invariant (ports.Network): `done` is called exactly once per `send`, never from within it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import log
from random import Random
from typing import Protocol

from raftlake.ports.driver import KraftVersions, PeerConnection
from raftlake.ports.peer_rpcs import FetchRpc, GroupId, PeerReply, PeerRpc, ProposeRpc
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NodeId
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.wire.control import KRAFT_VERSION_MAX, KRAFT_VERSION_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Rates are per message, in parts per million."""

    delay_us_min: int = 100
    delay_us_mean: int = 300
    #: This share of the messages takes up to `straggle_us_max` instead: they are what gets reordered.
    straggle_ppm: int = 0
    straggle_us_max: int = 500_000
    loss_ppm: int = 0
    duplicate_ppm: int = 0
    request_timeout_ms: int = 2_000
    #: How long it takes to connect to an address that was never asked before.
    connect_us: int = 0


#: Of a request that is no Fetch round.
NO_EPOCHS: Mapping[GroupId, int] = {}


class Peer(Protocol):
    """One machine as the network sees it."""

    @property
    def incarnation(self) -> int:
        """Counts the starts of the machine; 0 while it is down."""

    def port_call(self, name: str) -> None:
        """See `disk.Machine.port_call`."""

    def epochs(self) -> Mapping[GroupId, int]:
        """Those in which the groups of the running node speak."""

    def deliver_request(
        self,
        incarnation: int,
        source: NodeId,
        connection: PeerConnection,
        rpc: PeerRpc,
        reply: Callable[[PeerReply], None],
        epochs: Mapping[GroupId, int],
    ) -> None:
        """Hand a request to the node, on its own turn; nothing happens when this incarnation is over. `epochs` are those of the
        sender's groups when it sent a Fetch round."""

    def deliver_answer(
        self,
        incarnation: int,
        source: NodeId,
        answer: PeerReply | FailureReason,
        done: Callable[[PeerReply | FailureReason], None],
    ) -> None:
        """Hand an answer or a failure to the node."""

    def deliver_unreachable(self, incarnation: int, peer: NodeId) -> None:
        """Tell the node that its connection to `peer` closed or was refused."""

    def deliver(self, incarnation: int, call: Callable[[], None]) -> None:
        """Let the node take in what `call` tells it."""


@dataclass(slots=True)
class Connection:
    """A client's connection; `state` lives at the server's end, in one incarnation of it."""

    state: PeerConnection
    server_incarnation: int


@dataclass(slots=True)
class Call:
    """A request, from its send to its answer. `finished`: `done` was called, or the sender is gone."""

    number: int
    source: NodeId
    source_incarnation: int
    destination: NodeId
    rpc: PeerRpc
    done: Callable[[PeerReply | FailureReason], None]
    #: As whom the sender knows its destination.
    lane_name: NodeId
    #: Of the sender's groups, when it sent a Fetch round.
    epochs: Mapping[GroupId, int]
    finished: bool = False


@dataclass(slots=True)
class NetworkCounters:
    sent: int = 0
    lost: int = 0
    cut: int = 0
    duplicated: int = 0
    straggled: int = 0
    refused: int = 0
    timed_out: int = 0
    reset: int = 0


class Patience:
    """Time limits of calls; nearly all calls end long before. The calls of one limit wait in a queue in their
    order, and only the first of each queue is in the scheduler."""

    def __init__(self, scheduler: Scheduler, time_out: Callable[[Call], None]) -> None:
        self._scheduler = scheduler
        self._time_out = time_out
        self._waiting: dict[int, deque[tuple[int, Call]]] = {}

    def give(self, call: Call, limit_ms: int) -> None:
        """Time `call` out after `limit_ms` unless it has finished."""
        waiting = self._waiting.get(limit_ms)
        if waiting is None:
            waiting = self._waiting[limit_ms] = deque()
        at_us = self._scheduler.now_us + limit_ms * US_PER_MS
        if not waiting:
            self._scheduler.call_at(at_us, self._look, waiting)
        waiting.append((at_us, call))

    def _look(self, waiting: deque[tuple[int, Call]]) -> None:
        now_us = self._scheduler.now_us
        while waiting:
            at_us, call = waiting[0]
            if not call.finished and at_us > now_us:
                self._scheduler.call_at(at_us, self._look, waiting)
                return
            if not call.finished:
                self._time_out(call)
            waiting.popleft()


class SimulatedNetwork:
    """All links of the cluster. `peers` is filled by the cluster before the first message."""

    def __init__(self, scheduler: Scheduler, rng: Random, settings: NetworkSettings) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self.settings = settings
        self.counters = NetworkCounters()
        self.peers: dict[NodeId, Peer] = {}
        #: The node that is reached at an address without a known owner: (asking node, number of the address) -> node.
        self.addresses: dict[tuple[NodeId, NodeId], NodeId] = {}
        #: Whose address is what.
        self.places: dict[tuple[str, int], NodeId] = {}
        #: What all that run know.
        self.kraft_versions: KraftVersions = (KRAFT_VERSION_MIN, KRAFT_VERSION_MAX)
        #: How many faults hold a link cut.
        self._cut: dict[tuple[NodeId, NodeId], int] = {}
        #: Directed links on which every message takes longer, and by how much.
        self._slow: dict[tuple[NodeId, NodeId], int] = {}
        #: The fetch connection of (client, server), and which pairs have any connection open.
        self._fetch_lanes: dict[tuple[NodeId, NodeId], Connection] = {}
        self._established: dict[tuple[NodeId, NodeId], int] = {}
        #: Unfinished calls in the order in which they were sent.
        self._calls: dict[int, Call] = {}
        self._call_counter = 0
        self._patience = Patience(scheduler, self._time_out)

    def endpoint(self, node_id: NodeId) -> Endpoint:
        """The `ports.Network` of the current incarnation of a node."""
        return Endpoint(self, node_id, self.peers[node_id].incarnation)

    # --- faults ---

    def cut_link(self, source: NodeId, destination: NodeId) -> None:
        """From now on nothing passes from `source` to `destination`; what is under way still arrives."""
        self._cut[source, destination] = self._cut.get((source, destination), 0) + 1

    def restore_link(self, source: NodeId, destination: NodeId) -> None:
        """One of those that cut the link lets go of it."""
        held = self._cut.pop((source, destination), 0)
        if held > 1:
            self._cut[source, destination] = held - 1

    def delay_link(self, source: NodeId, destination: NodeId, extra_us: int) -> None:
        """Every message from `source` to `destination` takes `extra_us` longer; 0 ends it."""
        self._slow.pop((source, destination), None)
        if extra_us:
            self._slow[source, destination] = extra_us

    def heal_links(self) -> None:
        """Every link carries messages again, at its usual speed."""
        self._cut.clear()
        self._slow.clear()

    def reset_connection(self, client: NodeId, server: NodeId) -> None:
        """The connections between two living nodes break: the client's calls fail, what they carried is lost or late."""
        if self._established.pop((client, server), None) is None:
            return
        self.counters.reset += 1
        self._fetch_lanes.pop((client, server), None)
        self._disconnect(client, server)

    def on_crash(self, node_id: NodeId) -> None:
        """A machine went down: its calls end with it, its clients learn it unless the link to them is cut."""
        for call in [call for call in self._calls.values() if call.source == node_id]:
            call.finished = True
            del self._calls[call.number]
        for lane in [lane for lane in self._fetch_lanes if lane[0] == node_id and lane[1] < 0]:
            del self._fetch_lanes[lane]
        for client, server in [pair for pair in self._established if node_id in pair]:
            del self._established[client, server]
            self._fetch_lanes.pop((client, server), None)
            if server == node_id and (server, client) not in self._cut:
                self._disconnect(client, server)

    def _disconnect(self, client: NodeId, server: NodeId) -> None:
        peer = self.peers[client]
        self._scheduler.call_after(self._delay_us(), peer.deliver_unreachable, peer.incarnation, server)
        for call in self._calls.values():
            if call.source == client and call.destination == server:
                self._scheduler.call_after(self._delay_us(), self._finish, call, FailureReason.DISCONNECTED)

    # --- requests ---

    def send(
        self,
        source: NodeId,
        incarnation: int,
        destination: NodeId,
        rpc: PeerRpc,
        done: Callable[[PeerReply | FailureReason], None],
    ) -> None:
        """See `ports.Network.send`."""
        # To a peer that it knows only by an address a node has another connection than to the same one by its number.
        lane_name = destination
        if destination < 0:
            destination = self.addresses[source, destination]
        assert destination != source
        self.peers[source].port_call("send")
        settings = self.settings
        self._call_counter += 1
        self.counters.sent += 1
        is_fetch = isinstance(rpc, FetchRpc)
        epochs = self.peers[source].epochs() if is_fetch else NO_EPOCHS
        call = self._calls[self._call_counter] = Call(
            self._call_counter, source, incarnation, destination, rpc, done, lane_name, epochs
        )
        self._patience.give(call, settings.request_timeout_ms + (rpc.wait_ms_max if isinstance(rpc, FetchRpc) else 0))
        if (source, destination) in self._cut:
            self.counters.cut += 1
            return
        # Of a node that does not exist no address is known, which takes as long as a refused connection at most.
        server_incarnation = self.peers[destination].incarnation if destination in self.peers else 0
        if not server_incarnation:
            self._refuse(call)
            return
        connection = self._connect(source, destination, server_incarnation, lane_name if is_fetch else None)
        if not self._is_lost():
            delay_us = self._delay_us() + self._slow.get((source, destination), 0)
            self._scheduler.call_after(delay_us, self._arrive, call, connection)
        if settings.duplicate_ppm and not isinstance(rpc, ProposeRpc) and self._happens(settings.duplicate_ppm):
            self.counters.duplicated += 1
            again = Connection(PeerConnection(), server_incarnation)
            self._scheduler.call_after(self._delay_us() * 4, self._arrive, call, again)

    def probe(
        self, source: NodeId, incarnation: int, place: tuple[str, int], done: Callable[[KraftVersions | FailureReason], None]
    ) -> None:
        """See `ports.Network.probe`."""
        self.counters.sent += 1
        destination = self.places.get(place)
        answer: KraftVersions | FailureReason = self.kraft_versions
        delay_us = self.settings.connect_us + self._delay_us() + self._delay_us()
        if destination is None:
            answer = FailureReason.DISCONNECTED
        elif (source, destination) in self._cut or (destination, source) in self._cut or self._is_lost():
            answer, delay_us = FailureReason.TIMED_OUT, self.settings.request_timeout_ms * US_PER_MS
        elif not self.peers[destination].incarnation:
            answer = FailureReason.DISCONNECTED
        self._scheduler.call_after(delay_us, self.peers[source].deliver, incarnation, lambda: done(answer))

    def _connect(self, client: NodeId, server: NodeId, server_incarnation: int, lane_name: NodeId | None) -> Connection:
        self._established[client, server] = server_incarnation
        if lane_name is None:
            return Connection(PeerConnection(), server_incarnation)
        lane = self._fetch_lanes.get((client, lane_name))
        if lane is None or lane.server_incarnation != server_incarnation:
            lane = self._fetch_lanes[client, lane_name] = Connection(PeerConnection(), server_incarnation)
        return lane

    def _refuse(self, call: Call) -> None:
        """No node listens there: the connection attempt fails after a round trip, if the refusal finds its way back."""
        self.counters.refused += 1
        if (call.destination, call.source) in self._cut:
            return
        self._scheduler.call_after(self._delay_us() * 2, self._finish_refused, call)

    def _finish_refused(self, call: Call) -> None:
        self.peers[call.source].deliver_unreachable(call.source_incarnation, call.destination)
        self._finish(call, FailureReason.DISCONNECTED)

    def _arrive(self, call: Call, connection: Connection) -> None:
        server = self.peers[call.destination]
        incarnation = connection.server_incarnation
        if server.incarnation == incarnation:
            reply = partial(self._reply, call)
            server.deliver_request(incarnation, call.source, connection.state, call.rpc, reply, call.epochs)

    # --- answers ---

    def _reply(self, call: Call, answer: PeerReply) -> None:
        self.peers[call.destination].port_call("reply")
        if call.finished:
            return
        if (call.destination, call.source) in self._cut:
            self.counters.cut += 1
        elif not self._is_lost():
            delay_us = self._delay_us() + self._slow.get((call.destination, call.source), 0)
            self._scheduler.call_after(delay_us, self._finish, call, answer)

    def _time_out(self, call: Call) -> None:
        self.counters.timed_out += 1
        if isinstance(call.rpc, FetchRpc):
            # The client gives the connection up: its answers would come in order, behind the one that never came.
            self._fetch_lanes.pop((call.source, call.lane_name), None)
        self._finish(call, FailureReason.TIMED_OUT)

    def _finish(self, call: Call, answer: PeerReply | FailureReason) -> None:
        if call.finished:
            return
        call.finished = True
        del self._calls[call.number]
        self.peers[call.source].deliver_answer(call.source_incarnation, call.destination, answer, call.done)

    # --- draws ---

    def _happens(self, ppm: int) -> bool:
        return self._rng.random() * 1_000_000 < ppm

    def _is_lost(self) -> bool:
        loss_ppm = self.settings.loss_ppm
        if loss_ppm and self._rng.random() * 1_000_000 < loss_ppm:
            self.counters.lost += 1
            return True
        return False

    def _delay_us(self) -> int:
        settings = self.settings
        if settings.straggle_ppm and self._happens(settings.straggle_ppm):
            self.counters.straggled += 1
            return settings.delay_us_min + int(self._rng.random() * settings.straggle_us_max)
        # As `Random.expovariate(1.0)` draws it.
        return settings.delay_us_min + int(-log(1.0 - self._rng.random()) * settings.delay_us_mean)


class Endpoint:
    """`ports.Network` of one incarnation of one node."""

    def __init__(self, network: SimulatedNetwork, node_id: NodeId, incarnation: int) -> None:
        self._network = network
        self._node_id = node_id
        self._incarnation = incarnation

    def meet(self, peer: NodeId, host: str, port: int) -> None:
        """Machines are found by their numbers here."""

    def probe(self, host: str, port: int, done: Callable[[KraftVersions | FailureReason], None]) -> None:
        self._network.probe(self._node_id, self._incarnation, (host, port), done)

    def send(self, peer: NodeId, rpc: PeerRpc, done: Callable[[PeerReply | FailureReason], None]) -> None:
        self._network.send(self._node_id, self._incarnation, peer, rpc, done)
