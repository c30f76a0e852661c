"""The key space on its way back from a snapshot file, in slices: elections and replication go on meanwhile.

Owns the pace. A slice decodes about a quarter of a megabyte; the state that is there meanwhile (at start: none) stays readable
and stale, and is freed in slices too. The file was checked when the group was opened or when it arrived, so damage here means
that the disk changed its mind: the node stops and names the file. A slice that can open no file is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from raftlake.errors import StorageError, TooManyFiles, WireError
from raftlake.kv.keyspace import KeySpace
from raftlake.kv.machine import StateMachine
from raftlake.raft.types import OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.engine import Engine
from raftlake.replica.partition.snapshot_files import describe
from raftlake.wire.batches import decode_records
from raftlake.wire.snapshots import SnapshotScanner

SLICE_BYTES = 256 * 1024
SLICE_INTERVAL_MS = 1
#: After a slice that could open no file.
NO_FILE_INTERVAL_MS = 1_000
#: Some thousand keys: a millisecond.
RELEASED_LEAVES = 16

logger = logging.getLogger("raftlake.snapshots")


class KvRestore:
    """`done` is called once, in a later turn, unless it is cancelled."""

    def __init__(
        self, engine: Engine, machine: StateMachine, snapshot_id: OffsetAndEpoch, done: Callable[[KvRestore], None]
    ) -> None:
        self._engine = engine
        self._snapshot_id = snapshot_id
        self._done: Callable[[KvRestore], None] | None = done
        self._scanner = _scanner(engine, snapshot_id)
        self._has_told = False
        self.restoration = machine.restoration()
        #: What has been committed meanwhile, 0 for nothing.
        self.high_watermark = 0
        self._later(SLICE_INTERVAL_MS)

    def cancel(self) -> None:
        """A newer snapshot is to be restored instead."""
        self._done = None

    def _later(self, pause_ms: int) -> None:
        self._engine.timers.schedule(self._engine.now_ms + pause_ms, self._slice)

    def _slice(self) -> None:
        done = self._done
        if done is None:
            return
        try:
            is_over = self._feed()
        except TooManyFiles as error:
            # The batch that could not be read is the next one still.
            self._tell(error)
            self._later(NO_FILE_INTERVAL_MS)
            return
        except WireError as error:
            raise StorageError(f"{METADATA_GROUP}/{describe(self._snapshot_id)} is damaged: {error}") from error
        if is_over:
            # Those who waited for what is applied now are told in a turn.
            self._engine.request_turn()
            done(self)
        else:
            self._later(SLICE_INTERVAL_MS)

    def _tell(self, error: TooManyFiles) -> None:
        if not self._has_told:
            self._has_told = True
            name = describe(self._snapshot_id)
            logger.warning("%s: %s; the key space is restored from %s when a file can be opened", METADATA_GROUP, error, name)

    def _feed(self) -> bool:
        """One slice; True behind the last batch."""
        size = 0
        while (batch := self._scanner.next()) is not None:
            for record in decode_records(batch.data):
                self.restoration.feed(record.value or b"")
            size += len(batch.data)
            if size >= SLICE_BYTES:
                return False
        self.restoration.require_complete()
        if self.restoration.applied_offset != self._snapshot_id.offset:
            raise WireError(f"it is of offset {self.restoration.applied_offset}")
        return True


def _scanner(engine: Engine, snapshot_id: OffsetAndEpoch) -> SnapshotScanner:
    """Not `scan`: a generator ends with the first error, and this may be asked again for the batch that it could not read."""
    store = engine.logs.snapshots
    size = store.size(METADATA_GROUP, snapshot_id)
    if size is None:
        raise StorageError(f"{METADATA_GROUP}: there is no snapshot {describe(snapshot_id)}")
    return SnapshotScanner(
        lambda position, length: store.read(METADATA_GROUP, snapshot_id, position, length),
        size,
        snapshot_id.epoch,
        snapshot_id.offset,
    )


def release(engine: Engine, retired: KeySpace) -> None:
    """Free a state that was replaced."""
    if retired.release(RELEASED_LEAVES):
        engine.timers.schedule(engine.now_ms + SLICE_INTERVAL_MS, lambda: release(engine, retired))
