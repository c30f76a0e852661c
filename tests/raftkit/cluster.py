"""A few replicas of one group in memory: the smallest driver that honours the ordering contract of `raft/actions.py`.

For tests of the core alone. The log of a node is a list of batches, its disk a copy of that list taken when a sync began, its
network a queue of deliveries ordered by time. Everything is drawn from one seeded generator; with the default `Timing`
nothing is random at all but the core's own timers.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import assert_never

from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.config import RaftConfig
from raftlake.raft.core import RaftGroup
from raftlake.raft.messages import FetchedBatch, FetchRequest, FetchResponse, Request, Response
from raftlake.raft.roles import Leader
from raftlake.raft.types import ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey, VoterSet

Batch = FetchedBatch
EMPTY_START = OffsetAndEpoch(Offset(0), Epoch(0))


@dataclass
class Timing:
    """Milliseconds; a pair is a uniform range."""

    latency: tuple[int, int] = (1, 1)
    flush: tuple[int, int] = (1, 1)
    fetch_wait: int = 500
    loss: float = 0.0
    duplicate: float = 0.0


@dataclass
class Disk:
    """What survives a crash."""

    batches: list[Batch] = field(default_factory=list)
    start: OffsetAndEpoch = EMPTY_START
    election: ElectionState | None = None


class Node:
    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.id = NodeId(node_id)
        self.disk = Disk()
        self.batches: list[Batch] = []
        self.start = self.disk.start
        self.core: RaftGroup | None = None
        self.generation = 0
        self.is_flushing = False
        self.is_dirty = False
        self.answer_sequence = 0
        #: Per leader: its answer counter when it sent the last answer that we received.
        self.seen: dict[NodeId, int] = {}
        #: Fetches that the core has not answered yet, by replica, with the way to answer them.
        self.waiting: dict[NodeId, tuple[FetchRequest, Callable[[FetchResponse], None]]] = {}
        self.release_next: dict[NodeId, None] = {}
        self.reads: dict[int, do.AnswerRead] = {}
        self.responders: dict[int, Callable[[Response], None]] = {}
        self.wake_at_ms: int | None = None
        #: Values below the high watermark, in order.
        self.applied: list[object] = []

    @property
    def log_end(self) -> Offset:
        return self.batches[-1].end_offset if self.batches else self.start.offset

    @property
    def alive(self) -> RaftGroup:
        assert self.core is not None, f"node {self.id} is down"
        return self.core

    def epochs(self) -> list[tuple[Epoch, Offset]]:
        entries = [] if self.start.epoch == 0 else [(self.start.epoch, self.start.offset)]
        for batch in self.batches:
            if not entries or batch.epoch != entries[-1][0]:
                entries.append((batch.epoch, batch.base_offset))
        return entries

    def boot(self) -> None:
        self.generation += 1
        self.batches = list(self.disk.batches)
        self.start = self.disk.start
        self.waiting.clear()
        self.release_next.clear()
        self.responders.clear()
        self.seen.clear()
        self.answer_sequence = 0
        self.is_flushing = self.is_dirty = False
        self.core = RaftGroup(
            self.cluster.config,
            self.cluster.key(self.id),
            self.cluster.voters,
            epochs=self.epochs(),
            log_start=self.start.offset,
            log_end=self.log_end,
            election=self.disk.election,
            rng=self.cluster.random,
            now_ms=self.cluster.now_ms,
        )
        self.step(on.Started())

    def crash(self) -> None:
        """Lose the process and everything that was not synced."""
        self.core = None
        self.generation += 1
        self.wake_at_ms = None

    def step(self, event: on.Event) -> None:
        if self.core is None:
            return
        actions = self.core.step(event, self.cluster.now_ms)
        self.cluster.on_step(self, event, actions)
        for action in actions:
            self.perform(action)
        self.schedule_wake()
        self.cluster.check_invariants(self)

    def schedule_wake(self) -> None:
        deadline = self.alive.next_deadline_ms()
        if deadline is None or (self.wake_at_ms is not None and self.wake_at_ms <= deadline):
            return
        self.wake_at_ms = deadline
        generation = self.generation

        def wake() -> None:
            if generation == self.generation and self.core is not None:
                self.wake_at_ms = None
                due = self.core.next_deadline_ms()
                if due is not None and due <= self.cluster.now_ms:
                    self.step(on.DeadlineReached())
                else:
                    self.schedule_wake()

        self.cluster.at(max(deadline, self.cluster.now_ms), wake)

    def perform(self, action: do.Action) -> None:
        match action:
            case do.SaveElectionState():
                self.disk.election = action.state
            case do.AppendRecords():
                offset = action.base_offset
                assert offset == self.log_end
                values = action.payload
                assert isinstance(values, tuple)
                for value, size in values:
                    end = Offset(offset + size)
                    self.batches.append(Batch(base_offset=offset, end_offset=end, epoch=action.epoch, payload=value))
                    offset = end
                assert offset == action.end_offset
                self.flush()
            case do.AppendLeaderChange():
                assert action.offset == self.log_end
                end = Offset(action.offset + 1)
                payload = ("leader", action.leader_id)
                self.batches.append(Batch(base_offset=action.offset, end_offset=end, epoch=action.epoch, payload=payload))
                self.flush()
            case do.AppendFetched():
                assert action.batches[0].base_offset == self.log_end
                self.batches.extend(action.batches)
                self.flush()
            case do.TruncateTo():
                while self.batches and self.batches[-1].end_offset > action.end_offset:
                    self.batches.pop()
                assert self.log_end == action.end_offset, "truncated inside a batch"
                self.flush()
            case do.ResetLog():
                self.batches.clear()
                self.start = action.start
                self.flush()
            case do.SendRequest():
                self.cluster.send(self, action.destination, action.request)
            case do.Respond():
                self.responders.pop(action.request_id)(action.response)
            case do.AnswerFetch():
                self.answer_fetch(action)
            case do.ReleaseFetchRounds():
                for voter in self.alive.other_voters:
                    if voter in self.waiting:
                        self.answer_empty(voter)
                    else:
                        self.release_next[voter] = None
            case do.AdvanceHighWatermark():
                self.applied = [batch.payload for batch in self.batches if batch.end_offset <= action.high_watermark]
            case do.AnswerRead():
                self.reads[action.read_id] = action
            case do.ReportRole():
                pass
            case _:
                assert_never(action)

    def flush(self) -> None:
        """Start a sync of what is in the log now; one at a time."""
        if self.is_flushing:
            self.is_dirty = True
            return
        self.is_flushing, self.is_dirty = True, False
        batches, start, end = list(self.batches), self.start, self.log_end
        generation, log_generation = self.generation, self.alive.log_generation

        def done() -> None:
            if generation != self.generation or self.core is None:
                return
            self.disk.batches, self.disk.start = batches, start
            self.is_flushing = False
            if self.is_dirty:
                self.flush()
            self.step(on.RecordsFlushed(end_offset=end, generation=log_generation))

        self.cluster.after(self.cluster.draw(self.cluster.timing.flush), done)

    def receive_fetch(self, request: FetchRequest, follows: int, answer: Callable[[FetchResponse], None]) -> None:
        replica = request.replica.id
        self.waiting[replica] = (request, answer)
        self.step(on.FetchRequestReceived(request=request, follows=follows))
        if self.waiting.get(replica, (None,))[0] is not request:
            return
        if self.release_next.pop(replica, 0) is None:
            self.answer_empty(replica)
            return
        generation = self.generation

        def expire() -> None:
            if generation == self.generation and self.waiting.get(replica, (None,))[0] is request:
                self.answer_empty(replica)

        self.cluster.after(self.cluster.timing.fetch_wait, expire)

    def answer_empty(self, replica: NodeId) -> None:
        core = self.alive
        _, answer = self.waiting.pop(replica)
        answer(
            FetchResponse(
                error=ErrorCode.NONE,
                leader_id=core.leader_id,
                leader_epoch=core.epoch,
                high_watermark=core.high_watermark,
            )
        )

    def answer_fetch(self, action: do.AnswerFetch) -> None:
        held = self.waiting.get(action.replica_id)
        if held is None or held[0] is not action.request:
            return  # It was answered when its wait was over; the replica has asked again.
        del self.waiting[action.replica_id]
        self.release_next.pop(action.replica_id, None)
        batches: tuple[Batch, ...] = ()
        if action.error is ErrorCode.NONE and action.diverging is None and action.snapshot_id is None:
            batches = tuple(batch for batch in self.batches if batch.base_offset >= action.request.fetch_offset)
        held[1](
            FetchResponse(
                error=action.error,
                leader_id=action.leader_id,
                leader_epoch=action.leader_epoch,
                high_watermark=action.high_watermark,
                log_start_offset=self.start.offset,
                diverging=action.diverging,
                snapshot_id=action.snapshot_id,
                batches=batches,
            )
        )


class Cluster:
    """`ids` are all nodes, the first `voters` of them with a vote."""

    def __init__(
        self,
        ids: Iterable[int] = (1, 2, 3),
        *,
        voters: int | None = None,
        seed: int = 0,
        config: RaftConfig | None = None,
        timing: Timing | None = None,
    ) -> None:
        node_ids = list(ids)
        self.random = Random(seed)
        self.config = config or RaftConfig()
        self.timing = timing or Timing()
        self.now_ms = 1_000
        self.voters = VoterSet({NodeId(i): ReplicaKey(NodeId(i)) for i in node_ids[: voters or len(node_ids)]})
        self.nodes = {NodeId(i): Node(self, i) for i in node_ids}
        self.cut: set[tuple[int, int]] = set()
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, tuple[int, object]] = {}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._request_ids = itertools.count(1)
        self._read_ids = itertools.count(1)

    def key(self, node_id: int) -> ReplicaKey:
        return ReplicaKey(NodeId(node_id))

    def __getitem__(self, node_id: int) -> RaftGroup:
        return self.nodes[NodeId(node_id)].alive

    # --- time

    def at(self, at_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (at_ms, next(self._order), action))

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, action)

    def draw(self, bounds: tuple[int, int]) -> int:
        return bounds[0] if bounds[0] == bounds[1] else self.random.randint(*bounds)

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
        self.now_ms = end_ms

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 30_000) -> int:
        """Let time pass until `condition` holds; the milliseconds it took."""
        start_ms = self.now_ms
        while not condition():
            assert self._queue, "nothing will ever happen again"
            assert self.now_ms - start_ms <= limit_ms, f"condition does not hold after {limit_ms} ms"
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
        return self.now_ms - start_ms

    # --- nodes

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids or self.nodes:
            self.nodes[NodeId(node_id)].boot()

    def crash(self, node_id: int, *, noticed: bool = True) -> None:
        """Kill a node; where `noticed`, its peers see their connections to it close."""
        self.nodes[NodeId(node_id)].crash()
        if noticed:
            for node in self.nodes.values():
                if node.core is not None:
                    node.step(on.PeerUnreachable(peer=NodeId(node_id)))

    def partition(self, *sides: Iterable[int]) -> None:
        """Only nodes of one side reach one another."""
        side_of = {node: index for index, side in enumerate(sides) for node in side}
        self.cut = {(a, b) for a in self.nodes for b in self.nodes if a != b and side_of.get(a) != side_of.get(b)}

    def heal(self) -> None:
        self.cut = set()

    def leader(self) -> RaftGroup | None:
        """The serving leader of the highest epoch, if there is one."""
        leading = [node.core for node in self.nodes.values() if node.core is not None and node.core.is_serving_leader]
        return max(leading, key=lambda core: core.epoch, default=None)

    def await_leader(self, limit_ms: int = 30_000) -> RaftGroup:
        self.run_until(lambda: self.leader() is not None, limit_ms)
        leader = self.leader()
        assert leader is not None
        return leader

    def append(self, node_id: int, *values: object) -> Offset:
        """Append one record per value at a leader; the end offset, at which they are committed."""
        node = self.nodes[NodeId(node_id)]
        payload = tuple((value, 1) for value in values)
        node.step(on.AppendRequested(record_counts=(1,) * len(values), payload=payload))
        return node.alive.log_end

    def read(self, node_id: int) -> int:
        node = self.nodes[NodeId(node_id)]
        read_id = next(self._read_ids)
        node.step(on.ReadRequested(read_id=read_id, sequence=node.answer_sequence))
        return read_id

    # --- network

    def send(self, sender: Node, destination: NodeId, request: Request) -> None:
        receiver = self.nodes[destination]
        generation = sender.generation
        follows = sender.seen.get(destination, 0)
        is_done = [False]

        def fail() -> None:
            if not is_done[0] and generation == sender.generation:
                is_done[0] = True
                reason = on.FailureReason.TIMED_OUT
                sender.step(on.RequestFailed(peer=destination, request=request, reason=reason))

        def refused() -> None:
            if not is_done[0] and generation == sender.generation:
                is_done[0] = True
                reason = on.FailureReason.DISCONNECTED
                sender.step(on.RequestFailed(peer=destination, request=request, reason=reason))

        def respond(response: Response) -> None:
            if isinstance(request, FetchRequest):
                receiver.answer_sequence += 1
            sequence = receiver.answer_sequence

            def arrive() -> None:
                if is_done[0] or generation != sender.generation or sender.core is None:
                    return
                is_done[0] = True
                if isinstance(request, FetchRequest):
                    sender.seen[destination] = max(sender.seen.get(destination, 0), sequence)
                self.on_delivery(receiver, sender, response)
                sender.step(on.ResponseReceived(source=destination, request=request, response=response))

            self.transmit(receiver.id, sender.id, arrive)

        def deliver() -> None:
            if receiver.core is None:
                self.transmit(receiver.id, sender.id, refused)
                return
            self.on_delivery(sender, receiver, request)
            if isinstance(request, FetchRequest):
                receiver.receive_fetch(request, follows, respond)
                return
            request_id = next(self._request_ids)
            receiver.responders[request_id] = respond
            receiver.step(on.RequestReceived(request_id=request_id, request=request))

        self.transmit(sender.id, destination, deliver)
        extra_ms = self.timing.fetch_wait if isinstance(request, FetchRequest) else 0
        self.after(self.config.request_timeout_ms + extra_ms, fail)

    def transmit(self, source: NodeId, destination: NodeId, arrive: Callable[[], None]) -> None:
        def pass_through() -> None:
            if (source, destination) not in self.cut:
                arrive()

        copies = 1
        if self.timing.loss and self.random.random() < self.timing.loss:
            copies = 0
        elif self.timing.duplicate and self.random.random() < self.timing.duplicate:
            copies = 2
        for _ in range(copies):
            self.after(self.draw(self.timing.latency), pass_through)

    # --- what tests hook into

    def on_step(self, node: Node, event: on.Event, actions: list[do.Action]) -> None:
        """Called after each step, before its actions are performed."""

    def on_delivery(self, source: Node, destination: Node, message: Request | Response) -> None:
        """Called when a message arrives."""

    def check_invariants(self, node: Node) -> None:
        """Election safety, log matching of what is committed, and that what is committed is on a majority of disks."""
        core = node.alive
        if isinstance(core.role, Leader):
            assert self.leaders.setdefault(core.epoch, node.id) == node.id, f"two leaders in epoch {core.epoch}"
        for batch in node.batches:
            if batch.end_offset > core.high_watermark:
                break
            fact = (batch.epoch, batch.payload)
            known = self.committed.setdefault(batch.base_offset, fact)
            assert known == fact, f"offset {batch.base_offset} was committed as {known}, node {node.id} has {fact}"
