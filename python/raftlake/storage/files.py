"""What the rest of `storage` asks of the operating system: synced writes, whole reads, a bounded set of open files.

Knows nothing of batches or logs. Invariants: a descriptor that a flush is working on is never closed by eviction, and one with
unsynced bytes is synced before (a write-back error would be lost); an `OSError` leaves this package only as a `StorageError`
that names the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from raftlake.errors import DiskFull, StorageError, TooManyFiles
from raftlake.storage.descriptors import NO_DESCRIPTORS, SPARES, limit, open_file, spared
from raftlake.storage.disposal import Disposal
from raftlake.storage.room import KeptRoom

#: Behind the name of a file that is to be replaced.
TEMPORARY_SUFFIX = ".tmp"
IOV_MAX = os.sysconf("SC_IOV_MAX")
#: What is in a data directory is for the node alone.
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
#: Descriptors left to sockets, the interpreter and the files that are open only for a moment.
DESCRIPTORS_RESERVED = 256
#: Where there is no limit to speak of.
DESCRIPTORS_MAX = 1 << 16

Chunk = bytes | bytearray | memoryview


#: The disk, or what a user may have of it, is full.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def storage_error(doing: str, path: Path, error: OSError, position: int | None = None) -> StorageError:
    """The `StorageError` for a failed call: what was done, the file, the byte position and the system's own words. For want of
    room it is DiskFull, for want of a descriptor TooManyFiles; but never of a sync, for what a failed one was to write may be
    lost."""
    where = "" if position is None else f" at byte {position}"
    told = f"cannot {doing} {path}{where}: {describe_error(error)}"
    if error.errno in NO_DESCRIPTORS:
        told = f"{told}. This process may have {limit()} files and connections open; raise that limit (ulimit -n, LimitNOFILE)"
    if error.errno in NO_DESCRIPTORS and doing != "sync":
        return TooManyFiles(told)
    kind = DiskFull if error.errno in NO_ROOM and doing != "sync" else StorageError
    return kind(told)


def describe_error(error: OSError) -> str:
    """The system's own words and the name of the error."""
    return f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, 'no errno')})"


def sync_data(descriptor: int) -> None:
    """Make the bytes and the size of an open file durable. macOS keeps fsync in the drive's cache; F_FULLFSYNC does not."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    descriptor = open_file(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def durable_names(path: Path) -> Iterator[None]:
    """Names in a directory are changed in here, and are durable behind it, also where the change ends with an error. Raises
    StorageError; TooManyFiles before anything is changed."""
    try:
        descriptor = open_file(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise storage_error("open", path, error) from error
    try:
        yield
    finally:
        try:
            sync_descriptor(descriptor)
        except OSError as error:
            raise storage_error("sync", path, error) from error
        finally:
            os.close(descriptor)


def sync_names(path: Path) -> None:
    """Make the names in a directory durable. Raises StorageError; TooManyFiles, after which nothing has changed."""
    with durable_names(path):
        pass


def sync_descriptor(descriptor: int) -> None:
    """fsync of a file or directory with its metadata."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def write_at(descriptor: int, chunks: Sequence[Chunk], position: int, size: int) -> None:
    """Write the `size` bytes of `chunks` at `position`, however many calls that takes. Raises OSError."""
    if len(chunks) <= IOV_MAX:
        written = os.pwritev(descriptor, chunks, position)
        if written == size:
            return
    else:
        written = 0
    _write_rest(descriptor, chunks, position, size, written)


def _write_rest(descriptor: int, chunks: Sequence[Chunk], position: int, size: int, written: int) -> None:
    views = [memoryview(chunk).cast("B") for chunk in chunks if len(chunk)]
    first = 0
    skip = written
    while written < size:
        while skip >= len(views[first]):
            skip -= len(views[first])
            first += 1
        count = os.pwritev(descriptor, [views[first][skip:], *views[first + 1 : first + IOV_MAX]], position + written)
        if count == 0:
            raise OSError(errno.EIO, "the write took no bytes")
        written += count
        skip += count


