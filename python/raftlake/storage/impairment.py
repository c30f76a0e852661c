"""The file that says that a log has lost synced records, and how the damaged rest is put aside.

`impaired` in a partition's directory is written durably before anything is cut, and removed when the replica holds again what
it had lost: as long as it is there the replica neither votes nor campaigns (`raft.impairment`), so whatever a crash leaves of
the cutting in between is safe. What is cut is kept under `damaged-<first missing offset>/`, whole files under their own
names; nothing here deletes a record. Found again after a crash, damage is put aside again.
"""

from __future__ import annotations

import os
from pathlib import Path

from raftlake.errors import DamagedData, UnfitBeginning
from raftlake.raft.types import Epoch, Impairment, Offset
from raftlake.storage.aborted_index import SUFFIX as ABORTED_SUFFIX
from raftlake.storage.cleaned import list_swaps, swap_path
from raftlake.storage.descriptors import open_file
from raftlake.storage.epochs import load as load_epochs
from raftlake.storage.files import (
    DIRECTORY_MODE,
    FILE_MODE,
    NO_ROOM,
    delete_file,
    read_file,
    replace_file,
    storage_error,
    sync_data,
    sync_directory,
    write_at,
)
from raftlake.storage.index_files import SUFFIXES
from raftlake.storage.recovery import list_segments
from raftlake.storage.reset import announce_reset
from raftlake.storage.scan import WINDOW_LARGE, BatchAt, BrokenBatch, find_batch_after, is_zero, read_bytes, walk
from raftlake.storage.scrub import require_epoch
from raftlake.storage.segment import file_name
from raftlake.storage.snapshots import list_snapshots, snapshot_name

FILE_NAME = "impaired"
VERSION = 0
ASIDE_PREFIX = "damaged-"
CUT_SUFFIX = ".cut"
COPY_BYTES = 1 << 20
#: More than any log will hold: where it is not known how far the lost records reached.
UNKNOWN_END = Offset((1 << 62) - 1)
#: A marker that cannot be read: the log is opened with its present epoch.
UNKNOWN_EPOCH = Epoch(-1)


def encode(impairment: Impairment, reason: str) -> bytes:
    return f"{VERSION}\n{impairment.epoch} {impairment.end_offset}\n{' '.join(reason.split())}\n".encode()


def read_impairment(path: Path) -> tuple[Impairment, str] | None:
    """What the marker in a partition's directory says, and why; a damaged marker says the worst. Raises StorageError."""
    data = read_file(path / FILE_NAME)
    if data is None:
        return None
    try:
        version, position, reason = data.decode("utf-8").split("\n")[:3]
        epoch, end_offset = position.split(" ")
        if int(version) != VERSION or int(epoch) < -1 or int(end_offset) < 0:
            raise ValueError(f"unexpected content {data!r}")
        return Impairment(Epoch(int(epoch)), Offset(int(end_offset))), reason
    except ValueError:
        return Impairment(UNKNOWN_EPOCH, UNKNOWN_END), f"{path / FILE_NAME} is damaged itself"


def mark(path: Path, impairment: Impairment, reason: str) -> None:
    """Say durably that the log in `path` is impaired; never less than an earlier marker says. Raises StorageError."""
    known = read_impairment(path)
    if known is not None:
        epoch = UNKNOWN_EPOCH if known[0].epoch == UNKNOWN_EPOCH else max(known[0].epoch, impairment.epoch)
        impairment = Impairment(epoch, max(known[0].end_offset, impairment.end_offset))
        reason = known[1] if reason in known[1] else f"{known[1]}; {reason}"
    replace_file(path / FILE_NAME, encode(impairment, reason))


def unmark(path: Path) -> None:
    """The replica is whole again. Raises StorageError."""
    delete_file(path / FILE_NAME)


