"""One simulated machine: a disk that outlives the process, and at most one running `ReplicaNode`.

It is the simulator's shell around the driver, the counterpart of `runtime`: it gives the node its turns, deadlines, requests
and flush completions, on one thread of simulated time. Its faults: power loss at once or between two port calls of a turn (a
`SimulatedCrash` raised from within the call), a paused process, slow and failing syncs. Everything that belongs to an
incarnation carries its number, so nothing of a dead process ever reaches the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Protocol

from raftlake.errors import StorageError
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import ControlReply, ControlRpc, FetchRpc, FetchSnapshotRpc, GroupId, PeerReply, PeerRpc
from raftlake.raft.actions import ReportRole
from raftlake.raft.events import FailureReason
from raftlake.raft.messages import VoteRequest, VoteResponse
from raftlake.raft.types import DirectoryId, NodeId
from raftlake.replica.config import Endpoint, NodeConfig
from raftlake.replica.node import ReplicaNode
from raftlake.sim.clock import US_PER_MS, NodeClock, Scheduler
from raftlake.sim.coverage import Coverage
from raftlake.sim.disk.disk import SimulatedDisk
from raftlake.sim.disk.power import ClosedLog, SimulatedCrash
from raftlake.sim.faults.faults import Settings, stream
from raftlake.sim.faults.forging import FORGER, forged_requests
from raftlake.sim.faults.strikes import RoleTrap
from raftlake.sim.faults.syncs import Syncs
from raftlake.sim.invariants.base import InvariantSuite, ReplicaState, Violation
from raftlake.sim.network import NO_EPOCHS, SimulatedNetwork
from raftlake.sim.node_watch import DiskWatch, NodeWatch
from raftlake.sim.tier import ObjectStore, SimulatedTier
from raftlake.sim.trace import Trace, describe_answer, describe_rpc

#: A driver that asks for this many turns or deadlines within one simulated microsecond spins.
SPIN_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class World:
    """What all machines of a run share."""

    settings: Settings
    scheduler: Scheduler
    network: SimulatedNetwork
    trace: Trace
    invariants: InvariantSuite
    coverage: Coverage
    #: Set for the next nodes that take up these roles.
    role_traps: list[RoleTrap]
    #: Called once, with the next node that begins to lead the group.
    leader_waiters: dict[GroupId, list[Callable[[NodeId], None]]]
    #: The highest epoch of each group in which a node has led, be it for a moment.
    leader_epochs: dict[GroupId, int]
    #: Behind the nodes' remote tier; None without one.
    store: ObjectStore | None = None


class Supervisor(Protocol):
    """Told when a machine goes down, whatever the cause; switches it on again when it wants."""

    def on_down(self, node_id: NodeId, reason: str) -> None: ...


class Machine:
    """Implements `disk.Machine` and `network.Peer`."""

    def __init__(self, world: World, config: NodeConfig, supervisor: Supervisor) -> None:
        self.node_id = config.node_id
        self._world = world
        self._scheduler = world.scheduler
        self._turn_delay_us_max = world.settings.turn_delay_us_max
        self.config = config
        self._supervisor = supervisor
        self._rng = stream(world.settings.seed, f"machine {config.node_id}")
        watch = DiskWatch(config.node_id, world.invariants, world.coverage, world.trace)
        self.disk = SimulatedDisk(self, watch, world.settings.segment_bytes)
        # In a third of the runs.
        self.disk.is_quick = world.settings.seed % 3 == 0
        self.node: ReplicaNode | None = None
        self.clock = NodeClock(world.scheduler)
        #: The running incarnation, 0 while the machine is down.
        self.incarnation = 0
        self._incarnations = 0
        self._crash_countdown = 0
        self._paused_until_us = 0
        #: What the paused process will get to see when it goes on.
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._turn_requested = False
        #: The deadline, by the node's clock, that the one timer that counts was set for.
        self._armed_ms: int | None = None
        self._arm_counter = 0
        self._spin_us = -1
        self._spins = 0
        self.syncs = Syncs(world.settings, self._rng, self._call_after)
        self._watch: NodeWatch | None = None
        #: Called once when this incarnation ends.
        self.on_down: dict[int, Callable[[], None]] = {}

    @property
    def replicas(self) -> Mapping[GroupId, ReplicaState]:
        """The groups of the running node, as they were when they were last looked at."""
        return {} if self._watch is None else self._watch.replicas

    # --- power ---

    def start(self) -> None:
        """Switch the machine on; nothing happens when it is on."""
        if self.node is not None:
            return
        world, settings = self._world, self._world.settings
        self._incarnations += 1
        incarnation = self.incarnation = self._incarnations
        drift = settings.drift_ppm_max
        self.clock = NodeClock(
            world.scheduler,
            start_ms=self._rng.randrange(1_000_000),
            drift_ppm=self._rng.randrange(-drift, drift + 1),
            wall_offset_ms=self.clock.wall_offset_ms,
        )
        self._crash_countdown = self._paused_until_us = 0
        self._spins = 0
        self._turn_requested, self._armed_ms = False, None
        if world.trace.enabled:
            world.trace.write(self.node_id, f"start incarnation={incarnation}")
        self.node = ReplicaNode(
            self.config,
            clock=self.clock,
            network=world.network.endpoint(self.node_id),
            logs=self.disk,
            elections=self.disk,
            rng=Random(self._rng.randrange(1 << 62)),
            request_turn=partial(self._request_turn, incarnation),
            tier=None if world.store is None else SimulatedTier(world.store, self),
        )
        self._watch = NodeWatch(self.node, incarnation, self.disk.logs, world.invariants, world.coverage, world.trace)
        self.node.reports.role_listeners.append(self._spring_trap)
        self.node.reports.role_listeners.append(self._announce_leader)
        self._enter(incarnation, self.node.start)
        if self.node is not None:
            self._arm(self.node)

    def crash(self, reason: str) -> None:
        """Power loss: the process is gone at once, the disk keeps what it must and perhaps more."""
        if self.node is None:
            return
        if self._world.trace.enabled:
            self._world.trace.write(self.node_id, f"crash ({reason})")
        self.node = self._watch = None
        self.incarnation = 0
        self._held.clear()
        self.disk.crash(self._rng)
        self.syncs.power_lost()
        self._world.network.on_crash(self.node_id)
        callbacks, self.on_down = self.on_down, {}
        for callback in callbacks.values():
            callback()
        self._world.invariants.on_crash(self.node_id)
        self._supervisor.on_down(self.node_id, reason)

    def wipe(self, directory_id: DirectoryId, bootstrap_servers: tuple[Endpoint, ...]) -> None:
        """The disk is lost. What starts next is a node that knows where to ask for the quorum, and nothing else."""
        self.crash("its disk is lost")
        self.disk.wipe()
        self.config = replace(self.config, voters={}, bootstrap_servers=bootstrap_servers, directory_id=directory_id)
        self._world.invariants.on_wiped(self.node_id)

    def crash_at_port_call(self, calls_left: int) -> None:
        """Lose power at the `calls_left`th port call from now."""
        self._crash_countdown = calls_left

    def _announce_leader(self, group: GroupId, action: ReportRole) -> None:
        if action.role == "Leader":
            epochs = self._world.leader_epochs
            epochs[group] = max(epochs.get(group, -1), action.epoch)
            for waiter in self._world.leader_waiters.pop(group, ()):
                waiter(self.node_id)

    def _spring_trap(self, group: GroupId, action: ReportRole) -> None:
        traps = self._world.role_traps
        if not traps or self._crash_countdown:
            return
        trap = next((trap for trap in traps if trap.role == action.role), None)
        if trap is None:
            return
        log = self.disk.logs[group]
        if action.role == "Candidate" and log.durable_end == log.end_offset:
            # It has nothing to lose yet.
            return
        traps.remove(trap)
        self._crash_countdown = trap.calls_left

    def pause(self, length_us: int) -> None:
        """The process gets no processor time for a while; its input waits."""
        self._paused_until_us = max(self._paused_until_us, self._scheduler.now_us + length_us)
        self._scheduler.call_at(self._paused_until_us, self._wake, self.incarnation)

    def resume(self, *, timers_last: bool = False) -> None:
        """End the pause now. The process takes in what came meanwhile in its order, or reads all of it before it looks at its
        timers, as an event loop does."""
        self._paused_until_us = 0
        if timers_last:
            self._held.sort(key=lambda entry: entry[0] == self._on_timer)
        self._wake(self.incarnation)

    def _wake(self, incarnation: int) -> None:
        if incarnation == self.incarnation and self._paused_until_us <= self._scheduler.now_us:
            held, self._held = self._held, []
            for callback, args in held:
                self._enter(incarnation, callback, *args)

    @property
    def gets_time(self) -> bool:
        """Whether the process runs, and has long enough to have done what was due."""
        return self.node is not None and self._paused_until_us + 10 * US_PER_MS <= self._scheduler.now_us

    def jump_clock(self, by_ms: int) -> None:
        """The monotonic clock skips time."""
        if self.node is not None:
            self.clock.jump(by_ms)
            self._armed_ms = None
            self._arm(self.node)

    def resign(self) -> None:
        """Graceful stop, as an operator asks for it; the process ends when `crash` is called."""
        if self.node is not None:
            if self._world.trace.enabled:
                self._world.trace.write(self.node_id, "resign")
            self.run(self.node.resign)

    def forge_epoch(self, above: int) -> None:
        """See `Stage.forge_epoch`. The answers are dropped."""
        if self.node is not None:
            for rpc in list(forged_requests(self.node, above)):
                self.run(self._receive, FORGER, PeerConnection(), rpc, lambda answer: None, NO_EPOCHS)

    def heal(self) -> None:
        """End every fault of this machine; one that is off stays off."""
        self.syncs.heal()
        self.disk.space.empty()
        self._crash_countdown = 0
        self.resume()

    def port_call(self, name: str) -> None:
        if self._crash_countdown:
            self._crash_countdown -= 1
            if not self._crash_countdown:
                raise SimulatedCrash(name)

    # --- the driver's turns ---

    def run(self, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback` on the node's thread now (or when its pause is over)."""
        self._enter(self.incarnation, callback, *args)

    def _enter(self, incarnation: int, callback: Callable[..., None], *args: Any) -> None:
        node = self.node
        if incarnation != self.incarnation or node is None:
            return
        if self._paused_until_us > self._scheduler.now_us:
            self._held.append((callback, args))
            return
        try:
            callback(*args)
        except SimulatedCrash as crash:
            # What moved before the crash may have been answered already.
            if self._watch is not None:
                self._watch.look()
            self.crash(f"at port call {crash}")
            return
        if node.fatal is not None:
            self._on_fatal(node.fatal)

    def _on_fatal(self, error: Exception) -> None:
        """The node stopped itself: right after a disk error, a defect otherwise."""
        if not isinstance(error, StorageError) or isinstance(error, ClosedLog):
            raise error
        self.crash(f"stopped itself: {error}")

    def _request_turn(self, incarnation: int) -> None:
        if self._turn_requested or incarnation != self.incarnation:
            return
        self._turn_requested = True
        delay_us = int(self._rng.random() * self._turn_delay_us_max)
        self._scheduler.call_after(delay_us, self._enter, incarnation, self._run_turn)

    def _run_turn(self) -> None:
        """One turn. What inputs did to the cores shows outside only from here on, so this is where it is looked at."""
        node, watch = self.node, self._watch
        assert node is not None and watch is not None
        self._check_spin()
        self._turn_requested = False
        node.run_turn()
        if node.fatal is not None:
            return
        watch.look()
        watch.turn_ended()
        self._arm(node)

    def _arm(self, node: ReplicaNode) -> None:
        deadline_ms = node.timers.next_ms()
        if deadline_ms is None or (self._armed_ms is not None and self._armed_ms <= deadline_ms):
            return
        self._armed_ms = deadline_ms
        self._arm_counter += 1
        due_us = self.clock.due_us(deadline_ms)
        self._scheduler.call_at(due_us, self._enter, self.incarnation, self._on_timer, self._arm_counter)

    def _on_timer(self, number: int) -> None:
        node = self.node
        assert node is not None
        if number != self._arm_counter or self._armed_ms is None:
            return
        self._armed_ms = None
        deadline_ms = node.timers.next_ms()
        if deadline_ms is not None and deadline_ms <= self.clock.now_ms():
            self._check_spin()
            node.on_deadline()
        self._arm(node)

    def _check_spin(self) -> None:
        now_us = self._scheduler.now_us
        if now_us != self._spin_us:
            self._spin_us, self._spins = now_us, 0
            return
        self._spins += 1
        if self._spins > SPIN_LIMIT:
            raise Violation("the driver never spins", f"node {self.node_id} asked for {self._spins} turns in one microsecond")

    # --- the network's view ---

    def epochs(self) -> Mapping[GroupId, int]:
        if self.node is None:
            return {}
        # A group whose state cannot be saved for want of room has said and done nothing in its new epoch.
        held = self.node.disk.held
        return {group: found.core.epoch for group, found in self.node.partitions.items() if group not in held}

    def deliver_request(
        self,
        incarnation: int,
        source: NodeId,
        connection: PeerConnection,
        rpc: PeerRpc,
        reply: Callable[[PeerReply], None],
        epochs: Mapping[GroupId, int],
    ) -> None:
        if incarnation == self.incarnation and self.node is not None:
            self._enter(incarnation, self._receive, source, connection, rpc, reply, epochs)

    def _receive(
        self,
        source: NodeId,
        connection: PeerConnection,
        rpc: PeerRpc,
        reply: Callable[[PeerReply], None],
        epochs: Mapping[GroupId, int],
    ) -> None:
        assert self.node is not None
        if self._world.trace.enabled:
            self._world.trace.write(f"{self.node_id}<{source}", describe_rpc(rpc))
        if isinstance(rpc, FetchRpc | FetchSnapshotRpc):
            self._world.invariants.on_fetch(self.node_id, source, self._scheduler.now_us)
        is_vote = isinstance(rpc, ControlRpc) and isinstance(rpc.messages[0].body, VoteRequest)
        answer = partial(self._answer_vote, rpc, reply) if is_vote else partial(self._answer_peer, reply)
        self.node.receive(connection, rpc, answer)
        if isinstance(rpc, FetchRpc):
            self._world.invariants.on_round(self.node_id, source, self._led_in(rpc), epochs)

    def _led_in(self, rpc: FetchRpc) -> dict[GroupId, int]:
        """The groups that are led here and for which a round of a session counts, with the epochs in which they are led."""
        assert self.node is not None
        led: dict[GroupId, int] = {}
        for session in self.node.fetch_server.sessions.of(rpc.replica_id):
            if rpc.session_id and session.session_id == rpc.session_id:
                for group, parked in session.parked.items():
                    partition = self.node.partitions.get(group)
                    if partition is not None and partition.core.is_leader and parked.leader_epoch == partition.core.epoch:
                        led[group] = partition.core.epoch
        return led

    def _answer_peer(self, reply: Callable[[PeerReply], None], answer: PeerReply) -> None:
        self._world.coverage.answer(answer)
        reply(answer)

    def _answer_vote(self, rpc: PeerRpc, reply: Callable[[PeerReply], None], answer: PeerReply) -> None:
        """The answer to votes leaves the node: show the invariants what it grants."""
        assert isinstance(rpc, ControlRpc) and isinstance(answer, ControlReply)
        self._world.coverage.answer(answer)
        for asked, answered in zip(rpc.messages, answer.messages, strict=False):
            request, response = asked.body, answered.body
            assert isinstance(request, VoteRequest) and isinstance(response, VoteResponse)
            if response.vote_granted and not request.pre_vote:
                self._world.invariants.on_vote_granted(self.node_id, asked.group, request.epoch, request.candidate)
        reply(answer)

    def deliver_answer(
        self,
        incarnation: int,
        source: NodeId,
        answer: PeerReply | FailureReason,
        done: Callable[[PeerReply | FailureReason], None],
    ) -> None:
        if incarnation == self.incarnation:
            self._enter(incarnation, self._answer, source, answer, done)

    def _answer(
        self, source: NodeId, answer: PeerReply | FailureReason, done: Callable[[PeerReply | FailureReason], None]
    ) -> None:
        if self._world.trace.enabled:
            self._world.trace.write(f"{self.node_id}<-{source}", describe_answer(answer))
        done(answer)

    def deliver(self, incarnation: int, call: Callable[[], None]) -> None:
        if incarnation == self.incarnation:
            self._enter(incarnation, call)

    def deliver_unreachable(self, incarnation: int, peer: NodeId) -> None:
        if incarnation == self.incarnation and self.node is not None:
            self._enter(incarnation, self.node.peer_unreachable, peer)

    # --- the disk's view ---

    def flush_later(self, complete: Callable[[], None], fail: Callable[[], None]) -> None:
        self.syncs.begin(complete, fail)

    def _call_after(self, delay_us: int, callback: Callable[..., None], *args: Any) -> None:
        self._scheduler.call_after(delay_us, self._enter, self.incarnation, callback, *args)
