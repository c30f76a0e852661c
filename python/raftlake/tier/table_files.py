"""The files that a table shows, as its log lists them, and the files of one partition in the order of offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

#: pyarrow ships no types.
Arrow: TypeAlias = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A file that the table shows. Statistics are None where its commit has none."""

    #: Relative to the table.
    path: str
    size: int
    partition: int
    rows: int | None
    offset_min: int | None
    offset_max: int | None
    incarnation_min: int | None
    incarnation_max: int | None

    @property
    def has_range(self) -> bool:
        """The statistics say which offsets the file holds."""
        return self.offset_min is not None and self.offset_max is not None


#: Columns of delta-rs, in the order of the fields.
_COLUMNS = {
    "path": "path",
    "size": "size_bytes",
    "partition": "partition.partition",
    "rows": "num_records",
    "offset_min": "min.offset",
    "offset_max": "max.offset",
    "incarnation_min": "min.incarnation",
    "incarnation_max": "max.incarnation",
}


def list_files(table: DeltaTable) -> Arrow:
    """All files that a table shows, as an Arrow table: a large table has a million of them."""
    actions = pa.table(table.get_add_actions(flatten=True))
    if not actions.num_rows:
        return pa.table({name: [] for name in _COLUMNS})
    nothing = pa.nulls(actions.num_rows, pa.int64())
    return pa.table({name: actions[of] if of in actions.column_names else nothing for name, of in _COLUMNS.items()})


def files_of(listed: Arrow, partition: int) -> list[TableFile]:
    """The files of one partition, in no order."""
    if not listed.num_rows:
        return []
    return [TableFile(**row) for row in listed.filter(pc.equal(listed["partition"], partition)).to_pylist()]


def groups_by_overlap(ranges: Iterable[tuple[int, int, int]]) -> Iterator[list[int]]:
    """Each range is its first value, its last value, and a number of the caller's. The numbers of ranges that overlap come
    together; the groups come in the order of their values."""
    group: list[int] = []
    end = -1
    for first, last, number in sorted(ranges):
        if group and first > end:
            yield group
            group = []
        end = max(end, last) if group else last
        group.append(number)
    if group:
        yield group
