"""The history of a topic as its Delta table shows it: which offsets there are, and their rows. Read-only.

A `TopicHistory` is one version of the table: what is copied later is not in it. `read` gives rows in the order of offsets, each
offset once. It raises where the table has lost a row or shows one twice, and never leaves a row out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from raftlake.errors import WireError, WrongState
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage, TierFailure
from raftlake.tier.failures import STORE_ERRORS, TierProblem, problem_of
from raftlake.tier.ordered_rows import offsets_of, row_groups, rows_in_order
from raftlake.tier.schema import CLUSTER_PROPERTY, TOPIC_ID_PROPERTY, TOPIC_PROPERTY, difference, end_app
from raftlake.tier.store import Store, local_path
from raftlake.tier.table_files import TableFile, files_of, list_files
from raftlake.wire.ids import id_from_text

#: pyarrow ships no types.
Arrow: TypeAlias = Any

_VERIFY = "`raftlake tier verify` names what is wrong"

#: How far behind the last partition with files one is looked for that has lost all of them.
_BEYOND = 64
#: Of an id as text.
_ID_CHARS = 22


class OffsetRange(NamedTuple):
    start: int
    #: Exclusive.
    end: int


class TopicHistory:
    """A version of the table of a topic. Raises WrongState where there is no such table, or another one than the tier writes;
    TierProblem where the store does not answer."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None, version: int | None = None) -> None:
        place = local_path(uri)
        self.uri = uri.rstrip("/") if place is None else str(Path(place).absolute())
        self.storage_options = dict(storage_options or {})
        self._table = self._open(version)
        self.version: int = self._table.version()
        self.cluster_id, group = _owner(self._table, self.uri)
        self.topic = group.topic
        self.topic_id = group.topic_id
        self.store = Store(self.uri, self.storage_options)
        self._listed = self._list(self._table)

    def _open(self, version: int | None = None) -> DeltaTable:
        try:
            return DeltaTable(self.uri, version, storage_options=self.storage_options)
        except TableNotFoundError as error:
            raise WrongState(f"there is no Delta table at {self.uri}") from error
        except STORE_ERRORS as error:
            raise problem_of(error, "read the table", self.uri) from error

    def _list(self, table: DeltaTable) -> Arrow:
        try:
            return list_files(table)
        except STORE_ERRORS as error:
            raise problem_of(error, "read the table", self.uri) from error

    def partitions(self) -> list[int]:
        """The partitions of which the table shows files."""
        return sorted(self._listed["partition"].unique().to_pylist())

    def files(self, partition: int) -> list[TableFile]:
        """The files of a partition, in the order of their offsets; those without statistics come first."""
        return sorted(files_of(self._listed, partition), key=lambda file: -1 if file.offset_min is None else file.offset_min)

    def offsets(self, partition: int) -> OffsetRange | None:
        """The first offset that the table shows of a partition, and the end; None where it shows none."""
        ranges: list[tuple[int, int]] = []
        for file in self.files(partition):
            if file.offset_min is not None and file.offset_max is not None:
                ranges.append((file.offset_min, file.offset_max))
            else:
                ranges += [(group.offset_min, group.offset_max) for group in row_groups(self.store, self.uri, file)]
        return OffsetRange(min(first for first, _ in ranges), max(last for _, last in ranges) + 1) if ranges else None

    def last_offset(self, partition: int, incarnation: int) -> int | None:
        """The last offset that was ever shown of a lineage, as its `txn` tells; None where nothing was."""
        lineage = Lineage(GroupId(self.topic, partition, self.topic_id), incarnation)
        try:
            return self._table.transaction_version(end_app(self.cluster_id, lineage))
        except STORE_ERRORS as error:
            raise problem_of(error, "read the table", self.uri) from error

    def partitions_begun(self) -> list[int]:
        """The partitions of which the tier has ever shown a row, in the first incarnation. Those without files are looked for
        up to some way behind the last one that has any."""
        indexes = range(max(self.partitions(), default=-1) + _BEYOND)
        return [index for index in indexes if self.last_offset(index, 0) is not None]

    def is_still_shown(self, file: TableFile) -> bool:
        """Whether the newest version of the table shows a file."""
        return any(shown.path == file.path for shown in files_of(self._list(self._open()), file.partition))

    def read(
        self, partition: int, start: int | None = None, end: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[Arrow]:
        """Rows as record batches: offsets from `start` to below `end`, by default all. TierProblem where the table does not
        show each of them once."""
        known = self.offsets(partition)
        if known is None and (start is None or end is None):
            return
        first = start if start is not None or known is None else known.start
        behind = end if end is not None or known is None else known.end
        assert first is not None and behind is not None
        yield from read_files(self.store, self.uri, self.files(partition), first, behind, columns)


def tables_at(tier_uri: str, topic: str | None = None, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """The tables below a `tier.uri`, by name: all of them, or those that ever were of one topic."""
    try:
        names = Store(tier_uri, dict(storage_options or {})).directories()
    except TableNotFoundError as error:
        raise WrongState(f"there is no directory {tier_uri}") from error
    except STORE_ERRORS as error:
        raise problem_of(error, "list the tables at", tier_uri) from error
    return [f"{tier_uri.rstrip('/')}/{name}" for name in sorted(names) if topic is None or _topic_of(name) == topic]


def _topic_of(name: str) -> str:
    """The topic of a table by the name of its directory."""
    return name[: -_ID_CHARS - 1]


def read_files(
    store: Store, uri: str, files: Sequence[TableFile], start: int, end: int, columns: Sequence[str] | None = None
) -> Iterator[Arrow]:
    """`TopicHistory.read` for files that are known already: those that overlap the range are enough."""
    names = None if columns is None else [*columns, "offset"]
    following = start
    for rows in rows_in_order(store, uri, files, start, end, names):
        offsets = offsets_of(rows.batch)
        wrong = np.flatnonzero(offsets != np.arange(following, following + len(offsets)))
        if len(wrong):
            row = int(wrong[0])
            what = "is missing" if offsets[row] > following + row else f"is there twice, the second time in {rows.path_of(row)}"
            missed = following + row if offsets[row] > following + row else int(offsets[row])
            raise TierProblem(TierFailure.DAMAGED, f"{uri}: offset {missed} {what}: {_VERIFY}")
        following += len(offsets)
        yield rows.batch if columns is None else rows.batch.select(list(columns))
    if following < end:
        raise TierProblem(TierFailure.DAMAGED, f"{uri}: offset {following} is missing: {_VERIFY}")


def _owner(table: DeltaTable, uri: str) -> tuple[str, GroupId]:
    """The cluster and the topic that a table says to be of, with partition 0."""
    properties = table.metadata().configuration
    found = [properties.get(name) for name in (CLUSTER_PROPERTY, TOPIC_PROPERTY, TOPIC_ID_PROPERTY)]
    cluster_id, topic, topic_id = found
    if cluster_id is None or topic is None or topic_id is None:
        raise WrongState(f"the table at {uri} is none of raftlake's: it has no property {TOPIC_ID_PROPERTY} or the like")
    try:
        group = GroupId(topic, 0, id_from_text(topic_id))
    except WireError as error:
        raise WrongState(f"the table at {uri} is none of raftlake's: its property {TOPIC_ID_PROPERTY}: {error}") from error
    if (different := difference(table, cluster_id, group)) is not None:
        raise WrongState(f"the table at {uri} is not as raftlake writes them: {different}")
    protocol = table.protocol()
    if protocol.min_reader_version > 1:
        features = ", ".join(protocol.reader_features or []) or "column mapping"
        raise WrongState(
            f"the table at {uri} needs readers of version {protocol.min_reader_version} ({features}), and raftlake reads "
            "version 1: another program has changed it: restore an earlier version"
        )
    return cluster_id, group
