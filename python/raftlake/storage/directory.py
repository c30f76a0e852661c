"""All logs of one node: `ports.LogDirectory` over a data directory that this process has locked.

Owns which logs are open, the shared pool of descriptors and the flusher. Invariant: everything here is called on the driver's
thread, and `done` of a flush is too; only the sync calls themselves run elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import cast

from raftlake.errors import DamagedData, DiskFull, StorageError, UnfitBeginning
from raftlake.ports.driver import LogStore, Room
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Impairment, Offset
from raftlake.storage.compactor import Compactor
from raftlake.storage.descriptors import SPARES, spares
from raftlake.storage.disposal import Disposal
from raftlake.storage.files import FilePool, descriptors_max, storage_error
from raftlake.storage.flusher import InlineFlusher, Post, ThreadFlusher
from raftlake.storage.impairment import Damage, mark, read_impairment, unmark
from raftlake.storage.lock import DirectoryLock
from raftlake.storage.log import FileLog, FlushWork
from raftlake.storage.log_compaction import FILE_NAME as CLEANER_NAME
from raftlake.storage.log_compaction import Compactions
from raftlake.storage.modes import mend_modes
from raftlake.storage.noted_starts import FILE_NAME as STARTS_NAME
from raftlake.storage.noted_starts import NotedStarts
from raftlake.storage.partition import (
    create_partitions,
    ensure_partition,
    list_partitions,
    partition_path,
    remove_partitions,
    require_inside,
    sweep,
)
from raftlake.storage.recovery import Recovery, list_segments, sync_ahead
from raftlake.storage.recovery_points import RecoveryPoints
from raftlake.storage.room import DiskRoom
from raftlake.storage.segment import file_name
from raftlake.storage.snapshots import FileSnapshotStore

SEGMENT_BYTES = 128 << 20
#: Positions in an index file are 32 bits wide.
SEGMENT_BYTES_MAX = (1 << 31) - 1


class FileLogDirectory:
    """`path` must exist. `post` runs a callback on the driver's thread later (`loop.call_soon_threadsafe`); with None
    every flush is done, and `done` called, before `flush` returns. `min_free_bytes` as in `ports.Room.limit`: with 0 no ballast
    is kept. Raises StorageError when another process has the directory.
    """

    def __init__(
        self,
        path: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        post: Post | None,
        files_max: int | None = None,
        min_free_bytes: int = 0,
    ) -> None:
        assert 0 < segment_bytes <= SEGMENT_BYTES_MAX
        if not path.is_dir():
            raise StorageError(f"{path} is not a directory")
        self.path = path
        self._segment_bytes = segment_bytes
        #: For all writes that must succeed when the disk is full.
        self.room = DiskRoom(path, min_free_bytes)
        self._lock = DirectoryLock(path)
        try:
            self._begin_with_room()
            sweep(path)
            mend_modes(path)
            found = list_partitions(path)
            #: Found at the start, and not opened since.
            self._unrecovered = set(found)
            hosted = [partition_path(path, group) for group in found]
            sync_ahead(hosted)
            self._points = RecoveryPoints(path)
            self._cleaned = RecoveryPoints(path, CLEANER_NAME)
            noted = RecoveryPoints(path, STARTS_NAME)
            self._note_recovered(())
        except StorageError:
            self._lock.release()
            raise
        self._disposal = Disposal(threaded=post is not None)
        if post is not None:
            spares.keep()
        self._pool = FilePool(files_max if files_max is not None else descriptors_max(), self._disposal, self.room)
        self._logs: dict[GroupId, FileLog] = {}
        #: Logs that are closed and not set aside yet. A look at what is left of their files would not find all of it.
        self._damages: dict[GroupId, Damage] = {}
        self._flusher = InlineFlusher() if post is None else ThreadFlusher(post)
        self.snapshots = FileSnapshotStore(path, post, self._disposal)
        self._compactor = Compactor(post)
        self._starts = NotedStarts(noted, self._flusher.run_aside, self._on_failure)
        compactions = Compactions(self._compactor, self._cleaned, self._flusher.run_aside, self._disposal)
        self._recovery = Recovery(self._points, compactions, self._starts, is_same_boot=self._lock.is_same_boot, synced=hosted)
        self._is_closed = False
        self._is_saving = False
        self._failure: StorageError | None = None

    def _begin_with_room(self) -> None:
        """A start writes this and that: on a full disk it needs the ballast."""
        try:
            self.room.release_if_short()
        except OSError as error:
            raise storage_error("look at", self.path, error) from error

    def _note_recovered(self, groups: Collection[GroupId]) -> None:
        """While one log is not, the next start has to know that a power loss may have taken what was not synced."""
        self._unrecovered.difference_update(groups)
        if not self._unrecovered:
            self._lock.note_recovered()

    @property
    def open_files(self) -> int:
        """How many segment files are open."""
        return self._pool.open_count

    def open(self, group: GroupId) -> FileLog:
        """Raises StorageError: the disk failed, or the log holds damage that may not be cut away."""
        log = self._logs.get(group)
        if log is None:
            self._damages.pop(group, None)
            if self._points.of(group) is not None and not partition_path(self.path, group).is_dir():
                raise StorageError(
                    f"{partition_path(self.path, group)} is missing, but this node had it: what it held, and how it voted, is "
                    "lost. Restore it, or let the node begin anew with an empty data directory that `raftlake format` makes"
                )
            log = self._recovery.open_log(group, ensure_partition(self.path, group), self._pool, self._segment_bytes)
            self._logs[group] = log
            self._note_recovered([group])
        return log

    def prepare(self, groups: Sequence[GroupId]) -> None:
        """Raises StorageError. Directories that were there and are missing are left to `open`, which tells of them."""
        wanted = [group for group in groups if self._points.of(group) is None]
        self.room.retrying(lambda: create_partitions(self.path, wanted))

    def delete(self, groups: Sequence[GroupId]) -> None:
        for group in groups:
            require_inside(self.path, group)
        for group in groups:
            log = self._logs.pop(group, None)
            if log is not None:
                log.abandon()
            self._damages.pop(group, None)
            self.snapshots.forget(group)
        self._points.forget(groups)
        self._cleaned.forget(groups)
        self._starts.forget(groups)
        remove_partitions(self.path, groups, self._disposal)
        self._note_recovered(groups)

    def set_aside(self, group: GroupId, damage: DamagedData, epoch: Epoch) -> str:
        found = self._damages.get(group) or self._look_at(group, damage)
        path = partition_path(self.path, group)
        self.room.retrying(lambda: mark(path, found.impairment(epoch), found.reason))
        self.room.retrying(found.copy_beginning)
        self._points.lower(group, found.offset)
        self._cleaned.lower(group, found.offset)
        self._starts.lower(group, found.offset)
        self.snapshots.forget(group)
        aside = self.room.retrying(found.put_aside)
        del self._damages[group]
        return f"{found.reason}; the log was cut to offset {found.offset}, the damaged rest is in {aside}"

    def _look_at(self, group: GroupId, damage: DamagedData) -> Damage:
        """What is wrong with a log, which is closed then. Raises StorageError, also where nothing is wrong with it."""
        log = self._logs.get(group)
        if isinstance(damage, UnfitBeginning) and self._cleaned.note({group: Offset(0)}):
            self.room.retrying(self._cleaned.save)
        if log is not None:
            self._note_synced(log)
        found = Damage(
            partition_path(self.path, group),
            damage,
            durable_end=self._points.of(group) or Offset(0),
            log_end=None if log is None else log.end_offset,
            # What other replicas have may lack tombstones that the intact beginning needs.
            is_whole_lost=self._cleaned.of(group) is not None,
        )
        if not found.is_real:
            raise StorageError(f"{damage}; but now all of it can be read: look at the disk and the memory of this machine")
        self._damages[group] = found
        if log is not None:
            del self._logs[group]
            log.abandon()
        return found

    def _note_synced(self, log: FileLog) -> None:
        """The files of a damaged log may be shorter than they were. Should the process end before that is marked, then the next
        start learns it from the recovery point."""
        if self._points.note({log.group: log.synced_end}):
            with contextlib.suppress(DiskFull):
                self._points.save()

    def file_at(self, group: GroupId, offset: int) -> str:
        path = partition_path(self.path, group)
        bases = list_segments(path) if path.is_dir() else []
        found = [base for base in bases if base <= offset] or bases[:1]
        return str(path / file_name(found[-1])) if found else str(path)

    def impairment(self, group: GroupId) -> tuple[Impairment, str] | None:
        return read_impairment(partition_path(self.path, group))

    def mend(self, group: GroupId) -> None:
        unmark(partition_path(self.path, group))

    def groups(self) -> Sequence[GroupId]:
        return list_partitions(self.path)

    def settle(self, group: GroupId) -> None:
        self._logs[group].settle()

    def look_for_room(self, done: Callable[[Room | None], None]) -> None:
        found: list[Room] = []

        def look() -> None:
            try:
                found.append(self.room.keep())
            except OSError as error:
                raise storage_error("look at", self.path, error) from error

        self._flusher.run_aside(look, lambda _error: done(found[0] if found else None))

    def give_up_ballast(self) -> bool:
        return self.room.release()

    def flush(self, logs: Sequence[LogStore], done: Callable[[StorageError | None], None], *, may_wait: bool = False) -> None:
        works = []
        failed: StorageError | None = None
        for log in logs:
            try:
                work = cast(FileLog, log).begin_flush()
            except StorageError as error:
                failed = failed or error
            else:
                if work is not None:
                    works.append(work)
        self._flusher.submit(
            works, lambda: self._end_flush(works, failed, done), lambda: self._end_epochs(works), may_wait=may_wait
        )

    def _end_flush(
        self, works: Sequence[FlushWork], failed: StorageError | None, done: Callable[[StorageError | None], None]
    ) -> None:
        failed = failed or self._failure
        for work in works:
            work.log.end_flush(work)
            # A log may also have failed beside the flush, and its error was then reported to that caller only.
            failed = failed or work.log.failure_unless_deleted()
        if not self._is_closed:
            done(failed)

    def checkpoint(self) -> None:
        """Remember, for the next start, how far each log is synced. Called about once a second; nothing waits for it."""
        if spares.count < SPARES and not spares.keep():
            self._pool.shrink(SPARES)
        usable = [log for log in self._logs.values() if log.failure_unless_deleted() is None]
        for log in usable:
            log.save_index()
        if not self._is_saving and self._points.note({log.group: log.synced_end for log in usable}):
            self._is_saving = True
            self._flusher.run_aside(self._points.save, self._on_saved)
        self._starts.save()

    def _on_saved(self, error: StorageError | None) -> None:
        self._is_saving = False
        if error is not None and not isinstance(error, DiskFull):
            self._on_failure(error)

    def _on_failure(self, error: StorageError) -> None:
        self._failure = self._failure or error

    def _end_epochs(self, works: Sequence[FlushWork]) -> None:
        for work in works:
            work.log.end_epochs(work)

    def close(self) -> None:
        """Finish the flush under way (its `done` is not called any more), sync and close every log, release the lock."""
        if self._is_closed:
            return
        self._is_closed = True
        self._compactor.close()
        self.snapshots.close()
        self._flusher.close()
        self._disposal.close()
        try:
            usable = [log for log in self._logs.values() if log.failure_unless_deleted() is None]
            for log in self._logs.values():
                log.close()
            self._points.note({log.group: log.end_offset for log in usable})
            with contextlib.suppress(DiskFull):
                # The next start reads more.
                self._points.save()
                self._starts.close()
        finally:
            self._let_go()

    def abandon(self) -> None:
        """Close every file as it is and release the lock: for a node that stops on an error and keeps its disk as evidence."""
        if not self._is_closed:
            self._is_closed = True
            self._compactor.close()
            self.snapshots.close()
            self._flusher.close()
            self._disposal.close()
            self._let_go()

    def _let_go(self) -> None:
        for log in self._logs.values():
            log.abandon()
        spares.give_up()
        self._lock.release()
