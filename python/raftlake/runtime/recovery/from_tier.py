"""`raftlake recover --from-tier`: after the loss of all disks, a data directory that goes on where the Delta tables end.

What the tables show is kept. What was behind it, and the whole key-value space, is lost: the plan says so before anything is
written. The directory is made as that of the only survivor whose logs are empty and begin where the tables end. Then it is
recovered as any survivor is (`Recovery`): a new epoch in each log, one voter, a new incarnation of each table.

The metadata log begins at a high offset, with a snapshot that holds the topics and the tier's keys. A later restoration begins
at a higher one (`metadata_start`). So no version of a key, and no producer id, is ever given out again.

Invariant: a directory with records, or one in use, is never touched. An interrupted run leaves `recovery-pending`. `serve` and
a plain `recover` refuse the directory then, and the next run begins anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from raftlake.errors import CorruptBatch, StorageError, WrongState
from raftlake.kv import snapshot as chunks
from raftlake.kv.keys import PRODUCERS_NEXT_KEY, tier_key, tier_segment_key, topic_key
from raftlake.kv.keyspace import pack
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import LineageFacts
from raftlake.raft.types import DirectoryId, ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.partition.auxiliary import Auxiliary
from raftlake.replica.partition.snapshot_files import SnapshotMaker, write_producers
from raftlake.replica.partition.start_points import KnownProducers
from raftlake.replica.reserved import PRODUCER_IDS_BLOCK, Topic
from raftlake.runtime.recovery.beginning import NO_TIMESTAMP
from raftlake.runtime.recovery.recover import FROM_TIER, PENDING_NAME, Recovery
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.files import DIRECTORY_MODE, TEMPORARY_SUFFIX, read_file, replace_file, storage_error
from raftlake.storage.lock import DirectoryLock
from raftlake.storage.meta import FILE_NAME, MetaProperties, random_uuid, used_names, write_meta
from raftlake.tier.entries import adopted, encode_segment, encode_tiered
from raftlake.wire.ids import id_to_text

#: Behind each offset that a metadata log can have had that began at 0.
METADATA_START = Offset(1 << 40)
#: Between the starts of two seconds, or of two epochs, of which a restoration raises the newest by `EPOCHS_AHEAD`: no quorum
#: commits a million commands in a second.
STEP = 1 << 20
#: The keys are of the time before the recovery: the new leader takes each table over.
NO_RECOVERY = ""
#: Of one record of the metadata log's snapshot.
ROWS_MAX = 256


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """What the table of a topic tells of one partition."""

    facts: LineageFacts
    #: At the end of the table; None where it shows nothing of the partition, or the bytes are lost.
    auxiliary: bytes | None
    #: Why they are lost; "" where they are not.
    lacking: str = ""
    #: Of the newest record, milliseconds since 1970; -1 where none has a time.
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopic:
    name: str
    topic_id: bytes
    table: str
    #: By partition; each one from 0 on is there.
    partitions: Mapping[int, RestoredPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPlan:
    """What a new directory is made from."""

    cluster_id: str
    tier_uri: str
    topics: Sequence[RestoredTopic]

    def groups(self) -> list[tuple[GroupId, RestoredPartition]]:
        return [
            (GroupId(topic.name, index, topic.topic_id), partition)
            for topic in self.topics
            for index, partition in sorted(topic.partitions.items())
        ]


def require_empty(data_dir: Path) -> None:
    """Raises WrongState unless the directory holds nothing, but for what an interrupted run has left."""
    found = _held(data_dir)
    if found and not _is_unfinished(data_dir):
        raise WrongState(
            f"{data_dir} is not empty ({', '.join(found[:3])}): --from-tier is for the loss of all disks, and makes a new "
            "directory. Where a voter's disk is left, recover from that one without --from-tier: it may know more"
        )


def _held(data_dir: Path) -> list[str]:
    """What is in the directory, but for a mount's own, settings, and a marker whose first writing was interrupted."""
    if not data_dir.exists():
        return []
    formatted = [FILE_NAME] if (data_dir / FILE_NAME).exists() else []
    return sorted([*formatted, *(name for name in used_names(data_dir) if name != PENDING_NAME + TEMPORARY_SUFFIX)])


def _is_unfinished(data_dir: Path) -> bool:
    data = read_file(data_dir / PENDING_NAME)
    try:
        return data is not None and FROM_TIER in json.loads(data)
    except ValueError:
        return False


def restore(plan: TierPlan, data_dir: Path, node_id: NodeId, endpoint: Endpoint) -> DirectoryId:
    """Make the directory. Returns its directory id. Raises StorageError, WrongState."""
    require_empty(data_dir)
    try:
        data_dir.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error("create", data_dir, error) from error
    with _alone(data_dir):
        _begin_anew(plan, data_dir)
        meta = MetaProperties(node_id=node_id, directory_id=DirectoryId(random_uuid()), cluster_id=plan.cluster_id)
        write_meta(data_dir, meta)
        _make_survivor(plan, data_dir, node_id)
        recovery = Recovery(data_dir, node_id, endpoint, METADATA_GROUP, made_from=plan.tier_uri)
        try:
            return recovery.perform(recovery.examine(), plan.cluster_id)
        finally:
            recovery.close()


