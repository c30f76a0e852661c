"""What a run looks like: every setting, drawn from the seed.

`Settings.draw` is a swarm: each kind of fault is on or off by itself and, when on, has a rate of its own, so that rare
combinations come up and no fault hides another. Every draw comes from a generator seeded with the run's seed and a fixed name.

To add a fault that strikes at moments (a damaged file): give it an interval here, drawn
at the end of `Settings.draw` by a generator of its own (`stream(seed, "settings of ...")`: all else stays as it was for a
seed); write its `FaultKind`s in a module of its own, as `faults.kinds` does; name them in `injector.ALL_KINDS`; what it does
to the cluster is a method of `strikes.Stage`, which `cluster.Cluster` implements. A fault with a rate but no moment (a share
of all syncs) is a setting that the machine, the disk or the network reads. Faults must end when `Machine.heal` is called.
What the clients do is in `workload`, what must hold all the time in `invariants`, what was reached in `coverage`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random

from raftlake.raft.config import RaftConfig
from raftlake.sim.network import NetworkSettings

#: In so many runs there is one with an operator who changes the voters.
OPERATED_ONE_IN = 8
#: Seeds in one of which a client deletes records, and in one of which producers are transactional.
DELETED_ONE_IN = 6
TRANSACTED_ONE_IN = 4
#: Seeds in one of which clients of keys deal with ranges of them.
RANGED_ONE_IN = 4
#: Seeds in one of which a client changes the configs of topics, and in one of which a topic is compacted.
CONFIGURED_ONE_IN = 5
COMPACTED_ONE_IN = 4


def stream(seed: int, name: str) -> Random:
    """The generator of one purpose. A string seed is hashed with SHA-512, so it does not depend on PYTHONHASHSEED."""
    return Random(f"{seed}/{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that was drawn. Intervals are means in simulated milliseconds, 0 means that the fault is off."""

    seed: int
    #: 1: leaders that come and go (`draw_racing`), 2: leaders that are left behind (`draw_leaving`), 0: anything.
    theme: int = 0
    voters: int = 3
    observers: int = 0
    partitions: int = 2
    #: With faults; afterwards everything is healed.
    safety_ms: int = 60_000
    #: Without faults: everything must converge in this time.
    liveness_ms: int = 15_000
    raft: RaftConfig = RaftConfig()
    replica_fetch_wait_ms: int = 500
    #: A small one makes each answer carry one batch, so that leaders crash with half of it told.
    replica_fetch_bytes_max: int = 8 * 1024 * 1024
    #: Bytes of each log that are kept at least, -1 for all.
    retention_bytes: int = -1
    #: With a remote tier: what local disks keep of each log, -2 for all of that, and for how long all of it is kept.
    local_retention_bytes: int = -2
    retention_ms: int = -1
    segment_bytes: int = 64 * 1024
    #: Small, so that every run takes snapshots, trims logs behind them and has followers fetch them, piece by piece.
    snapshot_bytes_between: int = 2_000
    snapshot_interval_ms: int = 10_000
    snapshot_fetch_bytes_max: int = 1024 * 1024
    network: NetworkSettings = NetworkSettings()
    #: A turn starts this long after the first input that asked for it, at most: the others join it.
    turn_delay_us_max: int = 50
    flush_us_mean: int = 200
    #: Every sync takes the mean.
    flush_is_even: bool = False
    #: This share of the syncs takes up to `flush_stall_ms_max`.
    flush_stall_ppm: int = 0
    flush_stall_ms_max: int = 500
    flush_error_ppm: int = 0
    drift_ppm_max: int = 0
    wall_jump_interval_ms: int = 0
    crash_interval_ms: int = 0
    #: Crash between two port calls of a turn.
    port_crash_interval_ms: int = 0
    #: The next nodes that are elected crash a few port calls later.
    role_trap_interval_ms: int = 0
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
    slow_link_interval_ms: int = 0
    slow_link_ms_max: int = 4_000
    #: A leader whose followers leave it while what they sent before is still on its way.
    left_behind_interval_ms: int = 0
    slow_disk_interval_ms: int = 0
    slow_disk_ms_max: int = 4_000
    #: The monotonic clock skips time.
    clock_jump_interval_ms: int = 0
    #: A durable batch of one voter's log is damaged.
    damage_interval_ms: int = 0
    #: The end of a log is damaged in a power loss, while what the node sent before is still on its way.
    damage_end_interval_ms: int = 0
    #: A disk, or all of them, has next to no room for a while.
    fill_interval_ms: int = 0
    fill_ms_max: int = 4_000
    #: Somebody forges requests in epochs so high that honest ones find no room.
    forge_interval_ms: int = 0
    producers: int = 2
    #: So many batches an idempotent producer may have under way.
    producer_window: int = 2
    readers: int = 1
    kv_clients: int = 2
    #: Clients that create and delete topics.
    churners: int = 0
    #: Clients that change the voters, and nodes that begin as observers who know addresses only, for them to add.
    operators: int = 0
    spares: int = 0
    #: Nodes ask by themselves to become voters.
    auto_join: bool = False
    kv_keys: int = 2
    #: Of the operations of those clients so many in a hundred concern ranges of keys.
    kv_range_percent: int = 0
    think_ms_mean: int = 300
    #: `tier.target.lag.ms` of the nodes, 0 for no remote tier.
    tier_lag_ms: int = 0
    #: Clients that read from the beginning, over and over, and what the nodes read from the tier at once for them.
    historians: int = 0
    tier_piece_bytes: int = 4 * 1024 * 1024
    #: Clients that delete old records.
    deleters: int = 0
    #: Clients that change the configs of topics.
    configurers: int = 0
    #: Transactional producers; two share a transactional id.
    transactors: int = 0
    #: Those of transaction.version 2: 0 none, 1 every other one, 2 all.
    raising_transactors: int = 0
    #: Producers of a compacted topic, 0 for no such topic, and its readers. The records have so many different keys.
    keyed_producers: int = 0
    keyed_readers: int = 0
    keyed_keys: int = 1
    #: Clients that change the topic's configs, and clients that delete its old records.
    keyed_configurers: int = 0
    keyed_deleters: int = 0
    #: 1: retention deletes the oldest records, too.
    keyed_trims: int = 0
    #: The topic's min.cleanable.dirty.ratio in percent, its delete.retention.ms and its min.compaction.lag.ms.
    keyed_dirty_percent: int = 50
    delete_retention_ms: int = 86_400_000
    compaction_lag_ms: int = 0
    #: Of the nodes: `log.cleaner.backoff.ms`, and as many keys as one pass remembers.
    cleaner_backoff_ms: int = 15_000
    cleaner_keys_max: int = 1_000_000

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
        settings = cls(
            seed=seed,
            voters=choice(1, 3, 3, 3, 3, 3, 5),
            observers=choice(0, 0, 0, 1),
            partitions=choice(1, 1, 2),
            raft=raft,
            replica_fetch_wait_ms=choice(200, 500, 500),
            retention_bytes=choice(-1, -1, -1, -1, 600, 3_000),
            segment_bytes=choice(300, 1_000, 64 * 1024),
            network=draw_network(rng, raft.request_timeout_ms),
            turn_delay_us_max=choice(1, 50, 500),
            flush_us_mean=choice(100, 200, 2_000, 10_000),
            flush_stall_ppm=sometimes(35, 1_000, 300_000),
            flush_stall_ms_max=choice(100, 1_000, 3_000),
            flush_error_ppm=sometimes(15, 200, 10_000),
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
        rng = stream(seed, "settings of links and clocks")
        settings = replace(
            settings,
            replica_fetch_bytes_max=choice(1, 1, 500, 8 * 1024 * 1024),
            slow_link_interval_ms=sometimes(30, 1_000, 20_000),
            slow_link_ms_max=choice(500, 4_000),
            left_behind_interval_ms=sometimes(25, 1_000, 20_000),
            slow_disk_interval_ms=sometimes(25, 1_000, 20_000),
            slow_disk_ms_max=choice(500, 4_000),
            clock_jump_interval_ms=sometimes(15, 2_000, 20_000),
            role_trap_interval_ms=sometimes(20, 1_000, 20_000),
            # Segments small enough that something is deleted.
            segment_bytes=settings.segment_bytes if settings.retention_bytes < 0 else 300,
        )
        rng = stream(seed, "settings of damage")
        settings = replace(settings, damage_interval_ms=sometimes(30, 1_000, 20_000))
        rng = stream(seed, "settings of damaged ends")
        settings = replace(settings, damage_end_interval_ms=sometimes(20, 1_000, 20_000))
        rng = stream(seed, "settings of snapshots")
        settings = replace(
            settings,
            snapshot_bytes_between=choice(500, 2_000, 10_000),
            snapshot_interval_ms=choice(1_000, 5_000, 20_000),
            snapshot_fetch_bytes_max=choice(100, 1_000, 1024 * 1024),
        )
        rng = stream(seed, "settings of clients")
        settings = replace(
            settings,
            producer_window=choice(1, 2, 5),
            kv_keys=choice(settings.kv_keys, settings.kv_keys, 12, 40),
        )
        rng = stream(seed, "settings of a theme")
        theme = rng.randrange(8)
        if settings.voters > 1 and theme == 0:
            settings = draw_racing(settings, rng)
        elif settings.voters > 1 and theme == 2:
            settings = draw_leaving(settings, rng)
        elif settings.voters > 1 and theme == 4:
            settings = draw_losing_ends(settings, rng)
        rng = stream(seed, "settings of full disks")
        settings = replace(settings, fill_interval_ms=sometimes(15, 2_000, 20_000), fill_ms_max=choice(500, 4_000, 10_000))
        rng = stream(seed, "settings of forged epochs")
        settings = replace(settings, forge_interval_ms=sometimes(20, 300, 20_000))
        rng = stream(seed, "settings of the tier")
        settings = replace(settings, tier_lag_ms=choice(0, 2_000, 8_000))
        rng = stream(seed, "settings of historians")
        historians, piece_bytes = choice(0, 1, 1), choice(1, 700, 4_000, 4 * 1024 * 1024)
        if settings.tier_lag_ms:
            settings = draw_tier_retention(settings, stream(seed, "settings of retention in the tier"))
            settings = replace(settings, historians=historians, tier_piece_bytes=piece_bytes)
        elif theme not in (0, 4):
            # Short enough that whole logs grow old while clients rest, and large segments are closed for it.
            rng = stream(seed, "settings of retention by time")
            settings = replace(settings, retention_ms=choice(-1, 1_000, 4_000))
        if stream(seed, "settings of deleters").randrange(DELETED_ONE_IN) == 0:
            settings = replace(settings, deleters=1, segment_bytes=300)
        if stream(seed, "settings of configurers").randrange(CONFIGURED_ONE_IN) == 0:
            settings = replace(settings, configurers=1, segment_bytes=300)
        rng = stream(seed, "settings of transactions")
        if rng.randrange(TRANSACTED_ONE_IN) == 0:
            settings = replace(settings, transactors=choice(1, 2, 2, 4), partitions=max(settings.partitions, choice(1, 2, 3)))
        if stream(seed, "settings of voters").randrange(OPERATED_ONE_IN) == 0:
            settings = draw_operated(settings)
        if stream(seed, "settings of compaction").randrange(COMPACTED_ONE_IN) == 0:
            settings = draw_compacted(settings, stream(seed, "settings of a compacted topic"))
        if settings.transactors:
            # Half of the seeds with transactions.
            rng = stream(seed, "settings of transaction.version")
            settings = replace(settings, raising_transactors=choice(0, 0, 1, 2))
        rng = stream(seed, "settings of ranges of keys")
        if rng.randrange(RANGED_ONE_IN) == 0:
            settings = replace(settings, kv_range_percent=choice(10, 30, 60))
        return settings

    @property
    def trims(self) -> bool:
        """Whether logs lose their oldest records."""
        kept = max(self.retention_bytes, self.local_retention_bytes, self.retention_ms)
        return kept >= 0 or self.deleters > 0 or self.changes_retention

    @property
    def changes_retention(self) -> bool:
        """Whether somebody changes what topics keep. The themes are about logs that keep all."""
        return self.configurers > 0 and self.theme == 0

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


def draw_tier_retention(settings: Settings, rng: Random) -> Settings:
    """Local disks keep less than the table in half of the runs. Old records leave the table in a third of them."""
    total = settings.retention_bytes
    local = (-2, -2, 300, 1_500)[rng.randrange(4)]
    if 0 <= total < local:
        local = -2
    retention_ms = (-1, -1, 10_000)[rng.randrange(3)]
    trims = max(total, local, retention_ms) >= 0
    return replace(
        settings,
        local_retention_bytes=local,
        retention_ms=retention_ms,
        # Segments small enough that something is deleted.
        segment_bytes=300 if trims else settings.segment_bytes,
    )


def draw_compacted(settings: Settings, rng: Random) -> Settings:
    """A topic is compacted, on nodes that look often. Tombstones stay for a moment, or for longer than the run. Replicas have
    all the time that they need, with or without a vote: none is away for as long as addresses are kept."""

    def choice(*options: int) -> int:
        return options[rng.randrange(len(options))]

    delete_retention_ms = choice(0, 300, 3_000, 20_000)
    return replace(
        settings,
        keyed_producers=choice(2, 3, 4),
        keyed_readers=choice(1, 2),
        keyed_keys=choice(2, 5, 12),
        keyed_configurers=choice(0, 0, 1),
        keyed_deleters=choice(0, 0, 0, 1),
        keyed_trims=choice(0, 0, 0, 1),
        keyed_dirty_percent=choice(0, 10, 50),
        delete_retention_ms=delete_retention_ms,
        compaction_lag_ms=choice(0, 0, 1_000),
        cleaner_backoff_ms=choice(100, 500, 3_000),
        cleaner_keys_max=choice(1, 3, 1_000_000),
    )


def draw_racing(settings: Settings, rng: Random) -> Settings:
    """A theme: leaders come and go as fast as they are elected, each with a little in its log that the others do not have yet.
    It is the dance of Raft's figure 8, which needs three elections in a row to go that way."""
    stalls = rng.randrange(3) == 0
    return replace(
        settings,
        theme=1,
        raft=replace(settings.raft, election_timeout_ms=300, fetch_timeout_ms=400, election_jitter_ms_max=10),
        replica_fetch_bytes_max=1,
        retention_bytes=-1,
        flush_us_mean=(200, 2_000, 20_000)[rng.randrange(3)],
        flush_stall_ppm=300_000 if stalls else 0,
        flush_stall_ms_max=1_000,
        crash_interval_ms=(0, 3_000)[rng.randrange(2)],
        port_crash_interval_ms=(0, 5_000)[rng.randrange(2)],
        role_trap_interval_ms=(600, 1_500)[rng.randrange(2)],
        crash_all_interval_ms=0,
        pause_interval_ms=0,
        aim_at_leader_percent=90,
        down_ms_max=(20, 100, 600)[rng.randrange(3)],
        think_ms_mean=1_000,
    )


def draw_leaving(settings: Settings, rng: Random) -> Settings:
    """A theme: leaders that were replaced without their noticing, under traffic that is dense enough to ask them meanwhile."""
    return replace(
        settings,
        theme=2,
        raft=replace(settings.raft, fetch_timeout_ms=2_000, election_jitter_ms_max=10),
        left_behind_interval_ms=(2_500, 5_000)[rng.randrange(2)],
        crash_interval_ms=0,
        port_crash_interval_ms=0,
        crash_all_interval_ms=0,
        pause_interval_ms=0,
        partition_interval_ms=0,
        slow_link_interval_ms=0,
        partitions=1,
        producers=1,
        readers=1,
        kv_clients=4,
        churners=0,
        observers=0,
        think_ms_mean=300,
    )


def draw_losing_ends(settings: Settings, rng: Random) -> Settings:
    """A theme: replicas lose the end of a log, one after the other, and are back before what they had sent comes in. They get
    their records one batch at a time, so that being whole again takes a while."""
    return replace(
        settings,
        theme=3,
        damage_end_interval_ms=(700, 1_500)[rng.randrange(2)],
        damage_interval_ms=0,
        replica_fetch_bytes_max=1,
        retention_bytes=-1,
        flush_us_mean=20_000,
        crash_interval_ms=(0, 3_000)[rng.randrange(2)],
        port_crash_interval_ms=0,
        crash_all_interval_ms=0,
        pause_interval_ms=0,
        aim_at_leader_percent=10,
        down_ms_max=(10, 50)[rng.randrange(2)],
        partition_interval_ms=0,
        slow_disk_interval_ms=0,
        partitions=1,
        producers=3,
        kv_clients=3,
        churners=0,
        think_ms_mean=300,
    )


def draw_operated(settings: Settings) -> Settings:
    """An operator changes the voters and replaces disks. A lost disk is a minority of three already, and so is a damaged one:
    the first of the two makes the other wait (`Operations.may_lose_a_disk`). In half of the runs those that do not vote join
    again by themselves."""
    auto_join = settings.seed % 2 == 0
    return replace(settings, operators=1, spares=1, observers=0, auto_join=auto_join)


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