def read_at(descriptor: int, size: int, position: int) -> bytes:
    """Up to `size` bytes from `position` on; fewer only at the end of the file. Raises OSError."""
    data = os.pread(descriptor, size, position)
    if len(data) == size or not data:
        return data
    parts = [data]
    count = len(data)
    while count < size and (data := os.pread(descriptor, size - count, position + count)):
        parts.append(data)
        count += len(data)
    return b"".join(parts)


def write_file(path: Path, data: bytes, *, sync: bool) -> None:
    """Write a whole file, over what is there. Raises OSError."""
    descriptor = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    try:
        write_at(descriptor, [data], 0, len(data))
        if sync:
            sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def extend_file(path: Path, data: bytes, position: int) -> None:
    """Make the file end with `data` at `position`; created when absent. Raises OSError."""
    descriptor = open_file(path, os.O_WRONLY | os.O_CREAT, FILE_MODE)
    try:
        if data:
            write_at(descriptor, [data], position, len(data))
        os.ftruncate(descriptor, position + len(data))
    finally:
        os.close(descriptor)


def read_end(path: Path, size: int) -> tuple[int, bytes]:
    """The size of a file and its last `size` bytes (all of them where it is shorter). Raises OSError."""
    descriptor = open_file(path, os.O_RDONLY)
    try:
        whole = os.fstat(descriptor).st_size
        return whole, read_at(descriptor, min(size, whole), max(whole - size, 0))
    finally:
        os.close(descriptor)


