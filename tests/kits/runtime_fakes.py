"""What the runtime's tests share: frames on real loopback sockets, and nodes that answer as a test tells them to."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from raftlake.errors import ErrorCode, RaftlakeError
from raftlake.ports.driver import ListenerUse, PeerConnection
from raftlake.ports.peer_rpcs import GroupId, PeerReply, PeerRpc
from raftlake.raft.types import Offset
from raftlake.replica.config import METADATA_GROUP, METADATA_TOPIC, METADATA_TOPIC_ID, ClientContext, Endpoint
from raftlake.runtime import loop as loops
from raftlake.runtime.admission import AddressLimit
from raftlake.runtime.clock import SystemClock
from raftlake.runtime.listener.frame_room import FrameRoom
from raftlake.runtime.listener.listener import Listener
from raftlake.runtime.listener.router import ConnectionLimits
from raftlake.runtime.peers.codec import PeerCodec
from raftlake.runtime.sockets import bind
from raftlake.runtime.work_line import WorkLine
from raftlake.wire import fetch, find_quorum, produce
from raftlake.wire.api import ApiKey, RequestHeader, decode_response, encode_request
from raftlake.wire.topic_lists import TopicPartitions

#: No test waits longer than this for anything.
PATIENCE_SECONDS = 10.0
LOOPBACK = Endpoint("127.0.0.1", 0)
TOPIC_ID = bytes(range(16))


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine on the product's own loop, with an end to its patience."""
    loops.run(_patiently(main))


async def _patiently(main: Coroutine[Any, Any, None]) -> None:
    try:
        await asyncio.wait_for(main, PATIENCE_SECONDS)
    finally:
        # A loop with open connections does not close: what went wrong would not be told, but that.
        for wire in _wires:
            wire.writer.transport.abort()
        _wires.clear()
        await settle()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until `condition` holds; `run` ends the wait."""
    while not condition():
        await asyncio.sleep(0)


async def settle() -> None:
    """Let everything happen that is ready to happen: loopback bytes need a few turns of the loop, not time."""
    for _ in range(200):
        await asyncio.sleep(0)


def address_of(listening: socket.socket) -> Endpoint:
    return Endpoint(*listening.getsockname()[:2])


@dataclass
class Call:
    """One request that a fake node was given."""

    header: RequestHeader | None
    message: Any
    reply: Callable[[Any], None]
    connection: PeerConnection | None = None
    client: ClientContext | None = None


@dataclass
class FakeNode:
    """Keeps every request; `on_call`, when set, serves it at once."""

    calls: list[Call] = field(default_factory=list)
    on_call: Callable[[Call], None] | None = None
    topics: dict[bytes, str] = field(default_factory=lambda: {METADATA_TOPIC_ID: METADATA_TOPIC, TOPIC_ID: "flights"})

    def receive(self, connection: PeerConnection, rpc: PeerRpc, reply: Callable[[PeerReply], None]) -> None:
        self._take(Call(None, rpc, reply, connection=connection))

    def handle(self, header: RequestHeader, message: object, client: ClientContext, reply: Callable[[object], None]) -> None:
        self._take(Call(header, message, reply, client=client))

    def finalized_kraft_version(self) -> tuple[int, Offset]:
        return 1, Offset(7)

    def finalized_transaction_version(self) -> int:
        return 2

    def _take(self, call: Call) -> None:
        self.calls.append(call)
        if self.on_call is not None:
            self.on_call(call)

    def resolve_topic(self, topic_id: bytes) -> str | None:
        return self.topics.get(topic_id)

    def resolve_group(self, topic: str, partition: int) -> GroupId:
        if topic == METADATA_TOPIC:
            return METADATA_GROUP
        ids = {name: topic_id for topic_id, name in self.topics.items()}
        return GroupId(topic, partition, ids.get(topic, bytes(16)))


@dataclass
class FakeMetrics:
    requests: list[str] = field(default_factory=list)
    commits: int = 0
    refused: list[str] = field(default_factory=list)

    def count_request(self, api: str) -> None:
        self.requests.append(api)

    def count_refused(self, setting: str) -> None:
        self.refused.append(setting)

    def start_commit(self) -> int:
        return 0

    def note_commit(self, started_us: int) -> None:
        self.commits += 1


@dataclass
class FakePeers:
    """Nodes that are known, and the hosts where they live."""

    voters: set[int] = field(default_factory=lambda: {2, 3})
    observers: set[int] = field(default_factory=set)
    homes: dict[int, str] = field(default_factory=dict)

    def is_voter(self, node_id: int) -> bool:
        return node_id in self.voters

    def is_observer(self, node_id: int) -> bool:
        return node_id in self.observers

    def is_home_of(self, node_id: int, host: str) -> bool:
        return self.homes.get(node_id) == host

    def is_home(self, host: str) -> bool:
        return host in self.homes.values()


class Wire:
    """A Kafka client, one frame at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(
        self, key: ApiKey, version: int, message: object, *, correlation_id: int = 1, client_id: str | None = "test"
    ) -> None:
        self.writer.writelines(encode_request(key, version, correlation_id, client_id, message))

    async def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def receive(self, key: ApiKey, version: int) -> tuple[int, Any]:
        return decode_response(key, version, await self.receive_frame())

    async def is_closed(self) -> bool:
        """Wait for the other side to close; what it still sent does not count."""
        with contextlib.suppress(ConnectionError):
            await self.reader.read(-1)
        return self.reader.at_eof() or self.reader.exception() is not None

    def close(self) -> None:
        self.writer.close()


