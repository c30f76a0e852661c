"""What a node does by the clock alone: overdue appends are answered, addresses told, old segments deleted,
and what the next start wants to know is written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftlake.raft.types import Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.partition.retention import first_offset_to_keep

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode

INTERVAL_MS = 250
CHECKPOINT_INTERVAL_MS = 1_000
EXPIRATION_INTERVAL_MS = 600_000


class Housekeeping:
    def __init__(self, node: ReplicaNode) -> None:
        self._node = node
        self._next_retention_ms = node.now_ms + node.config.retention_check_interval_ms
        self._next_checkpoint_ms = node.now_ms + CHECKPOINT_INTERVAL_MS
        self._next_expiration_ms = node.now_ms + EXPIRATION_INTERVAL_MS

    def run(self) -> None:
        """One round, which schedules the next."""
        node = self._node
        node.timers.schedule(node.now_ms + INTERVAL_MS, self.run)
        for partition in list(node.partitions.values()):
            if partition.waiting:
                partition.expire(node.now_ms)
        node.membership.tick()
        node.voter_changes.tick()
        node.own_vote.tick()
        node.snapshots.tick()
        node.kv.room.tick()
        node.disk.tick()
        if node.now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = node.now_ms + CHECKPOINT_INTERVAL_MS
            node.logs.checkpoint()
            node.damage.scrub(CHECKPOINT_INTERVAL_MS)
        if node.now_ms >= self._next_expiration_ms:
            self._next_expiration_ms = node.now_ms + EXPIRATION_INTERVAL_MS
            for partition in node.partitions.values():
                partition.producers.expire(node.clock.wall_ms() - node.config.producer_id_expiration_ms)
        if node.now_ms >= self._next_retention_ms and max(node.config.retention_ms, node.config.retention_bytes) >= 0:
            self._next_retention_ms = node.now_ms + node.config.retention_check_interval_ms
            self._apply_retention()

    def _apply_retention(self) -> None:
        """Delete closed segments that are too old or too many; of the metadata log its snapshots decide."""
        node = self._node
        for partition in list(node.partitions.values()):
            if partition.group == METADATA_GROUP:
                continue
            log = partition.log
            segments = node.damage.guarded(partition.group, log.segments)
            if segments is None:
                continue
            keep_from = first_offset_to_keep(segments, node.config, node.clock.wall_ms(), partition.high_watermark)
            if keep_from > log.start_offset:
                node.snapshots.trim(partition, Offset(keep_from))
