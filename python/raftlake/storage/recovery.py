"""Opening a log after a stop of any kind: crash, kill, power loss, clean close.

The recovery point (`recovery_points.py`) divides a log. Below it everything was synced: the start trusts it as far as the
index files reach (they are a few MiB behind at most), and takes whatever does not fit for damage. Above it, and there alone,
bytes may be missing that were never acknowledged. All that the index files do not cover is checked by its CRCs. Where a batch
above the recovery point is broken:

- nothing intact follows: the torn end of a write, which is cut;
- intact batches follow and the machine was restarted since they were written: a power loss kept later unsynced bytes and not
  earlier ones; everything from the broken batch on is cut;
- intact batches follow and the machine was not restarted, or no recovery point is known: nothing can have been lost but
  by damage.

Damage is a `DamagedData` that names file, byte and offset; nothing is cut then. All that is kept is synced before it is used.
"""

from __future__ import annotations

import contextlib
import os
import re
from bisect import bisect_right
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from raftlake.errors import DamagedData, DiskFull, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.storage import epochs as epoch_files
from raftlake.storage.cleaned import finish_swaps
from raftlake.storage.descriptors import open_file, spared
from raftlake.storage.epochs import Entry, LeaderEpochs
from raftlake.storage.files import FilePool, storage_error, sync_data, sync_names
from raftlake.storage.index import SegmentIndex
from raftlake.storage.log import FileLog
from raftlake.storage.log_compaction import Compactions
from raftlake.storage.noted_starts import NotedStarts
from raftlake.storage.recovery_points import FILE_NAME, RecoveryPoints
from raftlake.storage.reset import perform_reset, read_pending_reset
from raftlake.storage.scan import WINDOW_HEADERS, BatchAt, BrokenBatch, find_batch_after, is_zero, walk
from raftlake.storage.segment import Segment, file_name
from raftlake.storage.snapshots import list_snapshots
from raftlake.wire.batch_header import HEADER_BYTES, BatchHeader, parse_header

SYNC_THREADS = 4
SEGMENT_NAME = re.compile(r"[0-9]{20}\.log")