def discard(path: Path) -> None:
    """Remove what a write that failed has left. The write's own error is the one to tell."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a file in one step: temporary file, fsync, rename, fsync of the directory. Raises StorageError; DiskFull: then
    the file is what it was.

    With `sync=False` a crash may leave the old or the new content, or (on file systems that do not order a rename after
    the data) none: only for files that can be rebuilt.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        write_file(temporary, data, sync=sync)
        if sync:
            _rename_durably(temporary, path)
        else:
            os.rename(temporary, path)
    except OSError as error:
        discard(temporary)
        raise storage_error("replace", path, error) from error


def _rename_durably(old: Path, new: Path) -> None:
    """Within one directory. Raises OSError where nothing was renamed, StorageError where the sync behind it failed."""
    # Opened first: a caller without a descriptor for it goes on with what was there.
    directory = open_file(new.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.rename(old, new)
        try:
            sync_descriptor(directory)
        except OSError as error:
            raise storage_error("sync", new.parent, error) from error
    finally:
        os.close(directory)


def delete_file(path: Path) -> None:
    """Delete a file durably, if it is there. Raises StorageError."""
    try:
        path.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise storage_error("delete", path, error) from error


def read_file(path: Path) -> bytes | None:
    """The whole file, or None when there is none. Raises StorageError."""
    try:
        return spared(path.read_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error("read", path, error) from error


def descriptors_max() -> int:
    """How many files the logs may keep open under this process's RLIMIT_NOFILE."""
    most = limit()
    return min(max(most - DESCRIPTORS_RESERVED, most // 4, 16), DESCRIPTORS_MAX)


class FilePool:
    """Keeps at most `limit` files open, the most recently used ones; more only while a flush works on all of them."""

    def __init__(self, limit: int, disposal: Disposal | None = None, room: KeptRoom | None = None) -> None:
        assert limit >= 1
        #: What the writes that must succeed fall back on.
        self.room = room or KeptRoom()
        #: Deletes the large ones.
        self.disposal = disposal or Disposal(threaded=False)
        self._limit = limit
        self._open: OrderedDict[PooledFile, None] = OrderedDict()

    @property
    def open_count(self) -> int:
        return len(self._open)

    def touch(self, file: PooledFile) -> None:
        self._open.move_to_end(file)

    def make_room(self) -> None:
        """One file is about to be opened. Raises StorageError where a file had to be synced for it, and was not."""
        if len(self._open) >= self._limit:
            self._close_one()

    def open(self, path: Path, flags: int) -> int:
        """A descriptor. Others may have taken what this pool may have: then it closes some of its own. Raises OSError."""
        try:
            return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
        self.shrink(SPARES)
        return open_file(path, flags, FILE_MODE)

    def shrink(self, count: int) -> None:
        """Close up to `count` files, the half used last excepted. Raises StorageError, as `make_room`."""
        for _ in range(min(count, len(self._open) // 2)):
            if not self._close_one():
                return

    def _close_one(self) -> bool:
        """Close the file that was used longest ago, or one that can be synced first; False where there is none."""
        victim = next((each for each in self._open if not each.is_held), None)
        if victim is None:
            victim = next((each for each in self._open if not each.is_pinned), None)
            if victim is None:
                return False
            victim.settle()
        victim.close()
        return True

    def add(self, file: PooledFile) -> None:
        self._open[file] = None

    def remove(self, file: PooledFile) -> None:
        self._open.pop(file, None)


class PooledFile:
    """A file that is opened when it is used and may be closed in between. Used from the driver's thread only; a flush
    thread may work on the descriptor while it is pinned."""

    __slots__ = ("_close_when_unpinned", "_descriptor", "_lost", "_on_close", "_pins", "_pool", "path", "unsynced")

    def __init__(self, path: Path, pool: FilePool, on_close: Callable[[], None] | None = None) -> None:
        self.path = path
        #: Bytes were written that no flush has begun to sync.
        self.unsynced = False
        self._pool = pool
        self._on_close = on_close
        self._descriptor = -1
        self._pins = 0
        self._close_when_unpinned = False
        #: A sync of it failed.
        self._lost: StorageError | None = None

    @property
    def is_held(self) -> bool:
        return self.unsynced or self._pins > 0

    @property
    def is_pinned(self) -> bool:
        return self._pins > 0

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    def descriptor(self, *, create: bool = False) -> int:
        """The open descriptor. Raises StorageError when the file cannot be opened."""
        if self._descriptor >= 0:
            self._pool.touch(self)
            return self._descriptor
        flags = os.O_RDWR | (os.O_CREAT | os.O_TRUNC if create else 0)
        self._pool.make_room()
        try:
            self._descriptor = self._pool.open(self.path, flags)
        except OSError as error:
            raise storage_error("create" if create else "open", self.path, error) from error
        self._close_when_unpinned = False
        self._pool.add(self)
        return self._descriptor

    def size(self) -> int:
        """The file's size on disk. Raises StorageError."""
        try:
            return os.fstat(self.descriptor()).st_size
        except OSError as error:
            raise storage_error("look at", self.path, error) from error

    def settle(self) -> None:
        """Sync the bytes that no flush has begun to sync. Raises StorageError; then they may be lost, and no later sync of this
        file is worth anything."""
        try:
            sync_data(self.descriptor())
        except OSError as error:
            self._lost = storage_error("sync", self.path, error)
            raise self._lost from error
        self.unsynced = False

    def pin(self) -> int:
        """The descriptor, which stays open until `unpin`. Raises StorageError."""
        if self._lost is not None:
            raise self._lost
        descriptor = self.descriptor()
        self._pins += 1
        return descriptor

    def unpin(self) -> None:
        assert self._pins > 0
        self._pins -= 1
        if self._pins == 0 and self._close_when_unpinned:
            self.close()

    def delete(self) -> None:
        """Close and remove the file, if it is there. Raises StorageError."""
        self.unsynced = False
        try:
            # In this order: the descriptor that is closed last has to wait until the blocks are free.
            self._pool.disposal.unlink(self.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise storage_error("delete", self.path, error) from error
        finally:
            self.close()

    def close(self) -> None:
        """Close now, or when the flush that works on it is done."""
        if self._pins > 0:
            self._close_when_unpinned = True
            return
        self._pool.remove(self)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            if self._on_close is not None:
                self._on_close()
