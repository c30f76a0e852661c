"""Snapshots as files: writing one, checking one, and what a group's snapshots mean for its log at start.

Owns the layout over time (header batch, data batches, footer batch through a `SnapshotWriter`) and the rule that a log which
begins above 0 needs a snapshot at or above its start (KafkaRaftLogTest.testStartupWithInvalidSnapshotState). Knows nothing of
what the data is. Invariant: whatever snapshot a group starts with was read through once and every CRC in it is right.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from raftlake.errors import CorruptBatch, DamagedData, StorageError
from raftlake.ports.driver import LogStore, SnapshotStore, SnapshotWriter
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.epochs import EpochHistory
from raftlake.raft.types import OffsetAndEpoch, VoterSet
from raftlake.replica.partition.start_points import KnownProducers, Slices
from raftlake.replica.partition.voter_log import entries_of, read_batch_voters
from raftlake.wire.batches import decode_records
from raftlake.wire.control import kraft_version_record, kraft_voters_record
from raftlake.wire.snapshots import SnapshotBatch, SnapshotScanner, data_batch, footer_batch, header_batch

#: Bytes that may wait for the disk before the next slice of a snapshot is made.
BACKLOG_BYTES_MAX = 16 * 1024 * 1024

logger = logging.getLogger("raftlake.snapshots")


class SnapshotMaker:
    """Writes one snapshot batch by batch; `timestamp_ms` is now, `last_contained_ms` that of the newest record it covers."""

    def __init__(
        self,
        writer: SnapshotWriter,
        snapshot_id: OffsetAndEpoch,
        voters: VoterSet | None,
        timestamp_ms: int,
        last_contained_ms: int,
    ) -> None:
        self.snapshot_id = snapshot_id
        self.writer = writer
        self._timestamp_ms = timestamp_ms
        more = [] if voters is None else [kraft_version_record(1), kraft_voters_record(entries_of(voters))]
        writer.append(header_batch(snapshot_id.epoch, timestamp_ms, last_contained_ms, more, snapshot_id.offset))
        self._offset = 1 + len(more)

    def add(self, value: bytes) -> None:
        """One data record, a batch of its own."""
        self.writer.append(data_batch(self._offset, self.snapshot_id.epoch, self._timestamp_ms, [value]))
        self._offset += 1

    def end(self) -> None:
        """Behind this only `freeze` follows."""
        self.writer.append(footer_batch(self._offset, self.snapshot_id.epoch, self._timestamp_ms))


def write_producers(maker: SnapshotMaker, producers: KnownProducers | None) -> Slices:
    """The rest of the snapshot of a data partition: what is known of its producers there, a record at a time."""
    for number, record in enumerate(() if producers is None else producers.records()):
        if number > 0:
            yield
        while maker.writer.backlog > BACKLOG_BYTES_MAX:
            yield
        maker.add(record)
    maker.end()


def scan(store: SnapshotStore, group: GroupId, snapshot_id: OffsetAndEpoch) -> Iterator[SnapshotBatch]:
    """Every batch of a finished snapshot. Raises CorruptBatch (damaged) or StorageError (the disk)."""
    size = store.size(group, snapshot_id)
    if size is None:
        raise StorageError(f"{group}: there is no snapshot {describe(snapshot_id)}")
    scanner = SnapshotScanner(
        lambda position, length: store.read(group, snapshot_id, position, length), size, snapshot_id.epoch, snapshot_id.offset
    )
    while (batch := scanner.next()) is not None:
        yield batch


def describe(snapshot_id: OffsetAndEpoch) -> str:
    """The name of its file."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}.checkpoint"


@dataclass(frozen=True, slots=True)
class StartSnapshot:
    """The snapshot that a group starts with, the voters in its header (None: kraft.version 0), and what else it tells."""

    snapshot_id: OffsetAndEpoch
    voters: VoterSet | None
    #: In the snapshot of a data partition.
    producers: KnownProducers | None = None


def check(store: SnapshotStore, group: GroupId, snapshot_id: OffsetAndEpoch) -> StartSnapshot:
    """Read a snapshot through. Raises CorruptBatch, StorageError."""
    voters: VoterSet | None = None
    producers: list[KnownProducers] = []
    for index, batch in enumerate(scan(store, group, snapshot_id)):
        if index == 0:
            voters = read_batch_voters(batch.data)
        elif index == len(producers) + 1 and not batch.header.is_control:
            first = next(iter(decode_records(batch.data)), None)
            known = None if first is None else KnownProducers.decode(first.value or b"")
            producers += [] if known is None else [known]
    return StartSnapshot(snapshot_id, voters, KnownProducers.join(producers))


def choose_at_start(store: SnapshotStore, group: GroupId, log: LogStore) -> StartSnapshot | None:
    """The newest intact snapshot of a group; the log is made to continue it where it does not (a crash came between a fetched
    snapshot and the reset of the log). A damaged one is deleted where an older one, or the log itself, stands in for it.

    Raises DamagedData, which names file and offset, when nothing holds the state in front of the log: all of it is to be
    fetched again.
    """
    damaged: str | None = None
    for snapshot_id in reversed(store.ids(group)):
        if snapshot_id.offset < log.start_offset:
            break
        try:
            found = check(store, group, snapshot_id)
        except CorruptBatch as error:
            damaged = damaged or f"{describe(snapshot_id)} is damaged: {error}"
            continue
        if damaged is not None:
            logger.error("%s: snapshot %s; going on from %s", group, damaged, describe(snapshot_id))
            _delete_newer(store, group, snapshot_id)
        if not _continues(log, snapshot_id):
            log.reset(snapshot_id)
        return found
    if log.start_offset > 0:
        reason = damaged or "there is no snapshot at or above that offset"
        raise DamagedData(
            f"{group}: the log begins at offset {log.start_offset}, but {reason}. What lies before is lost on this node",
            offset=0,
        )
    if damaged is not None:
        logger.error("%s: snapshot %s; the log still begins at 0", group, damaged)
        _delete_newer(store, group, None)
    return None


def _delete_newer(store: SnapshotStore, group: GroupId, intact: OffsetAndEpoch | None) -> None:
    for snapshot_id in store.ids(group):
        if intact is None or snapshot_id > intact:
            store.delete(group, snapshot_id)


def _continues(log: LogStore, snapshot_id: OffsetAndEpoch) -> bool:
    """Whether the log holds the very record that the snapshot ends with, or begins right behind it."""
    if snapshot_id.offset == log.start_offset:
        return True
    history = EpochHistory(log.epochs, log.start_offset, log.end_offset)
    return snapshot_id.offset <= log.end_offset and history.epoch_before(snapshot_id.offset) == snapshot_id.epoch
