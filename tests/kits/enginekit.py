"""A real `Engine` for tests that build one service alone: simulated disk, time and network that the test moves by hand.

What the core of a group wants written is written and synced at once (`Ground.perform`). What it says to others is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.driver import KraftVersions
from raftlake.ports.peer_rpcs import GroupId, PeerReply, PeerRpc
from raftlake.raft import actions as do
from raftlake.raft.core import RaftGroup
from raftlake.raft.events import AppendRequested, CampaignRequested, FailureReason, RecordsFlushed, Started
from raftlake.raft.types import DirectoryId, NodeId, Offset, ReplicaKey
from raftlake.raft.voters import VoterHistory
from raftlake.replica.config import METADATA_GROUP, Endpoint, NodeConfig
from raftlake.replica.configs.in_force import in_force
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Gate, Partition
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.partition.start_points import LogFacts
from raftlake.replica.quorum import static_voters
from raftlake.sim.disk.disk import SimulatedDisk
from raftlake.wire.batches import Record, build_batch, iterate_headers

ME, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
DIRECTORY = DirectoryId(b"\1" * 16)
ORDERS = GroupId("orders", 0, b"o" * 16)
WALL_MS_AT_START = 1_700_000_000_000


class Time:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return WALL_MS_AT_START + self.ms


class Wires:
    """What was sent, where peers are, and which endpoints were asked."""

    def __init__(self) -> None:
        self.sent: list[tuple[NodeId, PeerRpc, Callable[[PeerReply | FailureReason], None]]] = []
        self.met: dict[NodeId, Endpoint] = {}
        self.probed: list[tuple[Endpoint, Callable[[KraftVersions | FailureReason], None]]] = []

    def meet(self, peer: NodeId, host: str, port: int) -> None:
        self.met[peer] = Endpoint(host, port)

    def probe(self, host: str, port: int, done: Callable[[KraftVersions | FailureReason], None]) -> None:
        self.probed.append((Endpoint(host, port), done))

    def send(self, peer: NodeId, rpc: PeerRpc, done: Callable[[PeerReply | FailureReason], None]) -> None:
        self.sent.append((peer, rpc, done))


class AnyTransaction:
    """A `Gate` that lets every batch begin its transaction."""

    def judge(self, partition: Partition, pending: PendingAppend) -> ErrorCode | None:
        return ErrorCode.NONE

    def look_up(self, partition: Partition, pending: PendingAppend) -> None:
        raise AssertionError("nothing is ever to be looked up")


class Ground:
    """Node 1 of `size` voters."""

    def __init__(self, size: int = 1, *, segment_bytes: int = 1 << 20, **settings: Any) -> None:
        self.time, self.wires = Time(), Wires()
        #: How often a turn was asked for.
        self.turns = 0
        #: Told of each high watermark; clients see it at once unless a service has a say.
        self.on_high_watermark: Callable[[Partition, Offset], None] = Partition.show
        #: Judges transactional batches: all may begin their transactions.
        self.gate: Gate = AnyTransaction()
        #: Syncs that are not over.
        self.syncs: list[Callable[[], None]] = []
        machine = SimpleNamespace(port_call=lambda name: None, flush_later=lambda complete, fail: self.syncs.append(complete))
        self.disk = SimulatedDisk(machine, segment_bytes=segment_bytes)
        voters = {NodeId(node_id): Endpoint("h", 9090 + node_id) for node_id in range(1, size + 1)}
        self.engine = Engine(
            NodeConfig(**{"node_id": ME, "voters": voters, "listener": Endpoint("h", 9091), **settings}),
            clock=self.time,
            network=self.wires,
            logs=self.disk,
            elections=self.disk,
            rng=Random(1),
            request_turn=self._on_turn,
        )

    def _on_turn(self) -> None:
        self.turns += 1

    def run(self, duration_ms: int) -> None:
        """Let so much time pass. Each timer runs when it is due, and a sync is over after a millisecond."""
        end_ms = self.time.ms + duration_ms
        while self.time.ms < end_ms:
            self.time.ms += 1
            self.engine.begin_input()
            while self.syncs:
                self.syncs.pop(0)()
            self.engine.timers.run_due(self.engine.now_ms)

    # --- groups ---

    def host(self, group: GroupId = METADATA_GROUP) -> Partition:
        """A group whose log is on the disk, or a new one."""
        engine, log = self.engine, self.disk.open(group)
        voters = VoterHistory(static_voters(engine.config))
        facts = LogFacts(group, log, voters, log.start_offset, None)
        facts.restore(self.time.wall_ms(), with_voters=True)
        core = RaftGroup(
            engine.config.raft,
            ReplicaKey(engine.config.node_id, engine.config.directory_id),
            voters,
            epochs=log.epochs,
            log_start=log.start_offset,
            log_end=log.end_offset,
            election=engine.elections.load(group),
            rng=engine.rng,
            now_ms=engine.now_ms,
        )
        partition = Partition(group, core, log, facts, self.time.wall_ms)
        partition.obey(in_force({}, engine.config))
        engine.partitions[group] = partition
        engine.step(partition, Started())
        return partition

    def lead(self, group: GroupId = METADATA_GROUP) -> Partition:
        """A group that this node leads: the only voter needs no other."""
        partition = self.host(group)
        self.engine.step(partition, CampaignRequested())
        self.perform(partition)
        assert partition.is_serving
        return partition

    def append(self, partition: Partition, *values: bytes) -> list[do.Action]:
        """The leader appends a batch with these values. Returns what its core says to others."""
        records = [Record(offset=index, key=None, value=value) for index, value in enumerate(values)]
        batch = build_batch(records, base_offset=0, leader_epoch=0, timestamp_ms=self.time.wall_ms())
        headers = tuple(iterate_headers(batch))
        partition.appending.append(PendingAppend(batch, headers, 1 << 40, lambda error, offset: None, idempotent=False))
        return self.append_waiting(partition)

    def append_waiting(self, partition: Partition) -> list[do.Action]:
        """The leader appends what was queued at the partition. Returns what its core says to others."""
        admitted = partition.admit(lambda group, done: done(True), gate=self.gate)
        counts = tuple(header.record_count for pending in admitted for header in pending.headers)
        self.engine.step(partition, AppendRequested(record_counts=counts, payload=admitted))
        return self.perform(partition)

    def perform(self, partition: Partition) -> list[do.Action]:
        """Write and sync what the core wants written. Returns what it says to others."""
        said: list[do.Action] = []
        while partition.outbox:
            actions, partition.outbox = partition.outbox, []
            for action in actions:
                match action:
                    case do.SaveElectionState():
                        self.disk.save({partition.group: action.state})
                    case do.AppendLeaderChange() | do.AppendVoters():
                        partition.append_control(action)
                    case do.AppendRecords():
                        partition.append_records(action)
                    case do.AdvanceHighWatermark():
                        self.on_high_watermark(partition, action.high_watermark)
                    case _:
                        said.append(action)
            if partition.needs_flush:
                partition.needs_flush = False
                flushed = RecordsFlushed(end_offset=partition.log.end_offset, generation=partition.core.log_generation)
                self.engine.step(partition, flushed)
        return said


class Noted:
    """Stands for a service: notes each call of it as (method, arguments), and answers what it was told to."""

    def __init__(self, **answers: Any) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*given: Any, **named: Any) -> Any:
            self.calls.append((name, (*given, *named.values())))
            return self._answers.get(name)

        return call

    @property
    def names(self) -> list[str]:
        """The methods that were called, in order."""
        return [name for name, _ in self.calls]
