"""One run: machines, network, faults, clients, invariants and oracle, from a seed to a verdict.

A run has three parts: the safety phase with faults and traffic; the healing (links, disks and pauses are repaired, every
machine is on), after which each client must get an answer to something that it asked since; and the end, when the traffic
stops, all nodes must converge, and the oracle compares every promise with the committed logs. A broken promise raises
`Violation`; so does any exception of the driver, which is never supposed to have one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from raftlake.errors import RaftlakeError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import DirectoryId, NodeId
from raftlake.replica.config import METADATA_GROUP, Endpoint, NodeConfig
from raftlake.replica.node import ReplicaNode
from raftlake.sim.clients.base import KEYED, SCRATCH, Client, Shared
from raftlake.sim.clients.calls import ClientCalls
from raftlake.sim.clients.committed_readers import CommittedReader
from raftlake.sim.clients.configurer import Configurer
from raftlake.sim.clients.deleter import Deleter
from raftlake.sim.clients.history import KvHistory
from raftlake.sim.clients.keyed import KeyedTopic
from raftlake.sim.clients.operations import Operations, bootstrap_addresses, bootstrap_servers
from raftlake.sim.clients.voters import Operator
from raftlake.sim.clients.workload import make_clients
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.sim.coverage import Coverage
from raftlake.sim.faults.faults import Settings, stream
from raftlake.sim.faults.filling import MIN_FREE_BYTES
from raftlake.sim.faults.injector import FaultInjector, draw_strikes
from raftlake.sim.faults.strikes import RoleTrap, Strike
from raftlake.sim.histories.transactions import Standing, check_ended, check_shown, check_transactions, standing
from raftlake.sim.invariants import InvariantSuite, ReplicaState, Violation, standard_invariants
from raftlake.sim.invariants.convergence import disagreements
from raftlake.sim.invariants.log_starts import ALL_DELETED, starts_behind
from raftlake.sim.invariants.stable_leadership import StableLeadership
from raftlake.sim.invariants.tier import ALL_COPIED, check_tier, uncopied, undropped
from raftlake.sim.invariants.told_in_sync import ALL_IN_SYNC, told_apart
from raftlake.sim.invariants.voter_sets import voter_disagreements
from raftlake.sim.machine import Machine, World
from raftlake.sim.network import SimulatedNetwork
from raftlake.sim.oracle import MARK_PREFIX, Oracle
from raftlake.sim.tier import ObjectStore
from raftlake.sim.trace import LineSink, Trace
from raftlake.sim.view import view_of
from raftlake.wire.batches import Record, decode_records, parse_header

#: How often the end of a phase is looked for.
POLL_US = 100 * US_PER_MS
#: After the faults a node that lags is given up when it has got nothing for so long, or when so much time is over altogether.
#: A partition copies one segment after another, two in a second: of a log of five records a segment that is minutes.
STANDSTILL_US, GOING_ON_US_MAX = 5_000 * US_PER_MS, 600_000 * US_PER_MS
#: A cluster that makes more events than this in one `POLL_US` asks itself in circles. Traffic makes a few hundred.
EVENTS_PER_POLL_MAX = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run that kept every promise did, for the report."""

    simulated_ms: int
    events: int
    completed: int
    faults: dict[str, int]
    #: See `coverage`.
    covered: dict[str, int] = field(default_factory=dict)