#: Those of the test that runs.
_wires: list[Wire] = []


async def connect(address: Endpoint) -> Wire:
    _wires.append(Wire(*await asyncio.open_connection(address.host, address.port)))
    return _wires[-1]


@dataclass
class Served:
    """A listener over a fake node."""

    listener: Listener
    node: FakeNode
    address: Endpoint
    metrics: FakeMetrics
    fatal: list[RaftlakeError]
    alive: list[int]


@contextlib.asynccontextmanager
async def served(
    node: FakeNode | None = None,
    *,
    limits: ConnectionLimits | None = None,
    connections_max: int = 100,
    addresses: AddressLimit | None = None,
    peers: FakePeers | None = None,
    use: ListenerUse = ListenerUse.SHARED,
    started_bytes_max: int = 1 << 30,
    unsent_bytes_max: int = 1 << 30,
    room: FrameRoom | None = None,
    line: WorkLine | None = None,
    partitions_told: Callable[[object], int] = lambda message: 0,
) -> AsyncIterator[Served]:
    node = node or FakeNode()
    codec = PeerCodec(node_id=1, peers={1: Endpoint("127.0.0.1", 9092), 2: Endpoint("127.0.0.1", 9093)})
    codec.attach(node)
    fatal: list[RaftlakeError] = []
    alive: list[int] = []
    metrics = FakeMetrics()
    listener = Listener(
        node,
        codec,
        limits=limits or ConnectionLimits(),
        connections_max=connections_max,
        addresses=addresses or AddressLimit(1 << 30),
        peers=peers or FakePeers(),  # type: ignore[arg-type]
        use=use,
        room=room or FrameRoom(1 << 30),
        line=line or WorkLine(asyncio.get_running_loop(), SystemClock().now_us),
        partitions_told=partitions_told,
        started_bytes_max=started_bytes_max,
        unsent_bytes_max=unsent_bytes_max,
        on_fatal=fatal.append,
        notice_alive=alive.append,
        metrics=metrics,
    )
    listening = bind(LOOPBACK, "listeners")
    await listener.start(listening)
    try:
        yield Served(listener, node, address_of(listening), metrics, fatal, alive)
    finally:
        listener.close()


# --- messages ---


def find(topic: str = "t") -> find_quorum.FindQuorumRequest:
    """The simplest client request: answered by `found`."""
    return find_quorum.FindQuorumRequest(None, [TopicPartitions(topic, [0])])


def found(topic: str = "t") -> find_quorum.FindQuorumResponse:
    return find_quorum.FindQuorumResponse(ErrorCode.NONE, [find_quorum.FindQuorumTopicResult(topic, [])])


def produce_of(records: bytes, acks: int = -1) -> produce.ProduceRequest:
    return produce.ProduceRequest(acks, 1000, None, [produce.ProduceTopic("t", None, [produce.ProducePartition(0, records)])])


def fetch_of(replica_id: int = -1) -> fetch.FetchRequest:
    return fetch.FetchRequest(wait_ms_max=0, bytes_min=1, topics=[], replica_id=replica_id)


def begin_quorum_epoch(leader_id: int = 2) -> Any:
    schema = importlib.import_module("kio.schema.begin_quorum_epoch.v1.request")
    part = schema.PartitionData(partition_index=0, voter_directory_id=None, leader_id=leader_id, leader_epoch=1)
    topic = schema.TopicData(topic_name="__cluster_metadata", partitions=(part,))
    return schema.BeginQuorumEpochRequest(cluster_id=None, voter_id=1, topics=(topic,), leader_endpoints=())


def api_versions(version: int = 3) -> Any:
    schema = importlib.import_module(f"kio.schema.api_versions.v{version}.request")
    return schema.ApiVersionsRequest(client_software_name="t", client_software_version="1")
