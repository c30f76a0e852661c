"""Which log of this node is compacted next, and what its pass may remove.

The log with the largest part that was not compacted comes first, as in Kafka. A log is also due when tombstones in it have
waited long enough. One pass is under way at a time. After a pass the next one begins at once; where none is due, the next look
comes after `log.cleaner.backoff.ms`. The work itself is done aside (`LogStore.compact`).

What a pass may touch: closed segments below the last stable offset, so that all is committed and each transaction decided.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from raftlake.errors import DamagedData, DiskFull, StorageError
from raftlake.ports.driver import Compacted, Compaction
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.replica.compaction import floor
from raftlake.replica.compaction.cleanable import Cleanable, cleanable
from raftlake.replica.compaction.floor import Registered
from raftlake.replica.configs.in_force import CompactionRules
from raftlake.replica.disk.findings import Findings
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.start_points import Slices
from raftlake.replica.producer_care import ProducerCare
from raftlake.wire.producer_snapshot import ENTRY, ProducerRow

#: A log whose pass failed is left alone for so many back-offs.
FAILED_BACKOFFS = 4

logger = logging.getLogger("raftlake.compaction")


@dataclass(slots=True)
class CompactionCounts:
    """Since this node started."""

    passes: int = 0
    failures: int = 0
    records_removed: int = 0
    #: What logs became smaller by.
    bytes_removed: int = 0


@dataclass(slots=True)
class _Known:
    """What this node remembers of a log while it runs."""

    partition: Partition
    #: When the next tombstone may go, by the wall clock; None where none waits, or nothing is known.
    next_horizon_ms: int | None = None
    #: The log is left alone until then (monotonic).
    rests_until_ms: int = 0


class Compactor:
    """`about_to_compact` is told of each pass, and below which offset it removes; `registered` are the nodes that have an
    address. `counts` and `dirtiest` are for metrics."""

    def __init__(
        self,
        engine: Engine,
        *,
        disk: DiskWatch,
        findings: Findings,
        producers: ProducerCare,
        about_to_compact: Callable[[GroupId, Offset], None],
        registered: Registered,
    ) -> None:
        self._engine = engine
        self._disk = disk
        self._findings = findings
        self._producers = producers
        self._about_to_compact = about_to_compact
        self._registered = registered
        self._known: dict[GroupId, _Known] = {}
        #: The log of the pass under way.
        self._busy: Partition | None = None
        self._begun_ms = 0
        self._next_look_ms = engine.now_ms + engine.config.cleaner_backoff_ms
        self.counts = CompactionCounts()
        #: The largest dirty ratio that the last look found, 0 to 1.
        self.dirtiest = 0.0
        engine.closed.append(self._on_closed)

    def _on_closed(self, partition: Partition) -> None:
        known = self._known.get(partition.group)
        if known is not None and known.partition is partition:
            del self._known[partition.group]

    def tick(self) -> None:
        """Called a few times a second."""
        if self._busy is None and self._engine.now_ms >= self._next_look_ms:
            self._next_look_ms = self._engine.now_ms + self._engine.config.cleaner_backoff_ms
            self._look()

    # --- choosing ---

    def _look(self) -> None:
        self.dirtiest = 0.0
        if self._disk.is_full:
            return
        best: tuple[float, Partition, Cleanable, CompactionRules] | None = None
        for partition in list(self._engine.partitions.values()):
            rules = None if partition.in_force is None else partition.in_force.compaction
            if rules is None or partition.deleted:
                continue
            found = self._findings.guarded(partition.group, partial(self._cleanable, partition, rules))
            if found is None:
                continue
            self.dirtiest = max(self.dirtiest, found.dirty_ratio)
            if self._is_due(partition, rules, found) and (best is None or found.dirty_ratio > best[0]):
                best = found.dirty_ratio, partition, found, rules
        if best is not None:
            self._begin(*best[1:])

    def _cleanable(self, partition: Partition, rules: CompactionRules) -> Cleanable:
        log = partition.log
        return cleanable(
            log.segments(),
            log.compacted_until,
            partition.last_stable_offset,
            rules.lag_ms,
            self._engine.clock.wall_ms(),
        )

    def _is_due(self, partition: Partition, rules: CompactionRules, found: Cleanable) -> bool:
        known = self._known.get(partition.group)
        if known is not None and known.partition is partition:
            if self._engine.now_ms < known.rests_until_ms:
                return False
            if known.next_horizon_ms is not None and known.next_horizon_ms <= self._engine.clock.wall_ms():
                return True
        return found.dirty_bytes > 0 and found.dirty_ratio >= rules.dirty_ratio

    # --- one pass ---

    def _begin(self, partition: Partition, found: Cleanable, rules: CompactionRules) -> None:
        """The newest batches of producers are gathered first, then the leader is asked."""
        self._busy, self._begun_ms = partition, self._engine.now_ms
        then = partial(floor.ask, self._engine, partition, self._registered)
        self._producers.in_slices(_gathering(partition, lambda kept: then(partial(self._start, found, rules, kept))))

    def _start(self, found: Cleanable, rules: CompactionRules, kept: _Newest, tombstones_below: Offset) -> None:
        partition, engine = self._busy, self._engine
        assert partition is not None
        if engine.partitions.get(partition.group) is not partition or partition.deleted:
            self._end(None)
            return
        if all(segment.end_offset != found.until for segment in partition.log.segments()[:-1]):
            # The log was trimmed, cut or begun anew meanwhile.
            self._end(None)
            return

        def begin() -> bool:
            log = partition.log
            aborted = partition.aborted(log.start_offset, found.until)
            request = Compaction(
                dirty_from=max(found.dirty_from, log.start_offset),
                until=found.until,
                now_ms=engine.clock.wall_ms(),
                delete_retention_ms=rules.delete_retention_ms,
                tombstones_below=tombstones_below,
                # Also those whose markers stand behind: none of their records is the newest of its key.
                aborted=tuple(aborted),
                last_batches=kept.batches,
                last_markers=kept.markers,
                unsettled=kept.unsettled,
                keys_max=engine.config.cleaner_keys_max,
                segment_bytes=engine.config.segment_bytes if partition.in_force is None else partition.in_force.segment_bytes,
            )
            self._about_to_compact(partition.group, found.until)
            log.compact(request, self._end)
            return True

        try:
            if self._findings.guarded(partition.group, begin) is None:
                self._end(None)
        except StorageError as error:
            self._end(error)

    def _end(self, outcome: Compacted | StorageError | None) -> None:
        engine, partition = self._engine, self._busy
        assert partition is not None
        engine.begin_input()
        self._busy = None
        # What is due by now begins with the next tick.
        self._next_look_ms = engine.now_ms
        known = self._known[partition.group] = _Known(partition)
        if isinstance(outcome, Compacted):
            known.next_horizon_ms = self._later(outcome.next_horizon_ms)
            self._note(partition, outcome)
        else:
            known.rests_until_ms = engine.now_ms + FAILED_BACKOFFS * engine.config.cleaner_backoff_ms
            if outcome is not None:
                self._note_failure(partition, outcome)
        if engine.partitions.get(partition.group) is not partition:
            del self._known[partition.group]

    def _later(self, horizon_ms: int | None) -> int | None:
        """A tombstone whose time has come may have to wait for a voter. The next pass for its sake comes after a rest."""
        if horizon_ms is None:
            return None
        rest_ms = FAILED_BACKOFFS * self._engine.config.cleaner_backoff_ms
        return max(horizon_ms, self._engine.clock.wall_ms() + rest_ms)

    def _note(self, partition: Partition, done: Compacted) -> None:
        counts = self.counts
        counts.passes += 1
        counts.records_removed += done.records_removed
        counts.bytes_removed += done.bytes_before - done.bytes_after
        logger.info(
            "%s: compacted up to offset %d in %.1f s: %d records went, %d bytes became %d",
            partition.group,
            done.clean_until,
            (self._engine.now_ms - self._begun_ms) / 1000,
            done.records_removed,
            done.bytes_before,
            done.bytes_after,
        )

    def _note_failure(self, partition: Partition, error: StorageError) -> None:
        self.counts.failures += 1
        if isinstance(error, DamagedData):
            self._findings.found(partition.group, error)
            return
        if isinstance(error, DiskFull):
            logger.warning("%s: is not compacted for want of room: %s", partition.group, error)
            return
        logger.warning("%s: a pass of compaction failed, and is tried again: %s", partition.group, error)


@dataclass(frozen=True, slots=True)
class _Newest:
    """What of the producers has to stay. See `Compaction`."""

    batches: frozenset[Offset]
    markers: frozenset[tuple[int, int]]
    unsettled: frozenset[int]


def _gathering(partition: Partition, then: Callable[[_Newest], None]) -> Slices:
    """The newest committed batch of each producer, a slice of the producers at a time. What is not committed may be cut. Then
    the batch before it is the newest one."""
    committed_end = partition.high_watermark
    batches: dict[int, Offset] = {}
    markers: set[tuple[int, int]] = set()
    seen: set[int] = set()
    frozen_end = partition.log.end_offset
    frozen = partition.producers.freeze(frozen_end)
    try:
        for packed in frozen.slices():
            for row in map(ProducerRow._make, ENTRY.iter_unpack(packed)):
                if row.last_offset < 0:
                    markers.add((row.producer_id, row.epoch))
                    if committed_end < frozen_end:
                        # That marker may be cut.
                        seen.add(row.producer_id)
                    continue
                seen.add(row.producer_id)
                if row.last_offset < committed_end:
                    batches[row.producer_id] = Offset(row.last_offset)
            yield
    finally:
        merging = frozen.release()
    yield from merging
    then(_Newest(frozenset(batches.values()), frozenset(markers), frozenset(seen - batches.keys())))
