"""The history of a topic as its Delta table shows it: which offsets there are, and their rows. Read-only.

A `TopicHistory` is one version of the table: what is copied later is not in it before `refresh`. `read` gives rows in the order
of offsets, each offset once. It raises where the table has lost a row or shows one twice, and never leaves a row out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from raftlake.errors import WireError, WrongState, without_secrets
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage, TierFailure
from raftlake.tier.failures import STORE_ERRORS, TierProblem, problem_of
from raftlake.tier.log_damage import unread_table
from raftlake.tier.ordered_rows import FileProblem, offsets_of, row_groups, rows_in_order
from raftlake.tier.schema import (
    CLUSTER_PROPERTY,
    LAST_EPOCH,
    TOPIC_ID_PROPERTY,
    TOPIC_PROPERTY,
    begin_app,
    difference,
    end_app,
    epoch_app,
    newest_incarnation,
)
from raftlake.tier.store import Store, absolute
from raftlake.tier.superseded import superseded_files
from raftlake.tier.table_files import TableFile, files_of, list_files
from raftlake.tier.time_ranges import time_ranges
from raftlake.wire.ids import id_from_text, id_to_text, table_of

__all__ = [
    "FileProblem",
    "OffsetRange",
    "Store",
    "TableFile",
    "TierFailure",
    "TierProblem",
    "TopicHistory",
    "read_files",
    "require_no_secret",
    "store_of",
    "tables_at",
    "time_ranges",
]

#: pyarrow ships no types.
Arrow: TypeAlias = Any

_VERIFY = "`raftlake tier verify` names what is wrong"

#: How far behind the last partition with files one is looked for that has lost all of them.
_BEYOND = 64
#: The directory of a table that has its commits.
_LOG = "_delta_log"
_ENDLESS = np.iinfo(np.int64).max


class OffsetRange(NamedTuple):
    start: int
    #: Exclusive.
    end: int


class TopicHistory:
    """A version of the table of a topic. Raises WrongState where there is no such table, or another one than the tier writes;
    TierProblem where the store does not answer."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None, version: int | None = None) -> None:
        require_no_secret(uri)
        self.uri = absolute(uri)
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
            raise unread_table(error, self.uri, self.storage_options) from error

    def _list(self, table: DeltaTable) -> Arrow:
        try:
            return list_files(table)
        except STORE_ERRORS as error:
            raise unread_table(error, self.uri, self.storage_options) from error

    def refresh(self) -> None:
        """Show the newest version from now on."""
        try:
            self._table.update_incremental()
        except STORE_ERRORS as error:
            raise unread_table(error, self.uri, self.storage_options) from error
        if self._table.version() != self.version:
            self._listed = self._list(self._table)
            self.version = self._table.version()

    def partitions(self) -> list[int]:
        """The partitions of which the table shows files."""
        return sorted(self._listed["partition"].unique().to_pylist())

    def files(self, partition: int, start: int | None = None, end: int | None = None) -> list[TableFile]:
        """The files of a partition, in the order of their offsets; those without statistics come first. With a range of offsets
        only those that may hold some of it."""
        listed = self._listed
        if start is not None and listed.num_rows:
            listed = listed.filter(pc.greater_equal(listed["offset_max"], start).fill_null(True))
        if end is not None and listed.num_rows:
            listed = listed.filter(pc.less(listed["offset_min"], end).fill_null(True))
        files = files_of(listed, partition)
        return sorted(files, key=lambda file: -1 if file.offset_min is None else file.offset_min)

    def offsets(self, partition: int) -> OffsetRange | None:
        """The first offset that the table shows of a partition, and the end; None where it shows none."""
        ranges: list[tuple[int, int]] = []
        for file in self.files(partition):
            if file.offset_min is not None and file.offset_max is not None:
                ranges.append((file.offset_min, file.offset_max))
            else:
                ranges += [(group.offset_min, group.offset_max) for group in row_groups(self.store, self.uri, file)]
        return OffsetRange(min(first for first, _ in ranges), max(last for _, last in ranges) + 1) if ranges else None

    def first_at(self, partition: int, time_ms: int) -> int | None:
        """The first offset whose record is as late as a time; None where no record is."""
        found: int | None = None
        for file in self.files(partition):
            if found is not None and file.offset_min is not None and file.offset_min >= found:
                break
            if file.time_max is None or file.time_max >= time_ms * 1000:
                end = _ENDLESS if found is None else found
                for rows in rows_in_order(self.store, self.uri, [file], 0, end, ["offset", "timestamp"]):
                    late = np.flatnonzero(np.asarray(rows.batch.column("timestamp").cast("int64")) >= time_ms * 1000)
                    if len(late):
                        found = int(offsets_of(rows.batch)[late[0]])
                        break
        return found

    def last_offset(self, partition: int, incarnation: int) -> int | None:
        """The last offset that was ever shown of a lineage, as its `txn` tells; None where nothing was."""
        return self._transaction(end_app(self.cluster_id, Lineage(self._group(partition), incarnation)))

    def begin_offset(self, partition: int, incarnation: int) -> int | None:
        """The last offset before those that an incarnation copied by itself; None where no election began it, or at 0."""
        return self._transaction(begin_app(self.cluster_id, Lineage(self._group(partition), incarnation)))

    def newest_incarnation(self, partition: int) -> int:
        """The incarnation whose history the table shows of a partition. Unclean recoveries count it up."""
        return newest_incarnation(self._transaction, self.cluster_id, self._group(partition)) or 0

    def _group(self, partition: int) -> GroupId:
        return GroupId(self.topic, partition, self.topic_id)

    def _transaction(self, app: str) -> int | None:
        try:
            return self._table.transaction_version(app)
        except STORE_ERRORS as error:
            raise problem_of(error, "read the table", self.uri) from error

    def partitions_begun(self) -> list[int]:
        """The partitions of which the tier has ever shown a row, in the first incarnation. Those without files are looked for
        up to some way behind the last one that has any."""
        indexes = range(max(self.partitions(), default=-1) + _BEYOND)
        return [index for index in indexes if self.last_offset(index, 0) is not None]

    @property
    def is_dropped(self) -> bool:
        """The topic was deleted: the tier has removed all rows, and has fenced all leaders for ever."""
        if self.partitions():
            return False
        epochs = [self._epoch(index, self.newest_incarnation(index)) for index in range(_BEYOND) if self._knows(index)]
        return bool(epochs) and all(epoch == LAST_EPOCH for epoch in epochs)

    def _knows(self, partition: int) -> bool:
        """Whether a leader of a partition has ever written here, or is fenced."""
        return self._epoch(partition, 0) is not None

    def _epoch(self, partition: int, incarnation: int) -> int | None:
        return self._transaction(epoch_app(self.cluster_id, Lineage(self._group(partition), incarnation)))

    @property
    def elsewhere(self) -> str | None:
        """Why this is not the table that belongs in this place; None where it may be."""
        named = table_of(self.uri)
        if named is None or named == (self.topic, self.topic_id):
            return None
        return (
            f"the table here is that of topic {self.topic} ({id_to_text(self.topic_id)}), and its place that of another topic"
        )

    def superseded(self, partition: int) -> list[TableFile]:
        """The files that unclean elections took out of the table, by incarnation. `read_superseded` reads them. A file may hold
        rows that the table still shows: those of the history that both have."""
        return superseded_files(self.store, self.uri, partition, self.newest_incarnation(partition))

    def read_superseded(self, file: TableFile, columns: Sequence[str] | None = None) -> Iterator[Arrow]:
        """The rows of a superseded file as record batches, in the order of offsets."""
        first, last = file.offset_min or 0, -1 if file.offset_max is None else file.offset_max
        yield from read_files(self.store, self.uri, [file], first, last + 1, columns)

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


