"""One segment: a file of whole record batches, its sparse indexes and, of the newest batches, the exact positions.

Owns the bytes of one `.log` file; the two index files beside it are the business of `index_files`. Knows nothing of epochs'
history or of other segments.
Invariant: `size` and `end_offset` describe whole batches; bytes behind `size` (a failed write, reserved blocks) are never
read.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from raftlake.errors import StorageError
from raftlake.ports.driver import BatchSpan, SegmentInfo
from raftlake.raft.types import Epoch, Offset
from raftlake.storage import index
from raftlake.storage.aborted_index import SUFFIX as ABORTED_SUFFIX
from raftlake.storage.files import (
    NO_ROOM,
    Chunk,
    FilePool,
    PooledFile,
    storage_error,
    sync_data,
    write_at,
)
from raftlake.storage.index_files import IndexFiles
from raftlake.storage.reserve import Reserve
from raftlake.storage.scan import (
    WINDOW_HEADERS,
    WINDOW_LARGE,
    WINDOW_SMALL,
    BatchAt,
    BrokenBatch,
    read_bytes,
    walk,
)

#: How many of the newest batches keep their exact position in memory: parked fetches read those.
TAIL_BATCHES = 4096


def file_name(base_offset: int, suffix: str = ".log") -> str:
    return f"{base_offset:020d}{suffix}"


class Segment:
    """A segment of a log. The last segment of a log is its active one: only that is appended to."""

    __slots__ = (
        "_index",
        "_index_files",
        "_reserve",
        "_tail_offsets",
        "_tail_positions",
        "_timestamp_ms_max",
        "base_offset",
        "end_offset",
        "file",
        "is_active",
        "path",
        "size",
    )

    def __init__(
        self,
        path: Path,
        base_offset: Offset,
        end_offset: Offset,
        size: int,
        pool: FilePool,
        segment_index: index.SegmentIndex | None,
        *,
        timestamp_ms_max: int | None = None,
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.size = size
        self.is_active = False
        self.file = PooledFile(path, pool, self._on_file_closed)
        self._index = segment_index
        self._reserve = Reserve()
        self._index_files = IndexFiles(path)
        #: Of a sealed segment whose index is not in memory.
        self._timestamp_ms_max = timestamp_ms_max
        self._tail_offsets: list[int] = []
        self._tail_positions: list[int] = []

    @classmethod
    def create(cls, directory: Path, base_offset: Offset, pool: FilePool) -> Segment:
        """A new, empty, active segment; its name is durable once the directory is synced. Raises StorageError."""
        path = directory / file_name(base_offset)
        segment = cls(path, base_offset, base_offset, 0, pool, index.SegmentIndex(base_offset))
        segment.file.descriptor(create=True)
        segment.is_active = True
        return segment

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, chunks: Sequence[Chunk], spans: Sequence[BatchSpan], size: int) -> None:
        """Write the batches at the end. Raises OSError: for want of room the file is as it was, else the bytes behind `size`
        are undefined."""
        assert self.is_active
        self._reserve.cover(self.file, self.size, self.size + size)
        try:
            write_at(self.file.descriptor(), chunks, self.size, size)
        except OSError as error:
            if error.errno in NO_ROOM:
                # What is appended next may be shorter, and a start would find the rest of these batches behind it.
                os.ftruncate(self.file.descriptor(), self.size)
                self._reserve.forget(self.size)
            raise
        self.file.unsynced = True
        for span in spans:
            self._note(span.base_offset, span.end_offset, span.size, span.timestamp_ms_max)

    def adopt(self, batch: BatchAt) -> None:
        """Recovery found this batch at the end of what is known of the segment."""
        assert self.is_active
        assert batch.position == self.size
        self._note(batch.base_offset, batch.end_offset, batch.size, batch.timestamp_ms_max)

    def adopt_index(self, limit: Offset) -> None:
        """Recovery trusts the index files for what lies below `limit`, if they fit the batch that their last entry there leads
        to: the segment then reaches to that batch, and the rest is found by walking on. Else nothing is adopted."""
        assert self.is_active and self.size == 0
        try:
            known = self._index_files.load_below(self.base_offset, limit)
            if not known.positions:
                return
            position, last_offset = known.positions[-1], known.last_offsets[-1]
            size = self.file.size()
            batch = next(walk(self.file.descriptor(), self.path, position, size), None)
        except (ValueError, BrokenBatch):
            return
        if batch is None or batch.end_offset != last_offset + 1 or not self.base_offset <= batch.base_offset <= last_offset:
            return
        if batch.timestamp_ms_max > (known.times[-1] if known.times else -1):
            return
        known.truncate(batch.base_offset, position)
        self._index = known
        self.size = position
        self.end_offset = batch.base_offset

    def forget_adopted(self) -> None:
        """Begin again at the first byte."""
        self._index = index.SegmentIndex(self.base_offset)
        self.size = 0
        self.end_offset = self.base_offset

    def walk_on(self, file_size: int, epoch_min: Epoch) -> Iterator[BatchAt]:
        """Recovery: the batches behind what is known, with their CRCs; the caller adopts each. Raises BrokenBatch."""
        return walk(
            self.file.descriptor(),
            self.path,
            self.size,
            file_size,
            offset=self.end_offset,
            check_crc=True,
            epoch_min=epoch_min,
            window=WINDOW_LARGE,
        )

    def _note(self, base_offset: int, end_offset: int, size: int, timestamp_ms_max: int) -> None:
        assert self._index is not None
        self._index.note(end_offset, self.size, size, timestamp_ms_max)
        self._tail_offsets.append(base_offset)
        self._tail_positions.append(self.size)
        if len(self._tail_offsets) > 2 * TAIL_BATCHES:
            del self._tail_offsets[:-TAIL_BATCHES], self._tail_positions[:-TAIL_BATCHES]
        self.size += size
        self.end_offset = Offset(end_offset)

    def sync(self) -> None:
        """Make everything in the segment durable before returning. Raises StorageError."""
        try:
            self._reserve.trim(self.file, self.size)
            sync_data(self.file.descriptor())
        except OSError as error:
            raise storage_error("sync", self.path, error) from error
        self.file.unsynced = False

    def prepare_seal(self) -> None:
        """What has to be durable before the next segment begins: all of this one, and its indexes. Raises StorageError."""
        self.sync()
        self.write_index(sync=True)

    def seal(self) -> None:
        """The segment will not grow any more."""
        self.is_active = False
        self._forget_tail()

    def save_index(self) -> None:
        """While the segment grows: keep its index files near enough to its end for a quick start. Raises StorageError."""
        if self.is_active and self._index_files.is_behind(self.size):
            self._index_files.extend(self.loaded_index(), self.size)

    def write_index(self, *, sync: bool) -> None:
        self._index_files.write(self.loaded_index(), sync=sync)

    def truncate(self, end_offset: Offset) -> None:
        """Drop the batches from `end_offset` (a boundary) on, durably; the segment becomes active. Raises StorageError."""
        position = self.position_of(end_offset)
        kept = self.loaded_index()
        kept.truncate(end_offset, position)
        self._index_files.forget()
        descriptor = self.file.descriptor()
        try:
            os.ftruncate(descriptor, position)
        except OSError as error:
            raise storage_error("truncate", self.path, error, position) from error
        self.size = position
        self.end_offset = end_offset
        self.is_active = True
        self._forget_tail()
        for batch in walk(descriptor, self.path, kept.position_for(kept.timestamp_offset), position):
            kept.note_timestamp(batch.end_offset, batch.timestamp_ms_max)
        self.sync()

    def delete(self) -> None:
        """Remove the segment's files; the names are gone for good once the directory is synced. Raises StorageError."""
        self._index_files.forget()
        try:
            self.path.with_suffix(ABORTED_SUFFIX).unlink(missing_ok=True)
        except OSError as error:
            raise storage_error("delete", self.path.with_suffix(ABORTED_SUFFIX), error) from error
        self.file.delete()

    def close(self) -> None:
        self.file.unsynced = False
        self.file.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, start: int, limit: int, size_max: int) -> bytes:
        """Whole batches from the one that holds `start`, none ending above `limit`, of `size_max` bytes or one batch."""
        if self._tail_offsets and start >= self._tail_offsets[0]:
            first, end = self._range_in_tail(start, limit, size_max)
        else:
            first, end = self._range_by_index(start, limit, size_max)
        try:
            return self.read_bytes(first, end - first) if end > first else b""
        except BrokenBatch as broken:
            # Some byte of it cannot be read. The repair finds out which.
            raise BrokenBatch(self.path, broken.position, start, broken.reason) from broken

    def _range_in_tail(self, start: int, limit: int, size_max: int) -> tuple[int, int]:
        offsets, positions = self._tail_offsets, self._tail_positions
        first = bisect_right(offsets, start) - 1
        # The batches below `end` end at or below offsets[end], which is at or below `limit`.
        end = len(offsets) if limit >= self.end_offset else bisect_right(offsets, limit) - 1
        begin = positions[first]
        stop = positions[end] if end < len(positions) else self.size
        if end > first and stop - begin > size_max:
            fitting = bisect_right(positions, begin + size_max) - 1
            end = max(fitting, first + 1)
            stop = positions[end] if end < len(positions) else self.size
        return begin, stop

    def _range_by_index(self, start: int, limit: int, size_max: int) -> tuple[int, int]:
        first = self.locate(start)
        if first.end_offset > limit:
            return first.position, first.position
        position_max = first.position + size_max
        end = first.position + first.size
        indexed = self.loaded_index().boundary_within(limit, position_max)
        for batch in self.walk_from(max(end, indexed)):
            if batch.end_offset > limit or batch.position + batch.size > position_max:
                return first.position, batch.position
        return first.position, self.size

    def read_bytes(self, position: int, size: int) -> bytes:
        data = read_bytes(self.file.descriptor(), self.path, size, position)
        if len(data) != size:
            ends = position + len(data)
            raise BrokenBatch(self.path, ends, None, f"the file ends there, {position + size} bytes were written")
        return data

    def position_of(self, offset: int) -> int:
        """Where the batch that begins with `offset` stands. Raises StorageError when `offset` is inside a batch."""
        if offset == self.end_offset:
            return self.size
        batch = self.locate(offset)
        if batch.base_offset != offset:
            raise StorageError(f"{self.path}: offset {offset} lies inside the batch at byte {batch.position}")
        return batch.position

    def locate(self, offset: int) -> BatchAt:
        """The batch that holds `offset`. Raises StorageError when the file is damaged on the way."""
        assert self.base_offset <= offset < self.end_offset
        try:
            return self._locate(offset)
        except BrokenBatch:
            # Either the index led astray or the batches are damaged; rebuilding it tells which (and raises in that case).
            self.rebuild_index()
            return self._locate(offset)

    def _locate(self, offset: int) -> BatchAt:
        for batch in self.walk_from(self.loaded_index().position_for(offset)):
            if batch.base_offset > offset:
                break
            if batch.end_offset > offset:
                return batch
        raise BrokenBatch(self.path, self.size, offset, "the offset was not found")

    def walk_from(self, position: int, *, window: int = WINDOW_SMALL, check_crc: bool = False) -> Iterator[BatchAt]:
        offset = self.base_offset if position == 0 else None
        return walk(self.file.descriptor(), self.path, position, self.size, offset=offset, window=window, check_crc=check_crc)

    def latest_timestamp(self) -> BatchAt | None:
        """The first batch that holds the segment's largest timestamp, None when no batch has one."""
        known = self.loaded_index()
        return self.locate(known.timestamp_offset) if known.timestamp_ms_max >= 0 else None

    def info(self) -> SegmentInfo:
        return SegmentInfo(self.base_offset, self.end_offset, self.size, self.timestamp_ms_max)

    @property
    def timestamp_ms_max(self) -> int:
        if self._index is None and self._timestamp_ms_max is not None:
            return self._timestamp_ms_max
        return self.loaded_index().timestamp_ms_max

    def verify_end(self) -> None:
        """The cheap check of a sealed segment: from its last index entry on, whole batches lead to exactly its end.

        Raises StorageError when they do not, even after the index was rebuilt from all headers.
        """
        try:
            self._verify_end()
        except BrokenBatch:
            self.rebuild_index()

    def _verify_end(self) -> None:
        try:
            position, timestamp_ms_max = self._index_files.ends(self.end_offset - self.base_offset, self.size)
        except ValueError as error:
            raise BrokenBatch(self.path, 0, self.base_offset, f"its index does not fit: {error}") from error
        end_offset: int = self.base_offset
        for batch in self.walk_from(position):
            end_offset = batch.end_offset
            if batch.timestamp_ms_max > timestamp_ms_max:
                raise BrokenBatch(self.path, batch.position, batch.base_offset, "its timestamp is not in the time index")
        if end_offset != self.end_offset:
            raise BrokenBatch(self.path, self.size, end_offset, f"the file ends here and should hold {self.end_offset - 1}")
        if self._index is None:
            self._timestamp_ms_max = timestamp_ms_max

    def verify(self) -> None:
        """Check every batch's CRC. Raises BrokenBatch (a StorageError) at the first that is damaged."""
        for _ in self.walk_from(0, window=WINDOW_LARGE, check_crc=True):
            pass

    # --- the index -----------------------------------------------------------------------------------------------------

    def loaded_index(self) -> index.SegmentIndex:
        """The index: in memory, from its files, or rebuilt from the batches."""
        if self._index is None:
            try:
                self._index = self._index_files.load(self.base_offset, self.end_offset, self.size)
            except ValueError:
                return self.rebuild_index()
        return self._index

    def rebuild_index(self) -> index.SegmentIndex:
        """Walk all headers; a sealed segment gets new index files. Raises BrokenBatch when the batches are damaged."""
        rebuilt = index.SegmentIndex(self.base_offset)
        end_offset = self.base_offset
        for batch in self.walk_from(0, window=WINDOW_HEADERS):
            rebuilt.note(batch.end_offset, batch.position, batch.size, batch.timestamp_ms_max)
            end_offset = batch.end_offset
        if end_offset != self.end_offset:
            raise BrokenBatch(self.path, self.size, end_offset, f"the file ends here and should hold {self.end_offset - 1}")
        self._index = rebuilt
        if not self.is_active:
            self.write_index(sync=False)
        return rebuilt

    def _forget_tail(self) -> None:
        self._tail_offsets = []
        self._tail_positions = []

    def _on_file_closed(self) -> None:
        """A sealed segment that is not read needs no memory: its index is loaded again with the file."""
        if not self.is_active and self._index is not None:
            self._timestamp_ms_max = self._index.timestamp_ms_max
            self._index = None
