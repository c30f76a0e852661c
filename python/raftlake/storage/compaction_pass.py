"""One pass of compaction over the files of a log: reads closed segments, writes new ones beside them.

`wire.compaction` decides about records. This module owns the files of a pass: each source is checked batch by batch, as it is
read; each new segment is synced, with its index files, before it is told. Nothing of the log itself is touched, so a pass may
be killed at any moment. It needs nothing of the node, and runs in a process of its own (`compaction_worker`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from raftlake.errors import CorruptBatch, StorageError
from raftlake.ports.driver import Compacted, Compaction
from raftlake.raft.types import Offset
from raftlake.storage.cleaned import CleanedGroup, cleaned_path, discard_cleaned
from raftlake.storage.descriptors import open_file
from raftlake.storage.files import FILE_MODE, discard, storage_error, sync_data, write_at, write_file
from raftlake.storage.index import SegmentIndex
from raftlake.storage.index_files import SUFFIXES as INDEX_SUFFIXES
from raftlake.storage.scan import WINDOW_LARGE, BatchAt, BrokenBatch, Window, read_batch
from raftlake.storage.segment import file_name
from raftlake.wire.batch_header import parse_header
from raftlake.wire.compaction import KeyMap, Rewriter

#: Relative offsets in the index files are 32 bits wide.
SEGMENT_OFFSETS_MAX = (1 << 31) - 1
WRITE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A closed segment."""

    base_offset: Offset
    #: Exclusive.
    end_offset: Offset
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJob:
    """What a pass has to know, to be sent to another process."""

    directory: str
    #: From the log start up to `request.until`, ascending.
    sources: tuple[Source, ...]
    request: Compaction
    #: See `wire.compaction.KeyMap`.
    salt: bytes


#: The groups, in the order in which they are to be put into place, and what the pass did in all.
Groups = Generator[CleanedGroup, None, Compacted]


def perform(job: CompactionJob) -> Groups:
    """Do the pass. Raises StorageError: DiskFull, or DamagedData where a source cannot be read. What was yielded counts."""
    directory = Path(job.directory)
    discard_cleaned(directory)
    keys = _collect(job, directory)
    rewriter = Rewriter(keys, job.request)
    before = after = 0
    for group in _grouped(job, directory, keys, rewriter):
        before += group.bytes_before
        after += group.writer.size
        if group.is_changed:
            yield group.writer.finish(group.end_offset, tuple(group.sources))
        else:
            group.writer.abandon()
    return Compacted(
        clean_until=Offset(keys.clean_until),
        bytes_before=before,
        bytes_after=after,
        records_removed=rewriter.records_removed,
        next_horizon_ms=rewriter.next_horizon_ms,
    )


def _collect(job: CompactionJob, directory: Path) -> KeyMap:
    keys = KeyMap(job.request, job.salt)
    for source in job.sources:
        if source.end_offset > job.request.dirty_from:
            with contextlib.closing(batches_of(directory, source)) as batches:
                for path, batch, view in batches:
                    with _readable(path, batch):
                        if not keys.add(view, parse_header(view)):
                            return keys
    return keys


class _Group:
    """Neighbours that become one segment."""

    def __init__(self, directory: Path, base: Offset) -> None:
        self.writer = SegmentWriter(directory, base)
        self.sources: list[Offset] = []
        self.end_offset = base
        self.bytes_before = 0
        self._read = blake2b(digest_size=32)

    def fits(self, source: Source, segment_bytes: int) -> bool:
        """Whether the segment stays small enough, even if all of `source` is kept."""
        offsets = source.end_offset - self.writer.base_offset
        return self.writer.size + source.size <= segment_bytes and offsets <= SEGMENT_OFFSETS_MAX

    def begin(self, source: Source) -> None:
        self.sources.append(source.base_offset)
        self.end_offset = source.end_offset
        self.bytes_before += source.size

    def note(self, view: memoryview) -> None:
        """A batch was read."""
        self._read.update(view)

    @property
    def is_changed(self) -> bool:
        return len(self.sources) > 1 or self._read.digest() != self.writer.digest


