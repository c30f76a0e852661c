"""A calm preset of the simulator, for unit tests of the driver: "three nodes, append, ask".

Machines, network, disks, time and invariants are those of `raftlake.sim`. Nothing fails by itself, and nothing takes a drawn
time: messages take 1 ms each way, syncs 1 ms, a turn begins at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from raftlake.errors import StorageError
from raftlake.ports.peer_rpcs import GroupId, PeerRpc
from raftlake.raft.types import NO_DIRECTORY, DirectoryId, NodeId
from raftlake.replica.config import METADATA_GROUP, ClientContext, Endpoint, NodeConfig
from raftlake.replica.node import ReplicaNode
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.sim.coverage import Coverage
from raftlake.sim.disk.disk import SimulatedDisk
from raftlake.sim.faults.faults import Settings, stream
from raftlake.sim.faults.syncs import SYNC_US_MIN
from raftlake.sim.invariants import InvariantSuite, standard_invariants
from raftlake.sim.invariants.committed_data import CommittedData
from raftlake.sim.machine import Machine, World
from raftlake.sim.network import NetworkSettings, SimulatedNetwork
from raftlake.sim.tier import ObjectStore
from raftlake.sim.trace import LineSink, Trace
from raftlake.sim.view import view_of
from raftlake.wire.api import ApiKey, RequestHeader
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlake.wire.fetch_response import FetchPartitionResult
from raftlake.wire.produce import ProducePartition, ProducePartitionResult, ProduceRequest, ProduceTopic

#: Every message takes a millisecond, and every sync.
CALM = Settings(
    seed=1,
    turn_delay_us_max=0,
    flush_is_even=True,
    flush_us_mean=US_PER_MS - SYNC_US_MIN,
    network=NetworkSettings(delay_us_min=US_PER_MS, delay_us_mean=0, connect_us=2 * US_PER_MS),
)
KILLED = "killed"
#: At whose address no node is.
NOBODY = NodeId(1 << 30)
#: Longer than any test.
ENDLESS_US = 1 << 50


class AnyTopic:
    """Tests delete what they like."""

    def __contains__(self, topic: object) -> bool:
        return True


class Cluster:
    """Voters `1..size`, all started; `machines` has every node and its disk, `nodes` those that run."""

    def __init__(
        self,
        size: int = 3,
        *,
        seed: int = 1,
        segment_bytes: int = 1 << 20,
        directories: bool = False,
        is_watched: bool = True,
        has_tier: bool = False,
        tier_lines: LineSink | None = None,
        **settings: Any,
    ) -> None:
        """With `directories` each disk has an id, so that leaders put the voters into the logs. A test that forges requests of
        peers may break any promise: there `is_watched` is False. With `has_tier` all nodes share the store `tier`, whose calls
        have no faults; with `tier_lines` they do too, and the store tells its answers there."""
        calm = replace(CALM, seed=seed, segment_bytes=segment_bytes)
        self.client = ClientContext("test", "127.0.0.1")
        self.scheduler = scheduler = Scheduler()
        self.network = SimulatedNetwork(scheduler, stream(seed, "network"), calm.network)
        self.machines: dict[NodeId, Machine] = {}
        self.network.peers = self.machines  # type: ignore[assignment]
        self.voters: Mapping[NodeId, Endpoint] = {NodeId(i): Endpoint("127.0.0.1", 9090 + i) for i in range(1, size + 1)}
        view = view_of(self.machines, tuple(self.voters), disposable_topics=AnyTopic())
        invariants, committed = standard_invariants(view, size, calm.raft.fetch_timeout_ms)
        # The store judges copies by what is committed.
        needed = [CommittedData(view, committed)] if tier_lines is not None else []
        promises = InvariantSuite(invariants if is_watched else needed)
        self.tier = ObjectStore(scheduler, stream(seed, "tier"), committed, Trace(scheduler, tier_lines))
        self.tier.is_healed = True
        self.store = self.tier if has_tier or tier_lines is not None else None
        self._world = World(calm, scheduler, self.network, Trace(scheduler, None), promises, Coverage(), [], {}, {}, self.store)
        #: Of every `NodeConfig`, unless told otherwise at the start of a node.
        self.settings = settings
        self._directories = directories
        #: Where each node listens.
        self.listeners: dict[NodeId, Endpoint] = {}
        for node_id in self.voters:
            self.wipe(node_id)
            self.start(node_id)

    # --- time ---

    @property
    def now_ms(self) -> int:
        return self.scheduler.now_us // US_PER_MS

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.scheduler.call_after(delay_ms * US_PER_MS, call)

    def run(self, duration_ms: int, until: Callable[[], bool] | None = None) -> None:
        """Let `duration_ms` pass, or less when `until` becomes true; with `until` it is an error when it does not."""
        end_us = self.scheduler.now_us + duration_ms * US_PER_MS
        if until is None:
            self.scheduler.run_until(end_us)
            return
        while not until():
            if not self.scheduler.run_until(end_us, events_max=1):
                assert until(), f"not reached within {duration_ms} ms"
                return

    # --- nodes ---

    @property
    def nodes(self) -> dict[NodeId, ReplicaNode]:
        """Those that run."""
        return {node_id: machine.node for node_id, machine in self.machines.items() if machine.node is not None}

    @property
    def disks(self) -> dict[NodeId, SimulatedDisk]:
        return {node_id: machine.disk for node_id, machine in self.machines.items()}

    def move(self, node_id: NodeId, listener: Endpoint) -> None:
        """From now on a node is found there alone; it says so itself when it is started next."""
        self.listeners[node_id] = listener
        self.network.places = {(place.host, place.port): owner for owner, place in self.listeners.items()}

    def wipe(self, node_id: NodeId | int) -> None:
        """Give a node that is stopped, or a new one, an empty disk; where disks have ids, one with a new id."""
        node_id, machine = NodeId(node_id), self.machines.get(NodeId(node_id))
        if machine is None:
            self.move(node_id, Endpoint("127.0.0.1", 9090 + node_id))
            identity = DirectoryId(node_id.to_bytes(16, "big")) if self._directories else NO_DIRECTORY
            config = NodeConfig(node_id=node_id, voters={}, listener=self.listeners[node_id], directory_id=identity)
            machine = self.machines[node_id] = Machine(self._world, config, self)
            machine.disk.is_quick = False
        else:
            assert machine.node is None, "it runs"
            number = int.from_bytes(machine.config.directory_id, "big") + 256
            machine.wipe(DirectoryId(number.to_bytes(16, "big")) if self._directories else NO_DIRECTORY, ())

    def start(self, node_id: NodeId | int, **settings: Any) -> ReplicaNode:
        machine = self.machines[NodeId(node_id)]
        assert machine.node is None, "it runs"
        config = machine.config = NodeConfig(
            node_id=machine.node_id,
            listener=self.listeners[machine.node_id],
            directory_id=machine.config.directory_id,
            **{"voters": self.voters, **self.settings, **settings},
        )
        for peer, server in zip(config.bootstrap_peers, config.bootstrap_servers, strict=True):
            found = self.network.places.get((server.host, server.port), NOBODY)
            self.network.addresses[machine.node_id, peer] = found if found != machine.node_id else NOBODY
        machine.start()
        return self.nodes[machine.node_id]

    def stop(self, node_id: NodeId | int) -> None:
        """Kill a node; its peers see the connections close."""
        self.machines[self.nodes[NodeId(node_id)].config.node_id].crash(KILLED)

    def on_down(self, node_id: NodeId, reason: str) -> None:
        """Implements `machine.Supervisor`: a node that goes down by itself is an error."""
        if reason != KILLED:
            raise StorageError(f"node {node_id} {reason}")

    def pause(self, node_id: NodeId) -> None:
        """Stop the process (SIGSTOP): connections stay, and whoever asks it something hears nothing until its patience ends."""
        self.machines[node_id].pause(ENDLESS_US)

    def resume(self, node_id: NodeId, *, timers_first: bool) -> None:
        """Let it go on. Its timers run before it reads what came meanwhile, or after."""
        if timers_first:
            self.nodes[node_id].on_deadline()
        self.machines[node_id].resume(timers_last=True)

    # --- links ---

    def cut(self, node_id: NodeId, *others: NodeId) -> None:
        """From now on nothing passes between a node and `others`, or all others."""
        for other in others or [each for each in self.machines if each != node_id]:
            self.network.cut_link(node_id, other)
            self.network.cut_link(other, node_id)

    def heal(self) -> None:
        """Every link carries messages again."""
        self.network.heal_links()

    def overhear(self, hear: Callable[[NodeId, NodeId, PeerRpc], None]) -> None:
        """From now on `hear` is told of each request as it is sent: source, destination, request."""
        send = self.network.send

        def heard(source: NodeId, incarnation: int, destination: NodeId, rpc: PeerRpc, done: Any) -> None:
            hear(source, destination, rpc)
            send(source, incarnation, destination, rpc, done)

        self.network.send = heard  # type: ignore[method-assign]

    def addresses_told(self) -> dict[tuple[NodeId, NodeId], Endpoint]:
        """From now on: where the nodes that run, each first of a pair, tell their networks that another one is."""
        told: dict[tuple[NodeId, NodeId], Endpoint] = {}

        def meet(node_id: NodeId, peer: NodeId, host: str, port: int) -> None:
            told[node_id, peer] = Endpoint(host, port)

        for node_id, node in self.nodes.items():
            node.engine.network.meet = partial(meet, node_id)  # type: ignore[method-assign]
        return told

    # --- questions and requests ---

    def leader(self, group: GroupId = METADATA_GROUP) -> ReplicaNode:
        """The node that leads `group` and serves; waits up to five simulated seconds for one."""

        def serving() -> list[ReplicaNode]:
            found = [node for node in self.nodes.values() if group in node.partitions]
            return [node for node in found if node.partitions[group].is_serving]

        self.run(5000, until=lambda: bool(serving()))
        return max(serving(), key=lambda node: node.partitions[group].core.epoch)

    def await_topics(self) -> None:
        """Until each node knows what its topics ask for: a leader that has just started takes no appends before."""
        hosted = [partition for node in self.nodes.values() for partition in node.partitions.values()]
        topics = [partition for partition in hosted if partition.group != METADATA_GROUP]
        self.run(5000, until=lambda: all(partition.in_force is not None for partition in topics))

    def followers(self, group: GroupId = METADATA_GROUP) -> list[ReplicaNode]:
        leader = self.leader(group)
        return [node for node in self.nodes.values() if node is not leader]

    def create_topic(self, name: str, partitions: int = 1) -> list[GroupId]:
        """Create a topic and wait until every node hosts it and its leaders serve."""
        results: list[Any] = []
        self.leader().topics.create(name, partitions, {}, lambda *result: results.append(result))
        self.run(1000, until=lambda: bool(results))
        topic, error, message = results[0]
        assert topic is not None, (error, message)
        groups: list[GroupId] = topic.groups()
        for group in groups:
            self.leader(group)
        self.run(2000, until=lambda: all(group in node.partitions for node in self.nodes.values() for group in groups))
        return groups

    def ask(self, node: ReplicaNode, api_key: ApiKey, message: object, *, version: int = 0, wait_ms: int = 5000) -> Any:
        """Send a client's request and wait for the answer."""
        answers = self.send(node, api_key, message, version=version)
        self.run(wait_ms, until=lambda: bool(answers))
        return answers[0]

    def send(
        self, node: ReplicaNode, api_key: ApiKey, message: object, *, version: int = 0, client: ClientContext | None = None
    ) -> list[Any]:
        """Send a client's request, on one connection unless told otherwise; the answer appears in the returned list."""
        answers: list[Any] = []
        header = RequestHeader(api_key, version, 1, "test")
        self.machines[node.config.node_id].run(node.handle, header, message, client or self.client, answers.append)
        return answers

    def produce(
        self, group: GroupId, *batches: bytearray, node: ReplicaNode | None = None, acks: int = -1, timeout_ms: int = 5000
    ) -> ProducePartitionResult:
        """Produce `batches` as one request and wait for the answer of its one partition."""
        request = produce_request(group, *batches, acks=acks, timeout_ms=timeout_ms)
        answer = self.ask(node or self.leader(group), ApiKey.PRODUCE, request, wait_ms=timeout_ms + 1000)
        result: ProducePartitionResult = answer.topics[0].partitions[0]
        return result

    def fetch(self, node: ReplicaNode, group: GroupId, offset: int, *, wait_ms: int = 0, **fields: Any) -> FetchPartitionResult:
        """Consume from one partition at one node and wait for the answer."""
        answer = self.ask(node, ApiKey.FETCH, fetch_request(group, offset, wait_ms=wait_ms, **fields), wait_ms=wait_ms + 1000)
        result: FetchPartitionResult = answer.topics[0].partitions[0]
        return result


def batch(*values: bytes, timestamp_ms: int = 1, **fields: Any) -> bytearray:
    """A record batch of the given values."""
    records = [Record(offset=i, timestamp_ms=timestamp_ms, value=value) for i, value in enumerate(values)]
    return build_batch(records, timestamp_ms=timestamp_ms, **fields)


def produce_request(group: GroupId, *batches: bytearray, acks: int = -1, timeout_ms: int = 5000) -> ProduceRequest:
    records = bytearray().join(batches)
    return ProduceRequest(
        acks, timeout_ms, None, [ProduceTopic(group.topic, None, [ProducePartition(group.partition, memoryview(records))])]
    )


def fetch_request(group: GroupId, offset: int, *, wait_ms: int = 0, isolation_level: int = 0, **fields: int) -> FetchRequest:
    """`fields` are those of the partition."""
    given = {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1, "bytes_max": 1 << 20, **fields}
    topic = FetchTopic(group.topic, None, [FetchPartition(index=group.partition, fetch_offset=offset, **given)])
    return FetchRequest(wait_ms_max=wait_ms, bytes_min=1, topics=[topic], isolation_level=isolation_level)
