"""`RemoteTier` on Delta tables, as plain calls: each returns its answer when it has one.

Two `txn` versions guard a lineage. One is the last offset that is shown, the other the highest leader epoch that wrote or
claimed. A copy compares both with what it expects, on the snapshot that it commits on top of, and sets both. delta-rs refuses a
commit when another one has set the same `txn` since then. So of two copies from one snapshot one is shown, and no copy of an
older leader comes behind the claim of a newer one.

Nothing is committed where another program has added or removed rows of the partition (`as_left`). The table of a deleted topic
is emptied all the same.

A delete sets the epoch too, and removes whole files in the same commit. A drop sets an epoch that no leader has. So does an
adoption for all older incarnations.

A claim always commits, even where its epoch is known already. A commit of a process that was given up may still be on its way
to the store: the claim takes the version that this commit would have, and so settles its fate.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from raftlake.arrow.records import LOADER, KernelLoader
from raftlake.errors import RequestRejected, WireError, one_line
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import (
    AdoptRequest,
    CopyRequest,
    Lineage,
    LineageEnd,
    LineageFacts,
    RemoteSegment,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.acceptance import accept_table
from raftlake.tier.adoption import adopt_table
from raftlake.tier.as_left import require_as_left
from raftlake.tier.calls import TierSettings
from raftlake.tier.commits import Action, add_action, commit_once, remove_action, require_newest
from raftlake.tier.failures import STORE_ERRORS, TierProblem, problem_of
from raftlake.tier.known_copies import KnownCopies
from raftlake.tier.last_segment import last_segment
from raftlake.tier.leftovers import Leftovers
from raftlake.tier.lineage_facts import FactsReader
from raftlake.tier.lineage_files import LineageFiles, lineage_files, removable
from raftlake.tier.remote_segments import SEGMENT_KEY, auxiliary_name, file_name, pack_auxiliary, to_json
from raftlake.tier.schema import LAST_EPOCH, begin_app, end_app, epoch_app, newest_incarnation, table_uri
from raftlake.tier.segment_file import SegmentFile, write_segment
from raftlake.tier.store import fits
from raftlake.tier.topic_table import TopicTable, never_shown

T = TypeVar("T")

#: Tables that stay open: each has the list of its files in memory.
_TABLES_MAX = 32
#: How often a call looks again for files that somebody rewrote under its hands.
_ROUNDS_MAX = 5


class DeltaTier:
    """The tables of one tier. One call at a time."""

    def __init__(self, settings: TierSettings, loader: KernelLoader = LOADER) -> None:
        self._settings = settings
        self._loader = loader
        self._tables: OrderedDict[GroupId, TopicTable] = OrderedDict()
        self._leftovers = Leftovers()

    def copy(self, request: CopyRequest) -> RemoteSegment | TierError:
        """See `RemoteTier.copy`."""
        return self._answer(request.lineage.group, lambda table: self._copy(table, request))

    def claim(self, lineage: Lineage, leader_epoch: Epoch) -> LineageEnd | TierError:
        """See `RemoteTier.claim`."""
        return self._answer(lineage.group, lambda table: self._claim(table, lineage, leader_epoch))

    def delete(self, lineage: Lineage, leader_epoch: Epoch, until: Offset) -> Offset | TierError:
        """See `RemoteTier.delete`."""
        return self._answer(lineage.group, lambda table: self._delete(table, lineage, leader_epoch, until))

    def drop(self, group: GroupId, partitions: int) -> TierError | None:
        """See `RemoteTier.drop`. A table that is gone is made again: it has the fences that keep late copies out."""
        self._tables.pop(group._replace(partition=0), None)
        if not fits(table_uri(self._settings.uri, group)):
            # There was no table, and no late copy can make one.
            return None
        return self._answer(group, lambda table: self._drop(table, group, partitions))

    def adopt(self, request: AdoptRequest) -> LineageFacts | TierError:
        """See `RemoteTier.adopt`."""

        def adopt(table: TopicTable) -> LineageFacts:
            return self._facts(table, adopt_table(table, self._settings.cluster_id, request))

        return self._answer(request.group, adopt)

    def accept(self, group: GroupId, begin: Offset | None, reach: Offset | None) -> LineageFacts | TierError:
        """See `RemoteTier.accept`."""

        def accept(table: TopicTable) -> LineageFacts:
            cluster_id = self._settings.cluster_id
            newest = newest_incarnation(table.transaction, cluster_id, group)
            lineage = Lineage(group, newest or 0)
            if newest is not None:
                accept_table(table, cluster_id, lineage, (begin, reach), self._loader)
            return self._facts(table, lineage)

        return self._answer(group, accept)

    def _facts(self, table: TopicTable, lineage: Lineage) -> LineageFacts:
        files = _files(table, lineage)
        copies = KnownCopies(table.store, table.uri, lineage, files)
        return FactsReader(table, self._settings.cluster_id, lineage, files, copies).facts()

    def _answer(self, group: GroupId, call: Callable[[TopicTable], T]) -> T | TierError:
        table = self._table(group)
        try:
            table.refresh()
            return call(table)
        except TierProblem as problem:
            return problem.error
        except (WireError, RequestRejected) as error:
            return TierError(TierFailure.DAMAGED, f"cannot copy a segment of {group}: {one_line(error)}")
        except STORE_ERRORS as error:
            return problem_of(error, "use the table", table.uri).error

    def _table(self, group: GroupId) -> TopicTable:
        whole = group._replace(partition=0)
        table = self._tables.pop(whole, None) or TopicTable(self._settings, whole)
        self._tables[whole] = table
        if len(self._tables) > _TABLES_MAX:
            self._tables.popitem(last=False)
        return table

    # --- copy --------------------------------------------------------------------------------------------------------------

    def _copy(self, table: TopicTable, request: CopyRequest) -> RemoteSegment:
        if request.end_offset <= request.base_offset:
            raise TierProblem(
                TierFailure.DAMAGED, f"a segment from {request.base_offset} to {request.end_offset} has no records"
            )
        self._require_next(table, request)
        lineage = request.lineage
        paths: list[str] = []
        try:
            written = self._write(table, request, paths)
            segment = written.segment
            commit_once(
                table,
                lambda: self._next_file(table, request, written),
                transactions={
                    end_app(self._settings.cluster_id, lineage): request.end_offset - 1,
                    epoch_app(self._settings.cluster_id, lineage): request.leader_epoch,
                },
                metadata={SEGMENT_KEY: to_json(lineage, segment)},
                call=request.segment_id,
            )
        except (TierProblem, WireError, RequestRejected) as problem:
            if not isinstance(problem, TierProblem) or problem.error.failure is not TierFailure.UNKNOWN:
                table.store.discard(paths)
            raise
        return segment

    def _write(self, table: TopicTable, request: CopyRequest, paths: list[str]) -> SegmentFile:
        """The files of a copy, complete in the store. `paths` tells which there may be."""
        store, lineage = table.store, request.lineage
        auxiliary = auxiliary_name(request.segment_id)
        try:
            paths += [auxiliary, file_name(lineage.group.partition, request.segment_id)]
            written = write_segment(store, request, self._loader)
            segment = written.segment
            if (size := store.size(segment.file)) != segment.size:
                raise TierProblem(
                    TierFailure.UNKNOWN,
                    f"{table.uri}/{segment.file} has {size} bytes, {segment.size} were written: is it removed?",
                )
            store.write(auxiliary, pack_auxiliary(lineage, segment, request.auxiliary))
            store.sync([segment.file, auxiliary])
        except STORE_ERRORS as error:
            raise problem_of(error, "write to the table", table.uri) from error
        return written

    def _next_file(self, table: TopicTable, request: CopyRequest, written: SegmentFile) -> list[Action]:
        self._require_next(table, request)
        return [add_action(request.lineage, written)]

    def _require_next(self, table: TopicTable, request: CopyRequest) -> None:
        """TierProblem unless this copy is the next one of its lineage, and its leader the newest."""
        self._require_mine(table, request.lineage, request.leader_epoch)
        last = table.transaction(end_app(self._settings.cluster_id, request.lineage))
        if last is None and request.is_continued:
            raise never_shown(table.uri, request.lineage.group)
        if last is not None and last + 1 != request.base_offset:
            raise TierProblem(
                TierFailure.ELSEWHERE,
                f"{table.uri} shows {request.lineage.group} up to offset {last + 1}, the copy begins at {request.base_offset}",
            )

    def _require_mine(self, table: TopicTable, lineage: Lineage, leader_epoch: Epoch) -> None:
        """TierProblem unless the leader is the newest, and nobody else has changed the partition."""
        require_newest(table, self._settings.cluster_id, lineage, leader_epoch)
        require_as_left(table, self._settings.cluster_id, lineage)

    # --- claim -------------------------------------------------------------------------------------------------------------

    def _claim(self, table: TopicTable, lineage: Lineage, leader_epoch: Epoch) -> LineageEnd:
        commit_once(
            table,
            lambda: self._nothing(table, lineage, leader_epoch),
            transactions={epoch_app(self._settings.cluster_id, lineage): leader_epoch},
        )
        cluster_id = self._settings.cluster_id
        last = table.transaction(end_app(cluster_id, lineage))
        if last is None or (last == table.transaction(begin_app(cluster_id, lineage)) and not _files(table, lineage).files):
            return LineageEnd(None)
        return LineageEnd(last_segment(table, lineage, last))

    def _nothing(self, table: TopicTable, lineage: Lineage, leader_epoch: Epoch) -> list[Action]:
        self._require_mine(table, lineage, leader_epoch)
        return []

    # --- delete and drop ---------------------------------------------------------------------------------------------------

    def _delete(self, table: TopicTable, lineage: Lineage, leader_epoch: Epoch, until: Offset) -> Offset:
        def removals() -> list[Action]:
            self._require_mine(table, lineage, leader_epoch)
            return [remove_action(file) for file in removable(_files(table, lineage), lineage.incarnation, until)]

        before = _files(table, lineage)
        for _ in range(_ROUNDS_MAX):
            commit_once(
                table,
                removals,
                transactions={epoch_app(self._settings.cluster_id, lineage): leader_epoch},
            )
            # delta-rs takes it for no conflict that somebody rewrote the files meanwhile.
            after = _files(table, lineage)
            if not removable(after, lineage.incarnation, until):
                break
        last = table.transaction(end_app(self._settings.cluster_id, lineage))
        start = after.start if after.start is not None else 0 if last is None else last + 1
        self._leftovers.sweep(table.store, lineage, leader_epoch, before, after, start)
        return Offset(start)

    def _drop(self, table: TopicTable, group: GroupId, partitions: int) -> None:
        cluster_id = self._settings.cluster_id
        listed = table.all_files()
        groups = [
            group._replace(partition=partition)
            for partition in sorted({*range(partitions), *(file.partition for file in listed)})
        ]
        newest = max((newest_incarnation(table.transaction, cluster_id, one) or 0 for one in groups), default=0)
        lineages = [Lineage(one, incarnation) for one in groups for incarnation in range(newest + 1)]
        fences = {epoch_app(cluster_id, lineage): LAST_EPOCH for lineage in lineages}
        for _ in range(_ROUNDS_MAX):
            if not listed and all(table.transaction(app) == LAST_EPOCH for app in fences):
                return
            commit_once(
                table,
                lambda: [remove_action(file) for file in table.all_files()],
                transactions=fences,
            )
            listed = table.all_files()
        if listed:
            raise TierProblem(TierFailure.UNKNOWN, f"{table.uri}: {len(listed)} files came while all were to go")


def _files(table: TopicTable, lineage: Lineage) -> LineageFiles:
    files = table.files(lineage.group.partition)
    return lineage_files(table.store, table.uri, files, lineage.incarnation)
