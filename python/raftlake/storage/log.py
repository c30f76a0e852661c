"""The log of one group on disk: `ports.LogStore` over segments and an epoch history.

Owns the order of things: what must be durable before what. Knows nothing of threads: it hands a flush its descriptors and
is told how it went. Invariants: segments are contiguous and every one but the last is synced with its indexes; a truncation
or reset is durable before it returns (an append after it can never mix with the bytes it cut); after the first disk error
every method raises.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from raftlake.errors import DiskFull, InvariantViolation, StorageError
from raftlake.ports.driver import BatchSpan, Compaction, SegmentInfo, TimestampAndOffset
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import BatchSource, FileRange
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage import partial
from raftlake.storage.aborted_index import FileAbortedIndex
from raftlake.storage.cleaned import CleanedGroup, commit, put_in_place
from raftlake.storage.compaction_pass import SEGMENT_OFFSETS_MAX, Source
from raftlake.storage.descriptors import open_file
from raftlake.storage.epochs import LeaderEpochs
from raftlake.storage.files import Chunk, FilePool, PooledFile, storage_error, sync_names
from raftlake.storage.log_compaction import Compactions, Done, LogCompaction
from raftlake.storage.noted_starts import NotedStarts
from raftlake.storage.recovery_points import RecoveryPoints
from raftlake.storage.reset import announce_reset, perform_reset
from raftlake.storage.scan import BatchAt
from raftlake.storage.scrub import Scrub
from raftlake.storage.segment import Segment, file_name
from raftlake.storage.start_points import FileStartPoints
from raftlake.storage.times import find_timestamp
from raftlake.wire.batch_header import parse_header
from raftlake.wire.compaction import cut_empty


@dataclass(slots=True)
class FlushWork:
    """What one log wants synced: files by pinned descriptors, then the directory if names are new, then a hint to rewrite."""

    log: FileLog
    files: list[PooledFile]
    descriptors: list[tuple[int, Path]]
    #: What is durable when it went well, unless the log is cut meanwhile.
    end_offset: Offset
    cuts: int
    directory: tuple[int, Path] | None = None
    #: Version and new content of leader-epoch-checkpoint, written after the sync was reported: no caller waits for it.
    epochs: tuple[int, bytes] | None = None
    #: Only what cannot be rebuilt is synced: a log that begins at 0 finds every epoch in its own batches.
    epochs_need_sync: bool = False
    #: Of the sync, and of writing the epochs after it. Two fields, because the first is read while the second is written.
    error: StorageError | None = None
    epochs_error: StorageError | None = None


class FileLog:
    """See `ports.LogStore` for the contract. Used from the driver's thread only. Made by `recovery.open_log`."""

    def __init__(
        self,
        group: GroupId,
        path: Path,
        pool: FilePool,
        segment_bytes: int,
        segments: list[Segment],
        epochs: LeaderEpochs,
        points: RecoveryPoints,
        compactions: Compactions,
        starts: NotedStarts,
        *,
        names_changed: bool = False,
    ) -> None:
        assert segments and segments[-1].is_active
        self.group = group
        self.path = path
        self._pool = pool
        self._segment_bytes = segment_bytes
        self._segments = segments
        self._active = segments[-1]
        self._epochs = epochs
        self._points = points
        self._starts = starts
        self.start_points = FileStartPoints(path)
        self.aborted = FileAbortedIndex(path, lambda: self.segment_bases, lambda: self.compacted_until)
        self._names_changed = names_changed
        self._failure: str | None = None
        self._deleted = False
        #: Everything below it is durable: what recovery found was synced.
        self.synced_end = self.end_offset
        self._cuts = 0
        self._scrub = Scrub()
        self._compaction = LogCompaction(group, path, compactions)
        self.is_partial = partial.is_noted(path)

    def __repr__(self) -> str:
        return f"FileLog({self.group}, {self.start_offset}..{self.end_offset}, {len(self._segments)} segments)"

    @property
    def start_offset(self) -> Offset:
        return self._segments[0].base_offset

    @property
    def end_offset(self) -> Offset:
        return self._active.end_offset

    @property
    def epochs(self) -> Sequence[tuple[Epoch, Offset]]:
        return self._epochs.entries

    @property
    def segment_bases(self) -> Sequence[Offset]:
        return [segment.base_offset for segment in self._segments]

    def segments(self) -> Sequence[SegmentInfo]:
        self._require_usable()
        return tuple(segment.info() for segment in self._segments)

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, chunks: Sequence[Chunk], spans: Sequence[BatchSpan]) -> Sequence[Offset]:
        """Raises StorageError (disk), InvariantViolation when the batches do not continue the log."""
        if self._failure is not None:
            raise StorageError(self._failure)
        if not spans:
            return ()
        size = self._require_next(chunks, spans)
        active = self._active
        begun: tuple[Offset, ...] = ()
        if active.size and (
            active.size + size > self._segment_bytes or spans[-1].end_offset - active.base_offset > SEGMENT_OFFSETS_MAX
        ):
            active = self._pool.room.retrying(self._roll)
            begun = (active.base_offset,)
        self._pool.room.retrying(lambda: self._write(active, chunks, spans, size))
        if spans[-1].epoch > self._epochs.last or not self._epochs.entries:
            for span in spans:
                self._epochs.note(Epoch(span.epoch), Offset(span.base_offset))
        return begun

    def limit_segments(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes

    def roll(self) -> Sequence[Offset]:
        """Raises StorageError; DiskFull: the active segment goes on."""
        self._require_usable()
        if not self._active.size:
            return ()
        return (self._pool.room.retrying(self._roll).base_offset,)

    def _write(self, active: Segment, chunks: Sequence[Chunk], spans: Sequence[BatchSpan], size: int) -> None:
        try:
            active.append(chunks, spans, size)
        except OSError as error:
            told = storage_error("append to", active.path, error, active.size)
            failed = type(told)(f"{told}, offset {active.end_offset}")
            raise failed if isinstance(failed, DiskFull) else self._fail(failed) from error

    def _require_next(self, chunks: Sequence[Chunk], spans: Sequence[BatchSpan]) -> int:
        size = 0
        offset: int = self._active.end_offset
        epoch: int = self._epochs.last
        for span in spans:
            if span.base_offset != offset or span.end_offset <= offset or span.epoch < epoch:
                raise InvariantViolation(f"{self.group}: {span} cannot follow offset {offset}, epoch {epoch}")
            offset = span.end_offset
            epoch = span.epoch
            size += span.size
        if sum(map(len, chunks)) != size:
            raise InvariantViolation(f"{self.group}: {sum(map(len, chunks))} bytes given for batches of {size}")
        return size

    def _roll(self) -> Segment:
        """Seal the active segment and begin the next. The old one is synced first: recovery looks for a torn tail only in the
        last segment. The flush that covers the first append to the new one syncs its name. Without room for all of it the old
        one goes on, and the next append that does not fit tries again."""
        try:
            self._active.prepare_seal()
            self._epochs.save()
            following = Segment.create(self.path, self._active.end_offset, self._pool)
        except DiskFull:
            raise
        except StorageError as error:
            raise self._fail(error) from error
        self._active.seal()
        self._active = following
        self._segments.append(self._active)
        self._names_changed = True
        self.synced_end = self.end_offset
        return self._active

    def truncate_to(self, end_offset: Offset) -> None:
        """Durable when it returns. Raises StorageError, InvariantViolation below the log's start."""
        self._require_usable()
        if end_offset < self.start_offset:
            raise InvariantViolation(f"{self.group}: truncation to {end_offset}, but the log begins at {self.start_offset}")
        try:
            if end_offset < self.end_offset:
                self._scrub.cut(end_offset)
                self._pool.room.retrying(lambda: self._compaction.cut(end_offset))
                self.start_points.cut(end_offset)
                self.aborted.truncate_to(end_offset)
                self._pool.room.retrying(lambda: self._points.lower(self.group, end_offset))
                self._pool.room.retrying(lambda: self._starts.lower(self.group, end_offset))
                self._cuts += 1
                self._truncate_segments(end_offset)
        except StorageError as error:
            raise self._fail(error) from error
        if end_offset <= self.synced_end:
            self.synced_end = self.end_offset
        # Also when nothing was cut (KAFKA-10706): an epoch that begins at or after the cut is not ours.
        self._epochs.truncate_to(end_offset, self.start_offset)

    def _truncate_segments(self, end_offset: Offset) -> None:
        while len(self._segments) > 1 and self._segments[-1].base_offset > end_offset:
            # One by one, newest first, each name durably gone before the next: a crash leaves a prefix without holes.
            self._segments[-1].delete()
            self._segments.pop()
            self._active = self._segments[-1]
            sync_names(self.path)
        self._active.truncate(end_offset)

    def reset(self, start: OffsetAndEpoch) -> None:
        """Durable when it returns, and all or nothing. The epoch history is (start.epoch, start.offset): the epoch before the
        first record (none at offset 0). Raises StorageError."""
        self._require_usable()
        try:
            self._scrub.cut(start.offset)
            self._compaction.give_up()
            self._pool.room.retrying(lambda: self._compaction.cut(start.offset))
            self._pool.room.retrying(lambda: self._points.lower(self.group, start.offset))
            self._pool.room.retrying(lambda: self._starts.lower(self.group, start.offset))
            self._pool.room.retrying(lambda: announce_reset(self.path, start))
        except DiskFull:
            # Nothing was dropped yet.
            raise
        except StorageError as error:
            raise self._fail(error) from error
        try:
            for segment in self._segments:
                segment.close()
            self._active = perform_reset(self.path, start, self._pool, self._epochs)
            self.start_points.forget()
            self.aborted.forget_all()
        except StorageError as error:
            raise self._fail(error) from error
        self._segments = [self._active]
        self._names_changed = False
        self._cuts += 1
        self.synced_end = start.offset

    def advance_start(self, start_offset: Offset) -> Offset:
        """The names of the deleted segments are durably gone when it returns. Raises StorageError."""
        self._require_usable()
        if len(self._segments) > 1 and self._segments[0].end_offset <= start_offset:
            self._compaction.give_up()
        try:
            while len(self._segments) > 1 and self._segments[0].end_offset <= start_offset:
                self.aborted.forget(self.start_offset)
                self._segments.pop(0).delete()
                sync_names(self.path)
            self.start_points.advance(self.start_offset)
        except StorageError as error:
            raise self._fail(error) from error
        self._epochs.advance_to(self.start_offset)
        return self.start_offset

    @property
    def noted_start(self) -> Offset:
        return self._starts.of(self.group)

    def note_start(self, start_offset: Offset) -> None:
        self._starts.note(self.group, start_offset)

    def note_partial(self, is_partial: bool) -> None:
        """Raises StorageError."""
        self._require_usable()
        try:
            self._pool.room.retrying(lambda: partial.note(self.path, is_partial))
        except DiskFull:
            raise
        except StorageError as error:
            raise self._fail(error) from error
        self.is_partial = is_partial

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, start: Offset, limit: Offset, size_max: int) -> bytes:
        """Never crosses a segment: the next read continues behind what it returned. Raises StorageError."""
        if self._failure is not None:
            raise StorageError(self._failure)
        segment = self._active
        if start < segment.base_offset:
            if start < self.start_offset:
                raise InvariantViolation(f"{self.group}: read from {start}, but the log begins at {self.start_offset}")
            segment = self._segment_of(start)
        elif start > segment.end_offset:
            raise InvariantViolation(f"{self.group}: read from {start}, but the log ends at {segment.end_offset}")
        if start >= limit or start == segment.end_offset:
            return b""
        return _cut_to(start, segment.read(start, limit, size_max))

    def locate(self, start: Offset, end: Offset) -> BatchSource | None:
        """Raises StorageError, InvariantViolation for what is no part of one closed segment."""
        self._require_usable()
        segment = self._segment_of(start)
        if segment.is_active or not self.start_offset <= start < end <= segment.end_offset:
            raise InvariantViolation(f"{self.group}: [{start}, {end}) is no part of one closed segment")
        first, last = segment.locate(start), segment.locate(end - 1)
        if first.base_offset != start or last.end_offset != end:
            return None
        return FileRange(str(segment.path), first.position, last.position + last.size - first.position)

    def _segment_of(self, offset: Offset) -> Segment:
        return self._segments[bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1]

    def find_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        self._require_usable()
        for segment in self._segments:
            found = find_timestamp(segment, timestamp_ms)
            if found is not None:
                return _as_timestamp(found)
        return None

    def latest_timestamp(self) -> TimestampAndOffset | None:
        self._require_usable()
        newest = max(self._segments, key=lambda segment: segment.timestamp_ms_max)
        found = newest.latest_timestamp()
        return None if found is None else _as_timestamp(found)

    def verify(self) -> None:
        """Check the CRC of every batch. Raises StorageError that names the first damaged file, byte and offset."""
        self._require_usable()
        for segment in self._segments:
            segment.verify()

    def scrub(self, size_max: int) -> int:
        self._require_usable()
        return self._scrub.read_on(self._segments[:-1], self._epochs.all_entries, size_max)

    # --- compaction --------------------------------------------------------------------------------------------------

    @property
    def compacted_until(self) -> Offset | None:
        return self._compaction.compacted_until

    def compact(self, request: Compaction, done: Done) -> None:
        """Raises StorageError, and InvariantViolation where `request.until` is not the end of a closed segment."""
        self._require_usable()
        closed = [each for each in self._segments[:-1] if each.end_offset <= request.until]
        if not closed and request.until > self.start_offset:
            raise InvariantViolation(f"{self.group}: no closed segment ends at {request.until}")
        sources = [Source(each.base_offset, each.end_offset, each.size) for each in closed]
        self._compaction.begin(sources, request, self._install, self.aborted.drop_below, done)

    def _install(self, group: CleanedGroup) -> None:
        """Put a new segment in the place of old ones. Raises StorageError: the log goes on with the old ones, or fails."""
        first = bisect_right(self._segments, group.base_offset, key=lambda segment: segment.base_offset) - 1
        old = self._segments[first : first + len(group.sources)]
        if tuple(each.base_offset for each in old) != group.sources or old[-1].end_offset != group.end_offset:
            raise InvariantViolation(f"{self.group}: {group} does not stand for {old}")
        commit(self.path, group.base_offset)
        try:
            sync_names(self.path)
            put_in_place(self.path, group.base_offset, group.sources, self._pool.disposal.unlink)
        except StorageError as error:
            raise self._fail(error) from error
        for segment in old:
            segment.close()
            if segment.base_offset != group.base_offset:
                self.aborted.forget(segment.base_offset)
        path = self.path / file_name(group.base_offset)
        self._segments[first : first + len(old)] = [
            Segment(
                path, group.base_offset, group.end_offset, group.size, self._pool, None, timestamp_ms_max=group.timestamp_ms_max
            )
        ]
        self._scrub.replaced(group.base_offset, group.end_offset)

    # --- flushing, called by the directory on the driver's thread -----------------------------------------------------

    def begin_flush(self) -> FlushWork | None:
        """What to sync, or None when everything is. What is appended from here on belongs to the next flush."""
        if self._deleted:
            return None
        self._require_usable()
        work = FlushWork(self, [], [], self.end_offset, self._cuts)
        if self._names_changed:
            try:
                work.directory = (open_file(self.path, os.O_RDONLY | os.O_DIRECTORY), self.path)
            except OSError as error:
                raise self._fail(storage_error("open", self.path, error)) from error
            self._names_changed = False
        if self._active.file.unsynced:
            work.files.append(self._active.file)
            work.descriptors.append((self._active.file.pin(), self._active.path))
            self._active.file.unsynced = False
        work.epochs = self._epochs.take_changes()
        work.epochs_need_sync = self.start_offset > 0
        return work if work.files or work.directory or work.epochs else None

    def write_epochs(self, work: FlushWork) -> None:
        """Called on the flush thread, after the sync was reported. Raises StorageError."""
        if work.epochs is not None:
            self._epochs.write(*work.epochs, sync=work.epochs_need_sync)

    def end_flush(self, work: FlushWork) -> None:
        """The sync of `work` ended, well or not."""
        for file in work.files:
            file.unpin()
        if work.directory is not None:
            os.close(work.directory[0])
        if work.error is not None and not self._deleted:
            self._fail(work.error)
        elif work.cuts == self._cuts:
            self.synced_end = max(self.synced_end, work.end_offset)

    def save_index(self) -> None:
        """Keep the index files of the active segment near its end. Raises StorageError."""
        if self._failure is None:
            try:
                self._active.save_index()
            except DiskFull:
                # A start has more to read; the next call tries again.
                return
            except StorageError as error:
                raise self._fail(error) from error

    def end_epochs(self, work: FlushWork) -> None:
        """Writing the epochs of `work` ended, well or not."""
        if work.epochs_error is not None and not isinstance(work.epochs_error, DiskFull) and not self._deleted:
            self._fail(work.epochs_error)

    def settle(self) -> None:
        """Everything in the log is durable when it returns. Raises StorageError; DiskFull: it may be called again."""
        self._require_usable()
        try:
            self._active.sync()
            # Also those that a flush under way is about to sync: what is in the log counts as durable now.
            sync_names(self.path)
        except DiskFull:
            raise
        except StorageError as error:
            raise self._fail(error) from error
        self._names_changed = False
        self.synced_end = self.end_offset

    def failure_unless_deleted(self) -> StorageError | None:
        return StorageError(self._failure) if self._failure is not None and not self._deleted else None

    def close(self) -> None:
        """Sync, write the indexes and the epoch file, close. A failed log is only closed."""
        if self._failure is None and not self._deleted:
            try:
                self._active.sync()
                self._active.write_index(sync=False)
                if self._epochs.take_changes() is not None:
                    self._epochs.save()
            except DiskFull:
                # The next start finds out by itself.
                return
            except StorageError as error:
                raise self._fail(error) from error
            finally:
                self.abandon()
        else:
            self.abandon()

    def abandon(self) -> None:
        """Close the files as they are: the log was deleted, or its directory goes away."""
        self._deleted = True
        self._failure = self._failure or f"{self.path} is closed"
        self._compaction.give_up()
        for segment in self._segments:
            segment.close()

    def _require_usable(self) -> None:
        if self._failure is not None:
            raise StorageError(self._failure)

    def _fail(self, error: StorageError) -> StorageError:
        self._failure = self._failure or str(error)
        return error


def _cut_to(start: Offset, data: bytes) -> bytes:
    """Compaction may have left one batch without records for several: who reads amid it gets the rest of it."""
    if not data or int.from_bytes(data[:8], "big") >= start:
        return data
    header = parse_header(data)
    if header.record_count > 0 or header.is_control:
        return data
    return cut_empty(data[: header.size], start) + data[header.size :]


def _as_timestamp(batch: BatchAt) -> TimestampAndOffset:
    return TimestampAndOffset(batch.timestamp_ms_max, batch.base_offset, batch.epoch)
