"""What a run looks like: every setting drawn from the seed, and the faults that strike while it lasts.

`Settings.draw` is a swarm: each kind of fault is on or off by itself and, when on, has a rate of its own, so that rare
combinations come up and no fault hides another. `FaultInjector` then strikes at drawn moments until the safety phase ends.
Knows the cluster only through the small `Target` protocol. Every draw comes from a generator seeded with the run's seed and
a fixed name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from random import Random
from typing import Protocol

from raftlake.raft.config import RaftConfig
from raftlake.raft.types import NodeId
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.sim.network import NetworkSettings


def stream(seed: int, name: str) -> Random:
    """The generator of one purpose. A string seed is hashed with SHA-512, so it does not depend on PYTHONHASHSEED."""
    return Random(f"{seed}/{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that was drawn. Intervals are means in simulated milliseconds, 0 means that the fault is off."""

    seed: int
    voters: int = 3
    observers: int = 0
    partitions: int = 2
    #: With faults; afterwards everything is healed.
    safety_ms: int = 60_000
    #: Without faults: everything must converge in this time.
    liveness_ms: int = 15_000
    raft: RaftConfig = RaftConfig()
    replica_fetch_wait_ms: int = 500
    #: Bytes of each log that are kept at least, -1 for all. Where old records go, producers are plain: what is known of
    #: idempotent ones goes with the records.
    retention_bytes: int = -1
    segment_bytes: int = 64 * 1024
    network: NetworkSettings = NetworkSettings()
    #: A turn starts this long after the first input that asked for it, at most: the others join it.
    turn_delay_us_max: int = 50
    flush_us_mean: int = 200
    #: This share of the syncs takes up to `flush_stall_ms_max`.
    flush_stall_ppm: int = 0
    flush_stall_ms_max: int = 500
    flush_error_ppm: int = 0
    drift_ppm_max: int = 0
    wall_jump_interval_ms: int = 0
    crash_interval_ms: int = 0
    #: Crash between two port calls of a turn.
    port_crash_interval_ms: int = 0
    crash_all_interval_ms: int = 0
    #: Graceful stop: resign, and the process ends a moment later.
    stop_interval_ms: int = 0
    #: Faults aim at a leader this often rather than at any node.
    aim_at_leader_percent: int = 50
    down_ms_max: int = 5_000
    partition_interval_ms: int = 0
    partition_ms_max: int = 6_000
    pause_interval_ms: int = 0
    pause_ms_max: int = 4_000
    reset_interval_ms: int = 0
    producers: int = 2
    readers: int = 1
    kv_clients: int = 2
    #: Clients that create and delete topics.
    churners: int = 0
    kv_keys: int = 2
    think_ms_mean: int = 300

    @classmethod
    def draw(cls, seed: int) -> Settings:
        rng = stream(seed, "settings")

        def choice(*options: int) -> int:
            return options[rng.randrange(len(options))]

        def sometimes(percent: int, low: int, high: int) -> int:
            """Off, or something between the two with every order of magnitude equally likely."""
            value = int(low * (high / low) ** rng.random())
            return value if rng.randrange(100) < percent else 0

        election_timeout_ms = choice(300, 500, 1_000)
        raft = RaftConfig(
            election_timeout_ms=election_timeout_ms,
            fetch_timeout_ms=choice(400, 1_000, 2_000),
            election_jitter_ms_max=choice(10, 50, 200),
            request_timeout_ms=choice(500, 1_000, 2_000),
        )
        return cls(
            seed=seed,
            voters=choice(1, 3, 3, 3, 3, 3, 5),
            observers=choice(0, 0, 0, 1),
            partitions=choice(1, 1, 2),
            raft=raft,
            replica_fetch_wait_ms=choice(100, 500, 500),
            retention_bytes=choice(-1, -1, -1, -1, 600, 3_000),
            segment_bytes=choice(300, 1_000, 64 * 1024),
            network=draw_network(rng, raft.request_timeout_ms),
            turn_delay_us_max=choice(1, 50, 500),
            flush_us_mean=choice(100, 200, 2_000, 10_000),
            flush_stall_ppm=sometimes(35, 1_000, 300_000),
            flush_stall_ms_max=choice(100, 1_000, 3_000),
            flush_error_ppm=sometimes(10, 100, 5_000),
            drift_ppm_max=choice(0, 0, 200, 50_000),
            wall_jump_interval_ms=sometimes(20, 3_000, 20_000),
            crash_interval_ms=sometimes(50, 500, 20_000),
            port_crash_interval_ms=sometimes(50, 300, 15_000),
            crash_all_interval_ms=sometimes(20, 3_000, 30_000),
            stop_interval_ms=sometimes(30, 1_000, 20_000),
            aim_at_leader_percent=choice(10, 50, 90),
            down_ms_max=choice(10, 100, 1_000, 8_000),
            partition_interval_ms=sometimes(50, 1_000, 20_000),
            partition_ms_max=choice(500, 2_000, 10_000),
            pause_interval_ms=sometimes(30, 1_000, 20_000),
            pause_ms_max=choice(200, 2_000, 8_000),
            reset_interval_ms=sometimes(30, 300, 10_000),
            producers=choice(1, 2, 3),
            readers=choice(1, 2),
            kv_clients=choice(1, 2, 3),
            churners=choice(0, 0, 0, 1),
            kv_keys=choice(1, 2, 4),
            think_ms_mean=choice(250, 500, 1_000),
        )

    def lines(self) -> list[str]:
        """One `name=value` per setting, in a fixed order."""
        found: list[str] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, RaftConfig | NetworkSettings):
                found.extend(f"{field.name}.{inner.name}={getattr(value, inner.name)}" for inner in fields(value))
            else:
                found.append(f"{field.name}={value}")
        return found


