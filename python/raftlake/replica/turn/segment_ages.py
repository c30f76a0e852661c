"""Closes open segments that have held records for as long as their topic says (`segment.ms`), also when no record comes.

Each replica counts for itself, from when it first saw records in the segment. After a restart the time of the first record
counts: a node that is restarted each day closes a weekly segment too. Owns when the records of each open segment were seen.
Kafka looks at an append only, and compares the times of records; there an idle topic keeps its last segment open for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from raftlake.errors import DiskFull
from raftlake.ports.driver import SegmentInfo
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.configs.in_force import NEVER_MS
from raftlake.replica.disk.findings import Findings
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition
from raftlake.wire.batches import parse_header

LOOK_INTERVAL_MS = 1_000
#: Segments that one look closes. Each closing waits for the disk a few times.
ROLLS_MAX = 8
#: Where an open segment without records begins.
EMPTY = Offset(-1)


@dataclass(frozen=True, slots=True)
class _Open:
    """An open segment, and since when it has held records (monotonic)."""

    partition: Partition
    base: Offset
    since_ms: int


class SegmentAges:
    def __init__(self, engine: Engine, disk: DiskWatch, findings: Findings) -> None:
        self._engine = engine
        self._disk = disk
        self._findings = findings
        self._open: dict[GroupId, _Open] = {}
        self._next_look_ms = engine.now_ms
        engine.closed.append(self._on_closed)

    def _on_closed(self, partition: Partition) -> None:
        self._open.pop(partition.group, None)

    def tick(self) -> None:
        """Called a few times a second."""
        engine = self._engine
        if engine.now_ms < self._next_look_ms:
            return
        self._next_look_ms = engine.now_ms + LOOK_INTERVAL_MS
        due: list[tuple[int, Partition]] = []
        for partition in list(engine.partitions.values()):
            asked = partition.in_force
            if partition.group == METADATA_GROUP or asked is None or asked.segment_ms >= NEVER_MS:
                # Should it be asked for later, the segment counts as one that was found.
                self._open.pop(partition.group, None)
                continue
            since_ms = self._findings.guarded(partition.group, partial(self._since_ms, partition))
            if since_ms is not None and engine.now_ms - since_ms >= asked.segment_ms:
                due.append((since_ms + asked.segment_ms, partition))
        # Those first that have waited longest.
        for _, partition in sorted(due, key=lambda each: each[0])[:ROLLS_MAX]:
            self._findings.guarded(partition.group, partial(self._roll, partition))

    def _since_ms(self, partition: Partition) -> int | None:
        """Since when the open segment has held records; None where it holds none."""
        active = partition.log.segments()[-1]
        known = self._open.get(partition.group)
        is_followed = known is not None and known.partition is partition
        if active.size == 0:
            self._open[partition.group] = _Open(partition, EMPTY, self._engine.now_ms)
            return None
        if known is None or not is_followed or known.base != active.base_offset:
            since_ms = self._engine.now_ms - (0 if is_followed else self._age_ms(partition, active))
            known = self._open[partition.group] = _Open(partition, active.base_offset, since_ms)
        return known.since_ms

    def _roll(self, partition: Partition) -> None:
        try:
            partition.roll()
        except DiskFull as full:
            # The next look tries again.
            self._disk.on_full(full)

    def _age_ms(self, partition: Partition, active: SegmentInfo) -> int:
        """How long a segment that was found has held records, by their times; 0 where they say nothing."""
        first = parse_header(partition.log.read(active.base_offset, active.end_offset, 1)).timestamp_ms_max
        time_ms = first if first >= 0 else active.timestamp_ms_max
        return max(0, self._engine.clock.wall_ms() - time_ms) if time_ms >= 0 else 0
