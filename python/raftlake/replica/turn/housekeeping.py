"""What a node does by the clock alone: overdue appends are answered, old segments deleted, and what the next start wants to
know is written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from raftlake.errors import DiskFull
from raftlake.ports.driver import SegmentInfo
from raftlake.raft.types import Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.disk.findings import Findings
from raftlake.replica.disk.scrub import Scrub
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.retention import TableBounds, first_offset_to_keep, kept_here, wants_roll
from raftlake.replica.producer_care import ProducerCare
from raftlake.replica.snapshots.snapshots import Snapshots

INTERVAL_MS = 250
CHECKPOINT_INTERVAL_MS = 1_000
EXPIRATION_INTERVAL_MS = 600_000
#: Segments that one round closes because they are old. Each closing waits for the disk a few times.
ROLLS_MAX = 8


class Housekeeping:
    """`ticking` are called in each round, in their order. `table` says what the remote tier holds of a partition; None without
    a tier. `adopted_start` says where a leader's log begins: what lies below is of no use here either."""

    def __init__(
        self,
        engine: Engine,
        *,
        disk: DiskWatch,
        findings: Findings,
        producers: ProducerCare,
        scrub: Scrub,
        snapshots: Snapshots,
        ticking: Sequence[Callable[[], None]],
        table: Callable[[Partition], TableBounds | None],
        adopted_start: Callable[[Partition], Offset],
    ) -> None:
        self._engine = engine
        self._disk = disk
        self._findings = findings
        self._producers = producers
        self._scrub = scrub
        self._snapshots = snapshots
        self._ticking = tuple(ticking)
        self._table = table
        self._adopted_start = adopted_start
        self._next_retention_ms = engine.now_ms + engine.config.retention_check_interval_ms
        self._next_checkpoint_ms = engine.now_ms + CHECKPOINT_INTERVAL_MS
        self._next_expiration_ms = engine.now_ms + EXPIRATION_INTERVAL_MS

    def run(self) -> None:
        """One round, which schedules the next."""
        engine = self._engine
        engine.timers.schedule(engine.now_ms + INTERVAL_MS, self.run)
        for partition in list(engine.partitions.values()):
            if partition.waiting:
                partition.expire(engine.now_ms)
        for tick in self._ticking:
            tick()
        if engine.now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = engine.now_ms + CHECKPOINT_INTERVAL_MS
            engine.logs.checkpoint()
            self._scrub.read_on(CHECKPOINT_INTERVAL_MS)
        if engine.now_ms >= self._next_expiration_ms:
            self._next_expiration_ms = engine.now_ms + EXPIRATION_INTERVAL_MS
            seen_before_ms = engine.clock.wall_ms() - engine.config.producer_id_expiration_ms
            self._producers.expire(list(engine.partitions.values()), seen_before_ms)
        if engine.now_ms >= self._next_retention_ms:
            self._next_retention_ms = engine.now_ms + engine.config.retention_check_interval_ms
            self._apply_retention()

    def _apply_retention(self) -> None:
        """Delete closed segments that are too old or too many, or that the leader has deleted. Of the metadata log its
        snapshots decide."""
        engine = self._engine
        rolls = 0
        for partition in list(engine.partitions.values()):
            if partition.group == METADATA_GROUP or partition.in_force is None:
                # What the topic wants kept is not known before its key is read.
                continue
            table = self._table(partition)
            kept = kept_here(partition.in_force, is_tiered=table is not None)
            log = partition.log
            ended: int = self._adopted_start(partition)
            if max(kept.local_ms, kept.local_bytes) < 0 and ended <= log.start_offset:
                continue
            segments = self._findings.guarded(partition.group, log.segments)
            if segments is None:
                continue
            below: int = partition.high_watermark
            if table is not None:
                below, ended = min(below, table.safe), max(ended, table.start)
            wall_ms = engine.clock.wall_ms()
            if rolls < ROLLS_MAX and not partition.deleted and wants_roll(segments, kept, wall_ms, below, ended):
                rolls += 1
                segments = self._findings.guarded(partition.group, partial(self._roll, partition)) or segments
            keep_from = Offset(first_offset_to_keep(segments, kept, wall_ms, below, ended))
            if keep_from == log.end_offset:
                # A log that goes as a whole may have nothing more to append for long: its last point is not left for later.
                partition.save_missing_point()
            if keep_from > log.start_offset:
                keep_from = partition.can_begin_at(keep_from)
            if keep_from > log.start_offset:
                self._snapshots.trim(partition, keep_from)

    def _roll(self, partition: Partition) -> Sequence[SegmentInfo]:
        """The segments after the active one was closed; as they were where the disk has no room for another."""
        try:
            partition.roll()
        except DiskFull as full:
            self._disk.on_full(full)
        return partition.log.segments()
