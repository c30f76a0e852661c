"""`raftlake tier undo`: what other programs have done to a table, taken back by one commit.

Their files go, and the files of the tier that they removed come back. All copies stay, also those that were made meanwhile and
in other partitions: RESTORE of Delta would take them away. The leaders find the table as they left it, and go on by themselves.

Nothing is changed where the table would not show all that the tier has copied: the result is judged before it is committed.
"""

from __future__ import annotations

import json
import posixpath
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from raftlake.errors import WrongState
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage, TierFailure
from raftlake.tier.as_left import fault_of
from raftlake.tier.calls import TierSettings
from raftlake.tier.commits import Action, commit_once, remove_action
from raftlake.tier.failures import RESTORE, STORE_ERRORS, TierProblem, problem_of
from raftlake.tier.foreign_commits import PUT_BACK, Change, Commit
from raftlake.tier.reader import TopicHistory
from raftlake.tier.schema import STATISTICS_COLUMNS, newest_incarnation
from raftlake.tier.segment_file import ROW_GROUP_ROWS, Ranges
from raftlake.tier.table_files import TableFile
from raftlake.tier.topic_table import TopicTable
from raftlake.tier.wholeness import start_of

_GIVE_UP = (
    f"{RESTORE}; where there is none, docs/tier.md, 'Rows that are lost for good', tells how the partition begins behind them"
)


@dataclass(frozen=True, slots=True)
class Undone:
    """What is to be taken back in one partition."""

    partition: int
    #: The first commit of another program, in words.
    commit: str
    #: Files that go, and files that come back.
    goes: tuple[str, ...]
    comes: tuple[str, ...]


class Undo:
    """One table. Raises WrongState where it is none of ours or was moved, TierProblem where the store does not answer."""

    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        history = TopicHistory(uri, options)
        #: The tier has emptied the table of a deleted topic: nothing comes back.
        self._is_dropped = history.is_dropped
        self._options = options
        settings = TierSettings(
            uri=posixpath.dirname(history.uri), cluster_id=history.cluster_id, storage_options=dict(options or {})
        )
        self._cluster_id = history.cluster_id
        self._group = GroupId(history.topic, 0, history.topic_id)
        self._table = TopicTable(settings, self._group, may_create=False)
        if self._table.uri != history.uri:
            raise WrongState(f"{history.uri} is the table of {posixpath.basename(self._table.uri)}: it is not where it was")

    @property
    def uri(self) -> str:
        """The table."""
        return self._table.uri

    def plan(self) -> list[Undone]:
        """What is to be taken back; nothing where the table is as the tier left it."""
        self._table.refresh()
        changes = self._changes()
        return [
            Undone(partition, change.first.words(), tuple(change.added.values()), tuple(change.removed.values()))
            for partition, change in sorted(changes.items())
        ]

    def _changes(self) -> dict[int, Change]:
        return {} if self._is_dropped else self._table.watch().changes()

    def run(self) -> None:
        """Take it back. TierProblem where a file that has to come back is gone, or the table would not be whole; nothing is
        changed then."""
        try:
            self._table.refresh()
            changes = self._changes()
            comes = [self._add(partition, path) for partition, each in changes.items() for path in each.removed.values()]
            begins = {partition: self._begin(partition, each.first) for partition, each in changes.items()}
            commit_once(self._table, lambda: self._actions(changes, comes, begins), transactions={}, retries_max=0)
        except STORE_ERRORS as error:
            raise problem_of(error, "change the table", self._table.uri) from error

    def _begin(self, partition: int, first: Commit) -> int | None:
        """Where a partition began before others changed it; None where it had no files, or they do not tell."""
        before = TopicHistory(self._table.uri, self._options, first.version - 1)
        return start_of([file for file in before.files(partition) if file.has_range])

    def _actions(
        self, changes: Mapping[int, Change], comes: Sequence[AddAction], begins: Mapping[int, int | None]
    ) -> Sequence[Action]:
        if self._table.watch().changes() != changes:
            raise TierProblem(TierFailure.ELSEWHERE, f"{self._table.uri} was changed meanwhile: look again")
        going = {path for change in changes.values() for path in change.added.values()}
        shown = self._table.all_files()
        planned = [file for file in shown if file.path not in going] + [_shown_as(action) for action in comes]
        for partition, begin in begins.items():
            self._require_whole(partition, [file for file in planned if file.partition == partition], begin)
        return [*(remove_action(file) for file in shown if file.path in going), *comes]

    def _require_whole(self, partition: int, planned: Sequence[TableFile], begin: int | None) -> None:
        """TierProblem unless these files show what the tier has copied of a partition, from where they began."""
        group = self._group._replace(partition=partition)
        newest = newest_incarnation(self._table.transaction, self._cluster_id, group)
        fault = fault_of(self._table, self._cluster_id, Lineage(group, newest or 0), planned)
        start = start_of(planned)
        if fault is None and begin is not None and (start is None or start > begin):
            fault = f"it shows nothing of the offset {begin}"
        if fault is not None:
            what = f"partition {partition} would not be as the tier left it: {fault}: nothing was changed: {PUT_BACK}"
            raise TierProblem(TierFailure.DAMAGED, f"{self._table.uri}: {what}")

    def _add(self, partition: int, path: str) -> AddAction:
        store = self._table.store
        size = store.size(path)
        if size is None:
            raise TierProblem(TierFailure.DAMAGED, f"{self._table.uri}/{path} is gone, perhaps by VACUUM: {_GIVE_UP}")
        ranges = Ranges(*STATISTICS_COLUMNS)
        with store.open(path) as source:
            for rows in pq.ParquetFile(source).iter_batches(ROW_GROUP_ROWS, columns=list(STATISTICS_COLUMNS)):
                ranges.add(rows)
        return AddAction(
            path=path,
            size=size,
            partition_values={"partition": str(partition)},
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=ranges.statistics({}),
        )


def _shown_as(action: AddAction) -> TableFile:
    """A file that comes back, as the table will list it."""
    told = json.loads(action.stats)
    low, high = told["minValues"], told["maxValues"]
    return TableFile(
        path=action.path,
        size=action.size,
        partition=int(str(action.partition_values["partition"])),
        rows=told["numRecords"],
        offset_min=low["offset"],
        offset_max=high["offset"],
        incarnation_min=low["incarnation"],
        incarnation_max=high["incarnation"],
    )
