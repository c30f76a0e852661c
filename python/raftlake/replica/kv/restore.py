"""The key space on its way back from a snapshot file, in slices: elections and replication go on meanwhile.

Owns the pace. A slice decodes about a quarter of a megabyte; the state that is there meanwhile (at start: none) stays readable
and stale, and is freed in slices too. The file was checked when the group was opened or when it arrived, so damage here means
that the disk changed its mind: the node stops and names the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from raftlake.errors import StorageError, WireError
from raftlake.kv.keyspace import KeySpace
from raftlake.kv.machine import StateMachine
from raftlake.raft.types import OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.engine import Engine
from raftlake.replica.partition.snapshot_files import describe, scan
from raftlake.wire.batches import decode_records
from raftlake.wire.snapshots import SnapshotBatch

SLICE_BYTES = 256 * 1024
SLICE_INTERVAL_MS = 1
#: Some thousand keys: a millisecond.
RELEASED_LEAVES = 16


class KvRestore:
    """`done` is called once, in a later turn, unless it is cancelled."""

    def __init__(
        self, engine: Engine, machine: StateMachine, snapshot_id: OffsetAndEpoch, done: Callable[[KvRestore], None]
    ) -> None:
        self._engine = engine
        self._snapshot_id = snapshot_id
        self._done: Callable[[KvRestore], None] | None = done
        self._batches: Iterator[SnapshotBatch] = scan(engine.logs.snapshots, METADATA_GROUP, snapshot_id)
        self.restoration = machine.restoration()
        #: What has been committed meanwhile, 0 for nothing.
        self.high_watermark = 0
        self._later()

    def cancel(self) -> None:
        """A newer snapshot is to be restored instead."""
        self._done = None

    def _later(self) -> None:
        self._engine.timers.schedule(self._engine.now_ms + SLICE_INTERVAL_MS, self._slice)

    def _slice(self) -> None:
        done = self._done
        if done is None:
            return
        try:
            is_over = self._feed()
        except WireError as error:
            raise StorageError(f"{METADATA_GROUP}/{describe(self._snapshot_id)} is damaged: {error}") from error
        if is_over:
            # Those who waited for what is applied now are told in a turn.
            self._engine.request_turn()
            done(self)
        else:
            self._later()

    def _feed(self) -> bool:
        """One slice; True behind the last batch."""
        size = 0
        for batch in self._batches:
            for record in decode_records(batch.data):
                self.restoration.feed(record.value or b"")
            size += len(batch.data)
            if size >= SLICE_BYTES:
                return False
        self.restoration.require_complete()
        if self.restoration.applied_offset != self._snapshot_id.offset:
            raise WireError(f"it is of offset {self.restoration.applied_offset}")
        return True


def release(engine: Engine, retired: KeySpace) -> None:
    """Free a state that was replaced."""
    if retired.release(RELEASED_LEAVES):
        engine.timers.schedule(engine.now_ms + SLICE_INTERVAL_MS, lambda: release(engine, retired))
