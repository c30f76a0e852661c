"""Snapshot files on disk: `ports.SnapshotStore` over Kafka's `.checkpoint` files in the partitions' directories.

A snapshot is written as `<id>.checkpoint.part`, synced, renamed to `<id>.checkpoint`, and the directory is synced: readers see
all of it or nothing. It goes by a rename to `<id>.checkpoint.deleted`, so that what a crash leaves of a deletion is never
taken for a snapshot. Unfinished and half-deleted files are swept when the directory is opened. Writing and syncing are done by
one thread of their own, in order; knows nothing of what the bytes mean.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from raftlake.errors import InvariantViolation, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage.descriptors import open_file, spared
from raftlake.storage.disposal import Disposal
from raftlake.storage.files import FILE_MODE, Chunk, discard, read_at, storage_error, sync_data, sync_directory, write_at
from raftlake.storage.partition import partition_path
from raftlake.storage.threads import started

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
DELETED_SUFFIX = ".checkpoint.deleted"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)
#: Written by one job: each job takes the interpreter from the driver's thread for a moment.
WRITE_BYTES = 1024 * 1024
#: Kafka's `kafka-storage format` writes the initial voters under this id.
BOOTSTRAP = OffsetAndEpoch(Offset(0), Epoch(0))

Post = Callable[[Callable[[], None]], None]


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    """The file name of a snapshot."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


def parse_snapshot_name(name: str) -> OffsetAndEpoch | None:
    """The id of a finished snapshot's file; None for any other name."""
    match = _NAME.fullmatch(name)
    return None if match is None else OffsetAndEpoch(Offset(int(match[1])), Epoch(int(match[2])))


def list_snapshots(path: Path) -> list[OffsetAndEpoch]:
    """The ids of the finished snapshots in a partition's directory, ascending. Raises StorageError."""
    try:
        found = [parse_snapshot_name(name) for name in os.listdir(path)]
    except OSError as error:
        raise storage_error("list", path, error) from error
    return sorted(each for each in found if each is not None)


class _Worker:
    """Runs jobs in order: on a thread of its own, or at once where there is no event loop to report to."""

    def __init__(self, post: Post | None) -> None:
        self._post = post
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], None]) -> None:
        if self._post is None or not self._has_thread():
            job()
        else:
            self._jobs.put(job)

    def _has_thread(self) -> bool:
        """False where none can be started. Nothing is queued then, so the driver waits for the disk."""
        if self._thread is None:
            self._thread = started(self._serve, "raftlake-snapshots")
        return self._thread is not None

    def report(self, callback: Callable[[], None]) -> None:
        """Called by a job: have `callback` run on the driver's thread."""
        if self._post is None:
            callback()
        else:
            self._post(callback)

    def _serve(self) -> None:
        is_ended = False
        try:
            while (job := self._jobs.get()) is not None:
                job()
            is_ended = True
        finally:
            if not is_ended:
                # The end of no snapshot would be reported any more.
                self.report(_raise_thread_ended)

    def close(self) -> None:
        """Finish what was submitted and end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None


def _raise_thread_ended() -> None:
    raise InvariantViolation("the thread that writes snapshots ended with an exception; its trace is on standard error")


class FileSnapshotWriter:
    """See `ports.SnapshotWriter`. The file is opened, written and renamed by the worker; the driver only queues."""

    def __init__(self, path: Path, worker: _Worker, on_end: Callable[[bool], None]) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._worker = worker
        self._on_end = on_end
        self._descriptor = -1
        #: Waits for more, to be written together.
        self._gathered: list[Chunk] = []
        self._gathered_from = 0
        self._written = 0
        self._error: StorageError | None = None
        self._is_over = False
        self.size = 0
        worker.submit(self._open)

    @property
    def backlog(self) -> int:
        return self.size - self._written

    def append(self, data: Chunk) -> None:
        self._gathered.append(data)
        self.size += len(data)
        if self.size - self._gathered_from >= WRITE_BYTES:
            self._hand_over()

    def _hand_over(self) -> None:
        chunks, position, end = self._gathered, self._gathered_from, self.size
        self._gathered, self._gathered_from = [], end
        self._worker.submit(lambda: self._write(chunks, position, end))

    def freeze(self, done: Callable[[StorageError | None], None]) -> None:
        self._hand_over()
        self._worker.submit(lambda: self._freeze(done))

    def abandon(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._gathered.clear()
            self._on_end(False)
            self._worker.submit(self._remove)

    # --- on the worker's thread ---

    def _open(self) -> None:
        if self._is_over:
            return
        try:
            self._descriptor = open_file(self._part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        except OSError as error:
            self._error = storage_error("create", self._part, error)

    def _write(self, chunks: Sequence[Chunk], position: int, end: int) -> None:
        if self._error is None and not self._is_over:
            try:
                write_at(self._descriptor, chunks, position, end - position)
            except OSError as error:
                self._error = storage_error("write", self._part, error, position)
                # Nothing comes of it any more, and others need the room at once.
                self._close()
                discard(self._part)
        self._written = end

    def _freeze(self, done: Callable[[StorageError | None], None]) -> None:
        if self._is_over:
            return
        if self._error is None:
            try:
                sync_data(self._descriptor)
                os.rename(self._part, self._path)
                sync_directory(self._path.parent)
            except OSError as error:
                self._error = storage_error("finish", self._part, error)
        self._close()
        if self._error is not None:
            discard(self._part)
        self._worker.report(lambda: self._report(done))

    def _report(self, done: Callable[[StorageError | None], None]) -> None:
        if not self._is_over:
            self._is_over = True
            self._on_end(self._error is None)
            done(self._error)

    def _remove(self) -> None:
        self._close()
        # The next start sweeps what stays.
        discard(self._part)

    def _close(self) -> None:
        """What counts was synced before. An error here must not end the thread, for others wait for it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)


