"""Whether the files of a partition show each offset once, by their statistics alone. Pure.

No row is read. So the judgement takes a moment for a hundred thousand files, and says nothing of what is in the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from raftlake.tier.table_files import TableFile, groups_by_overlap


def fault_in(files: Sequence[TableFile]) -> str | None:
    """What keeps files, each with the range of its offsets, from being one gapless run with no offset twice; None where nothing
    does. Files that others rewrote may overlap: their rows are as many as their offsets then."""
    end: int | None = None
    ranges = ((file.offset_min or 0, file.offset_max or 0, number) for number, file in enumerate(files))
    for numbers in groups_by_overlap(ranges):
        group = [files[number] for number in numbers]
        first, behind = min(file.offset_min or 0 for file in group), max(file.offset_max or 0 for file in group) + 1
        if end is not None and first != end:
            return f"it shows nothing of the offsets {end} to {first - 1} ({group[0].path} begins behind them)"
        counts = [file.rows for file in group]
        rows = sum(count for count in counts if count is not None)
        if None not in counts and rows != behind - first:
            what = "some are missing" if rows < behind - first else "some are there twice"
            names = " and ".join(file.path for file in group[:2]) + (", ..." if len(group) > 2 else "")
            return f"{rows} rows have the offsets {first} to {behind - 1}, so {what} ({names})"
        end = behind
    return None


def end_of(files: Sequence[TableFile]) -> int | None:
    """Behind the last offset; None without files."""
    return max(file.offset_max or 0 for file in files) + 1 if files else None


def start_of(files: Sequence[TableFile]) -> int | None:
    """The first offset; None without files."""
    return min(file.offset_min or 0 for file in files) if files else None