def require_no_secret(uri: str) -> None:
    """WrongState where a URI has a password or a query: every message names the place, and no store takes them from there."""
    if (shown := without_secrets(uri)) != uri:
        raise WrongState(
            f"the place {shown} was given with a password or a query: credentials belong into the environment, such as "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or into the options tier.storage.* of Spark's source"
        )


def store_of(uri: str, storage_options: Mapping[str, str]) -> Store:
    """The files of a table that was found before. Raises WrongState where there is nothing, TierProblem where the store cannot
    be used."""
    try:
        return Store(uri, storage_options)
    except TableNotFoundError as error:
        raise WrongState(f"there is no Delta table at {uri}") from error
    except STORE_ERRORS as error:
        raise problem_of(error, "read the table", uri) from error


def tables_at(tier_uri: str, topic: str | None = None, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """The tables below a `tier.uri`, by name: all of them, or those that ever were of one topic."""
    require_no_secret(tier_uri)
    try:
        names = Store(tier_uri, dict(storage_options or {})).directories()
    except TableNotFoundError as error:
        raise WrongState(f"there is no directory {tier_uri}") from error
    except STORE_ERRORS as error:
        raise problem_of(error, "list the tables at", tier_uri) from error
    if _LOG in names:
        raise WrongState(f"{tier_uri} is a table itself, and not the place of the tables (tier.uri)")
    return [f"{tier_uri.rstrip('/')}/{name}" for name in sorted(names) if topic is None or _topic_of(name) == topic]


def _topic_of(name: str) -> str | None:
    """The topic of a table by the name of its directory."""
    named = table_of(name)
    return None if named is None else named[0]


def read_files(
    store: Store,
    uri: str,
    files: Sequence[TableFile],
    start: int,
    end: int,
    columns: Sequence[str] | None = None,
    incarnation: int | None = None,
    *,
    rows_together: int | None = None,
) -> Iterator[Arrow]:
    """`TopicHistory.read` for files that are known already: those that overlap the range are enough. With an `incarnation`
    only its rows are read."""
    names = None if columns is None else [*columns, "offset", *([] if incarnation is None else ["incarnation"])]
    following = start
    for rows in rows_in_order(store, uri, files, start, end, names, rows_together):
        if incarnation is not None:
            rows = rows.of_incarnation(incarnation)
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
