"""The files that a table shows of one lineage, and which of them hold what. Made anew for each version of the table.

Statistics in the table's log tell the offsets of a file. Where a file has none, or rows of several incarnations, its rows tell.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from raftlake.tier.ordered_rows import offsets_of, rows_in_order
from raftlake.tier.store import Store
from raftlake.tier.table_files import TableFile, groups_by_overlap


class LineageFiles:
    """Files with ranges, in the order of their first offsets. Files that OPTIMIZE made may overlap others."""

    def __init__(self, files: Iterable[TableFile]) -> None:
        self.files = sorted(files, key=lambda file: file.offset_min or 0)
        self._firsts = [file.offset_min or 0 for file in self.files]
        #: The largest offset of the files up to each.
        self._lasts: list[int] = []
        for file in self.files:
            last = file.offset_max or 0
            self._lasts.append(max(last, self._lasts[-1]) if self._lasts else last)

    @property
    def start(self) -> int | None:
        """The first offset; None without files."""
        return self._firsts[0] if self.files else None

    @property
    def end(self) -> int:
        """Behind the last offset; 0 without files."""
        return self._lasts[-1] + 1 if self.files else 0

    def holding(self, offset: int) -> list[TableFile]:
        """The files whose ranges have this offset."""
        return self.overlapping(offset, offset + 1)

    def overlapping(self, start: int, end: int) -> list[TableFile]:
        """The files whose ranges have an offset from `start` to below `end`, in their order."""
        behind = bisect_right(self._firsts, end - 1)
        first = bisect_right(self._lasts, start - 1)
        return [file for file in self.files[first:behind] if (file.offset_max or 0) >= start]

    def end_of_window(self, start: int, count: int) -> int:
        """An offset behind `start`: about `count` files hold what lies between."""
        following = bisect_right(self._firsts, start) + count
        return self._firsts[following] if following < len(self.files) else self.end


def lineage_files(store: Store, uri: str, files: Sequence[TableFile], incarnation: int) -> LineageFiles:
    """Those of a partition's files that hold rows which an incarnation may show, each with the range of their offsets. Raises
    TierProblem, also as FileProblem."""
    found: list[TableFile] = []
    for file in files:
        if not file.may_hold(incarnation):
            continue
        if file.has_range and file.is_of(incarnation):
            found.append(file)
        elif (known := _range_in(store, uri, file, incarnation)) is not None:
            found.append(replace(file, offset_min=known[0], offset_max=known[1]))
    return LineageFiles(found)


def _range_in(store: Store, uri: str, file: TableFile, incarnation: int) -> tuple[int, int] | None:
    """The first and the last offset that an incarnation may show of a file, by its rows; None where there is none."""
    low, high = np.iinfo(np.int64).max, -1
    for rows in rows_in_order(store, uri, [file], 0, low, ["offset", "incarnation"]):
        offsets = offsets_of(rows.of_incarnation(incarnation).batch)
        if len(offsets):
            low, high = min(low, int(offsets.min())), max(high, int(offsets.max()))
    return None if high < 0 else (int(low), high)


def removable(files: LineageFiles, incarnation: int, until: int) -> list[TableFile]:
    """The files that go when all rows below `until` are to go: from the first on, as long as no row of theirs is behind it or
    of a later incarnation. Files that overlap go together: what stays has no gap."""
    found: list[TableFile] = []
    before = files.overlapping(0, until)
    ranges = ((file.offset_min or 0, file.offset_max or 0, number) for number, file in enumerate(before))
    for numbers in groups_by_overlap(ranges):
        group = [before[number] for number in numbers]
        if not all(file.is_of(incarnation) and (file.offset_max or 0) < until for file in group):
            break
        found += group
    return found