class Recovery:
    """How the logs of one data directory are opened."""

    def __init__(
        self,
        points: RecoveryPoints,
        compactions: Compactions,
        starts: NotedStarts,
        *,
        is_same_boot: bool,
        synced: Collection[Path] = (),
    ) -> None:
        """`synced`: directories that `sync_ahead` has synced and that nobody has written to since."""
        self._points = points
        self._compactions = compactions
        self._starts = starts
        self._synced = set(synced)
        #: No power was lost since the last process wrote here.
        self._is_same_boot = is_same_boot

    def open_log(self, group: GroupId, path: Path, pool: FilePool, segment_bytes: int) -> FileLog:
        """Open or create the log in an existing directory, recovered and durable. Raises StorageError, DamagedData."""
        is_synced = path in self._synced
        # This opening writes there, also where it fails and is tried again.
        self._synced.discard(path)
        pending = read_pending_reset(path)
        if pending is None:
            finish_swaps(path)
        bases = list_segments(path)
        epochs = LeaderEpochs(path)
        segments: list[Segment] = []
        try:
            if pending is not None:
                self._points.lower(group, pending.offset)
                self._compactions.points.lower(group, pending.offset)
                self._starts.lower(group, pending.offset)
                segments.append(perform_reset(path, pending, pool, epochs))
            elif not bases:
                if self._points.of(group):
                    raise DamagedData(f"{path} holds no segment, but {self._known(group)}", offset=0)
                segments.append(Segment.create(path, Offset(0), pool))
            else:
                for base, following in pairwise(bases):
                    segments.append(open_sealed(path, base, following, pool))
                epochs = self._recover_last(group, path, bases[-1], pool, segments, is_synced=is_synced)
                told = epoch_files.load(path)
                if told != list(epochs.all_entries):
                    require_no_lone_header(told or [], epochs.all_entries, segments)
                    with contextlib.suppress(DiskFull):
                        # The next start rebuilds it as well.
                        epochs.save()
            if bases and not is_synced:
                sync_names(path)
        except StorageError:
            for segment in segments:
                segment.close()
            raise
        # The name of a first segment is synced by the flush that covers its first batch.
        return FileLog(
            group,
            path,
            pool,
            segment_bytes,
            segments,
            epochs,
            self._points,
            self._compactions,
            self._starts,
            names_changed=not bases,
        )

    def _known(self, group: GroupId) -> str:
        return f"{(self._points.of(group) or 1) - 1} was durable according to {FILE_NAME}"

    def _recover_last(
        self, group: GroupId, path: Path, base: Offset, pool: FilePool, segments: list[Segment], *, is_synced: bool
    ) -> LeaderEpochs:
        """Append the recovered last segment to `segments`; returns the epoch history of the whole log."""
        sealed = list(segments)
        last = Segment(path / file_name(base), base, base, 0, pool, SegmentIndex(base))
        last.is_active = True
        segments.append(last)
        point = self._points.of(group)
        last.adopt_index(point or Offset(0))
        start = segments[0].base_offset
        entries = epoch_files.load(path)
        epochs = None if entries is None else checked_epochs(path, entries, segments, start)
        if epochs is None:
            last.forget_adopted()
            epochs = rebuilt_epochs(path, sealed, start)
        try:
            if self._take_in(group, last, epochs, point) or not is_synced:
                last.sync()
        except OSError as error:
            raise storage_error("recover", last.path, error, last.size) from error
        return epochs

    def _take_in(self, group: GroupId, segment: Segment, epochs: LeaderEpochs, point: Offset | None) -> bool:
        """Take the intact batches into the segment and the history; cut what follows them. Returns whether anything was cut.
        Raises OSError, StorageError."""
        reason = "the file ends there"
        end = segment.file.size()
        try:
            for batch in segment.walk_on(end, epochs.last):
                segment.adopt(batch)
                epochs.note(batch.epoch, batch.base_offset)
        except BrokenBatch as broken:
            reason = broken.reason
            if segment.end_offset >= (point or 0):
                self._require_unsynced(group, segment, broken, end)
        if point is not None and segment.end_offset < point:
            where = f"byte {segment.size} (offset {segment.end_offset})"
            raise DamagedData(
                f"{segment.path} is damaged at {where}: {reason}, but {self._known(group)}", offset=segment.end_offset
            )
        if segment.size == end:
            return False
        os.ftruncate(segment.file.descriptor(), segment.size)
        return True

    def _require_unsynced(self, group: GroupId, segment: Segment, broken: BrokenBatch, end: int) -> None:
        """Returns when the broken batch and all behind it can be what was never synced. Raises DamagedData otherwise."""
        try:
            later = self._find_later(group, segment, broken, end)
        except BrokenBatch as unreadable:
            raise DamagedData(f"{broken}; {unreadable}", offset=segment.end_offset) from unreadable
        if later is not None:
            raise DamagedData(
                f"{broken}; an intact batch with offsets {later.base_offset} to {later.end_offset - 1} follows at byte "
                f"{later.position}, so this is no torn tail",
                offset=segment.end_offset,
            )

    def _find_later(self, group: GroupId, segment: Segment, broken: BrokenBatch, end: int) -> BatchAt | None:
        """An intact batch that would not be there if only unsynced bytes were missing."""
        descriptor = segment.file.descriptor()
        if is_zero(descriptor, broken.path, broken.position, end):
            return None
        if self._points.of(group) is not None and not self._is_same_boot:
            return None
        return find_batch_after(descriptor, broken.path, broken.position, end, segment.end_offset)


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
            descriptor = open_file(path / file_name(bases[-1]), os.O_RDONLY)
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
        names = spared(lambda: os.listdir(path))
    except OSError as error:
        raise storage_error("list", path, error) from error
    return sorted(Offset(int(name[:20])) for name in names if SEGMENT_NAME.fullmatch(name))


def open_sealed(path: Path, base: Offset, following: Offset, pool: FilePool) -> Segment:
    """A segment that has a successor: it must end where that one begins. Raises StorageError."""
    file = path / file_name(base)
    try:
        size = file.stat().st_size
    except OSError as error:
        raise storage_error("open", file, error) from error
    segment = Segment(file, base, following, size, pool, None)
    try:
        segment.verify_end()
    except BrokenBatch as broken:
        if broken.offset != following or not _is_reserve(segment, broken):
            raise
        # All batches are there. Older versions left reserved blocks behind them where the disk was full.
        _cut(segment, broken.position)
        segment.verify_end()
    return segment


def _is_reserve(segment: Segment, broken: BrokenBatch) -> bool:
    try:
        return is_zero(segment.file.descriptor(), segment.path, broken.position, segment.size)
    except BrokenBatch:
        return False


def _cut(segment: Segment, size: int) -> None:
    segment.size = size
    try:
        os.ftruncate(segment.file.descriptor(), size)
    except OSError as error:
        raise storage_error("truncate", segment.path, error, size) from error
    segment.sync()