class Damage:
    """What is wrong with a log, looked at again file by file; then `copy_beginning` and `put_aside`."""

    def __init__(
        self, path: Path, found: DamagedData, *, durable_end: Offset, log_end: Offset | None, is_whole_lost: bool = False
    ) -> None:
        """`durable_end` is what was known to be durable, 0 for nothing; `log_end` is where a log that was in use ended. Where
        the log `is_whole_lost`, its intact beginning goes too. Raises StorageError."""
        self._path = path
        self._bases = list_segments(path)
        self._epochs = load_epochs(path) or ()
        below = [base for base in self._bases if base <= found.offset]
        if len(below) > 1 and below[-1] == found.offset and not self._is_intact(below[-2], below[-1]):
            # What begins there does not fit the end of the one before, and that end is damaged.
            below.pop()
        #: The segment that holds the first damage; None when all of the log goes.
        self._segment = below[-1] if below else None
        self.reason = str(found)
        self._aside: Path | None = None
        #: Where the segment stops being intact: byte and offset.
        self.position = 0
        self.offset = Offset(max(found.offset, 0)) if self._segment is None else self._segment
        #: The last record that is still intact behind the damage: its epoch, and where it ends.
        self.last_epoch = Epoch(0)
        self.last_end = max(self.offset, durable_end)
        self.is_real = self._segment is None
        self._is_end_known = True
        for base in [base for base in self._bases if base >= (self._segment or 0)]:
            self._is_end_known = True
            if base == self._segment:
                self._look_at(base)
            else:
                self._look_behind(base)
        if self._bases[-1:] == [self._segment]:
            self.is_real = self.is_real or self.offset < max(durable_end, log_end or 0)
        if log_end is not None:
            self.last_end, self._is_end_known = log_end, True
        if is_whole_lost:
            self._segment, self.position, self.offset = None, 0, Offset(0)
            # A compacted segment that cannot be put into place keeps the log from being opened.
            self.is_real = self.is_real or bool(list_swaps(path)) or isinstance(found, UnfitBeginning)

    def _is_intact(self, base: Offset, following: Offset) -> bool:
        path = self._path / file_name(base)
        descriptor, end = _open(path)
        offset = base
        try:
            for batch in walk(descriptor, path, 0, end, offset=base, check_crc=True, window=WINDOW_LARGE):
                require_epoch(path, batch, self._epochs)
                offset = batch.end_offset
        except BrokenBatch:
            return False
        finally:
            os.close(descriptor)
        return offset == following

    def _look_at(self, base: Offset) -> None:
        """Find the first batch of a segment that is not intact."""
        path = self._path / file_name(base)
        following = next((each for each in self._bases if each > base), None)
        descriptor, end = _open(path)
        try:
            for batch in walk(descriptor, path, 0, end, offset=base, check_crc=True, window=WINDOW_LARGE):
                require_epoch(path, batch, self._epochs)
                self._advance(batch)
            self.is_real = following is not None and following != self.offset
        except BrokenBatch as broken:
            self.reason = str(broken)
            # Blocks that were reserved and never written read as zeros.
            self.is_real = following is not None or not _is_zero(descriptor, path, broken.position, end)
            self._look_on(descriptor, path, broken.position, end)
        finally:
            os.close(descriptor)

    def _advance(self, batch: BatchAt) -> None:
        self.position = batch.position + batch.size
        self.offset = batch.end_offset
        self._see(batch)

    def _see(self, batch: BatchAt) -> None:
        self.last_epoch = max(self.last_epoch, batch.epoch)
        self.last_end = max(self.last_end, batch.end_offset)

    def _look_on(self, descriptor: int, path: Path, position: int, end: int) -> None:
        """Behind the first damage of a file: how far do intact batches reach?"""
        try:
            while (found := find_batch_after(descriptor, path, position, end, self.offset)) is not None:
                try:
                    for batch in walk(descriptor, path, found.position, end, check_crc=True, window=WINDOW_LARGE):
                        self._see(batch)
                    return
                except BrokenBatch as broken:
                    position = broken.position
            # Whatever stood there may have been the end of the log.
            self._is_end_known = is_zero(descriptor, path, position, end)
        except BrokenBatch:
            self._is_end_known = False

    def _look_behind(self, base: Offset) -> None:
        path = self._path / file_name(base)
        descriptor, end = _open(path)
        try:
            for batch in walk(descriptor, path, 0, end, window=WINDOW_LARGE):
                self._see(batch)
        except BrokenBatch as broken:
            self._look_on(descriptor, path, broken.position, end)
        finally:
            os.close(descriptor)

    def impairment(self, epoch: Epoch) -> Impairment:
        """What the replica has lost, when it is in `epoch`: nothing that it could have acknowledged in that epoch, unless it
        held a record of it."""
        if not self._is_end_known:
            return Impairment(epoch, UNKNOWN_END)
        return Impairment(epoch, self.last_end if self.last_epoch >= epoch else Offset(0))

    def copy_beginning(self) -> None:
        """The intact beginning of the segment becomes a file of its own: bytes that cannot be read are never touched. Without
        room for the copy all of the segment goes, for its records are with the other replicas. Raises StorageError, and
        DiskFull, after which it may be called again."""
        if self._segment is None or self._aside is not None:
            # Once `put_aside` has begun, the copy may stand in the place of the segment.
            return
        path = self._path / file_name(self._segment)
        source, _ = _open(path)
        try:
            fresh = path.with_name(path.name + CUT_SUFFIX)
            target = open_file(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
            try:
                self._copy(source, path, target)
                sync_data(target)
            finally:
                os.close(target)
        except OSError as error:
            raise storage_error("copy the intact beginning of", path, error) from error
        finally:
            os.close(source)

    def _copy(self, source: int, path: Path, target: int) -> None:
        try:
            for position in range(0, self.position, COPY_BYTES):
                data = read_bytes(source, path, min(COPY_BYTES, self.position - position), position)
                write_at(target, [data], position, len(data))
        except OSError as error:
            if error.errno not in NO_ROOM or self._segment is None:
                raise
            os.ftruncate(target, 0)
            self.position, self.offset = 0, self._segment

    def put_aside(self) -> Path:
        """After `copy_beginning`: cut the log before the damage. The rest goes to the directory that is returned. Raises
        StorageError, and DiskFull, after which it may be called again."""
        if self._aside is None:
            self._aside = self._new_directory()
        aside = self._aside
        doomed = [base for base in self._bases if self._segment is None or base > self._segment]
        try:
            # Its name is durable before anything goes there.
            sync_directory(self._path)
            for base in reversed(doomed):
                self._move(base, aside)
            if self._segment is not None:
                self._exchange(self._segment, aside)
            else:
                for base in list_swaps(self._path):
                    swap = swap_path(self._path, base)
                    os.rename(swap, aside / swap.name)
                # All of the log is lost, so the snapshots could not stand in for it either.
                for snapshot_id in list_snapshots(self._path):
                    if snapshot_id.offset > 0:
                        os.rename(self._path / snapshot_name(snapshot_id), aside / snapshot_name(snapshot_id))
            self._begin_at_snapshot()
            sync_directory(aside)
            sync_directory(self._path)
        except OSError as error:
            raise storage_error("put aside damaged files in", self._path, error) from error
        return aside

    def _new_directory(self) -> Path:
        for number in range(1_000):
            aside = self._path / f"{ASIDE_PREFIX}{self.offset:020d}{f'-{number}' if number else ''}"
            try:
                aside.mkdir(DIRECTORY_MODE)
            except FileExistsError:
                continue
            except OSError as error:
                raise storage_error("create", aside, error) from error
            return aside
        raise DamagedData(f"{self._path} holds too many {ASIDE_PREFIX}* directories", offset=self.offset)

    def _move(self, base: Offset, aside: Path) -> None:
        path = self._path / file_name(base)
        for suffix in (*SUFFIXES, ABORTED_SUFFIX):
            path.with_suffix(suffix).unlink(missing_ok=True)
        if path.exists():
            os.rename(path, aside / path.name)

    def _exchange(self, base: Offset, aside: Path) -> None:
        """The copy for the segment that it was made of."""
        path = self._path / file_name(base)
        fresh = path.with_name(path.name + CUT_SUFFIX)
        if fresh.exists():
            self._move(base, aside)
            os.rename(fresh, path)

    def _begin_at_snapshot(self) -> None:
        """What a snapshot holds need not be fetched again: the log goes on where the newest one ends."""
        newest = max(list_snapshots(self._path), default=None)
        if newest is not None and newest.offset > self.offset:
            announce_reset(self._path, newest)


def _is_zero(descriptor: int, path: Path, position: int, end: int) -> bool:
    try:
        return is_zero(descriptor, path, position, end)
    except BrokenBatch:
        return False


def _open(path: Path) -> tuple[int, int]:
    try:
        descriptor = open_file(path, os.O_RDONLY)
        return descriptor, os.fstat(descriptor).st_size
    except OSError as error:
        raise storage_error("open", path, error) from error
