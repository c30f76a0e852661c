"""The remote tier as a node sees it: which partitions are copied from here, how far, and what stands in the way.

Owns who acts for the partitions that this node leads (`led`), and for the tables of deleted topics. Closes
open segments on all replicas by the same rule, because only closed segments are copied, and later deleted, as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from raftlake.errors import DiskFull
from raftlake.kv.strict_json import Refused
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import RemoteTier, TierError
from raftlake.raft.types import Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.disk.findings import Findings
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.retention import TableBounds
from raftlake.replica.quorum import Quorum
from raftlake.replica.reserved import recovery_of
from raftlake.replica.tiering.gone_topics import GoneTopics
from raftlake.replica.tiering.led import LedPartition
from raftlake.replica.tiering.local_start import ask_local_starts
from raftlake.replica.tiering.rebuild import Rebuild, Rebuilt
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.replica.tiering.step import Standing, TierCounts, standing_of
from raftlake.replica.tiering.words import lateness_of, trouble_of
from raftlake.tier.plan import RollRule

#: Between two looks at a partition.
LOOK_INTERVAL_MS = 1_000
#: Calls of the tier and proposals of this node that are under way at a time.
BUSY_MAX = 4
#: Times of high watermarks that are kept for each partition.
SEEN_MAX = 256
#: Records that wait for so many target lags are told, though no copy fails.
LATE_LAGS = 10


@dataclass(frozen=True, slots=True)
class TierStatus:
    """How far a partition that this node leads is copied."""

    group: GroupId
    #: None while the quorum's key cannot be read.
    copied_end: Offset | None
    #: Where the table begins, and up to where it was read back; None as above.
    start_offset: Offset | None
    checked_end: Offset | None
    high_watermark: Offset
    #: Milliseconds for which committed records have waited here to be copied.
    lag_ms: int
    failures: int
    error: TierError | None
    #: Milliseconds since 1970, where there is an error.
    failing_since_ms: int | None

    @property
    def unchecked(self) -> int:
        """Copied offsets that are not read back."""
        return 0 if self.copied_end is None or self.checked_end is None else self.copied_end - self.checked_end


@dataclass(slots=True)
class _Watched:
    """A partition of this node."""

    partition: Partition
    led: LedPartition | None = None
    #: When records were first seen in the active segment, and where it begins.
    active_base: int = -1
    active_since_ms: int = 0
    #: High watermarks above the copies, each with the time when it was first seen, ascending.
    seen: deque[tuple[int, int]] = field(default_factory=deque)

    def note(self, copied_end: int, now_ms: int) -> None:
        seen, high_watermark = self.seen, self.partition.high_watermark
        while seen and seen[0][1] <= copied_end:
            seen.popleft()
        if high_watermark > max(copied_end, seen[-1][1] if seen else -1):
            seen.append((now_ms, high_watermark))
        if len(seen) > SEEN_MAX:
            # Of what has waited longest the time is kept to the half.
            self.seen = deque(each for index, each in enumerate(seen) if index % 2 == 0)

    @property
    def waits_since_ms(self) -> int | None:
        """Since when committed records wait to be copied."""
        return self.seen[0][0] if self.seen else None


class Tiering:
    def __init__(
        self,
        engine: Engine,
        *,
        kv: KvService,
        quorum: Quorum,
        disk: DiskWatch,
        findings: Findings,
        remote_log: RemoteLog,
        tier: RemoteTier | None,
    ) -> None:
        self._engine = engine
        self._remote_log = remote_log
        self._kv = kv
        self._quorum = quorum
        self._disk = disk
        self._findings = findings
        self._tier = tier
        self.counts = TierCounts()
        self._rule = RollRule(engine.config.tier_flush_bytes, engine.config.tier_target_lag_ms)
        self._watched: dict[GroupId, _Watched] = {}
        self._next_look_ms = engine.now_ms
        self.gone: GoneTopics | None = None
        if tier is not None:
            self.gone = GoneTopics(engine, kv, quorum, tier, self.counts)
            engine.closed.append(self._on_closed)
            disk.why_not_copied = self.why_not_copied

    def _on_closed(self, partition: Partition) -> None:
        watched = self._watched.pop(partition.group, None)
        if watched is not None and watched.led is not None:
            watched.led.close()

    def table(self, partition: Partition) -> TableBounds | None:
        """What the table of a partition holds, as far as this node knows. None: there is no tier, or none for this topic."""
        if self._tier is None or partition.is_compacted:
            return None
        machine = self._kv.machine
        standing = standing_of(machine, partition)
        # After an unclean election the key tells of rows that this log may not share, until the table is taken over.
        if not isinstance(standing, Standing) or standing.tiered.recovery != recovery_of(machine):
            return TableBounds(0, partition.log.start_offset)
        return TableBounds(standing.tiered.start_offset, standing.tiered.local_end)

    def tick(self) -> None:
        """Called a few times a second."""
        engine = self._engine
        if self._tier is None or engine.now_ms < self._next_look_ms:
            return
        self._next_look_ms = engine.now_ms + LOOK_INTERVAL_MS
        for group, partition in list(engine.partitions.items()):
            if group == METADATA_GROUP or partition.in_force is None or partition.is_compacted:
                # A table holds each offset, and a compacted log does not (KIP-405).
                continue
            watched = self._watched.get(group)
            if watched is None or watched.partition is not partition:
                watched = self._watched[group] = _Watched(partition)
            self._findings.guarded(group, self._look_at(watched))
        self._go_on()
        if self.gone is not None:
            self.gone.tick()

    def _look_at(self, watched: _Watched) -> Callable[[], None]:
        def look() -> None:
            self._roll(watched)
            self._follow_leadership(watched, self._tier)

        return look

    def _roll(self, watched: _Watched) -> None:
        partition, now_ms = watched.partition, self._engine.now_ms
        active = partition.log.segments()[-1]
        if active.size == 0 or watched.active_base != active.base_offset:
            watched.active_base, watched.active_since_ms = active.base_offset, now_ms
        if partition.deleted:
            return
        try:
            if self._rule.wants_roll(active, watched.active_since_ms, now_ms):
                partition.roll()
            # A copy ends where the state of producers is known: without it the last segment would wait for the next append.
            partition.save_missing_point()
        except DiskFull as full:
            self._disk.on_full(full)

    def _follow_leadership(self, watched: _Watched, tier: RemoteTier | None) -> None:
        partition, led = watched.partition, watched.led
        leads = partition.is_serving and not self._engine.is_resigning
        if led is not None and (not leads or led.epoch != partition.core.epoch):
            led.close()
            led = watched.led = None
        if leads and led is None and tier is not None:
            watched.led = LedPartition(self._engine, self._kv, tier, partition, self._remote_log, self.counts, self._findings)
        if watched.led is not None:
            watched.led.learn()

    def _go_on(self) -> None:
        """Let the led partitions take their next steps, those first whose records have waited longest."""
        now_ms = self._engine.now_ms
        all_led = self._all_led()
        for watched, led in all_led:
            self._note_lag(watched, led)
        busy = sum(led.is_busy for _, led in all_led)
        all_led.sort(key=lambda pair: now_ms if pair[0].waits_since_ms is None else pair[0].waits_since_ms)
        for watched, led in all_led:
            if busy >= BUSY_MAX:
                return
            if not led.is_busy and (watched.waits_since_ms is not None or led.is_due or led.error is not None):
                self._findings.guarded(watched.partition.group, led.go_on)
                busy += led.is_busy

    def _all_led(self) -> list[tuple[_Watched, LedPartition]]:
        return [(watched, watched.led) for watched in self._watched.values() if watched.led is not None]

    def _note_lag(self, watched: _Watched, led: LedPartition) -> None:
        standing = led.standing()
        copied_end = -1 if isinstance(standing, Refused) else standing.tiered.end_offset
        watched.note(copied_end, self._engine.now_ms)

    def rebuild(self, group: GroupId, done: Callable[[Rebuilt], None]) -> None:
        """Make the quorum's keys of a partition anew from its table. See `Rebuild`."""
        assert self._tier is not None
        self._engine.begin_input()
        ask = partial(ask_local_starts, self._engine, group, self._quorum.latest.ids)
        Rebuild(self._kv, self._tier, group, ask, done).begin()

    @property
    def is_on(self) -> bool:
        """Whether this node has a remote tier."""
        return self._tier is not None

    def statuses(self) -> list[TierStatus]:
        """Of the partitions that this node leads."""
        return [self._status(watched, led) for watched, led in self._all_led()]

    def _status(self, watched: _Watched, led: LedPartition) -> TierStatus:
        standing, failing = led.standing(), led.failing
        tiered = None if isinstance(standing, Refused) else standing.tiered
        return TierStatus(
            group=watched.partition.group,
            copied_end=None if tiered is None else tiered.end_offset,
            start_offset=None if tiered is None else tiered.start_offset,
            checked_end=None if tiered is None else tiered.safe_offset,
            high_watermark=watched.partition.high_watermark,
            lag_ms=0 if watched.waits_since_ms is None else self._engine.now_ms - watched.waits_since_ms,
            failures=0 if failing is None else failing.failures,
            error=led.error,
            failing_since_ms=None if failing is None else failing.failing_since_ms,
        )

    # --- alarms ---

    def why_not_copied(self, group: GroupId | None = None) -> str:
        """What keeps records on the local disks of a partition that is led here, or of any; "" where nothing does."""
        if group is not None:
            watched = self._watched.get(group)
            return "" if watched is None or watched.led is None else trouble_of([watched.led])
        return trouble_of([led for _, led in self._all_led()])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong at the moment, for a health check. What a single retry may mend is no alarm yet."""
        lasting_ms = self._engine.config.tier_target_lag_ms
        wall_ms = self._engine.clock.wall_ms()
        lasting = [led for _, led in self._all_led() if led.is_alarming(wall_ms - lasting_ms)]
        told = [trouble_of(lasting), lateness_of(self._late(), lasting_ms)]
        return (*filter(None, told), *(() if self.gone is None else self.gone.warnings))

    def _late(self) -> list[tuple[int, GroupId]]:
        """The partitions whose copies go well and cannot keep up, each with the ms that its records wait."""
        waits = [
            (self._engine.now_ms - watched.waits_since_ms, watched.partition.group)
            for watched, led in self._all_led()
            if led.failing is None and watched.waits_since_ms is not None
        ]
        return [wait for wait in waits if wait[0] > LATE_LAGS * self._engine.config.tier_target_lag_ms]
