"""Where a range of offsets is read, the table or the log, and how the table's part is cut into tasks: arithmetic only.

Below the seam offsets come from the table, from the seam on from the log. The seam is the end of the table as the plan has seen
it. An offset that is in both may be read from either, and each offset of a range lies in one piece.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Generic, NamedTuple, Protocol, TypeVar

from pyspark_raftlake.ranges import OffsetRange

#: Bytes of Parquet files that one task reads, unless `minPartitions` asks for less.
TASK_BYTES = 32 << 20


class Shown(NamedTuple):
    """The offsets of a partition that its table shows: from `start` to below `end`."""

    start: int
    end: int

    def holds(self, offset: int) -> bool:
        return self.start <= offset < self.end


class FileSpan(Protocol):
    """The part of a `TableFile` that planning needs. Statistics may be missing."""

    @property
    def offset_min(self) -> int | None: ...

    @property
    def offset_max(self) -> int | None: ...

    @property
    def time_min(self) -> int | None: ...

    @property
    def time_max(self) -> int | None: ...

    @property
    def size(self) -> int: ...


class TimeSpan(NamedTuple):
    """Times that a query asks for, in microseconds since 1970, both inclusive; None is without a limit."""

    us_min: int | None = None
    us_max: int | None = None

    def may_hold(self, us_min: int | None, us_max: int | None) -> bool:
        """Whether rows of these times, as far as they are known, may be asked for."""
        is_before = self.us_min is not None and us_max is not None and us_max < self.us_min
        is_behind = self.us_max is not None and us_min is not None and us_min > self.us_max
        return not is_before and not is_behind


ALL_TIMES = TimeSpan()

File = TypeVar("File", bound=FileSpan)


def split_at_seam(range_: OffsetRange, shown: Shown | None) -> list[OffsetRange]:
    """The pieces of a range: those that `shown.holds` from the table, those before and behind it from the log."""
    if shown is None or shown.end <= range_.start or range_.end <= shown.start or shown.end <= shown.start:
        return [range_] if range_.size > 0 else []
    cuts = [range_.start, max(range_.start, shown.start), min(range_.end, shown.end), range_.end]
    pieces = [replace(range_, start=start, end=end) for start, end in pairwise(cuts)]
    return [piece for piece in pieces if piece.size > 0]


class FileIndex(Generic[File]):
    """The files of one partition, by offsets."""

    def __init__(self, files: Iterable[File]) -> None:
        known: list[tuple[int, int, File]] = []
        #: Files whose commits do not tell their offsets: any range may be in them.
        self._untold: list[File] = []
        for file in files:
            if file.offset_min is None or file.offset_max is None:
                self._untold.append(file)
            else:
                known.append((file.offset_min, file.offset_max, file))
        self._known = sorted(known, key=lambda each: each[:2])
        self._firsts = [first for first, _, _ in self._known]
        self._reach = list(accumulate((last for _, last, _ in self._known), max))

    def within(self, range_: OffsetRange) -> tuple[File, ...]:
        """The files that may hold some of a range, in the order of their offsets."""
        start, end = bisect_left(self._reach, range_.start), bisect_left(self._firsts, range_.end)
        found = (file for _, last, file in self._known[start:end] if last >= range_.start)
        return (*self._untold, *found)

    def without_times(self, range_: OffsetRange, span: TimeSpan) -> list[OffsetRange]:
        """A range without the offsets of files whose times nobody asks for. Files that share offsets with others are kept."""
        kept: list[OffsetRange] = []
        position = range_.start
        known = [] if self._untold or span == ALL_TIMES else self._known
        for index, (first, last, file) in enumerate(known):
            is_alone = (index == 0 or self._reach[index - 1] < first) and (
                index + 1 == len(known) or last < known[index + 1][0]
            )
            start, end = max(first, position), min(last + 1, range_.end)
            if start >= end or not is_alone or span.may_hold(file.time_min, file.time_max):
                continue
            if start > position:
                kept.append(replace(range_, start=position, end=start))
            position = end
        if position < range_.end:
            kept.append(replace(range_, start=position))
        return kept


def cut_by_bytes(range_: OffsetRange, files: Iterable[FileSpan], bytes_max: int = TASK_BYTES) -> list[OffsetRange]:
    """Pieces of a range of which each reads about `bytes_max` bytes of files at most. They end where files end; a file that is
    larger is cut by offsets. Files lie in the order of their offsets."""
    pieces: list[OffsetRange] = []
    start, position, size = range_.start, range_.start, 0.0

    def end_piece(at: int) -> None:
        nonlocal start, size
        if at > start:
            pieces.append(replace(range_, start=start, end=at))
        start, size = at, 0.0

    for file in files:
        if file.offset_min is None or file.offset_max is None:
            continue
        first, end = max(file.offset_min, position), min(file.offset_max + 1, range_.end)
        if first >= end:
            continue
        share = file.size * (end - first) / (file.offset_max + 1 - file.offset_min)
        if size and size + share > bytes_max:
            end_piece(first)
        parts = min(end - first, max(1, round(share / bytes_max)))
        for part in range(1, parts):
            end_piece(first + (end - first) * part // parts)
        size += share / parts
        position = end
    end_piece(range_.end)
    return pieces