@contextlib.contextmanager
def _alone(data_dir: Path) -> Iterator[None]:
    """One restoration of a directory at a time. Between its steps nobody holds the `.lock` file, which is of the logs."""
    descriptor = -1
    try:
        descriptor = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise StorageError(f"{data_dir} is in use: another `raftlake recover --from-tier` is making it") from error
        raise storage_error("lock", data_dir, error) from error
    try:
        yield
    finally:
        os.close(descriptor)


def _begin_anew(plan: TierPlan, data_dir: Path) -> None:
    """Empty a directory that an interrupted run has left, and mark it. Nobody else has it meanwhile."""
    lock = DirectoryLock(data_dir)
    try:
        # Another run may have ended since.
        require_empty(data_dir)
        _empty(data_dir)
        replace_file(data_dir / PENDING_NAME, json.dumps({FROM_TIER: plan.tier_uri}).encode())
    finally:
        lock.release()


def _empty(data_dir: Path) -> None:
    """What says that a run was interrupted goes last, with the next plan."""
    try:
        for path in [data_dir / name for name in _held(data_dir) if name != PENDING_NAME]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError as error:
        raise storage_error("empty", data_dir, error) from error


def _make_survivor(plan: TierPlan, data_dir: Path, node_id: NodeId) -> None:
    """Empty logs that begin where the tables end, behind snapshots that tell what was before."""
    logs = FileLogDirectory(data_dir, post=None)
    elections = FileElectionStore(data_dir, voters=(node_id,), filed=METADATA_GROUP.topic)
    try:
        epochs: dict[GroupId, Epoch] = {}
        for group, partition in plan.groups():
            start, producers = start_of(partition)
            _begin(logs, group, start, partial(_write_producers, producers))
            epochs[group] = Epoch(max(partition.facts.leader_epoch, start.epoch))
        newest = Epoch(max(epochs.values(), default=0))
        begin = metadata_start(newest, int(time.time()))
        _begin(logs, METADATA_GROUP, OffsetAndEpoch(begin, newest), lambda maker: _write(maker, key_space(plan, begin)))
        epochs[METADATA_GROUP] = newest
        elections.save({group: ElectionState(epoch=epoch) for group, epoch in epochs.items()})
    finally:
        elections.close()
        logs.close()


def metadata_start(newest: Epoch, now_s: int) -> Offset:
    """Where the metadata log begins, by the newest epoch that the tables tell and the seconds since 1970: behind each offset
    that a lost one can have had, one that an earlier restoration made too. So this host's clock may be behind that of the
    earlier one by less than the time since; epochs count only where they are above the seconds. Until the year 2200 a block of
    producer ids for each offset ends below 2^63."""
    return Offset(METADATA_START + max(newest, now_s) * STEP)


def start_of(partition: RestoredPartition) -> tuple[OffsetAndEpoch, KnownProducers | None]:
    """Where a log begins, and what is known of producers there. Without it a retry from before may be appended again."""
    facts = partition.facts
    epoch = facts.epochs[-1][0] if facts.epochs else Epoch(0)
    start = OffsetAndEpoch(facts.end_offset, epoch)
    if partition.auxiliary is None:
        return start, None
    try:
        return start, Auxiliary.decode(partition.auxiliary).producers
    except CorruptBatch:
        return start, None


def _begin(logs: FileLogDirectory, group: GroupId, start: OffsetAndEpoch, write: Callable[[SnapshotMaker], object]) -> None:
    log = logs.open(group)
    if start.offset == 0:
        return
    # The recovery that follows puts the voters into the log.
    maker = SnapshotMaker(logs.snapshots.create(group, start), start, None, int(time.time() * 1000), NO_TIMESTAMP)
    write(maker)
    errors: list[StorageError | None] = []
    maker.writer.freeze(errors.append)
    for error in errors:
        if error is not None:
            raise error
    log.reset(start)


def _write_producers(producers: KnownProducers | None, maker: SnapshotMaker) -> None:
    # Its slices are for nodes that serve meanwhile.
    deque(write_producers(maker, producers), maxlen=0)


def _write(maker: SnapshotMaker, records: Sequence[bytes]) -> None:
    for record in records:
        maker.add(record)
    maker.end()


def key_space(plan: TierPlan, begin: Offset) -> list[bytes]:
    """The records of the snapshot that the metadata log begins with: topics, the tier's keys, and the next producer id."""
    # Above what an earlier restoration gave out. As many are left for `Recovery`, which cannot know them all either.
    values = {PRODUCERS_NEXT_KEY: b"%d" % (PRODUCER_IDS_BLOCK * (begin - STEP // 2))}
    for topic in plan.topics:
        described = Topic(topic.name, topic.topic_id, len(topic.partitions), {}, None)
        values[topic_key(topic.name)] = described.encode()
        for index, partition in topic.partitions.items():
            values.update(tier_keys(topic.topic_id, index, partition.facts))
    rows = [(key, pack(begin, values[key])) for key in sorted(values)]
    parts = [chunks.encode_rows(rows[first : first + ROWS_MAX]) for first in range(0, len(rows), ROWS_MAX)]
    return [chunks.encode_header(begin, len(rows)), *parts, chunks.FOOTER]


def tier_keys(topic_id: bytes, partition: int, facts: LineageFacts) -> dict[str, bytes]:
    """What the quorum's keys say of a lineage, by its table."""
    text = id_to_text(topic_id)
    values = {tier_key(text, partition): encode_tiered(adopted(facts, NO_RECOVERY))}
    values |= {tier_segment_key(text, partition, each.base_offset): encode_segment(each) for each in facts.newest}
    return values
