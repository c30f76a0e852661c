"""The aborted transactions of one log on disk: `ports.AbortedIndex` as a file `<base offset>.txnindex` beside each segment that
holds the marker of one.

The format is Kafka's (`wire.aborted_index`). A file grows unsynced; `sync` comes before a start point relies on it. What a
crash leaves behind the last start point is dropped by the start. The number of entries of each file is kept in memory. A
question looks for its first entry by bisection in the file down to `READ_ENTRIES`, which it reads at once: most files have no
more. The index keeps what it read last for the next question, which a consumer asks a few records further on. The file of a
segment is deleted with it (`segment`, `reset`).
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, takewhile
from math import inf
from pathlib import Path
from typing import NamedTuple, TypeVar

from raftlake.errors import CorruptBatch, StorageError
from raftlake.raft.types import Offset
from raftlake.storage.descriptors import open_file, spared
from raftlake.storage.files import (
    extend_file,
    read_at,
    read_file,
    replace_file,
    storage_error,
    sync_descriptor,
    sync_directory,
)
from raftlake.wire.aborted_index import ENTRY, AbortedTransaction, decode, encode, overlapping

T = TypeVar("T")

SUFFIX = ".txnindex"
_NAME = re.compile(r"(\d{20})\.txnindex", re.ASCII)
#: Entries that are read together.
READ_ENTRIES = 512
#: In an entry: the offset of its marker.
_MARKER, _MARKER_AT = struct.Struct(">q"), 18


class _Piece(NamedTuple):
    """Entries of one file, as they stand in it."""

    base: Offset
    #: Of its first entry in the file.
    number: int
    #: At most `READ_ENTRIES` whole entries.
    data: bytes

    @property
    def end(self) -> int:
        return self.number + len(self.data) // ENTRY.size

    def has_first(self, base: Offset, count: int, start: Offset) -> bool:
        """Whether the first entry is here that has a marker at or behind `start`, of a file of `count` entries; or none of the
        file has one."""
        if base != self.base or not self.data:
            return False
        if self.number > 0 and _marker_in(self.data, 0) > start:
            return False
        return self.end >= count or _marker_in(self.data, len(self.data) - ENTRY.size) >= start


class FileAbortedIndex:
    """The index of the log in `path`. Used from the driver's thread only."""

    def __init__(
        self,
        path: Path,
        segment_bases: Callable[[], Sequence[Offset]],
        clean_until: Callable[[], Offset | None] = lambda: None,
    ) -> None:
        """`clean_until`: no record of an aborted transaction is below, because compaction has removed them."""
        self._path = path
        self._told_clean_until = clean_until
        self._segment_bases = segment_bases
        #: How many whole entries each file has, by the base offset of its segment, ascending. None: not looked at yet.
        self._known: dict[Offset, int] | None = None
        self._unsynced: set[Offset] = set()
        self._names_changed = False
        #: What the last question read. Entries come behind it while it stands here; whoever removes some, forgets it.
        self._recent: _Piece | None = None

    def _clean_until(self) -> Offset:
        return self._told_clean_until() or Offset(0)

    def _counts(self) -> dict[Offset, int]:
        if self._known is None:
            try:
                matches = [_NAME.fullmatch(name) for name in spared(lambda: os.listdir(self._path))]
                bases = sorted(Offset(int(match[1])) for match in matches if match is not None)
                self._known = {base: self.file(base).stat().st_size // ENTRY.size for base in bases}
            except OSError as error:
                raise storage_error("list", self._path, error) from error
        return self._known

    def file(self, base: Offset) -> Path:
        """The file of the segment that begins at `base`."""
        return self._path / f"{base:020d}{SUFFIX}"

    # --- writing ---

    def append(self, entries: Sequence[AbortedTransaction]) -> None:
        counts = self._counts()
        bases = self._segment_bases()
        grown: dict[Offset, int] = {}
        for base, group in groupby(entries, key=lambda entry: bases[bisect_right(bases, entry.last_offset) - 1]):
            data = encode(list(group))
            try:
                extend_file(self.file(base), data, counts.get(base, 0) * ENTRY.size)
            except OSError as error:
                raise storage_error("write", self.file(base), error) from error
            grown[base] = counts.get(base, 0) + len(data) // ENTRY.size
        # All or none: what a refused call has written does not count, and the next call writes over it.
        for base, count in grown.items():
            self._names_changed |= base not in counts
            counts[base] = count
            self._unsynced.add(base)

    def sync(self) -> None:
        for base in sorted(self._unsynced):
            try:
                descriptor = open_file(self.file(base), os.O_RDONLY)
                try:
                    sync_descriptor(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise storage_error("sync", self.file(base), error) from error
        self._unsynced.clear()
        if self._names_changed:
            try:
                sync_directory(self._path)
            except OSError as error:
                raise storage_error("sync", self._path, error) from error
            self._names_changed = False

    def truncate_to(self, end_offset: Offset) -> None:
        self._recent = None
        counts = self._counts()
        try:
            for base in [base for base in counts if base >= end_offset]:
                self.file(base).unlink(missing_ok=True)
                self.forget(base)
            if counts:
                base = max(counts)
                # Behind those that count, a refused `append` may have left some.
                keep = min(self._intact_below(base, end_offset), counts[base])
                if self.file(base).stat().st_size != keep * ENTRY.size:
                    os.truncate(self.file(base), keep * ENTRY.size)
                    counts[base] = keep
        except OSError as error:
            raise storage_error("truncate", self.file(base), error) from error

    def drop_below(self, clean_until: Offset) -> None:
        """Compaction has removed the records of all aborted transactions whose markers are below that offset: nobody needs
        their entries. Raises StorageError."""
        bases = self._segment_bases()
        counts = self._counts()
        for base in [base for base in counts if base < clean_until]:
            file = self.file(base)
            if _end_of(base, bases) <= clean_until:
                try:
                    file.unlink(missing_ok=True)
                except OSError as error:
                    raise storage_error("delete", file, error) from error
                self.forget(base)
                continue
            kept = list(self._read_from(base, counts[base], clean_until))
            self._recent = None
            if len(kept) < counts[base]:
                replace_file(file, encode(kept))
                counts[base] = len(kept)

    def forget(self, base: Offset) -> None:
        """Somebody has deleted the file of a segment."""
        self._recent = None
        if self._known is not None:
            self._known.pop(base, None)
        self._unsynced.discard(base)

    def forget_all(self) -> None:
        """Somebody has deleted the files."""
        self._recent = None
        self._known = None
        self._unsynced.clear()

    # --- reading ---

    def find(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        counts = self._counts()
        if not counts:
            return []
        bases = list(counts)
        found: list[AbortedTransaction] = []
        for base in bases[max(bisect_right(bases, start) - 1, 0) :]:
            more, is_over = overlapping(self._read_from(base, counts[base], start), end)
            found += more
            if is_over:
                break
        return found

    def counts(self, end_offset: Offset) -> Sequence[tuple[Offset, int]]:
        below = [(base, count) for base, count in self._counts().items() if base < end_offset]
        if below:
            base, count = below[-1]
            below[-1] = base, self._first_from(base, count, end_offset)
        return [each for each in below if each[1]]

    def agrees(self, end_offset: Offset, counts: Sequence[tuple[Offset, int]]) -> bool:
        known = [base for base in self._counts() if base < end_offset]
        bases = self._segment_bases()
        told = {base: count for base, count in counts if base in bases}
        for base in told.keys() | set(known):
            if base < self._clean_until():
                # Entries that were told may have been dropped.
                if self._intact_below(base, end_offset) > told.get(base, 0) and _end_of(base, bases) > self._clean_until():
                    return False
                continue
            if self._intact_below(base, end_offset) != told.get(base, 0):
                return False
            # Behind the last entries there may be others, from which a start cuts the index.
            if base != known[-1] and self._counts()[base] != told.get(base, 0):
                return False
        return True

    def _intact_below(self, base: Offset, end_offset: Offset) -> int:
        """How many entries at the beginning of a file are intact and have a marker below `end_offset`."""
        data = read_file(self.file(base)) or b""
        whole = memoryview(data)[: len(data) - len(data) % ENTRY.size]
        count = 0
        try:
            for _ in takewhile(lambda entry: entry.last_offset < end_offset, decode(whole, base)):
                count += 1
        except CorruptBatch:
            pass
        return count

    def _read_from(self, base: Offset, count: int, start: Offset) -> Iterator[AbortedTransaction]:
        """The entries of a file with a marker at or behind `start`. Raises StorageError."""
        piece = self._recent
        if piece is None or not piece.has_first(base, count, start):
            piece = self._recent = self._read(base, lambda descriptor: _Piece(base, *_around(descriptor, count, start)))
        first = _first_in(piece.data, start)
        while piece.data:
            try:
                yield from decode(memoryview(piece.data)[first * ENTRY.size :], base)
            except CorruptBatch as error:
                raise StorageError(f"{self.file(base)} is damaged: {error}. The next start makes it anew") from error
            if piece.end >= count:
                return
            piece, first = self._read(base, partial(_behind, piece, count)), 0

    def _read(self, base: Offset, read: Callable[[int], T]) -> T:
        """What `read` finds in a file, whose descriptor it is given. Raises StorageError."""
        try:
            descriptor = open_file(self.file(base), os.O_RDONLY)
            try:
                return read(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error("read", self.file(base), error) from error

    def _first_from(self, base: Offset, count: int, start: Offset) -> int:
        number, data = self._read(base, lambda descriptor: _around(descriptor, count, start))
        return number + _first_in(data, start)


def _end_of(base: Offset, bases: Sequence[Offset]) -> float:
    """Where the segment that begins at `base` ends; infinity for the last one."""
    index = bisect_right(bases, base)
    return bases[index] if index < len(bases) else inf


def _around(descriptor: int, count: int, start: Offset) -> tuple[int, bytes]:
    """The number of an entry, and the entries from there on, at most `READ_ENTRIES`. The first one with a marker at or behind
    `start` is among them, where the file has one. Raises OSError."""
    low, high = 0, count
    while high - low > READ_ENTRIES:
        middle = (low + high) // 2
        if _marker_in(read_at(descriptor, ENTRY.size, middle * ENTRY.size), 0) < start:
            low = middle + 1
        else:
            high = middle
    return low, read_at(descriptor, min(READ_ENTRIES, count - low) * ENTRY.size, low * ENTRY.size)


def _behind(piece: _Piece, count: int, descriptor: int) -> _Piece:
    """The entries of the file behind `piece`, at most `READ_ENTRIES` of `count`. Raises OSError."""
    size = min(READ_ENTRIES, count - piece.end) * ENTRY.size
    return _Piece(piece.base, piece.end, read_at(descriptor, size, piece.end * ENTRY.size))


def _first_in(data: bytes, start: Offset) -> int:
    """The number of the first entry with a marker at or behind `start`; how many there are where none has."""
    return bisect_left(range(len(data) // ENTRY.size), int(start), key=lambda number: _marker_in(data, number * ENTRY.size))


def _marker_in(data: bytes, position: int) -> int:
    """Where the marker is of the entry that stands there."""
    marker: int = _MARKER.unpack_from(data, position + _MARKER_AT)[0]
    return marker