class FileSnapshotStore:
    """The snapshots below `root`, a data directory. Used from the driver's thread; `post` as in `FileLogDirectory`."""

    def __init__(self, root: Path, post: Post | None, disposal: Disposal) -> None:
        self._root = root
        self._disposal = disposal
        self._worker = _Worker(post)
        self._known: dict[GroupId, list[OffsetAndEpoch]] = {}
        self._writers: dict[tuple[GroupId, OffsetAndEpoch], FileSnapshotWriter] = {}

    def ids(self, group: GroupId) -> Sequence[OffsetAndEpoch]:
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = self._scan(partition_path(self._root, group))
        return tuple(known)

    def _scan(self, path: Path) -> list[OffsetAndEpoch]:
        """Look into a group's directory once, and sweep what a crash left."""
        found: list[OffsetAndEpoch] = []
        try:
            names = sorted(spared(lambda: os.listdir(path))) if path.is_dir() else []
            for name in names:
                if name.endswith((PART_SUFFIX, DELETED_SUFFIX)):
                    # The worker may be at it, for a snapshot that was abandoned.
                    (path / name).unlink(missing_ok=True)
                    continue
                snapshot_id = parse_snapshot_name(name)
                if snapshot_id is not None and snapshot_id != BOOTSTRAP:
                    found.append(snapshot_id)
        except OSError as error:
            raise storage_error("list", path, error) from error
        return sorted(found)

    def create(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> FileSnapshotWriter:
        self.ids(group)
        key = (group, snapshot_id)
        earlier = self._writers.get(key)
        if earlier is not None:
            earlier.abandon()
        path = partition_path(self._root, group) / snapshot_name(snapshot_id)

        def on_end(is_finished: bool) -> None:
            if self._writers.get(key) is writer:
                del self._writers[key]
            if is_finished and snapshot_id not in self._known[group]:
                self._known[group] = sorted([*self._known[group], snapshot_id])

        writer = self._writers[key] = FileSnapshotWriter(path, self._worker, on_end)
        return writer

    def size(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> int | None:
        if snapshot_id not in self.ids(group):
            return None
        path = self._path(group, snapshot_id)
        try:
            return path.stat().st_size
        except OSError as error:
            raise storage_error("open", path, error) from error

    def read(self, group: GroupId, snapshot_id: OffsetAndEpoch, position: int, size_max: int) -> bytes:
        path = self._path(group, snapshot_id)
        try:
            descriptor = open_file(path, os.O_RDONLY)
            try:
                return read_at(descriptor, size_max, position)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error("read", path, error, position) from error

    def delete(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> None:
        path = self._path(group, snapshot_id)
        doomed = path.with_name(path.name + ".deleted")
        try:
            os.rename(path, doomed)
            self._disposal.unlink(doomed)
        except OSError as error:
            raise storage_error("delete", path, error) from error
        self._known[group] = [known for known in self.ids(group) if known != snapshot_id]

    def forget(self, group: GroupId) -> None:
        """The group's directory is about to be deleted."""
        for (owner, _), writer in list(self._writers.items()):
            if owner == group:
                writer.abandon()
        self._known.pop(group, None)

    def close(self) -> None:
        """Finish the writes under way, and report nothing more of them."""
        for writer in list(self._writers.values()):
            writer.abandon()
        self._worker.close()

    def _path(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> Path:
        return partition_path(self._root, group) / snapshot_name(snapshot_id)
