"""What follows once records are deleted (DeleteRecords): their segments go, and in the end the keys that told of it.

The decision is a key of the quorum (`kv.keys.STARTS_PREFIX`), so that it holds on all nodes, over restarts and under later
leaders. Each node shows what the key says as soon as it has applied it. Each node then trims its own log, as retention does: by
whole closed segments, with a snapshot at the new log start. An active segment whose records are all deleted is closed first.

Owns which partitions still have something to trim. A trim that finds no room, or records that the remote tier has not copied,
is tried again. The leader of the metadata log deletes the keys of topics that are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raftlake.errors import DiskFull
from raftlake.kv.commands import Delete, Txn
from raftlake.kv.history import Compacted
from raftlake.kv.keys import STARTS_PREFIX
from raftlake.ports.driver import Origin, SegmentInfo
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.disk.findings import Findings
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.kv.outcomes import ProposeOutcome
from raftlake.replica.kv.service import KvService
from raftlake.replica.names import Names
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.retention import TableBounds
from raftlake.replica.quorum import Quorum
from raftlake.replica.reserved import start_group
from raftlake.replica.snapshots.snapshots import Snapshots

#: Between two tries of what could not be trimmed yet, and between two looks for topics that are gone.
RETRY_INTERVAL_MS = 1_000
SWEEP_INTERVAL_MS = 10_000
#: Partitions that a tick looks at, and keys that one sweep looks at and deletes at most.
LOOKS_PER_TICK = 100
KEYS_PER_SWEEP = 100


class RecordDeletion:
    """`table` says what the remote tier holds of a partition; None without a tier."""

    def __init__(
        self,
        engine: Engine,
        *,
        names: Names,
        quorum: Quorum,
        kv: KvService,
        disk: DiskWatch,
        findings: Findings,
        snapshots: Snapshots,
        table: Callable[[Partition], TableBounds | None],
    ) -> None:
        self._engine = engine
        self._names = names
        self._quorum = quorum
        self._kv = kv
        self._disk = disk
        self._findings = findings
        self._snapshots = snapshots
        self._table = table
        self._seen_version = 0
        #: Topic ids and partitions whose deleted records may be on this disk still, each with the time of the next try.
        self._pending: dict[tuple[bytes, int], int] = {}
        self._next_sweep_ms = engine.now_ms + SWEEP_INTERVAL_MS
        #: The last key that a sweep has looked at.
        self._swept: str | None = None
        self._is_sweeping = False
        kv.listeners.append(self._on_applied)

    # --- following the keys ---

    def _on_applied(self, applied_offset: int) -> None:
        try:
            while changes := self._kv.machine.changes_since(STARTS_PREFIX, self._seen_version):
                for change in changes:
                    self._seen_version = change.version
                    group = start_group(change.key)
                    if group is not None and change.value is not None:
                        self._pending[group] = self._engine.now_ms
        except Compacted:
            self._pending = dict.fromkeys(self._kv.state.record_starts, self._engine.now_ms)
        self._seen_version = max(self._seen_version, applied_offset - 1)

    def tick(self) -> None:
        """Called a few times a second."""
        due = [group for group, due_ms in self._pending.items() if due_ms <= self._engine.now_ms]
        for group in due[:LOOKS_PER_TICK]:
            # Others come first the next time.
            del self._pending[group]
            if not self._is_trimmed(*group):
                self._pending[group] = self._engine.now_ms + RETRY_INTERVAL_MS
        if self._engine.now_ms >= self._next_sweep_ms:
            self._next_sweep_ms = self._engine.now_ms + SWEEP_INTERVAL_MS
            self._sweep()

    # --- trimming ---

    def _is_trimmed(self, topic_id: bytes, index: int) -> bool:
        """Trim a partition, or go on with it. True once this disk has no segment more to delete."""
        topic = self._names.by_id(topic_id)
        if topic is None or index >= topic.partitions:
            # It is gone, or not known here yet: its key is applied before, and its group opened later.
            return (topic_id, index) not in self._kv.state.record_starts
        partition = self._engine.partitions.get(GroupId(topic.name, index, topic_id))
        if partition is None:
            return False
        start = self._kv.state.records_from(partition.group)
        if partition.log.start_offset >= start:
            return True
        segments = self._findings.guarded(partition.group, partition.log.segments)
        return segments is not None and self._trim(partition, segments, start)

    def _trim(self, partition: Partition, segments: Sequence[SegmentInfo], start: Offset) -> bool:
        if segments[-1].size and segments[-1].end_offset == start:
            try:
                partition.roll()
            except DiskFull as full:
                self._disk.on_full(full)
            # The segment is closed now, and goes at the next try.
            return False
        gone = [segment.end_offset for segment in segments[:-1] if segment.end_offset <= start]
        if not gone:
            # A follower that lags gets what is to be deleted first.
            return partition.log.end_offset >= start
        table = self._table(partition)
        below = min(partition.high_watermark, partition.high_watermark if table is None else table.safe)
        keep_from = max((end for end in gone if end <= below), default=partition.log.start_offset)
        if keep_from > partition.log.start_offset:
            keep_from = partition.can_begin_at(keep_from)
        if keep_from > partition.log.start_offset:
            self._snapshots.trim(partition, keep_from)
        return False

    # --- topics that are gone ---

    def _sweep(self) -> None:
        metadata = self._quorum.partition
        leads = metadata is not None and metadata.group == METADATA_GROUP and metadata.is_serving
        if not leads or self._is_sweeping:
            return
        entries, has_more = self._kv.machine.list(STARTS_PREFIX, self._swept, KEYS_PER_SWEEP)
        self._swept = entries[-1][0] if has_more and entries else None
        known = self._kv.state.topic_ids
        groups = ((key, start_group(key)) for key, _ in entries)
        gone = [key for key, group in groups if group is None or group[0] not in known]
        if gone:
            # Ids are given out once, so nobody writes there again.
            self._is_sweeping = True
            self._kv.propose(Txn((), tuple(Delete(key) for key in gone)), self._on_swept, Origin.SELF)

    def _on_swept(self, _outcome: ProposeOutcome) -> None:
        """What is still there is found by a later sweep."""
        self._is_sweeping = False
