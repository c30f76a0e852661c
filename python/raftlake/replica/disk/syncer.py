"""Group commit: one sync at a time for every log of the node that was written since the last one.

What is written while a sync is under way waits for the next and shares it. A sync reports the log end as it was when the sync
began, with the core's log generation of that moment: a truncation in between makes the report void.
"""

from __future__ import annotations

from raftlake.errors import InvariantViolation, StorageError
from raftlake.raft.events import RecordsFlushed
from raftlake.raft.types import Offset
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition

#: A node that has led no append for so long may wait for its disk: no client waits for the node.
ALONE_AFTER_MS = 1000

Covered = list[tuple[Partition, Offset, int]]


class LogSyncer:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._under_way = False
        #: When something was last synced that is led here.
        self._led_ms = engine.now_ms
        #: Partitions whose log was written since the last sync began, each once.
        self._written: list[Partition] = []

    def mark(self, partition: Partition) -> None:
        """The partition's log was written, or cut."""
        partition.needs_flush = False
        self._written.append(partition)

    def start(self) -> bool:
        """End of turn: sync what was written, unless a sync is under way. True when the sync is over already, and the cores
        have heard of it: a node that follows one log and has not led an append for a while has nothing to do before."""
        if self._under_way or not self._written:
            return False
        written, self._written = dict.fromkeys(self._written), []
        covered: Covered = [
            (partition, partition.log.end_offset, partition.core.log_generation)
            for partition in written
            if not partition.deleted
        ]
        if not covered:
            return False
        self._under_way = True
        now_ms = self._engine.now_ms
        if any(partition.core.is_leader for partition, _, _ in covered):
            self._led_ms = now_ms
        self._engine.logs.flush(
            [partition.log for partition, _, _ in covered],
            lambda error: self._on_synced(covered, error),
            may_wait=len(covered) == 1 and now_ms - self._led_ms >= ALONE_AFTER_MS,
        )
        return not self._under_way

    def _on_synced(self, covered: Covered, error: StorageError | None) -> None:
        self._under_way = False
        self._engine.begin_input()
        if self._written:
            self._engine.request_turn()
        if error is not None:
            # Never tried again: what the failed sync was to write may be gone from the page cache.
            self._engine.fail(error)
            return
        try:
            for partition, end_offset, generation in covered:
                if not partition.deleted:
                    self._engine.step(partition, RecordsFlushed(end_offset=end_offset, generation=generation))
        except InvariantViolation as violation:
            self._engine.fail(violation)
