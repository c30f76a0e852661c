"""Opening a log after a stop of any kind: crash, kill, power loss, clean close; they are not told apart.

Every segment but the last was synced before its successor was created, so for those the chain of offsets is checked and no
more. The last one is read whole: headers, chain and CRCs. Where it stops being valid, one question decides. Does an intact
batch with later offsets follow, or was more than that durable at the last clean stop? Then bytes are damaged that may have
been acknowledged: a `StorageError`. Otherwise it is the torn end of a write that was never reported as synced: it is cut.
(Damage of the very last batches that were written since looks the same; the quorum's other copies protect those.) All that
is kept is synced before it is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from raftlake.errors import StorageError
from raftlake.ports import GroupId
from raftlake.raft.types import Offset
from raftlake.storage import epochs as epoch_files
from raftlake.storage.epochs import Entry, LeaderEpochs
from raftlake.storage.files import FilePool, storage_error, sync_data, sync_directory
from raftlake.storage.index import SegmentIndex
from raftlake.storage.log import FileLog, perform_reset, read_pending_reset
from raftlake.storage.recovery_points import FILE_NAME, RecoveryPoints
from raftlake.storage.scan import WINDOW_LARGE, BrokenBatch, find_batch_after, is_zero, walk
from raftlake.storage.segment import Segment, file_name

SYNC_THREADS = 4
SEGMENT_NAME = re.compile(r"[0-9]{20}\.log")


def open_log(group: GroupId, path: Path, pool: FilePool, segment_bytes: int, points: RecoveryPoints) -> FileLog:
    """Open or create the log in an existing directory, recovered and durable. Raises StorageError."""
    pending = read_pending_reset(path)
    bases = list_segments(path)
    epochs = LeaderEpochs(path)
    segments: list[Segment] = []
    try:
        if pending is not None:
            segments.append(perform_reset(path, pending, pool, epochs))
        elif not bases:
            # Whoever removed the files wants this replica to begin anew.
            points.lower(group, Offset(0))
            segments.append(Segment.create(path, Offset(0), pool))
        else:
            for base, following in pairwise(bases):
                segments.append(open_sealed(path, base, following, pool))
            epochs = LeaderEpochs(path, known_epochs(path, segments, bases[0], bases[-1]))
            segments.append(recover_last(path, bases[-1], pool, epochs, points.of(group)))
            if epoch_files.load(path) != list(epochs.all_entries):
                epochs.save()
        sync_names(path)
    except StorageError:
        for segment in segments:
            segment.close()
        raise
    return FileLog(group, path, pool, segment_bytes, segments, epochs, points)


def sync_ahead(paths: Sequence[Path]) -> None:
    """Sync the last segment and the names of many logs in parallel, so that opening one after the other need not wait for
    the disk each time. Raises StorageError."""
    with ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="raftlake-open") as threads:
        for _ in threads.map(_sync_one, paths):
            pass


def _sync_one(path: Path) -> None:
    bases = list_segments(path)
    try:
        if bases:
            descriptor = os.open(path / file_name(bases[-1]), os.O_RDONLY | os.O_CLOEXEC)
            try:
                sync_data(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise storage_error("sync", path / file_name(bases[-1]), error) from error
    sync_names(path)


def list_segments(path: Path) -> list[Offset]:
    """The base offsets of the segments in a directory, ascending. Raises StorageError."""
    try:
        names = os.listdir(path)
    except OSError as error:
        raise storage_error("list", path, error) from error
    return sorted(Offset(int(name[:20])) for name in names if SEGMENT_NAME.fullmatch(name))


def sync_names(path: Path) -> None:
    try:
        sync_directory(path)
    except OSError as error:
        raise storage_error("sync", path, error) from error


def open_sealed(path: Path, base: Offset, following: Offset, pool: FilePool) -> Segment:
    """A segment that has a successor: it must end where that one begins. Raises StorageError."""
    file = path / file_name(base)
    try:
        size = file.stat().st_size
    except OSError as error:
        raise storage_error("open", file, error) from error
    segment = Segment(file, base, following, size, pool, None)
    segment.verify_end()
    return segment


def known_epochs(path: Path, sealed: list[Segment], start: Offset, last_base: Offset) -> list[Entry]:
    """The epoch history below the last segment, and the entry at the log's start that stands for the record before it.

    From the checkpoint file; when it is missing or damaged, from the headers of all sealed segments. Raises StorageError.
    """
    entries = epoch_files.load(path)
    if entries is None:
        if start > 0:
            raise StorageError(
                f"{path / epoch_files.FILE_NAME} is missing or damaged: the epoch of the record before {start} is lost"
            )
        rebuilt = LeaderEpochs(path)
        for segment in sealed:
            for batch in walk(segment.file.descriptor(), segment.path, 0, segment.size, offset=segment.base_offset):
                rebuilt.note(batch.epoch, batch.base_offset)
        return list(rebuilt.all_entries)
    history = LeaderEpochs(path, entries)
    if start > 0:
        # A crash between deleting old segments and rewriting the file leaves entries below the start.
        history.advance_to(start)
    history.truncate_to(last_base, start)
    epoch_files.require_history(history.all_entries, start, path)
    return list(history.all_entries)


def recover_last(path: Path, base: Offset, pool: FilePool, epochs: LeaderEpochs, durable_end: Offset) -> Segment:
    """The last segment, cut behind its last intact batch and synced; its epochs are added. Raises StorageError."""
    segment = Segment(path / file_name(base), base, base, 0, pool, SegmentIndex(base))
    segment.is_active = True
    try:
        cut_torn_tail(segment, epochs, durable_end)
        segment.sync()
    except OSError as error:
        segment.close()
        raise storage_error("recover", segment.path, error, segment.size) from error
    except StorageError:
        segment.close()
        raise
    return segment


def cut_torn_tail(segment: Segment, epochs: LeaderEpochs, durable_end: Offset) -> None:
    """Take the intact batches into the segment and the history; cut what follows them. Raises OSError, StorageError."""
    reason = "the file ends there"
    descriptor = segment.file.descriptor()
    end = os.fstat(descriptor).st_size
    batches = walk(
        descriptor, segment.path, 0, end,
        offset=segment.base_offset, check_crc=True, epoch_min=epochs.last, window=WINDOW_LARGE,
    )  # fmt: skip
    try:
        for batch in batches:
            segment.adopt(batch)
            epochs.note(batch.epoch, batch.base_offset)
    except BrokenBatch as broken:
        reason = broken.reason
        require_torn_tail(descriptor, broken, end, segment.end_offset)
    if segment.end_offset < durable_end:
        where = f"byte {segment.size} (offset {segment.end_offset})"
        raise StorageError(
            f"{segment.path} is damaged at {where}: {reason}, but {durable_end - 1} was durable according to {FILE_NAME}. "
            f"Nothing was cut. Remove {segment.path.parent} to let this replica begin anew"
        )
    if segment.size < end:
        os.ftruncate(descriptor, segment.size)


def require_torn_tail(descriptor: int, broken: BrokenBatch, file_size: int, end_offset: int) -> None:
    """Returns when nothing intact follows the broken batch, so that it may be cut. Raises StorageError otherwise."""
    if is_zero(descriptor, broken.path, broken.position, file_size):
        return
    later = find_batch_after(descriptor, broken.path, broken.position, file_size, end_offset)
    if later is not None:
        raise StorageError(
            f"{broken}; an intact batch with offsets {later.base_offset} to {later.end_offset - 1} follows at byte "
            f"{later.position}, so this is no torn tail and nothing was cut"
        )
