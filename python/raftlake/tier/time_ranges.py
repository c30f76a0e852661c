"""The row groups of a file with their offsets and times, as the statistics of the file tell them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow.parquet as pq

from raftlake.tier.ordered_rows import judged
from raftlake.tier.store import Store
from raftlake.tier.table_files import TableFile

#: pyarrow ships no types.
Arrow: TypeAlias = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupSpan:
    """What a row group holds. Statistics are None where the file has none that can be used."""

    offset_min: int | None
    offset_max: int | None
    #: Microseconds since 1970.
    time_min: int | None
    time_max: int | None
    #: Bytes.
    size: int


def time_ranges(store: Store, uri: str, file: TableFile) -> list[RowGroupSpan]:
    """The row groups of a file, in their order. Raises FileProblem or TierProblem."""
    with judged(store, uri, file):
        metadata = pq.ParquetFile(store.open(file.path), pre_buffer=False).metadata
        return [_span(metadata.row_group(index)) for index in range(metadata.num_row_groups)]


def _span(group: Arrow) -> RowGroupSpan:
    columns = {column.path_in_schema: column for column in (group.column(at) for at in range(group.num_columns))}
    offset_min, offset_max = _range(columns.get("offset"))
    time_min, time_max = _range(columns.get("timestamp"))
    return RowGroupSpan(
        offset_min=offset_min,
        offset_max=offset_max,
        time_min=time_min,
        time_max=time_max,
        size=group.total_byte_size,
    )


def _range(column: Arrow) -> tuple[int | None, int | None]:
    """The smallest and the largest number of a column of whole numbers or of microseconds, as they are stored."""
    found = None if column is None else column.statistics
    if found is None or not found.has_min_max or found.physical_type != "INT64":
        return None, None
    unit = found.logical_type.to_json()
    if found.logical_type.type == "TIMESTAMP" and "microseconds" not in unit:
        return None, None
    return int(found.min_raw), int(found.max_raw)
