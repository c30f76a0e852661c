"""The remote tier as a node sees it: which partitions are copied from here, how far, and what stands in the way.

Owns the copiers of the partitions that this node leads. Closes open segments on all replicas by the same rule, because only
closed segments are copied, and later deleted, as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

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
from raftlake.replica.tiering.copier import Copier, Standing, TierCounts, standing_of
from raftlake.tier.entries import OFFSET_MAX
from raftlake.tier.plan import RollRule

#: Between two looks at a partition.
LOOK_INTERVAL_MS = 1_000
#: Calls of the tier and proposals of this node that are under way at a time.
BUSY_MAX = 4
#: Times of high watermarks that are kept for each partition.
SEEN_MAX = 256


@dataclass(frozen=True, slots=True)
class TierStatus:
    """How far a partition that this node leads is copied."""

    group: GroupId
    #: None while the quorum's key cannot be read.
    copied_end: Offset | None
    high_watermark: Offset
    #: Milliseconds for which committed records have waited here to be copied.
    lag_ms: int
    failures: int
    error: TierError | None


@dataclass(slots=True)
class _Watched:
    """A partition of this node."""

    partition: Partition
    copier: Copier | None = None
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
    def __init__(self, engine: Engine, *, kv: KvService, disk: DiskWatch, findings: Findings, tier: RemoteTier | None) -> None:
        self._engine = engine
        self._kv = kv
        self._disk = disk
        self._findings = findings
        self._tier = tier
        self.counts = TierCounts()
        self._rule = RollRule(engine.config.tier_flush_bytes, engine.config.tier_target_lag_ms)
        self._watched: dict[GroupId, _Watched] = {}
        self._next_look_ms = engine.now_ms
        if tier is not None:
            engine.closed.append(self._on_closed)

    def _on_closed(self, partition: Partition) -> None:
        watched = self._watched.pop(partition.group, None)
        if watched is not None and watched.copier is not None:
            watched.copier.close()

    def copied_end(self, partition: Partition) -> int:
        """Up to where a partition is in the remote tier, as far as this node knows; its end where there is no tier."""
        if self._tier is None:
            return OFFSET_MAX
        standing = standing_of(self._kv.machine, partition)
        return standing.tiered.end_offset if isinstance(standing, Standing) else partition.log.start_offset

    def tick(self) -> None:
        """Called a few times a second."""
        engine = self._engine
        if self._tier is None or engine.now_ms < self._next_look_ms:
            return
        self._next_look_ms = engine.now_ms + LOOK_INTERVAL_MS
        for group, partition in list(engine.partitions.items()):
            if group == METADATA_GROUP:
                continue
            watched = self._watched.get(group)
            if watched is None or watched.partition is not partition:
                watched = self._watched[group] = _Watched(partition)
            self._findings.guarded(group, self._look_at(watched))
        self._go_on()

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
        if partition.deleted or not self._rule.wants_roll(active, watched.active_since_ms, now_ms):
            return
        try:
            partition.roll()
        except DiskFull as full:
            self._disk.on_full(full)

    def _follow_leadership(self, watched: _Watched, tier: RemoteTier | None) -> None:
        partition, copier = watched.partition, watched.copier
        leads = partition.is_serving and not self._engine.is_resigning
        if copier is not None and (not leads or copier.epoch != partition.core.epoch):
            copier.close()
            copier = watched.copier = None
        if leads and copier is None and tier is not None:
            watched.copier = Copier(self._engine, self._kv, tier, partition, self.counts)

    def _go_on(self) -> None:
        """Let copiers take their next steps, those first whose records have waited longest."""
        now_ms = self._engine.now_ms
        led = [(watched, watched.copier) for watched in self._watched.values() if watched.copier is not None]
        for watched, copier in led:
            self._note_lag(watched, copier)
        busy = sum(copier.is_busy for _, copier in led)
        led.sort(key=lambda pair: now_ms if pair[0].waits_since_ms is None else pair[0].waits_since_ms)
        for watched, copier in led:
            if busy >= BUSY_MAX:
                return
            if watched.waits_since_ms is not None and not copier.is_busy:
                self._findings.guarded(watched.partition.group, copier.go_on)
                busy += copier.is_busy

    def _note_lag(self, watched: _Watched, copier: Copier) -> None:
        standing = copier.standing()
        copied_end = -1 if isinstance(standing, Refused) else standing.tiered.end_offset
        watched.note(copied_end, self._engine.now_ms)

    @property
    def is_on(self) -> bool:
        """Whether this node has a remote tier."""
        return self._tier is not None

    def statuses(self) -> list[TierStatus]:
        """Of the partitions that this node leads."""
        return [self._status(watched, watched.copier) for watched in self._watched.values() if watched.copier is not None]

    def _status(self, watched: _Watched, copier: Copier) -> TierStatus:
        standing = copier.standing()
        return TierStatus(
            group=watched.partition.group,
            copied_end=None if isinstance(standing, Refused) else standing.tiered.end_offset,
            high_watermark=watched.partition.high_watermark,
            lag_ms=0 if watched.waits_since_ms is None else self._engine.now_ms - watched.waits_since_ms,
            failures=copier.failures,
            error=copier.error,
        )
