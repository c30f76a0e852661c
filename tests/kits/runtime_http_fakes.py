"""A node as the HTTP front sees it: a real state machine behind a log that a test controls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx

from quorumkit import described_quorum
from raftlake.errors import ErrorCode, RaftlakeError
from raftlake.kv.commands import Txn, encode
from raftlake.kv.machine import StateMachine
from raftlake.ports.peer_rpcs import ReadOffsetResult
from raftlake.raft.types import ReplicaKey
from raftlake.replica.compaction.compactor import CompactionCounts
from raftlake.replica.config import METADATA_GROUP, Endpoint, NodeConfig
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.partition.producer_state import ProducerTally
from raftlake.replica.quorum import static_voters
from raftlake.replica.tiering.remote_log_aux import AuxCounts
from raftlake.replica.tiering.unreadable import UnreadableParts
from raftlake.runtime.admission import AddressLimit
from raftlake.runtime.clock import SystemClock
from raftlake.runtime.http.front import HttpFront, Serves
from raftlake.runtime.http.hosts import AllowedHosts
from raftlake.runtime.http.metrics_page import MetricsPage
from raftlake.runtime.http.ops import OpsHandlers
from raftlake.runtime.metrics import NodeMetrics
from raftlake.runtime.sockets import bind
from raftlake.runtime.work_line import WorkLine
from raftlake.wire.quorum import QuorumDescription
from runtime_fakes import LOOPBACK, address_of


@dataclass
class Counted:
    """What counts something of a node."""

    count: int = 0


@dataclass
class FakeKv:
    """Applies what is proposed at once, unless `outcome` says what becomes of it instead."""

    machine: StateMachine = field(default_factory=lambda: StateMachine(history_changes_max=64))
    listeners: list[Callable[[int], None]] = field(default_factory=list)
    outcome: ProposeOutcome | None = None
    read_error: ErrorCode = ErrorCode.NONE
    reads: int = 0
    proposed: list[Txn] = field(default_factory=list)
    gate: Counted = field(default_factory=Counted)
    refused_keys: Counted = field(default_factory=Counted)
    room: Any = field(default_factory=lambda: SimpleNamespace(warnings=(), quota_bytes=1 << 30))

    def read(self, linearizable: bool, done: Callable[[ReadOffsetResult], None]) -> None:
        assert linearizable
        self.reads += 1
        done(
            ReadOffsetResult(
                group=METADATA_GROUP,
                error=self.read_error,
                applied_offset=self.machine.applied_offset,  # type: ignore[arg-type]
                leader_id=1,  # type: ignore[arg-type]
                leader_epoch=1,  # type: ignore[arg-type]
            )
        )

    def propose(self, txn: Txn, done: Callable[[ProposeOutcome], None]) -> None:
        self.proposed.append(txn)
        done(self.outcome or ProposeOutcome(ProposeStatus.DONE, self.apply(txn)))

    def apply(self, txn: Txn) -> Any:
        """Commit a command at the next offset."""
        result = self.machine.apply(max(self.machine.applied_offset, 1), encode(txn))
        for listener in self.listeners:
            listener(self.machine.applied_offset)
        return result


class FakeHttpNode:
    """What the HTTP front and the metrics read of `ReplicaNode`."""

    def __init__(self) -> None:
        self.kv = FakeKv()
        self.config = NodeConfig(
            node_id=1,  # type: ignore[arg-type]
            voters={1: Endpoint("h", 1), 2: Endpoint("h", 2)},  # type: ignore[dict-item]
            listener=Endpoint("h", 1),
        )
        self.http: dict[int, Endpoint] = {2: Endpoint("10.0.0.2", 8092), 3: Endpoint("::1", 8093)}
        self.membership = SimpleNamespace(http_endpoint=self.http.get)
        self.quorum = SimpleNamespace(latest=static_voters(self.config))
        self.partitions: dict[Any, Any] = {}
        self.reports = SimpleNamespace(role_listeners=[], refused_epochs=0, alarms={})
        self.disk = SimpleNamespace(warnings=(), free_bytes=7, limit_bytes=5, is_low=False, is_full=True)
        self.cluster_identity = SimpleNamespace(warnings=())
        self.compactor = SimpleNamespace(counts=CompactionCounts(), dirtiest=0.0)
        self.tiering = SimpleNamespace(is_on=False, warnings=())
        self.remote_log_aux = SimpleNamespace(counts=AuxCounts())
        self.read_tally = SimpleNamespace(reads=0, bytes=0, hits=0, searches=0, failures=0, unreadable=UnreadableParts())
        self.producers = SimpleNamespace(tally=ProducerTally(self.config.producer_ids_max))
        self.damage = SimpleNamespace(impaired={}, listeners=[])
        self.in_sync = SimpleNamespace(under_replicated=0)
        self.fatal: RaftlakeError | None = None
        self.ready = True
        self.metadata_leader_id = 1
        self.described = described_quorum()
        #: What was asked of other nodes: whom, what, and where the answer goes.
        self.sent: list[tuple[int, Any, Callable[[Any], None]]] = []
        network = SimpleNamespace(send=lambda peer, rpc, done: self.sent.append((peer, rpc, done)))
        self.engine = SimpleNamespace(network=network, begin_input=lambda: None)

    def is_ready(self) -> bool:
        return self.ready

    def describe(self, topic: str = "__cluster_metadata", partition: int = 0) -> QuorumDescription | None:
        if (topic, partition) != ("__cluster_metadata", 0):
            return None
        return self.described


class FakeClock:
    def __init__(self) -> None:
        self.us = 1_000_000_000

    def now_us(self) -> int:
        return self.us

    def now_ms(self) -> int:
        return self.us // 1000

    def advance_ms(self, ms: int) -> None:
        self.us += ms * 1000


def partition(log_end: int, *, leads: bool) -> Any:
    core = SimpleNamespace(
        role_name="Leader" if leads else "Follower",
        is_leader=leads,
        leader_id=1,
        voted_key=ReplicaKey(2) if leads else None,  # type: ignore[arg-type]
        epoch=3,
        log_start=0,
        log_end=log_end,
        log_end_position=SimpleNamespace(epoch=3),
    )
    return SimpleNamespace(core=core, high_watermark=log_end - 1, is_serving=leads)


@dataclass
class Front:
    front: HttpFront
    node: FakeHttpNode
    address: Endpoint
    client: httpx.AsyncClient
    fatal: list[RaftlakeError]
    metrics: NodeMetrics


@contextlib.asynccontextmanager
async def http_front(
    *,
    connections_max: int = 100,
    addresses: AddressLimit | None = None,
    heartbeat_seconds: float = 60.0,
    stall_seconds: float = 60.0,
    serves: Serves = Serves.ALL,
    line: WorkLine | None = None,
    watch_line: WorkLine | None = None,
) -> AsyncIterator[Front]:
    node: Any = FakeHttpNode()
    fatal: list[RaftlakeError] = []
    metrics = NodeMetrics(node, SystemClock(), dict)
    clock = SystemClock()
    page = MetricsPage(node, metrics, WorkLine(asyncio.get_running_loop(), clock.now_us), clock.now_us, partitions_max=1000)
    front = HttpFront(
        node,
        metrics,
        OpsHandlers(node, page, "/srv/node 1"),
        serves=serves,
        connections_max=connections_max,
        addresses=addresses or AddressLimit(1 << 30),
        hosts=AllowedHosts(["h"]),
        on_fatal=fatal.append,
        line=line or WorkLine(asyncio.get_running_loop(), clock.now_us),
        watch_line=watch_line or WorkLine(asyncio.get_running_loop(), clock.now_us),
        heartbeat_seconds=heartbeat_seconds,
        watch_stall_seconds=stall_seconds,
    )
    listening = bind(LOOPBACK, "http.listener")
    await front.start(listening)
    address = address_of(listening)
    async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
        try:
            yield Front(front, node, address, client, fatal, metrics)
        finally:
            front.close()
            await asyncio.wait_for(front.wait_closed(), 5)
