"""A whole quorum of `ReplicaNode`s in one thread, without faults: simulated milliseconds, in-memory disks, direct delivery.

For unit tests of the driver. Faults, swarms and invariants are the business of `raftlake.sim`; this harness only makes it short
to say "three nodes, append, ask". Messages take 1 ms each way, syncs 1 ms.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from raftlake.ports.driver import KraftVersions, PeerConnection
from raftlake.ports.peer_rpcs import FetchRpc, GroupId, PeerReply, PeerRpc
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NO_DIRECTORY, DirectoryId, NodeId
from raftlake.replica.config import METADATA_GROUP, ClientContext, Endpoint, NodeConfig
from raftlake.replica.node import ReplicaNode
from raftlake.sim.disk.disk import SimulatedDisk
from raftlake.wire.api import ApiKey, RequestHeader
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlake.wire.fetch_response import FetchPartitionResult
from raftlake.wire.produce import ProducePartition, ProducePartitionResult, ProduceRequest, ProduceTopic

WALL_MS_AT_START = 1_700_000_000_000
REQUEST_TIMEOUT_MS = 2000


class _Clock:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def now_ms(self) -> int:
        return self._cluster.now_ms

    def wall_ms(self) -> int:
        return WALL_MS_AT_START + self._cluster.now_ms


class _Machine:
    """What the simulated disk wants of its machine: nothing ever crashes, every sync takes a millisecond."""

    def __init__(self, cluster: Cluster, node_id: NodeId) -> None:
        self._cluster = cluster
        self._node_id = node_id

    def port_call(self, name: str) -> None:
        del name

    def flush_later(self, complete: Callable[[], None], fail: Callable[[], None]) -> None:
        del fail
        delay_ms = self._cluster.sync_ms.get(self._node_id, 1)
        self._cluster.after(delay_ms, lambda: self._cluster.enter(self._node_id, complete))


class _Network:
    def __init__(self, cluster: Cluster, source: NodeId) -> None:
        self._cluster = cluster
        self._source = source

    def meet(self, peer: NodeId, host: str, port: int) -> None:
        self._cluster.met.setdefault(self._source, {})[peer] = Endpoint(host, port)

    def probe(self, host: str, port: int, done: Callable[[KraftVersions | FailureReason], None]) -> None:
        self._cluster.probe(Endpoint(host, port), done)

    def send(self, peer: NodeId, rpc: PeerRpc, done: Callable[[PeerReply | FailureReason], None]) -> None:
        self._cluster.deliver(self._source, peer, rpc, done)


class Cluster:
    """`nodes` maps ids to running nodes; a stopped one is absent, its disk stays in `disks`."""

    def __init__(
        self, size: int = 3, *, seed: int = 1, segment_bytes: int = 1 << 20, directories: bool = False, **settings: Any
    ) -> None:
        """With `directories` each disk has an id, so that leaders put the voters into the logs."""
        self.now_ms = 0
        self.client = ClientContext("test", "127.0.0.1")
        self.nodes: dict[NodeId, ReplicaNode] = {}
        #: Peers that a node cannot reach, as (source, destination).
        self.cut: set[tuple[NodeId, NodeId]] = set()
        #: Where a sync takes longer than a millisecond.
        self.sync_ms: dict[NodeId, int] = {}
        #: What the paused nodes will get to see, each in the order in which it came.
        self._held: dict[NodeId, list[Callable[[], None]]] = {}
        self._settings = settings
        #: Addresses that each node told its network.
        self.met: dict[NodeId, dict[NodeId, Endpoint]] = {}
        self._segment_bytes = segment_bytes
        self._directories = directories
        #: How often each node's disk was replaced.
        self.wipes: dict[NodeId, int] = {}
        self.listeners: dict[NodeId, Endpoint] = {}
        #: What runs knows these kraft.versions.
        self.kraft_versions: KraftVersions = (0, 1)
        self._seed = seed
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._counter = 0
        self._armed: dict[NodeId, int] = {}
        self._connections: dict[tuple[NodeId, NodeId, bool], PeerConnection] = {}
        #: By the node that was asked: what ends the requests that it has not answered.
        self._unanswered: dict[NodeId, dict[int, Callable[[], None]]] = {}
        self.voters = {NodeId(i): Endpoint("127.0.0.1", 9090 + i) for i in range(1, size + 1)}
        self.disks = {node_id: SimulatedDisk(_Machine(self, node_id), segment_bytes=segment_bytes) for node_id in self.voters}
        for node_id in self.voters:
            self.start(node_id)

    # --- time ---

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._counter += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._counter, call))

    def run(self, duration_ms: int, until: Callable[[], bool] | None = None) -> None:
        """Let `duration_ms` pass, or less when `until` becomes true; with `until` it is an error when it does not."""
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            if until is not None and until():
                return
            at_ms, _, call = heapq.heappop(self._events)
            self.now_ms = at_ms
            call()
        self.now_ms = end_ms
        assert until is None or until(), f"not reached within {duration_ms} ms"

    # --- nodes ---

    def wipe(self, node_id: NodeId | int) -> None:
        """Give a node that is stopped, or a new one, an empty disk; where disks have ids, one with a new id."""
        node_id = NodeId(node_id)
        if node_id in self.disks:
            self.wipes[node_id] = self.wipes.get(node_id, 0) + 1
        self.disks[node_id] = SimulatedDisk(_Machine(self, node_id), segment_bytes=self._segment_bytes)

    def start(self, node_id: NodeId | int, **settings: Any) -> ReplicaNode:
        node_id = NodeId(node_id)
        requested = [False]

        def request_turn() -> None:
            if not requested[0]:
                requested[0] = True
                self.after(0, lambda: self.enter(node_id, turn))

        def turn() -> None:
            requested[0] = False
            if self.nodes.get(node_id) is node:
                node.run_turn()
                if node.fatal is not None:
                    raise node.fatal
                self._arm(node_id)

        listener = self.listeners.setdefault(node_id, Endpoint("127.0.0.1", 9090 + node_id))
        identity = DirectoryId((node_id + 256 * self.wipes.get(node_id, 0)).to_bytes(16, "big"))
        config = NodeConfig(
            node_id=node_id,
            voters=self.voters,
            listener=listener,
            directory_id=identity if self._directories else NO_DIRECTORY,
            **{**self._settings, **settings},
        )
        disk = self.disks[node_id]
        node = ReplicaNode(
            config,
            clock=_Clock(self),
            network=_Network(self, node_id),
            logs=disk,
            elections=disk,
            rng=random.Random(f"{self._seed}-{node_id}-{self._counter}"),
            request_turn=request_turn,
        )
        self.nodes[node_id] = node
        # What an earlier process of this node waited for is nothing to the new one.
        self._armed.pop(node_id, None)
        node.start()
        self._arm(node_id)
        return node

    def stop(self, node_id: NodeId | int) -> None:
        """Kill a node; its peers see the connection close."""
        node_id = NodeId(node_id)
        del self.nodes[node_id]
        for node in self.nodes.values():
            node.peer_unreachable(node_id)
        for end in self._unanswered.pop(node_id, {}).values():
            self.after(1, end)

    def _arm(self, node_id: NodeId) -> None:
        node = self.nodes[node_id]
        deadline_ms = node.next_deadline_ms()
        if deadline_ms is None or self._armed.get(node_id) == deadline_ms:
            return
        self._armed[node_id] = deadline_ms

        def fire() -> None:
            if self.nodes.get(node_id) is node and self._armed.get(node_id) == deadline_ms:
                del self._armed[node_id]
                if node_id in self._held:
                    return
                node.on_deadline()
                self._arm(node_id)

        self.after(max(0, deadline_ms - self.now_ms), fire)

    # --- pauses ---

    def enter(self, node_id: NodeId, call: Callable[[], None]) -> None:
        """Run `call` on the node's thread: now, or when its pause is over."""
        if node_id in self._held:
            self._held[node_id].append(call)
        else:
            call()

    def pause(self, node_id: NodeId) -> None:
        """Stop the process (SIGSTOP): connections stay, and whoever asks it something hears nothing until its patience ends."""
        self._held.setdefault(node_id, [])

    def resume(self, node_id: NodeId, *, timers_first: bool) -> None:
        """Let it go on. Its timers run before it reads what came meanwhile, or after."""
        held = self._held.pop(node_id)
        node = self.nodes[node_id]
        for call in [node.on_deadline, *held] if timers_first else [*held, node.on_deadline]:
            call()
        self._arm(node_id)

    def deliver(self, source: NodeId, peer: NodeId, rpc: PeerRpc, done: Callable[[PeerReply | FailureReason], None]) -> None:
        if peer not in self.nodes:
            self.after(1, lambda: done(FailureReason.DISCONNECTED))
            return
        if (source, peer) in self.cut or (peer, source) in self.cut:
            self.after(REQUEST_TIMEOUT_MS, lambda: done(FailureReason.TIMED_OUT))
            return
        sender = self.nodes[source]
        is_fetch = isinstance(rpc, FetchRpc)
        connection = self._connections.setdefault((source, peer, is_fetch), PeerConnection())
        is_over = [False]

        def receive() -> None:
            if peer in self.nodes:
                self.nodes[peer].receive(connection, rpc, reply)

        def arrive() -> None:
            if peer in self._held:
                self.after(REQUEST_TIMEOUT_MS + (rpc.wait_ms_max if isinstance(rpc, FetchRpc) else 0), time_out)
            self.enter(peer, receive)

        def time_out() -> None:
            if not is_over[0]:
                self._connections.pop((source, peer, is_fetch), None)
                finish(FailureReason.TIMED_OUT)

        def finish(answer: PeerReply | FailureReason) -> None:
            if is_over[0]:
                return
            is_over[0] = True
            self._unanswered.get(peer, {}).pop(number, None)
            if self.nodes.get(source) is sender:
                self.enter(source, lambda: done(answer))

        def reply(answer: PeerReply) -> None:
            self.after(1, lambda: finish(answer))

        self.after(1, arrive)
        number = self._counter
        self._unanswered.setdefault(peer, {})[number] = lambda: finish(FailureReason.DISCONNECTED)

    def probe(self, address: Endpoint, done: Callable[[KraftVersions | FailureReason], None]) -> None:
        """After a round trip each for the connection and for the question."""

        def answer() -> None:
            owners = [node_id for node_id, listener in self.listeners.items() if listener == address]
            done(self.kraft_versions if any(owner in self.nodes for owner in owners) else FailureReason.DISCONNECTED)

        self.after(4, answer)

    # --- questions and requests ---

    def leader(self, group: GroupId = METADATA_GROUP) -> ReplicaNode:
        """The node that leads `group` and serves; waits up to five simulated seconds for one."""

        def serving() -> list[ReplicaNode]:
            found = [node for node in self.nodes.values() if group in node.partitions]
            return [node for node in found if node.partitions[group].is_serving]

        self.run(5000, until=lambda: bool(serving()))
        return max(serving(), key=lambda node: node.partitions[group].core.epoch)

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
        node.handle(header, message, client or self.client, answers.append)
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


def fetch_request(
    group: GroupId,
    offset: int,
    *,
    wait_ms: int = 0,
    bytes_max: int = 1 << 20,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    isolation_level: int = 0,
) -> FetchRequest:
    part = FetchPartition(
        index=group.partition,
        current_leader_epoch=current_leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=-1,
        bytes_max=bytes_max,
    )
    return FetchRequest(
        wait_ms_max=wait_ms,
        bytes_min=1,
        topics=[FetchTopic(group.topic, None, [part])],
        isolation_level=isolation_level,
    )