class Cluster:
    """Implements `strikes.Stage` and `machine.Supervisor`."""

    def __init__(self, settings: Settings, sink: LineSink | None = None, strikes: Sequence[Strike] | None = None) -> None:
        """`strikes` are those that the settings' seed draws unless others are given."""
        self.settings = settings
        self.scheduler = Scheduler()
        self.trace = Trace(self.scheduler, sink)
        self.network = SimulatedNetwork(self.scheduler, stream(settings.seed, "network"), settings.network)
        voters = self.voter_ids = tuple(NodeId(node_id) for node_id in range(1, settings.voters + 1))
        others = tuple(NodeId(settings.voters + 1 + index) for index in range(settings.observers + settings.spares))
        self.node_ids = (*voters, *others)
        self.machines: dict[NodeId, Machine] = {}
        view = self.view = view_of(self.machines, voters, disposable_topics=(SCRATCH,), compacted_topics=(KEYED,))
        invariants, self.committed = standard_invariants(view, len(self.node_ids), settings.raft.fetch_timeout_ms)
        self.stable_leadership = StableLeadership(view)
        self.invariants = InvariantSuite([*invariants, self.stable_leadership])
        self.coverage = Coverage()
        self.store: ObjectStore | None = None
        if settings.tier_lag_ms:
            self.store = ObjectStore(self.scheduler, stream(settings.seed, "tier"), self.committed, self.trace)
        self.role_traps: list[RoleTrap] = []
        leader_waiters: dict[GroupId, list[Callable[[NodeId], None]]] = {}
        self._leader_epochs: dict[GroupId, int] = {}
        world = World(
            settings,
            self.scheduler,
            self.network,
            self.trace,
            self.invariants,
            self.coverage,
            self.role_traps,
            leader_waiters,
            self._leader_epochs,
            self.store,
        )
        self.machines |= {node_id: Machine(world, self._config(node_id, voters), self) for node_id in self.node_ids}
        self.network.peers = dict(self.machines)
        self.network.places = {
            (machine.config.listener.host, machine.config.listener.port): node_id for node_id, machine in self.machines.items()
        }
        self.network.addresses = {
            (node_id, address): peer
            for node_id in self.node_ids
            for address, peer in bootstrap_addresses(node_id, voters).items()
        }
        self.oracle = Oracle(settings.partitions)
        self.calls = ClientCalls(self.scheduler, stream(settings.seed, "client network"), settings.network, self.machines)
        self.shared = Shared(
            settings,
            self.scheduler,
            self.calls,
            self.oracle,
            self.trace,
            self.node_ids,
            self._highest_leader_epoch,
            leader_waiters,
            KvHistory(MARK_PREFIX),
            Operations(self.machines, view, self.committed, self.coverage),
        )
        self.keyed = KeyedTopic(settings, lambda group: self.committed.of(group).end)
        self.clients: list[Client] = make_clients(self.shared, self.keyed)
        self.safety_end_us = settings.safety_ms * US_PER_MS
        self.strikes = draw_strikes(settings) if strikes is None else tuple(strikes)
        self.injector = FaultInjector(self, self.strikes)
        self._restart_rng = stream(settings.seed, "restarts")
        self.restarts_by_itself = True

    def _config(self, node_id: NodeId, voters: tuple[NodeId, ...]) -> NodeConfig:
        is_spare = node_id > len(voters) + self.settings.observers
        return NodeConfig(
            node_id=node_id,
            voters={} if is_spare else {voter: Endpoint(f"node{voter}", 9092) for voter in voters},
            bootstrap_servers=bootstrap_servers(node_id, voters) if is_spare else (),
            listener=Endpoint(f"node{node_id}", 9092),
            auto_join=self.settings.auto_join,
            cluster_id=None,
            directory_id=DirectoryId(node_id.to_bytes(16, "big")),
            raft=self.settings.raft,
            replica_fetch_wait_ms=self.settings.replica_fetch_wait_ms,
            replica_fetch_bytes_max=self.settings.replica_fetch_bytes_max,
            retention_bytes=self.settings.retention_bytes,
            retention_ms=self.settings.retention_ms,
            local_retention_bytes=self.settings.local_retention_bytes,
            retention_check_interval_ms=500,
            snapshot_bytes_between=self.settings.snapshot_bytes_between,
            snapshot_interval_ms=self.settings.snapshot_interval_ms,
            snapshot_fetch_bytes_max=self.settings.snapshot_fetch_bytes_max,
            min_free_bytes=MIN_FREE_BYTES,
            cleaner_backoff_ms=self.settings.cleaner_backoff_ms,
            cleaner_keys_max=self.settings.cleaner_keys_max,
            tier_target_lag_ms=self.settings.tier_lag_ms,
            tier_piece_bytes=self.settings.tier_piece_bytes,
            propose_timeout_ms=3_000,
            read_timeout_ms=3_000,
        )

    # --- the invariants' view ---

    def _highest_leader_epoch(self, group: GroupId) -> int:
        return self._leader_epochs.get(group, -1)

    def replicas(self) -> list[ReplicaState]:
        """Every running group of every node that is on."""
        return [replica for machine in self.machines.values() for replica in machine.replicas.values()]

    # --- strikes.Stage and machine.Supervisor ---

    def leader_ids(self) -> tuple[NodeId, ...]:
        return tuple(
            node_id
            for node_id, machine in self.machines.items()
            if any(replica.is_leader for replica in machine.replicas.values())
        )

    def crash(self, node_id: NodeId, reason: str) -> None:
        self.machines[node_id].crash(reason)

    def crash_at_port_call(self, node_id: NodeId, calls_left: int) -> None:
        self.machines[node_id].crash_at_port_call(calls_left)

    def trap_role(self, role: str, calls_left: int, count: int) -> None:
        self.role_traps.extend([RoleTrap(role, calls_left)] * count)

    def resign(self, node_id: NodeId) -> None:
        self.machines[node_id].resign()

    def start(self, node_id: NodeId) -> None:
        self.machines[node_id].start()

    def pause(self, node_id: NodeId, length_us: int) -> None:
        if self.trace.enabled:
            self.trace.write(node_id, f"pause us={length_us}")
        self.machines[node_id].pause(length_us)

    def cut_link(self, source: NodeId, destination: NodeId) -> None:
        if self.trace.enabled:
            self.trace.write("net", f"cut {source}->{destination}")
        self.network.cut_link(source, destination)

    def restore_link(self, source: NodeId, destination: NodeId) -> None:
        if self.trace.enabled:
            self.trace.write("net", f"restore {source}->{destination}")
        self.network.restore_link(source, destination)

    def delay_link(self, source: NodeId, destination: NodeId, extra_us: int) -> None:
        if self.trace.enabled:
            self.trace.write("net", f"delay {source}->{destination} us={extra_us}")
        self.network.delay_link(source, destination, extra_us)

    def slow_disk(self, node_id: NodeId, factor: int) -> None:
        if self.trace.enabled:
            self.trace.write(node_id, f"syncs take {factor} times as long")
        self.machines[node_id].syncs.slow_down(factor)

    def fill_disk(self, node_id: NodeId, free_bytes: int) -> None:
        if self.trace.enabled:
            self.trace.write(node_id, f"disk has left bytes={free_bytes}")
        space = self.machines[node_id].disk.space
        if free_bytes < 0:
            space.empty()
        elif self.scheduler.now_us < self.safety_end_us:
            space.fill(free_bytes)

    def forge_epoch(self, node_id: NodeId, above: int) -> None:
        self.machines[node_id].forge_epoch(above)

    def damage_log(self, node_id: NodeId, log: int, batch: int, byte: int) -> bool:
        """One voter at a time has damaged logs: the others must be able to repair it."""
        operations = self.shared.operations
        if self.settings.operators:
            if not operations.may_lose_a_disk(self.scheduler.now_us) or node_id not in (operations.voters or ()):
                return False
        elif len(self.voter_ids) < 3 or node_id not in self.voter_ids:
            return False
        if not all(operations.is_sound(other) for other in self.machines if other != node_id):
            return False
        disk = self.machines[node_id].disk
        logs = [disk.logs[group] for group in disk.groups() if group.topic != SCRATCH]
        if not logs:
            return False
        chosen = logs[log % len(logs)]
        target = chosen.damage(batch, byte)
        if target is not None and self.trace.enabled:
            self.trace.write(node_id, f"damage {chosen.group} base={target.base} byte={byte}")
        return target is not None

    def jump_clock(self, node_id: NodeId, by_ms: int) -> None:
        if self.trace.enabled:
            self.trace.write(node_id, f"clock skips ms={by_ms}")
        self.machines[node_id].jump_clock(by_ms)

    def later(self, delay_us: int, callback: Callable[..., None], *args: object) -> None:
        self.scheduler.call_after(delay_us, callback, *args)

    def heal_links(self) -> None:
        if self.trace.enabled:
            self.trace.write("net", "heal")
        self.network.heal_links()

    def reset_connection(self, client: NodeId, server: NodeId) -> None:
        self.network.reset_connection(client, server)

    def jump_wall_clock(self, node_id: NodeId, by_ms: int) -> None:
        self.machines[node_id].clock.wall_offset_ms += by_ms

    def on_down(self, node_id: NodeId, reason: str) -> None:
        if self.restarts_by_itself:
            down_ms = self._restart_rng.randrange(1, self.settings.down_ms_max)
            self.scheduler.call_after(down_ms * US_PER_MS, self.start, node_id)

    # --- the run ---

    def start_all(self) -> None:
        for node_id in self.node_ids:
            self.start(node_id)

    def run(self) -> Outcome:
        """The whole run; raises Violation when a promise is broken."""
        try:
            return self._run()
        except (RaftlakeError, AssertionError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise Violation("the driver never raises", f"{type(error).__name__}: {error}") from error

    def _run(self) -> Outcome:
        self.start_all()
        for client in self.clients:
            client.start()
        self.injector.start()
        while self.scheduler.now_us < self.safety_end_us:
            self.run_a_while()
        self.heal()
        end_us = self.safety_end_us + self.settings.liveness_ms * US_PER_MS
        self._await_progress(end_us)
        self.shared.stopped = True
        self._await_convergence(end_us)
        self.invariants.on_end(self.replicas())
        if left := self._uncopied():
            raise Violation(ALL_COPIED, "; ".join(left))
        if apart := told_apart(self._running()):
            raise Violation(ALL_IN_SYNC, "; ".join(apart))
        self.check_oracle()
        if behind := starts_behind(self._running()):
            raise Violation(ALL_DELETED, "; ".join(behind))
        return Outcome(
            simulated_ms=self.scheduler.now_us // US_PER_MS,
            events=self.scheduler.events_run,
            completed=sum(client.completed for client in self.clients),
            faults=self._fault_counts(),
            covered=self.coverage.finish(),
        )

    def run_a_while(self) -> None:
        """Run for `POLL_US` of simulated time."""
        events = self.scheduler.run_until(self.scheduler.now_us + POLL_US, EVENTS_PER_POLL_MAX)
        if events >= EVENTS_PER_POLL_MAX:
            raise Violation("nodes never storm each other", f"{events} events in {POLL_US} us; {self._state()}")
        now_us = self.scheduler.now_us
        for machine in self.machines.values():
            if machine.gets_time:
                for replica in machine.replicas.values():
                    if replica.is_leader:
                        self.invariants.on_leading(replica, now_us)
        if self.store is not None:
            check_tier(self._running(), self.store.lineages, self.store.keys)

    def _running(self) -> list[ReplicaNode]:
        return [machine.node for machine in self.machines.values() if machine.node is not None]

    def _uncopied(self) -> list[str]:
        if self.store is None:
            return []
        tables = self.store.lineages
        lasting = {lineage: shown for lineage, shown in tables.items() if lineage.group.topic != SCRATCH}
        return uncopied(self._running(), lasting, self.committed) + undropped(tables, self.store.keys)

    def heal(self) -> None:
        """End every fault: what follows must succeed."""
        if self.trace.enabled:
            self.trace.write("net", "faults end")
        quiet = replace(self.settings.network, loss_ppm=0, duplicate_ppm=0, straggle_ppm=0)
        self.network.settings = self.calls.settings = quiet
        self.network.heal_links()
        self.shared.is_healed = True
        if self.store is not None:
            self.store.is_healed = True
        self.role_traps.clear()
        for machine in self.machines.values():
            machine.heal()
        self.start_all()

    def _await_progress(self, end_us: int) -> None:
        """Each client gets what it wants, asked for after the healing. A node that is to become a voter has to fetch the log
        first: an operator waits as long as the node gets on. A client that rested has half of the time from its first request
        on. Nodes that fetch one batch at a time may be asked for more than they can fetch: whoever was served makes room."""
        last_us = end_us + GOING_ON_US_MAX
        half_us = self.settings.liveness_ms * US_PER_MS // 2
        seen: dict[str, tuple[int, int, int]] = {}
        until_us: dict[str, int] = {}
        while waiting := [client for client in self.clients if not self._has_progressed(client)]:
            now_us = self.scheduler.now_us
            for client in waiting:
                # As it was when the faults ended.
                until_us.setdefault(client.name, 0 if client.asks_us is None else client.asks_us + half_us)
                fetched = client.awaited if isinstance(client, Operator) else None
                if fetched is not None and fetched > seen.get(client.name, (-1, -1, -1)):
                    seen[client.name], until_us[client.name] = fetched, min(now_us + STANDSTILL_US, last_us)
            if stuck := [client.name for client in waiting if now_us >= max(end_us, until_us[client.name])]:
                if self.settings.replica_fetch_bytes_max > 1 or self.shared.room_since_us is not None:
                    raise Violation("without faults every client makes progress", f"stuck: {stuck}; {self._state()}")
                self.shared.room_since_us, end_us = self.safety_end_us, now_us + self.settings.liveness_ms * US_PER_MS
            self.run_a_while()

    def _has_progressed(self, client: Client) -> bool:
        return client.is_done or client.last_completed_began_us >= self.safety_end_us

    def _await_convergence(self, end_us: int) -> None:
        """Until all nodes have the same, or do not get on any more: one that fetches batch by batch may have far to go."""
        last_us, most = end_us + GOING_ON_US_MAX, (0, 0)
        while (
            not all(client.is_idle for client in self.clients)
            or disagreements(self.replicas(), len(self.node_ids))
            or voter_disagreements(self.replicas(), self.view, self.committed)
            or self._uncopied()
            or told_apart(self._running())
            or starts_behind(self._running())
            or any(partition.open for partition in self._standing().values())
        ):
            if (held := self._held()) > most:
                most, end_us = held, min(max(end_us, self.scheduler.now_us + STANDSTILL_US), last_us)
            if self.scheduler.now_us >= end_us:
                break
            self.run_a_while()

    def _held(self) -> tuple[int, int]:
        """The records that nodes and the tier have, then the bytes of snapshots that arrive, in pieces of any size. A snapshot
        that begins again, while no record is gained, counts where it gets farther than before."""
        records = sum(int(replica.log.end_offset) for replica in self.replicas())
        if self.store is not None:
            records += sum(shown.newest.end_offset for shown in self.store.lineages.values() if shown.newest is not None)
        return records, sum(machine.disk.snapshots.unfinished_bytes for machine in self.machines.values())

    def _state(self) -> str:
        groups = [
            f"{replica.node_id}:{replica.group} epoch={replica.epoch} leads={replica.is_leader} hw={replica.high_watermark}"
            for replica in self.replicas()
        ]
        return ", ".join(groups)

    def check_oracle(self) -> None:
        """Compare every promise with the committed logs."""
        for client in self.clients:
            if isinstance(client, Deleter | Configurer):
                client.check(self._running())
        self.oracle.check_kv(self._committed_records(METADATA_GROUP))
        self.shared.kv_history.check()
        if self.shared.topic_id is not None:
            for index in range(self.settings.partitions):
                self.oracle.check_partition(index, self._committed_records(self.shared.group(index)))
            self._check_transactions()
        self.keyed.check(self._keyed_batches(), self._keyed_replicas())

    def _check_transactions(self) -> None:
        partitions = self._standing_orders()
        check_transactions(self.shared.transactions, partitions)
        for client in self.clients:
            for index, runs in enumerate(client.shown if isinstance(client, CommittedReader) else ()):
                for run in runs:
                    check_shown(index, client.name, run, partitions[index])
        for index, partition in partitions.items():
            check_ended(index, partition)

    def _standing(self) -> dict[int, Standing]:
        """What transactions have left in each partition; nothing where no client has any. The compacted topic comes last."""
        keyed = {self.settings.partitions: standing(self._keyed_batches())} if self.keyed.topic_id is not None else {}
        return self._standing_orders() | keyed

    def _keyed_batches(self) -> list[bytes]:
        """All that was ever committed to the compacted topic."""
        if self.keyed.topic_id is None:
            return []
        return [batch.data for batch in self.committed.of(self.keyed.group(0)).batches]

    def _keyed_replicas(self) -> list[tuple[str, int, list[bytes]]]:
        """Of each log of the compacted topic where it is, where it begins, and its batches."""
        if self.keyed.topic_id is None:
            return []
        group = self.keyed.group(0)
        logs = {node_id: machine.disk.logs[group] for node_id, machine in self.machines.items()}
        return [
            (f"node {node_id}", int(log.start_offset), [batch.data for batch in log.batches]) for node_id, log in logs.items()
        ]

    def _standing_orders(self) -> dict[int, Standing]:
        if not self.settings.transactors or self.shared.topic_id is None:
            return {}
        logs = {index: self.committed.of(self.shared.group(index)) for index in range(self.settings.partitions)}
        return {index: standing(batch.data for batch in log.batches) for index, log in logs.items()}

    def _committed_records(self, group: GroupId) -> list[Record]:
        batches = self.committed.of(group).batches
        return [
            record for batch in batches if not parse_header(batch.data, 0).is_control for record in decode_records(batch.data)
        ]

    def _fault_counts(self) -> dict[str, int]:
        counters = self.network.counters
        counts = dict(self.injector.counts)
        counts["message lost"] = counters.lost
        counts["message on a cut link"] = counters.cut
        counts["request duplicated"] = counters.duplicated
        counts["message late"] = counters.straggled
        counts["connection refused"] = counters.refused
        counts["request timed out"] = counters.timed_out
        counts["write without room"] = sum(machine.disk.space.refused for machine in self.machines.values())
        counts["sync stalled"] = sum(machine.syncs.stalled for machine in self.machines.values())
        counts["sync failed"] = sum(machine.syncs.failed for machine in self.machines.values())
        return {kind: count for kind, count in sorted(counts.items()) if count}
