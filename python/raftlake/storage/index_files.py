"""The two index files beside a segment: written whole when it is sealed, extended while it grows, looked at when it is opened.

Owns the files and how much of an index they hold; what the entries mean is `index.py`'s business. Everything in them can be
rebuilt from the segment, so nothing here repairs: what does not fit is a ValueError, and the caller rebuilds.
"""

from __future__ import annotations

from pathlib import Path

from raftlake.raft.types import Offset
from raftlake.storage import index
from raftlake.storage.files import extend_file, read_end, read_file, storage_error, write_file
from raftlake.storage.index import OFFSET_ENTRY_SIZE, TIME_ENTRY, SegmentIndex

SUFFIXES = (".index", ".timeindex")
ENTRY_SIZES = (OFFSET_ENTRY_SIZE, TIME_ENTRY.size)
#: The index files of an active segment lag the segment by at most this many bytes. A start after a kill reads so much again.
SAVE_BYTES = 4 << 20


class IndexFiles:
    """The index files of one segment. Every method raises StorageError when the disk fails."""

    __slots__ = ("_entries", "_paths", "_size")

    def __init__(self, segment: Path) -> None:
        self._paths = tuple(segment.with_suffix(suffix) for suffix in SUFFIXES)
        #: How much of a growing segment the files cover, in bytes and entries; 0 when they are to be written anew.
        self._size = 0
        self._entries = (0, 0)

    def is_behind(self, size: int) -> bool:
        """Whether the files of a growing segment of `size` bytes should be extended."""
        return size - self._size >= SAVE_BYTES

    def extend(self, known: SegmentIndex, size: int) -> None:
        """Write what the files lack of the index of a growing segment; not synced."""
        new = known.encode_from(*self._entries)
        for path, data, count, entry_size in zip(self._paths, new, self._entries, ENTRY_SIZES, strict=True):
            try:
                extend_file(path, data, count * entry_size)
            except OSError as error:
                raise storage_error("write", path, error) from error
        self._size = size
        self._entries = (len(known.positions), len(known.times))

    def write(self, known: SegmentIndex, *, sync: bool) -> None:
        """Write the whole index."""
        self._size, self._entries = 0, (0, 0)
        for path, data in zip(self._paths, known.encode(), strict=True):
            try:
                write_file(path, data, sync=sync)
            except OSError as error:
                raise storage_error("write", path, error) from error

    def forget(self) -> None:
        """Remove the files: they no longer match the segment."""
        self._size, self._entries = 0, (0, 0)
        for path in reversed(self._paths):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise storage_error("delete", path, error) from error

    def load(self, base_offset: Offset, end_offset: Offset, size: int) -> SegmentIndex:
        """The index of a sealed segment. Raises ValueError when a file is missing or does not fit."""
        offsets, times = self._read()
        return index.load(offsets, times, base_offset, end_offset, size)

    def load_below(self, base_offset: Offset, limit: Offset) -> SegmentIndex:
        """What the files say of the batches below `limit`. Raises ValueError when a file is missing or damaged."""
        offsets, times = self._read()
        return index.load_part(offsets, times, base_offset, limit)

    def _read(self) -> tuple[bytes, bytes]:
        offsets, times = (read_file(path) for path in self._paths)
        if offsets is None or times is None:
            raise ValueError("an index file is missing")
        return offsets, times

    def ends(self, offsets: int, size: int) -> tuple[int, int]:
        """The position of the last offset entry and the largest timestamp of a sealed segment with so many offsets and bytes.

        They are read from the ends of the index files, so that a start does not load whole indexes. Raises ValueError.
        """
        ends = []
        for path, entry_size in zip(self._paths, ENTRY_SIZES, strict=True):
            try:
                file_size, end = read_end(path, entry_size)
            except FileNotFoundError:
                raise ValueError(f"{path.name} is missing") from None
            except OSError as error:
                raise storage_error("read", path, error) from error
            if file_size % entry_size:
                raise ValueError(f"{path.name} is cut off")
            ends.append(end)
        position = int.from_bytes(ends[0][4:], "big") if ends[0] else 0
        timestamp_ms, last_offset = TIME_ENTRY.unpack(ends[1]) if ends[1] else (-1, 0)
        if position >= max(size, 1) or not 0 <= last_offset < max(offsets, 1):
            raise ValueError("the last entry leads behind the end of the segment")
        return position, int(timestamp_ms)
