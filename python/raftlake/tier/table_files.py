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
    epoch_min: int | None = None
    epoch_max: int | None = None
    #: Microseconds since 1970.
    time_min: int | None = None
    time_max: int | None = None
    segment_min: str | None = None
    segment_max: str | None = None

    @property
    def has_range(self) -> bool:
        """The statistics say which offsets the file holds."""
        return self.offset_min is not None and self.offset_max is not None

    @property
    def segment_id(self) -> str | None:
        """The copy that all rows of the file are of, where the statistics tell one."""
        return self.segment_min if self.segment_min == self.segment_max else None

    def may_have(self, segment_id: str) -> bool:
        """The statistics do not say that no row is of this copy."""
        return self.segment_min is None or self.segment_max is None or self.segment_min <= segment_id <= self.segment_max

    def may_hold(self, incarnation: int) -> bool:
        """The statistics do not say that all rows are of later incarnations. What an incarnation shows of older ones is its
        own history."""
        return self.incarnation_min is None or self.incarnation_min <= incarnation

    def is_of(self, incarnation: int) -> bool:
        """The statistics say that no row is of a later incarnation."""
        return self.incarnation_max is not None and self.incarnation_max <= incarnation


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
    "epoch_min": "min.leader_epoch",
    "epoch_max": "max.leader_epoch",
    "time_min": "min.timestamp",
    "time_max": "max.timestamp",
    "segment_min": "min.segment_id",
    "segment_max": "max.segment_id",
}


def list_files(table: DeltaTable) -> Arrow:
    """All files that a table shows, as an Arrow table: a large table has a million of them."""
    actions = pa.table(table.get_add_actions(flatten=True))
    if not actions.num_rows:
        return pa.table({name: [] for name in _COLUMNS})
    nothing = pa.nulls(actions.num_rows, pa.int64())
    found = {name: actions[of] if of in actions.column_names else nothing for name, of in _COLUMNS.items()}
    return pa.table({name: _microseconds(column) if name.startswith("time_") else column for name, column in found.items()})


def _microseconds(times: Arrow) -> Arrow:
    return times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()) if pa.types.is_timestamp(times.type) else times


def files_of(listed: Arrow, partition: int) -> list[TableFile]:
    """The files of one partition, in no order."""
    if not listed.num_rows:
        return []
    found = listed.filter(pc.equal(listed["partition"], partition))
    columns = {name: found[name].to_pylist() for name in _COLUMNS}
    return [TableFile(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


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
