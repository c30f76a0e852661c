"""Walking record batches (v2) in a file: headers, the chain of offsets, and CRCs where asked.

Owns the few header fields that a log needs to place a batch; what a batch holds is `wire.batches`' business. Reads through
a small window, never a memory map (a failing disk must raise, not kill the process). Nothing here repairs: a batch that
does not fit is a `BrokenBatch`, which names the file, the byte and the offset that were expected there.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from raftlake.errors import DamagedData
from raftlake.raft.types import Epoch, Offset
from raftlake.storage.files import describe_error, read_at, storage_error
from raftlake.wire.batch_header import CRC_START, HEADER_BYTES, MAGIC, parse_header

#: The byte of a batch that holds the magic, and how many bytes of the base offset a search compares.
MAGIC_AT = 16
HIGH_BYTES = 4

#: A place on the disk that cannot be read any more; other errors say that the whole disk or the process has a problem.
UNREADABLE = (errno.EIO, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO))

WINDOW_SMALL = 8 << 10
#: For a walk over headers alone: small batches are read through, the payload of large ones is passed over.
WINDOW_HEADERS = 64 << 10
WINDOW_LARGE = 1 << 20


class BatchAt(NamedTuple):
    """A batch and where it stands in its file (a tuple: a recovery makes one for each batch)."""

    position: int
    size: int
    base_offset: Offset
    end_offset: Offset
    epoch: Epoch
    timestamp_ms_max: int


class BrokenBatch(DamagedData):
    """The bytes at `position` are not the batch that must begin there."""

    def __init__(self, path: Path, position: int, offset: int | None, reason: str) -> None:
        expected = "" if offset is None else f" (offset {offset})"
        super().__init__(f"{path} is damaged at byte {position}{expected}: {reason}", offset=-1 if offset is None else offset)
        self.path = path
        self.position = position
        self.reason = reason


def read_bytes(descriptor: int, path: Path, size: int, position: int, offset: int | None = None) -> bytes:
    """Like `read_at`. Raises BrokenBatch when the disk cannot read that place, StorageError when it fails otherwise."""
    try:
        return read_at(descriptor, size, position)
    except OSError as error:
        if error.errno in UNREADABLE:
            raise BrokenBatch(path, position, offset, f"cannot be read: {describe_error(error)}") from error
        raise storage_error("read", path, error, position) from error


class Window:
    """The part of a file that a walk looks at, refilled as it moves forward."""

    __slots__ = ("_begin", "_data", "_descriptor", "_end", "_path", "_size")

    def __init__(self, descriptor: int, path: Path, end: int, size: int) -> None:
        self._descriptor = descriptor
        self._path = path
        self._end = end
        self._size = size
        self._begin = 0
        self._data = memoryview(b"")

    def view(self, position: int, size: int, offset: int | None = None) -> memoryview:
        """`size` bytes from `position` on, fewer where the file ends. Raises StorageError; `offset` is for its message."""
        first = position - self._begin
        if first < 0 or first + size > len(self._data):
            wanted = min(max(size, self._size), self._end - position)
            try:
                data = read_bytes(self._descriptor, self._path, wanted, position, offset)
            except BrokenBatch:
                if wanted <= size:
                    raise
                # What cannot be read may lie behind what is asked for.
                data = read_bytes(self._descriptor, self._path, size, position, offset)
            self._data = memoryview(data)
            self._begin = position
            first = 0
        return self._data[first : first + size]


def walk(
    descriptor: int,
    path: Path,
    position: int,
    end: int,
    *,
    offset: int | None = None,
    check_crc: bool = False,
    epoch_min: int = 0,
    window: int = WINDOW_SMALL,
) -> Iterator[BatchAt]:
    """The batches from `position` (a batch boundary) to `end`.

    Each must begin with the offset at which the one before ended, the first at `offset` if given, and no leader epoch may be
    below the one before. Raises BrokenBatch at the first that does not fit, StorageError when the disk fails.
    """
    file = Window(descriptor, path, end, window)
    while position < end:
        batch = read_batch(file, path, position, end, offset, epoch_min, check_crc=check_crc)
        yield batch
        position += batch.size
        offset = batch.end_offset
        epoch_min = batch.epoch


def read_batch(
    file: Window, path: Path, position: int, end: int, offset: int | None, epoch_min: int, *, check_crc: bool
) -> BatchAt:
    """The batch at `position`. Raises BrokenBatch when it is not whole, not in order or, where asked, not intact."""
    view = file.view(position, HEADER_BYTES, offset)
    if len(view) < HEADER_BYTES:
        raise BrokenBatch(path, position, offset, f"{end - position} bytes are no batch")
    header = parse_header(view)
    size = header.size
    epoch = header.leader_epoch
    base_offset = header.base_offset
    if header.magic != MAGIC:
        raise BrokenBatch(path, position, offset, f"record format {header.magic} ({MAGIC} is expected)")
    if not HEADER_BYTES <= size <= end - position:
        raise BrokenBatch(path, position, offset, f"a batch of {size} bytes where {end - position} are left")
    if base_offset != offset and (offset is not None or base_offset < 0):
        raise BrokenBatch(path, position, offset, f"the batch there begins with offset {base_offset}")
    if epoch < epoch_min or header.last_offset_delta < 0:
        raise BrokenBatch(
            path, position, offset, f"leader epoch {epoch} after {epoch_min}, last offset delta {header.last_offset_delta}"
        )
    if check_crc:
        found = crc32c(file.view(position, size, offset)[CRC_START:])
        if found != header.crc:
            raise BrokenBatch(path, position, offset, f"CRC-32C is {found:#010x} and should be {header.crc:#010x}")
    return BatchAt(position, size, Offset(base_offset), Offset(header.end_offset), Epoch(epoch), header.timestamp_ms_max)


def is_zero(descriptor: int, path: Path, position: int, end: int) -> bool:
    """Whether the file holds nothing but zeros from `position` to `end`: space that was reserved and never written."""
    file = Window(descriptor, path, end, WINDOW_LARGE)
    while position < end:
        data = file.view(position, min(WINDOW_LARGE, end - position)).tobytes()
        if not data or data.count(0) < len(data):
            return False
        position += len(data)
    return True


def find_batch_after(descriptor: int, path: Path, position: int, end: int, offset: int) -> BatchAt | None:
    """The first intact batch that begins behind `position` and holds offsets above `offset`, at whatever byte.

    After a broken batch this tells a torn tail (nothing follows) from damage in the middle (a later batch is intact): a
    length field may itself be what is damaged, so every byte is a candidate.
    """
    # A batch above `offset` and less than 2^31 away shares the high 4 bytes of its base offset with it, or has the next value.
    high = offset >> 32
    begins = re.compile(b"(?=(?:%s|%s).{%d}\\x02)" % (_literal(high), _literal(high + 1), MAGIC_AT - HIGH_BYTES), re.DOTALL)
    file = Window(descriptor, path, end, WINDOW_LARGE)
    position += 1
    while end - position >= HEADER_BYTES:
        data = file.view(position, min(WINDOW_LARGE, end - position)).tobytes()
        for match in begins.finditer(data):
            found = _intact_batch(descriptor, path, position + match.start(), end, offset)
            if found is not None:
                return found
        position += max(len(data) - MAGIC_AT, 1)
    return None


def _literal(high: int) -> bytes:
    return re.escape((high & 0xFFFFFFFF).to_bytes(HIGH_BYTES, "big"))


def _intact_batch(descriptor: int, path: Path, position: int, end: int, offset: int) -> BatchAt | None:
    try:
        batch = read_batch(Window(descriptor, path, end, WINDOW_SMALL), path, position, end, None, 0, check_crc=True)
    except BrokenBatch:
        return None
    return batch if offset < batch.base_offset < offset + (1 << 31) else None
