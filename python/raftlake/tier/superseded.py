"""Files that unclean elections took out of a table: where they are, and which rows they hold.

The place is `_raftlake/superseded/<incarnation>/partition=<partition>/` below the table. The incarnation is the newest one of
the file's rows. VACUUM and readers of the table leave these files alone.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from typing import Any, TypeAlias

import pyarrow.parquet as pq

from raftlake.tier.ordered_rows import judged, row_groups
from raftlake.tier.store import Store
from raftlake.tier.table_files import TableFile

#: pyarrow ships no types.
Arrow: TypeAlias = Any

#: Below a table.
SUPERSEDED = "_raftlake/superseded"
_COLUMNS = {"leader_epoch": "epoch", "incarnation": "incarnation", "segment_id": "segment"}


def superseded_directory(incarnation: int, partition: int) -> str:
    """Where the files of one incarnation of a partition are."""
    return f"{SUPERSEDED}/{incarnation}/partition={partition}"


def superseded_name(incarnation: int, file: TableFile) -> str:
    """Where a file of the table goes."""
    return f"{superseded_directory(incarnation, file.partition)}/{posixpath.basename(file.path)}"


def superseded_files(store: Store, uri: str, partition: int, newest: int, passed_over: Collection[str] = ()) -> list[TableFile]:
    """The superseded files of a partition with rows, up to an incarnation. What their columns hold is as their footers say.
    Raises FileProblem where one cannot be read, or TierProblem. Those that are passed over are not looked into."""
    found: list[TableFile] = []
    for incarnation in range(newest + 1):
        directory = superseded_directory(incarnation, partition)
        names = sorted(name for name in store.names(directory) if name.endswith(".parquet"))
        paths = [path for name in names if (path := f"{directory}/{name}") not in passed_over]
        found += [_file(store, uri, path, partition) for path in paths]
    return [file for file in found if file.rows]


def _file(store: Store, uri: str, path: str, partition: int) -> TableFile:
    bare = TableFile(
        path=path,
        size=store.size(path) or 0,
        partition=partition,
        rows=None,
        offset_min=None,
        offset_max=None,
        incarnation_min=None,
        incarnation_max=None,
    )
    with judged(store, uri, bare), store.open(path) as source:
        told = _ranges(pq.read_metadata(source))
    groups = row_groups(store, uri, bare)
    return TableFile(
        path=path,
        size=bare.size,
        partition=partition,
        rows=sum(group.rows for group in groups),
        offset_min=min((group.offset_min for group in groups), default=None),
        offset_max=max((group.offset_max for group in groups), default=None),
        **{
            f"{of}_{end}": None if told.get(name) is None else told[name][at]
            for name, of in _COLUMNS.items()
            for at, end in enumerate(("min", "max"))
        },
    )


def _ranges(metadata: Arrow) -> dict[str, tuple[Any, Any]]:
    """The least and the largest value of columns, as far as all row groups tell."""
    found: dict[str, list[tuple[Any, Any]]] = {}
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    for group in groups:
        for column in (group.column(at) for at in range(group.num_columns)):
            told = column.statistics
            if column.path_in_schema in _COLUMNS and told is not None and told.has_min_max:
                found.setdefault(column.path_in_schema, []).append((told.min, told.max))
    return {
        name: (min(low for low, _ in ranges), max(high for _, high in ranges))
        for name, ranges in found.items()
        if len(ranges) == len(groups)
    }