def _grouped(job: CompactionJob, directory: Path, keys: KeyMap, rewriter: Rewriter) -> Iterator[_Group]:
    """The groups, each when all of it was rewritten."""
    group: _Group | None = None
    try:
        for source in job.sources:
            if source.base_offset >= keys.clean_until:
                break
            # What aborted transactions have left above the end of the map is still found by the index of that segment.
            goes_on = source.end_offset <= keys.clean_until
            if group is not None and not (goes_on and group.fits(source, job.request.segment_bytes)):
                ended, group = group, None
                yield _ended(ended, rewriter)
            if group is None:
                group = _Group(directory, source.base_offset)
            _rewrite(directory, source, group, rewriter)
        if group is not None:
            ended, group = group, None
            yield _ended(ended, rewriter)
    finally:
        if group is not None:
            group.writer.abandon()


def _rewrite(directory: Path, source: Source, group: _Group, rewriter: Rewriter) -> None:
    group.begin(source)
    with contextlib.closing(batches_of(directory, source)) as batches:
        for path, batch, view in batches:
            group.note(view)
            with _readable(path, batch):
                rewritten = rewriter.rewrite(view, parse_header(view))
            for each in rewritten:
                group.writer.append(each)


def _ended(group: _Group, rewriter: Rewriter) -> _Group:
    for each in rewriter.end_segment():
        group.writer.append(each)
    return group


@contextlib.contextmanager
def _readable(path: Path, batch: BatchAt) -> Iterator[None]:
    """A batch whose CRC is right and whose records cannot be read was made so: other replicas have no better one."""
    try:
        yield
    except CorruptBatch as error:
        raise StorageError(f"{path} cannot be compacted: at byte {batch.position}: {error}") from error


def batches_of(directory: Path, source: Source) -> Generator[tuple[Path, BatchAt, memoryview]]:
    """The batches of a segment with their bytes, each checked. Raises StorageError, BrokenBatch."""
    path = directory / file_name(source.base_offset)
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except OSError as error:
        raise storage_error("open", path, error) from error
    try:
        file = Window(descriptor, path, source.size, WINDOW_LARGE)
        position, offset, epoch = 0, source.base_offset, 0
        while position < source.size:
            batch = read_batch(file, path, position, source.size, offset, epoch, check_crc=True)
            yield path, batch, file.view(position, batch.size, offset)
            position, offset, epoch = position + batch.size, batch.end_offset, batch.epoch
        if offset != source.end_offset:
            raise BrokenBatch(path, position, offset, "the segment ends too early")
    finally:
        os.close(descriptor)


class SegmentWriter:
    """The files of a new segment. Every method but `abandon` raises StorageError, and then nothing of them is left."""

    def __init__(self, directory: Path, base_offset: Offset) -> None:
        self.base_offset = base_offset
        self.size = 0
        self._directory = directory
        self._path = cleaned_path(directory, base_offset)
        self._index = SegmentIndex(base_offset)
        self._gathered: list[bytes] = []
        self._written = 0
        self._digest = blake2b(digest_size=32)
        try:
            self._descriptor = open_file(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        except OSError as error:
            raise storage_error("create", self._path, error) from error

    @property
    def digest(self) -> bytes:
        """Of all batches."""
        return self._digest.digest()

    def append(self, batch: bytes) -> None:
        header = parse_header(batch)
        self._index.note(header.end_offset, self.size, len(batch), header.timestamp_ms_max)
        self._digest.update(batch)
        self._gathered.append(batch)
        self.size += len(batch)
        if self.size - self._written >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        size = self.size - self._written
        try:
            write_at(self._descriptor, self._gathered, self._written, size)
        except OSError as error:
            self.abandon()
            raise storage_error("write", self._path, error, self._written) from error
        self._written = self.size
        self._gathered.clear()

    def finish(self, end_offset: Offset, sources: tuple[Offset, ...]) -> CleanedGroup:
        """All files are durable when it returns."""
        if self._gathered:
            self._write()
        path = self._path
        try:
            for suffix, data in zip(INDEX_SUFFIXES, self._index.encode(), strict=True):
                path = cleaned_path(self._directory, self.base_offset, suffix)
                write_file(path, data, sync=True)
            path = self._path
            sync_data(self._descriptor)
        except OSError as error:
            self.abandon()
            raise storage_error("write", path, error) from error
        self._close()
        return CleanedGroup(
            base_offset=self.base_offset,
            end_offset=end_offset,
            size=self.size,
            timestamp_ms_max=self._index.timestamp_ms_max,
            sources=sources,
        )

    def abandon(self) -> None:
        """Remove the files."""
        self._close()
        for suffix in (".log", *INDEX_SUFFIXES):
            discard(cleaned_path(self._directory, self.base_offset, suffix))

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
