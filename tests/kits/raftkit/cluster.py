"""A few replicas of one group in memory, with a network of deliveries ordered by time.

For tests of the core alone. Everything is drawn from one seeded generator; with the default `Timing` nothing is random but the
core's own timers.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from raftkit.node import Node
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.config import RaftConfig
from raftlake.raft.core import RaftGroup
from raftlake.raft.messages import AddVoter, FetchRequest, RemoveVoter, Request, Response, VoterChange
from raftlake.raft.roles import Leader
from raftlake.raft.types import DirectoryId, NodeId, Offset, ReplicaKey, VoterEndpoint, VoterSet


@dataclass
class Timing:
    """Milliseconds; a pair is a uniform range."""

    latency: tuple[int, int] = (1, 1)
    flush: tuple[int, int] = (1, 1)
    fetch_wait: int = 500
    #: Idle fetches wait in a session whose rounds only confirm them, as between our own nodes; else each is answered empty.
    sessions: bool = False
    loss: float = 0.0
    duplicate: float = 0.0


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
        directories: bool = False,
    ) -> None:
        """With `directories` each disk has an id, so that leaders put the voters into the log."""
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
        self._run_at_once = 0
        self._order = itertools.count()
        self._request_ids = itertools.count(1)
        self._read_ids = itertools.count(1)
        #: How often each node's disk was replaced.
        self.disks = {NodeId(i): 0 for i in node_ids}
        self.directories = directories

    def key(self, node_id: int) -> ReplicaKey:
        """The node and, where disks have ids, its present disk."""
        if not self.directories:
            return ReplicaKey(NodeId(node_id))
        return ReplicaKey(NodeId(node_id), DirectoryId(f"disk {node_id}.{self.disks[NodeId(node_id)]}".encode().ljust(16)))

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
            self._run_next()
        self.now_ms = end_ms

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 30_000) -> int:
        """Let time pass until `condition` holds; the milliseconds it took."""
        start_ms = self.now_ms
        while not condition():
            assert self._queue, "nothing will ever happen again"
            assert self.now_ms - start_ms <= limit_ms, f"condition does not hold after {limit_ms} ms"
            self._run_next()
        return self.now_ms - start_ms

    def _run_next(self) -> None:
        at_ms, _, action = heapq.heappop(self._queue)
        self._run_at_once = self._run_at_once + 1 if at_ms == self.now_ms else 0
        assert self._run_at_once < 10_000, "a busy loop: time stands still"
        self.now_ms = at_ms
        action()

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

    def wipe(self, node_id: int) -> None:
        """A node that is down gets an empty disk, which is another replica where disks have ids."""
        node = self.nodes[NodeId(node_id)]
        node.disk = type(node.disk)()
        self.disks[node.id] += 1

    def change_voters(self, node_id: int, change: VoterChange) -> int:
        """Ask a node for a change of voters; the answer will be in its `changes` under the returned number."""
        request_id = next(self._request_ids)
        self.nodes[NodeId(node_id)].step(on.VoterChangeRequested(request_id=request_id, change=change))
        return request_id

    def add_voter(self, node_id: int, voter: int) -> int:
        return self.change_voters(node_id, AddVoter(voter=self.key(voter), endpoints=(VoterEndpoint("P", f"n{voter}", 1),)))

    def remove_voter(self, node_id: int, voter: int) -> int:
        """Under the key that the asked node knows."""
        known = self[node_id].voters.voters.get(NodeId(voter), self.key(voter))
        return self.change_voters(node_id, RemoveVoter(voter=known))

    def read(self, node_id: int) -> int:
        node = self.nodes[NodeId(node_id)]
        read_id = next(self._read_ids)
        node.step(on.ReadRequested(read_id=read_id, sequence=node.answer_sequence))
        return read_id

    # --- network

    def send(self, sender: Node, destination: NodeId, request: Request) -> None:
        receiver = self.nodes[destination]
        generation = sender.generation
        life = (destination, receiver.generation)
        follows = sender.seen.get(life, 0)
        is_done = [False]
        extra_ms = self.timing.fetch_wait if isinstance(request, FetchRequest) else 0
        patience_ms = self.config.request_timeout_ms + extra_ms

        def fail() -> None:
            is_cut = (sender.id, destination) in self.cut or (destination, sender.id) in self.cut
            if self.timing.sessions and not is_cut and receiver.waits_for(request):
                self.after(patience_ms, fail)
            elif not is_done[0] and generation == sender.generation:
                is_done[0] = True
                reason = on.FailureReason.TIMED_OUT
                sender.step(on.RequestFailed(peer=destination, request=request, reason=reason))

        def refused() -> None:
            if not is_done[0] and generation == sender.generation:
                is_done[0] = True
                reason = on.FailureReason.DISCONNECTED
                sender.step(on.RequestFailed(peer=destination, request=request, reason=reason))
                sender.step(on.PeerUnreachable(peer=destination))

        def respond(response: Response) -> None:
            if isinstance(request, FetchRequest):
                receiver.answer_sequence += 1
            sequence = receiver.answer_sequence
            answered_by = (destination, receiver.generation)

            def arrive() -> None:
                if is_done[0] or generation != sender.generation or sender.core is None:
                    return
                is_done[0] = True
                if isinstance(request, FetchRequest):
                    sender.seen[answered_by] = max(sender.seen.get(answered_by, 0), sequence)
                self.on_delivery(receiver, sender, response)
                sender.step(on.ResponseReceived(source=destination, request=request, response=response))

            self.transmit(receiver.id, sender.id, arrive)

        def deliver() -> None:
            if receiver.core is None or receiver.generation != life[1]:
                # Nobody listens, or the connection it was sent on belonged to an earlier process.
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
        self.after(patience_ms, fail)

    def transmit(self, source: NodeId, destination: NodeId, arrive: Callable[[], None]) -> None:
        def pass_through() -> None:
            if (source, destination) in self.cut:
                self.on_loss(source, destination)
            else:
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

    def on_loss(self, source: NodeId, destination: NodeId) -> None:
        """Called when a partition swallows a message."""

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