def draw_network(rng: Random, request_timeout_ms: int) -> NetworkSettings:
    """A quiet network in a third of the runs, else each kind of trouble with its own rate."""
    delay_us_mean = (100, 300, 2_000, 15_000)[rng.randrange(4)]
    loss_ppm, duplicate_ppm, straggle_ppm = (rng.randrange(100, 1 << (8 + rng.randrange(10))) for _ in range(3))
    quiet = rng.randrange(3) == 0
    on = [not quiet and rng.randrange(2) == 1 for _ in range(3)]
    return NetworkSettings(
        delay_us_min=50,
        delay_us_mean=delay_us_mean,
        loss_ppm=loss_ppm if on[0] else 0,
        duplicate_ppm=duplicate_ppm if on[1] else 0,
        straggle_ppm=straggle_ppm if on[2] else 0,
        straggle_us_max=(20_000, 500_000, 4_000_000)[rng.randrange(3)],
        request_timeout_ms=request_timeout_ms,
    )


class Target(Protocol):
    """What faults can be done to the cluster."""

    @property
    def node_ids(self) -> tuple[NodeId, ...]: ...

    def leader_ids(self) -> tuple[NodeId, ...]:
        """Nodes that lead a group at the moment, ascending."""

    def crash(self, node_id: NodeId, reason: str) -> None: ...

    def crash_at_port_call(self, node_id: NodeId, calls_left: int) -> None: ...
    def resign(self, node_id: NodeId) -> None: ...

    def start(self, node_id: NodeId) -> None: ...

    def pause(self, node_id: NodeId, length_us: int) -> None: ...

    def cut_link(self, source: NodeId, destination: NodeId) -> None: ...

    def heal_links(self) -> None: ...

    def reset_connection(self, client: NodeId, server: NodeId) -> None: ...

    def jump_wall_clock(self, node_id: NodeId, by_ms: int) -> None: ...