def checked_epochs(path: Path, entries: list[Entry], segments: list[Segment], start: Offset) -> LeaderEpochs | None:
    """The history in the checkpoint file up to where the last segment is known, if the batches on both sides of each
    boundary agree with it (the file has no checksum, and it may be older than the log); else None."""
    known_end = segments[-1].end_offset
    history = LeaderEpochs(path, entries)
    if start > 0:
        # A crash between deleting old segments and rewriting the file leaves entries below the start.
        history.advance_to(start)
    history.truncate_to(known_end, start)
    found = history.all_entries
    if not found or found[0][1] != start:
        return history if not found and known_end == 0 else None
    ends = [*(begin for _, begin in found[1:]), known_end]
    spans = [(epoch, end) for (epoch, _), end in zip(found, ends, strict=True)]
    if start > 0 and ends[0] == start:
        # The epoch before the first record, which has another.
        del spans[0]
    first = _batch_from(segments, 0, 0)
    for epoch, end in spans:
        number = bisect_right(segments, end - 1, key=lambda each: each.base_offset) - 1
        last = _batch_at(segments[number], Offset(end - 1))
        # Those in between have the same epoch, for epochs never go back.
        if first is None or last is None or not first.epoch == last.epoch == epoch or last.end_offset != end:
            return None
        first = _batch_from(segments, number, last.position + last.size)
    return history


def require_no_lone_header(told: Sequence[Entry], found: Sequence[Entry], segments: Sequence[Segment]) -> None:
    """Raises DamagedData where the epoch of one batch alone, not the last, is another than the checkpoint file has `told`.

    No CRC covers the epoch in a header, and the file has no checksum. A file that is older than the log is wrong from some
    batch on. A boundary of the file is right where the record of a new leader begins it, whose header says that by its CRC.
    """
    start, end = segments[0].base_offset, segments[-1].end_offset
    points = sorted({start, end, *(begin for _, begin in (*told, *found) if start < begin < end)})
    spans = [each for each in pairwise(points) if _epoch_of(told, each[0]) != _epoch_of(found, each[0])]
    begun = {begin for _, begin in told} & set(spans[0]) if len(spans) == 1 else set()
    if not begun or spans[0][1] == end:
        return
    (first, behind), header = spans[0], _header_at(segments, spans[0][0])
    if header.end_offset == behind and all(_header_at(segments, begin).is_control for begin in begun):
        raise DamagedData(
            f"{segments[0].path.parent}: the batch at offset {first} says leader epoch {header.leader_epoch}, and "
            f"{epoch_files.FILE_NAME} says {_epoch_of(told, first)}: one of them is damaged",
            offset=first,
        )


def _epoch_of(entries: Sequence[Entry], offset: int) -> int:
    return next((epoch for epoch, begin in reversed(entries) if begin <= offset), -1)


def _header_at(segments: Sequence[Segment], offset: Offset) -> BatchHeader:
    segment = segments[bisect_right(segments, offset, key=lambda each: each.base_offset) - 1]
    batch = segment.locate(offset)
    return parse_header(segment.read_bytes(batch.position, HEADER_BYTES))


def _batch_at(segment: Segment, offset: Offset) -> BatchAt | None:
    """The batch that holds `offset`. None when it cannot be found: reads will tell why."""
    try:
        return segment.locate(offset) if segment.base_offset <= offset < segment.end_offset else None
    except BrokenBatch:
        return None


def _batch_from(segments: Sequence[Segment], number: int, position: int) -> BatchAt | None:
    """The batch that begins at `position` of a segment, or the next one's first where that one ends; reads its header alone."""
    if position == segments[number].size and number + 1 < len(segments):
        number, position = number + 1, 0
    segment = segments[number]
    try:
        return next(walk(segment.file.descriptor(), segment.path, position, segment.size, window=0), None)
    except BrokenBatch:
        return None


def rebuilt_epochs(path: Path, sealed: list[Segment], start: Offset) -> LeaderEpochs:
    """The history of the sealed segments from their headers. Raises DamagedData when the epoch before the start is lost."""
    rebuilt = LeaderEpochs(path)
    if start > 0:
        # A log begins above 0 where a snapshot ends, whose name tells the epoch.
        before = [each for each in list_snapshots(path) if each.offset == start]
        if not before:
            raise DamagedData(
                f"{path / epoch_files.FILE_NAME} is missing or damaged: the epoch of the record before {start} is lost",
                offset=0,
            )
        rebuilt.reset_to(before[-1])
    for segment in sealed:
        # Epochs go back nowhere, at the seam between two segments neither.
        batches = walk(
            segment.file.descriptor(), segment.path, 0, segment.size,
            offset=segment.base_offset, epoch_min=rebuilt.last, window=WINDOW_HEADERS,
        )  # fmt: skip
        for batch in batches:
            rebuilt.note(batch.epoch, batch.base_offset)
    return rebuilt
