"""All that the tables at a `tier.uri` tell, for a recovery: read once, in the newest version of each table.

A table that is damaged is an error that names the file: a recovery must not take less for all. Rows are not read: `verify` does
that. But each file has to be there, and the files have to hold each offset once. What another program has removed or added and
nobody has undone is an error too, unless the caller takes the tables as they are: nothing else would tell of it any more.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace

from raftlake.errors import WrongState, one_line
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage, LineageFacts, RemoteState, TierError, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.as_left import advice, changed, shown_files
from raftlake.tier.calls import TierSettings
from raftlake.tier.failures import RESTORE, STORE_ERRORS, TierProblem, problem_of
from raftlake.tier.ordered_rows import row_groups
from raftlake.tier.reader import TopicHistory, tables_at
from raftlake.tier.schema import LAST_EPOCH, epoch_app, newest_incarnation
from raftlake.tier.store import Store
from raftlake.tier.table_files import TableFile
from raftlake.tier.table_reads import TableReads
from raftlake.tier.told import ToldPartition, ToldTable
from raftlake.tier.topic_table import TopicTable
from raftlake.wire.ids import table_of

#: Partitions without files are looked for so far behind the last one that has any.
_PARTITIONS_BEYOND = 64
#: Bad tables that are named; the others are counted.
_BAD_MAX = 20


def read_tables(settings: TierSettings, *, may_be_changed: bool = True) -> list[ToldTable]:
    """The tables at a tier, by name; of one cluster where the settings name one. Directories that are named as no table is are
    left out. Unless they `may_be_changed`, what others have done to one counts as damage. Raises WrongState for a directory
    that holds no table of ours, TierProblem where one is damaged or cannot be read; WrongState tells of several."""
    found: list[ToldTable] = []
    bad: list[WrongState | TierProblem] = []
    for uri in tables_at(settings.uri, None, settings.options()):
        if table_of(uri) is None:
            continue
        try:
            table = _read_table(uri, settings, may_be_changed=may_be_changed)
        except (WrongState, TierProblem) as problem:
            bad.append(problem)
            if isinstance(problem, TierProblem) and problem.error.failure is TierFailure.UNKNOWN:
                # A store that does not answer at all is no fault of each table.
                tables_at(settings.uri, None, settings.options())
        else:
            found += [] if table is None else [table]
    if len(bad) == 1:
        raise bad[0]
    if bad:
        told = [f"({number}) {one_line(problem)}" for number, problem in enumerate(bad[:_BAD_MAX], 1)]
        more = [] if len(bad) <= _BAD_MAX else [f"and {len(bad) - _BAD_MAX} more"]
        raise WrongState(f"{len(bad)} tables cannot be used: {'; '.join(told + more)}")
    return found


def _read_table(uri: str, settings: TierSettings, *, may_be_changed: bool) -> ToldTable | None:
    """None for a table of another cluster than the settings name."""
    history = TopicHistory(uri, settings.options())
    if (elsewhere := history.elsewhere) is not None:
        raise WrongState(f"{uri}: {elsewhere}: move it away")
    if settings.cluster_id not in ("", history.cluster_id):
        return None
    return _TableReader(replace(settings, cluster_id=history.cluster_id), history, may_be_changed=may_be_changed).read()


class _TableReader:
    """One table."""

    def __init__(self, settings: TierSettings, history: TopicHistory, *, may_be_changed: bool) -> None:
        self._may_be_changed = may_be_changed
        self._uri = history.uri
        self._cluster_id = settings.cluster_id
        self._group = GroupId(history.topic, 0, history.topic_id)
        self._history = history
        self._table = TopicTable(settings, self._group, may_create=False)
        self._reads = TableReads(settings)
        #: The newest ones that were looked up, by partition.
        self._incarnations: dict[int, int] = {}

    def read(self) -> ToldTable:
        try:
            self._table.refresh()
            files = self._table.all_files()
            epochs = self._epochs(files)
            is_dropped = not files and all(known == {LAST_EPOCH} for known in epochs.values()) and bool(epochs)
            partitions = {} if is_dropped else {index: self._partition(index, files, epochs[index]) for index in sorted(epochs)}
        except STORE_ERRORS as error:
            raise problem_of(error, "read the table", self._uri) from error
        return ToldTable(
            uri=self._uri,
            cluster_id=self._cluster_id,
            topic=self._group.topic,
            topic_id=self._group.topic_id,
            partitions=partitions,
            is_dropped=is_dropped,
        )

    def _epochs(self, files: Sequence[TableFile]) -> Mapping[int, set[int]]:
        """By partition, for those that the table knows: the epochs that its incarnations were written or claimed with."""
        with_files = {file.partition for file in files}
        found: dict[int, set[int]] = {}
        for index in range(max(with_files, default=-1) + _PARTITIONS_BEYOND):
            # Each commit of a leader sets its epoch. A look at one takes a millisecond or more.
            if index in with_files or self._epoch(index, 0) is not None:
                known = (self._epoch(index, each) for each in range(self._newest(index) + 1))
                found[index] = {epoch for epoch in known if epoch is not None}
        return found

    def _epoch(self, index: int, incarnation: int) -> int | None:
        return self._table.transaction(epoch_app(self._cluster_id, Lineage(self._group._replace(partition=index), incarnation)))

    def _newest(self, index: int) -> int:
        if index not in self._incarnations:
            group = self._group._replace(partition=index)
            self._incarnations[index] = newest_incarnation(self._table.transaction, self._cluster_id, group) or 0
        return self._incarnations[index]

    def _partition(self, index: int, files: Sequence[TableFile], epochs: set[int]) -> ToldPartition:
        change = None if self._may_be_changed else self._table.watch().change(index)
        if change is not None:
            problem = changed(self._table, index, change.words(index)).error
            raise TierProblem(problem.failure, f"{problem.reason}; `--accept-changes` takes it as it is")
        group = self._group._replace(partition=index)
        facts = self._reads.facts(Lineage(group, self._newest(index)))
        if isinstance(facts, TierError) and facts.failure is not TierFailure.ABSENT:
            raise TierProblem(facts.failure, facts.reason)
        shown = [file for file in files if file.partition == index]
        newest = max((epoch for epoch in epochs if epoch != LAST_EPOCH), default=0)
        if not isinstance(facts, LineageFacts):
            self._require_ranges(index, shown, None)
            return ToldPartition(facts=None, leader_epoch=Epoch(newest), auxiliary=None, lacking="", timestamp_ms=-1)
        self._require_ranges(index, shown, facts)
        if (fault := shown_files(self._table, facts.lineage)[1]) is not None:
            raise changed(self._table, index, f"partition {index} is not whole: {fault}")
        auxiliary, lacking = self._state(facts)
        return ToldPartition(
            facts=facts,
            leader_epoch=Epoch(max([newest, *(epoch for epoch, _ in facts.epochs)])),
            auxiliary=auxiliary,
            lacking=lacking,
            timestamp_ms=_newest_ms(shown, facts),
        )

    def _state(self, facts: LineageFacts) -> tuple[bytes | None, str]:
        """What lies beside the newest copy; else why it does not."""
        if facts.end_offset == facts.start_offset:
            return None, f"{self._uri} shows no record of partition {facts.lineage.group.partition} any more"
        found = self._reads.find(facts.lineage, Offset(facts.end_offset - 1))
        if isinstance(found, RemoteState):
            return found.auxiliary, ""
        if found.failure in (TierFailure.DAMAGED, TierFailure.ABSENT):
            return None, found.reason
        raise TierProblem(found.failure, found.reason)

    def _require_ranges(self, index: int, files: Sequence[TableFile], facts: LineageFacts | None) -> None:
        """Each file is there, and they hold each offset of the lineage."""
        present = _names(self._table.store, files)
        ranges: list[tuple[int, int, str]] = []
        for file in files:
            if file.path not in present and self._table.store.size(file.path) is None:
                raise TierProblem(TierFailure.DAMAGED, f"{self._uri}/{file.path} is gone: {RESTORE}")
            if file.offset_min is not None and file.offset_max is not None:
                ranges.append((file.offset_min, file.offset_max + 1, file.path))
            else:
                groups = row_groups(self._table.store, self._uri, file)
                ranges += [(group.offset_min, group.offset_max + 1, file.path) for group in groups]
        start = end = facts.start_offset if facts is not None else 0
        for first, behind, path in sorted(ranges):
            if first > end:
                before = f"{self._uri}/{path} begins at offset {first} of partition {index}"
                what = f"{before}, and the table shows nothing of {end} to {first - 1}"
                raise TierProblem(TierFailure.DAMAGED, f"{what}: {advice(self._table, index)}")
            end = max(end, behind)
        if end != (facts.end_offset if facts is not None else start):
            wanted = "nothing" if facts is None else f"the records up to {facts.end_offset - 1}"
            what = f"{self._uri} shows partition {index} up to offset {end - 1}, and the tier's last commit {wanted}"
            raise TierProblem(TierFailure.DAMAGED, f"{what}: {advice(self._table, index)}")


def _names(store: Store, files: Sequence[TableFile]) -> set[str]:
    """The paths of the files that are there. A directory is listed once."""
    directories = {posixpath.dirname(file.path) for file in files}
    return {posixpath.join(each, name) for each in directories for name in store.names(each)}


def _newest_ms(files: Sequence[TableFile], facts: LineageFacts) -> int:
    times = [file.time_max // 1000 for file in files if file.time_max is not None]
    return max([*times, *(segment.timestamp_ms_max for segment in facts.newest)], default=-1)