class FaultInjector:
    """Strikes at exponentially distributed moments until `end_us`."""

    def __init__(self, scheduler: Scheduler, settings: Settings, target: Target, end_us: int) -> None:
        self._scheduler = scheduler
        self._settings = settings
        self._target = target
        self._end_us = end_us
        self._rng = stream(settings.seed, "faults")
        self._partition_counter = 0
        self.counts: dict[str, int] = {}

    def start(self) -> None:
        """Begin: each kind of fault has its own sequence of strikes."""
        settings = self._settings
        self._repeat(settings.crash_interval_ms, self._crash)
        self._repeat(settings.port_crash_interval_ms, self._crash_at_port_call)
        self._repeat(settings.crash_all_interval_ms, self._crash_all)
        self._repeat(settings.stop_interval_ms, self._stop)
        self._repeat(settings.partition_interval_ms, self._partition)
        self._repeat(settings.pause_interval_ms, self._pause)
        self._repeat(settings.reset_interval_ms, self._reset)
        self._repeat(settings.wall_jump_interval_ms, self._jump)

    def restart_later(self, node_id: NodeId) -> None:
        """A node went down by whatever cause: switch it on again after a drawn time."""
        self._scheduler.call_after(self._rng.randrange(1, self._settings.down_ms_max) * US_PER_MS, self._target.start, node_id)

    def _repeat(self, interval_ms: int, strike: Callable[[], None]) -> None:
        if not interval_ms:
            return

        def again() -> None:
            if self._scheduler.now_us < self._end_us:
                strike()
                self._scheduler.call_after(self._gap_us(interval_ms), again)

        self._scheduler.call_after(self._gap_us(interval_ms), again)

    def _gap_us(self, interval_ms: int) -> int:
        return 1 + int(self._rng.expovariate(1.0) * interval_ms * US_PER_MS)

    def _count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def _victim(self) -> NodeId:
        leaders = self._target.leader_ids()
        if leaders and self._rng.randrange(100) < self._settings.aim_at_leader_percent:
            return leaders[self._rng.randrange(len(leaders))]
        nodes = self._target.node_ids
        return nodes[self._rng.randrange(len(nodes))]

    # --- the kinds ---

    def _crash(self) -> None:
        self._count("crash")
        self._target.crash(self._victim(), "fault")

    def _crash_at_port_call(self) -> None:
        self._count("crash at port call")
        self._target.crash_at_port_call(self._victim(), self._rng.randrange(1, 20))

    def _crash_all(self) -> None:
        self._count("crash of all")
        for node_id in self._target.node_ids:
            self._target.crash(node_id, "fault on all")

    def _stop(self) -> None:
        self._count("graceful stop")
        victim = self._victim()
        self._target.resign(victim)
        self._scheduler.call_after(self._rng.randrange(1, 1_000) * US_PER_MS, self._target.crash, victim, "stopped")

    def _partition(self) -> None:
        """One of: a node cut off, a random split, single directed links. It heals after a drawn time."""
        nodes = self._target.node_ids
        if len(nodes) < 2:
            return
        kind = self._rng.randrange(4)
        self._count(("node cut off", "split", "one-way links", "node deaf or mute")[kind])
        if kind == 0:
            victim = self._victim()
            self._cut_between((victim,), tuple(node for node in nodes if node != victim))
        elif kind == 1:
            one = tuple(node for node in nodes if self._rng.randrange(2))
            self._cut_between(one, tuple(node for node in nodes if node not in one))
        elif kind == 2:
            for _ in range(self._rng.randrange(1, len(nodes) + 1)):
                source, destination = self._rng.sample(nodes, 2)
                self._target.cut_link(source, destination)
        else:
            victim, deaf = self._victim(), self._rng.randrange(2)
            for node in nodes:
                if node != victim:
                    self._target.cut_link(*((node, victim) if deaf else (victim, node)))
        self._partition_counter += 1
        length_ms = self._rng.randrange(1, self._settings.partition_ms_max)
        self._scheduler.call_after(length_ms * US_PER_MS, self._heal, self._partition_counter)

    def _cut_between(self, one: tuple[NodeId, ...], other: tuple[NodeId, ...]) -> None:
        for left in one:
            for right in other:
                self._target.cut_link(left, right)
                self._target.cut_link(right, left)

    def _heal(self, partition: int) -> None:
        if partition == self._partition_counter:
            self._target.heal_links()

    def _pause(self) -> None:
        self._count("pause")
        self._target.pause(self._victim(), self._rng.randrange(1, self._settings.pause_ms_max) * US_PER_MS)

    def _reset(self) -> None:
        nodes = self._target.node_ids
        if len(nodes) > 1:
            self._count("connection reset")
            client, server = self._rng.sample(nodes, 2)
            self._target.reset_connection(client, server)

    def _jump(self) -> None:
        self._count("wall clock jump")
        self._target.jump_wall_clock(self._victim(), self._rng.randrange(-60_000, 60_000))
