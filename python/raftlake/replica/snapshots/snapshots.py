"""When a node takes snapshots of its own, and what may be deleted once it has them (KIP-630).

The metadata log: after `metadata.log.max.record.bytes.between.snapshots` bytes of records, or
`metadata.log.max.snapshot.interval.ms`, the key space is written in slices, a few milliseconds of each turn, while commands go
on. The two newest snapshots stay, and those that replicas are fetching (`held`), and the log from the oldest of them on: should
the newest be damaged, nothing is lost. A data
partition: retention decides; its snapshot holds voters and producers and stands exactly at the log start. Invariant: nothing is
deleted from a log before a snapshot at or above its new start is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from raftlake.errors import DiskFull, StorageError
from raftlake.kv import snapshot as chunks
from raftlake.kv.frozen import FrozenView
from raftlake.kv.machine import SLICE_ROWS
from raftlake.raft.events import LogStartAdvanced, SnapshotTaken
from raftlake.raft.types import Offset, OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.snapshot_files import BACKLOG_BYTES_MAX, SnapshotMaker, write_producers
from raftlake.replica.partition.start_points import Slices
from raftlake.replica.producer_care import ProducerCare
from raftlake.replica.snapshots.held import HeldSnapshots

#: Values in one slice of the key space: with SLICE_ROWS a millisecond's work.
SLICE_BYTES = 256 * 1024
#: A quarter of a core at most goes into a snapshot: all nodes take theirs at about the same time.
SLICE_INTERVAL_MS = 3
SNAPSHOTS_KEPT = 2
#: After one for which there was no room.
NO_ROOM_PAUSE_MS = 30_000

logger = logging.getLogger("raftlake.snapshots")


class _Taking:
    """A snapshot of the key space that is being written."""

    def __init__(self, maker: SnapshotMaker, view: FrozenView, bytes_covered: int) -> None:
        self.maker = maker
        self.view = view
        #: Applied since the snapshot before this one.
        self.bytes_covered = bytes_covered
        self.is_over = False


class Snapshots:
    def __init__(self, engine: Engine, producers: ProducerCare, disk: DiskWatch, kv: KvService, held: HeldSnapshots) -> None:
        self._engine = engine
        self._held = held
        self._producers = producers
        self._disk = disk
        self._kv = kv
        self._taking: _Taking | None = None
        #: Data partitions that are being trimmed: their new log start waits for its snapshot, or segments are still to go.
        self._trimming: dict[Partition, None] = {}
        #: Told before the log of a partition begins later.
        self.start_listeners: list[Callable[[Partition], None]] = []
        self._last_taken_ms = engine.now_ms
        #: There was no room for one.
        self._not_before_ms = engine.now_ms
        engine.closed.append(self._on_closed)

    # --- the key space ---

    def tick(self) -> None:
        """Called a few times a second: take a snapshot when one is due."""
        engine = self._engine
        partition = engine.partitions.get(METADATA_GROUP)
        if partition is None or self._taking is not None or self._kv.is_restoring or engine.now_ms < self._not_before_ms:
            return
        config = engine.config
        is_due = self._kv.bytes_since_snapshot >= config.snapshot_bytes_between or (
            self._kv.bytes_since_snapshot > 0 and engine.now_ms - self._last_taken_ms >= config.snapshot_interval_ms
        )
        core, applied = partition.core, self._kv.machine.applied_offset
        # A repaired log may know less to be committed than has been applied.
        if is_due and not self._disk.has_room_for(self._kv.machine.size):
            return
        if is_due and applied <= core.high_watermark and (core.snapshot_id is None or applied > core.snapshot_id.offset):
            self.take(partition)

    def take(self, partition: Partition) -> None:
        """Begin a snapshot of the key space as it is now."""
        engine = self._engine
        machine = self._kv.machine
        snapshot_id = partition.core.snapshot_at(Offset(machine.applied_offset))
        maker = self._make(partition, snapshot_id, self._kv.applied_timestamp_ms)
        self._last_taken_ms = engine.now_ms
        self._taking = _Taking(maker, machine.freeze(), self._kv.bytes_since_snapshot)
        self._kv.bytes_since_snapshot = 0
        maker.add(chunks.encode_header(self._taking.view.applied_offset, self._taking.view.entry_count))
        self._slice_later(self._taking)

    def _make(self, partition: Partition, snapshot_id: OffsetAndEpoch, last_contained_ms: int) -> SnapshotMaker:
        engine = self._engine
        return SnapshotMaker(
            engine.logs.snapshots.create(partition.group, snapshot_id),
            snapshot_id,
            partition.core.voter_history.at(snapshot_id.offset),
            engine.clock.wall_ms(),
            last_contained_ms,
        )

    def _slice_later(self, taking: _Taking) -> None:
        self._engine.timers.schedule(self._engine.now_ms + SLICE_INTERVAL_MS, lambda: self._slice(taking))

    def _slice(self, taking: _Taking) -> None:
        """A bounded piece of work: the loop must not stand still for a snapshot."""
        if taking.is_over:
            return
        maker = taking.maker
        if maker.writer.backlog > BACKLOG_BYTES_MAX:
            self._slice_later(taking)
            return
        rows = taking.view.rows(SLICE_ROWS, SLICE_BYTES)
        if rows:
            maker.add(chunks.encode_rows(rows))
            self._slice_later(taking)
            return
        maker.add(chunks.FOOTER)
        maker.end()
        partition = self._engine.partitions[METADATA_GROUP]
        maker.writer.freeze(partial(self._on_taken, taking, partition))

    def _on_taken(self, taking: _Taking, partition: Partition, error: StorageError | None) -> None:
        engine = self._engine
        engine.begin_input()
        if isinstance(error, DiskFull):
            self._put_off(taking, error)
            return
        if error is not None:
            engine.fail(error)
            return
        if taking.is_over:
            return
        self._taking = None
        if not self._still_fits(partition, taking.maker.snapshot_id):
            return
        engine.step(partition, SnapshotTaken(snapshot_id=taking.maker.snapshot_id))
        kept = self._delete_old(partition, SNAPSHOTS_KEPT, spares_held=True)
        if len(kept) >= SNAPSHOTS_KEPT:
            self._advance_start(partition, kept[0].offset)

    def _put_off(self, taking: _Taking, error: DiskFull) -> None:
        """Nothing is lost without it: the log stays as long as it is."""
        if taking.is_over:
            return
        logger.warning("no snapshot of the key space, to be tried again: %s", error)
        self._taking = None
        self._not_before_ms = self._engine.now_ms + NO_ROOM_PAUSE_MS
        self._kv.bytes_since_snapshot += taking.bytes_covered

    def on_reset(self, partition: Partition) -> None:
        """The log begins anew behind a fetched snapshot: one of our own that is being written is of the past, and so are those
        that are finished."""
        self._abandon(partition)
        self._delete_old(partition, 1)

    def _on_closed(self, partition: Partition) -> None:
        """What is written for a log that is damaged, or gone, is never finished."""
        self._abandon(partition)
        self._trimming.pop(partition, None)

    def _abandon(self, partition: Partition) -> None:
        taking = self._taking
        if partition.group == METADATA_GROUP and taking is not None:
            taking.is_over = True
            taking.maker.writer.abandon()
            self._taking = None
            self._kv.bytes_since_snapshot += taking.bytes_covered

    # --- data partitions ---

    def trim(self, partition: Partition, keep_from: Offset) -> None:
        """Retention: let the log of a data partition begin at `keep_from`, the end of one of its closed segments."""
        if partition in self._trimming or keep_from < partition.core.log_start:
            # The second one: the core has begun anew behind a fetched snapshot, and the log follows at the end of this turn.
            return
        self._trimming[partition] = None
        newest = partition.core.snapshot_id
        if newest is not None and newest.offset > keep_from:
            # A restart came between the segments of an earlier trim. The node knows the voters at the end of its snapshot only.
            self._advance_start(partition, keep_from)
            return
        snapshot_id = partition.core.snapshot_at(keep_from)
        last_ms = max((each.timestamp_ms_max for each in partition.log.segments() if each.end_offset <= keep_from), default=-1)
        maker = self._make(partition, snapshot_id, last_ms)
        self._producers.in_slices(self._write_producers(partition, maker))

    def _write_producers(self, partition: Partition, maker: SnapshotMaker) -> Slices:
        """Where other work went first, damage may have cut the log below the offset meanwhile: nothing is deleted then."""
        offset = maker.snapshot_id.offset
        producers = partition.producers_at(offset)
        if producers is None and offset > partition.log.start_offset:
            # Whoever begins behind a snapshot that tells no producers appends batches that come again.
            maker.writer.abandon()
            self._trimming.pop(partition, None)
            return
        yield from write_producers(maker, producers)
        maker.writer.freeze(partial(self._on_trim_taken, partition, maker.snapshot_id))

    def _on_trim_taken(self, partition: Partition, snapshot_id: OffsetAndEpoch, error: StorageError | None) -> None:
        engine = self._engine
        engine.begin_input()
        if isinstance(error, DiskFull):
            # Retention asks again, and what it deletes makes room: this is what the ballast is for.
            self._trimming.pop(partition, None)
            self._disk.on_full(error)
            return
        if error is not None:
            engine.fail(error)
            return
        if partition.deleted or snapshot_id.offset <= partition.core.log_start or not self._still_fits(partition, snapshot_id):
            # The group is gone, or began anew behind a later snapshot meanwhile.
            self._trimming.pop(partition, None)
            return
        engine.step(partition, SnapshotTaken(snapshot_id=snapshot_id))
        self._advance_start(partition, snapshot_id.offset)
        self._delete_old(partition, 1)

    # --- both ---

    def renew(self, partition: Partition, damaged: OffsetAndEpoch) -> None:
        """A snapshot that followers fetch is damaged: put an intact one in its place."""
        engine, core = self._engine, partition.core
        if damaged != core.snapshot_id or engine.config.is_opaque:
            # The meaning of another program's log is not known here. At the next start the log is fetched again.
            return
        if partition.group != METADATA_GROUP:
            if damaged.offset == core.log_start:
                self.trim(partition, core.log_start)
            return
        applied = self._kv.machine.applied_offset
        if self._taking is None and not self._kv.is_restoring and damaged.offset <= applied <= core.high_watermark:
            self.take(partition)

    def _still_fits(self, partition: Partition, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether the log still reaches what the snapshot covers, and begins no later. If not, the snapshot is deleted: who
        names it must have the log behind it. Meanwhile damage may have opened the log anew, or a fetched snapshot may have
        ended; the log itself begins behind that one only at the end of the turn."""
        engine, group, core = self._engine, partition.group, partition.core
        if engine.partitions.get(group) is partition and core.log_start <= snapshot_id.offset <= core.high_watermark:
            return True
        current = engine.partitions.get(group)
        if current is not None and current.core.snapshot_id != snapshot_id and snapshot_id in engine.logs.snapshots.ids(group):
            engine.logs.snapshots.delete(group, snapshot_id)
        return False

    def _advance_start(self, partition: Partition, keep_from: Offset) -> None:
        """Delete what lies before, a segment a turn: the names of each are synced before the next one goes."""
        engine, log = self._engine, partition.log
        closed = [] if partition.deleted else log.segments()[:-1]
        ends = [segment.end_offset for segment in closed if segment.end_offset <= keep_from]
        if ends:
            for listener in self.start_listeners:
                listener(partition)
            engine.step(partition, LogStartAdvanced(log_start_offset=log.advance_start(ends[0])))
        if len(ends) > 1:
            engine.timers.schedule(engine.now_ms + SLICE_INTERVAL_MS, lambda: self._advance_start(partition, keep_from))
        else:
            self._trimming.pop(partition, None)

    def _delete_old(self, partition: Partition, count: int, *, spares_held: bool = False) -> list[OffsetAndEpoch]:
        """Delete all but the `count` newest snapshots and, with `spares_held`, those that are being fetched. Returns those that
        stay, oldest first."""
        store = self._engine.logs.snapshots
        ids = list(store.ids(partition.group))
        held = self._held.of(partition.group, ids[:-count]) if spares_held else []
        for snapshot_id in ids[:-count]:
            if snapshot_id not in held:
                store.delete(partition.group, snapshot_id)
        return [*held, *ids[-count:]]
