"""Start points on disk: `ports.StartPoints` as two files beside the segments, `<offset>.snapshot` and `<offset>.voters`.

The first is Kafka's producer state, the second our own. Both are written and synced under temporary names, then renamed, the
`.snapshot` last: a point is there when that is. A large one is written in pieces and not synced. Knows nothing of what they
mean; damage shows in their checksums, which are their readers' business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from raftlake.errors import StorageError
from raftlake.raft.types import Offset
from raftlake.storage.descriptors import spared
from raftlake.storage.files import (
    FILE_MODE,
    TEMPORARY_SUFFIX,
    discard,
    read_file,
    storage_error,
    sync_directory,
    write_at,
    write_file,
)

PRODUCERS_SUFFIX = ".snapshot"
VOTERS_SUFFIX = ".voters"
SUFFIXES = (PRODUCERS_SUFFIX, VOTERS_SUFFIX)
_NAME = re.compile(r"(\d{20})\.snapshot", re.ASCII)


class FilePointWriter:
    """See `ports.StartPointWriter`."""

    def __init__(self, points: FileStartPoints, offset: Offset, head_bytes: int) -> None:
        self._points = points
        self._offset = offset
        self._end = head_bytes
        file = points.file(offset, PRODUCERS_SUFFIX)
        #: Another name than that of a small point of the same offset.
        self._temporary = file.with_name(file.name + ".part" + TEMPORARY_SUFFIX)
        self._descriptor = -1
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._descriptor = os.open(self._temporary, flags, FILE_MODE)
        except OSError as error:
            raise storage_error("create", self._temporary, error) from error

    def append(self, rows: bytes) -> None:
        self._write(rows, self._end)
        self._end += len(rows)

    def finish(self, head: bytes, voters: bytes) -> None:
        self._write(head, 0)
        self._close()
        try:
            self._points.put(self._offset, self._temporary, voters)
        except StorageError:
            discard(self._temporary)
            raise

    def abandon(self) -> None:
        if self._descriptor >= 0:
            self._close()
            discard(self._temporary)

    def _write(self, data: bytes, position: int) -> None:
        try:
            write_at(self._descriptor, [data], position, len(data))
        except OSError as error:
            self.abandon()
            raise storage_error("write", self._temporary, error, position) from error

    def _close(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1


class FileStartPoints:
    """The points of the log in `path`. Used from the driver's thread only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: list[Offset] | None = None

    @property
    def offsets(self) -> Sequence[Offset]:
        if self._known is None:
            try:
                matches = [_NAME.fullmatch(name) for name in spared(lambda: os.listdir(self._path))]
            except OSError as error:
                raise storage_error("list", self._path, error) from error
            self._known = sorted(Offset(int(match[1])) for match in matches if match is not None)
        return self._known

    def save(self, offset: Offset, producers: bytes, voters: bytes, *, sync: bool = True) -> None:
        known = self.offsets
        try:
            for suffix, data in ((VOTERS_SUFFIX, voters), (PRODUCERS_SUFFIX, producers)):
                file = self.file(offset, suffix)
                temporary = file.with_name(file.name + TEMPORARY_SUFFIX)
                write_file(temporary, data, sync=sync)
                os.rename(temporary, file)
            if sync:
                sync_directory(self._path)
        except OSError as error:
            self._look_again(offset)
            discard(temporary)
            raise storage_error("write", file, error) from error
        self._known = sorted({*known, offset})

    def _look_again(self, offset: Offset) -> None:
        """The point may have its name already. To list all points would take a descriptor, and there may be none."""
        others = {known for known in self.offsets if known != offset}
        is_there = os.path.exists(self.file(offset, PRODUCERS_SUFFIX))
        self._known = sorted({*others, offset} if is_there else others)

    def begin(self, offset: Offset, head_bytes: int) -> FilePointWriter:
        return FilePointWriter(self, offset, head_bytes)

    def put(self, offset: Offset, producers: Path, voters: bytes) -> None:
        """Make the file `producers` the first part of a point, unsynced. Raises StorageError."""
        known = self.offsets
        file = self.file(offset, VOTERS_SUFFIX)
        try:
            write_file(file, voters, sync=False)
            file = self.file(offset, PRODUCERS_SUFFIX)
            os.rename(producers, file)
        except OSError as error:
            discard(self.file(offset, VOTERS_SUFFIX))
            raise storage_error("write", file, error) from error
        self._known = sorted({*known, offset})

    def load(self, offset: Offset) -> tuple[bytes, bytes]:
        found = [read_file(self.file(offset, suffix)) for suffix in SUFFIXES]
        producers, voters = found
        if producers is None or voters is None:
            raise StorageError(f"{self.file(offset, SUFFIXES[found.index(None)])} is missing")
        return producers, voters

    def delete(self, offsets: Sequence[Offset]) -> None:
        if not offsets:
            return
        try:
            for offset in offsets:
                for suffix in SUFFIXES:
                    self.file(offset, suffix).unlink(missing_ok=True)
            sync_directory(self._path)
        except OSError as error:
            # What was not deleted durably counts as there, so that it is deleted again.
            raise storage_error("delete", self.file(offset, suffix), error) from error
        self._known = [known for known in self.offsets if known not in offsets]

    def cut(self, end_offset: Offset) -> None:
        """The log is about to be cut to `end_offset`. Raises StorageError."""
        self.delete([offset for offset in self.offsets if offset > end_offset])

    def advance(self, start_offset: Offset) -> None:
        """The log begins at `start_offset` now: of the points up to there the last one stays. Raises StorageError."""
        self.delete([offset for offset in self.offsets if offset <= start_offset][:-1])

    def forget(self) -> None:
        """Somebody else has deleted the files."""
        self._known = None

    def file(self, offset: Offset, suffix: str) -> Path:
        """Where a part of a point is."""
        return self._path / f"{offset:020d}{suffix}"
