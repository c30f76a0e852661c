"""`RemoteTier` on Delta tables, as plain calls: each returns its answer when it has one.

Two `txn` versions guard a lineage. One is the last offset that is shown, the other the highest leader epoch that wrote or
claimed. A copy compares both with what it expects, on the snapshot that it commits on top of, and sets both. delta-rs refuses a
commit when another one has set the same `txn` since then. So of two copies from one snapshot one is shown, and no copy of an
older leader comes behind the claim of a newer one.

A claim always commits, even where its epoch is known already. A commit of a process that was given up may still be on its way
to the store: the claim takes the version that this commit would have, and so settles its fate.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from deltalake.transaction import AddAction

from raftlake.arrow.records import LOADER, KernelLoader
from raftlake.errors import RequestRejected, WireError, one_line
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import CopyRequest, Lineage, LineageEnd, RemoteSegment, TierError, TierFailure
from raftlake.raft.types import Epoch
from raftlake.tier.calls import TierSettings
from raftlake.tier.failures import STORE_ERRORS, TierProblem, is_conflict, problem_of, words_of
from raftlake.tier.last_segment import last_segment
from raftlake.tier.remote_segments import SEGMENT_KEY, auxiliary_name, file_name, pack_auxiliary, to_json, unpack_auxiliary
from raftlake.tier.schema import end_app, epoch_app
from raftlake.tier.segment_file import SegmentFile, write_segment
from raftlake.tier.topic_table import TopicTable

T = TypeVar("T")

#: How often a call judges anew after a commit of the same lineage came first.
_ATTEMPTS_MAX = 5
#: Tables that stay open: each has the list of its files in memory.
_TABLES_MAX = 32


class DeltaTier:
    """The tables of one tier. One call at a time."""

    def __init__(self, settings: TierSettings, loader: KernelLoader = LOADER) -> None:
        self._settings = settings
        self._loader = loader
        self._tables: OrderedDict[GroupId, TopicTable] = OrderedDict()

    def copy(self, request: CopyRequest) -> RemoteSegment | TierError:
        """See `RemoteTier.copy`."""
        return self._answer(request.lineage, lambda table: self._copy(table, request))

    def claim(self, lineage: Lineage, leader_epoch: Epoch) -> LineageEnd | TierError:
        """See `RemoteTier.claim`."""
        return self._answer(lineage, lambda table: self._claim(table, lineage, leader_epoch))

    def auxiliary(self, lineage: Lineage, segment_id: str) -> bytes | TierError:
        """The auxiliary bytes of a copy."""
        return self._answer(lineage, lambda table: _auxiliary(table, segment_id))

    def _answer(self, lineage: Lineage, call: Callable[[TopicTable], T]) -> T | TierError:
        table = self._table(lineage.group)
        try:
            table.refresh()
            return call(table)
        except TierProblem as problem:
            return problem.error
        except (WireError, RequestRejected) as error:
            return TierError(TierFailure.DAMAGED, f"cannot copy a segment of {lineage.group}: {one_line(error)}")
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
            self._commit(
                table,
                request.segment_id,
                lambda: self._require_next(table, request),
                transactions={
                    end_app(self._settings.cluster_id, lineage): request.end_offset - 1,
                    epoch_app(self._settings.cluster_id, lineage): request.leader_epoch,
                },
                adds=[_add_action(lineage, written)],
                metadata={SEGMENT_KEY: to_json(lineage, segment)},
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

    def _require_next(self, table: TopicTable, request: CopyRequest) -> None:
        """TierProblem unless this copy is the next one of its lineage, and its leader the newest."""
        self._require_newest(table, request.lineage, request.leader_epoch)
        last = table.transaction(end_app(self._settings.cluster_id, request.lineage))
        if last is not None and last + 1 != request.base_offset:
            raise TierProblem(
                TierFailure.ELSEWHERE,
                f"{table.uri} shows {request.lineage.group} up to offset {last + 1}, the copy begins at {request.base_offset}",
            )

    def _require_newest(self, table: TopicTable, lineage: Lineage, leader_epoch: Epoch) -> None:
        newest = table.transaction(epoch_app(self._settings.cluster_id, lineage))
        if newest is not None and newest > leader_epoch:
            raise TierProblem(
                TierFailure.FENCED,
                f"{table.uri}: a leader of epoch {newest} has {lineage.group}, that of epoch {leader_epoch} writes no more",
            )

    # --- claim -------------------------------------------------------------------------------------------------------------

    def _claim(self, table: TopicTable, lineage: Lineage, leader_epoch: Epoch) -> LineageEnd:
        self._require_newest(table, lineage, leader_epoch)
        self._commit(
            table,
            str(uuid.uuid4()),
            lambda: self._require_newest(table, lineage, leader_epoch),
            transactions={epoch_app(self._settings.cluster_id, lineage): leader_epoch},
        )
        last = table.transaction(end_app(self._settings.cluster_id, lineage))
        return LineageEnd(None if last is None else last_segment(table, lineage, last))

    # --- commits -----------------------------------------------------------------------------------------------------------

    def _commit(
        self,
        table: TopicTable,
        call: str,
        judge: Callable[[], None],
        *,
        transactions: Mapping[str, int],
        adds: Sequence[AddAction] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Commit once, or raise TierProblem. The table is refreshed when this returns."""
        table.refresh()
        for _ in range(_ATTEMPTS_MAX):
            judge()
            seen = table.version
            failed: BaseException | None = None
            try:
                table.commit(call, adds, transactions, metadata or {})
            except STORE_ERRORS as error:
                failed = error
            if self._is_committed(table, call, seen, failed):
                return
        raise TierProblem(TierFailure.UNKNOWN, f"{table.uri}: other writers came first {_ATTEMPTS_MAX} times")

    def _is_committed(self, table: TopicTable, call: str, seen: int, failed: BaseException | None) -> bool:
        """Whether a commit is in the table after all. False only where it can never come there."""
        try:
            table.refresh()
            if table.commit_of(call, seen) is not None:
                table.sync(seen)
                return True
        except (TierProblem, *STORE_ERRORS) as error:
            raise TierProblem(TierFailure.UNKNOWN, f"{table.uri}: a commit may be done: {words_of(error)}") from error
        if failed is not None and is_conflict(failed):
            return False
        words = "it is not in the table" if failed is None else words_of(failed)
        raise TierProblem(TierFailure.UNKNOWN, f"{table.uri}: a commit may be done or come later: {words}") from failed


def _add_action(lineage: Lineage, written: SegmentFile) -> AddAction:
    return AddAction(
        path=written.segment.file,
        size=written.segment.size,
        partition_values={"partition": str(lineage.group.partition)},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=written.statistics,
    )


def _auxiliary(table: TopicTable, segment_id: str) -> bytes:
    name = auxiliary_name(segment_id)
    data = table.store.read(name)
    unpacked = None if data is None else unpack_auxiliary(data)
    if unpacked is None:
        what = "is missing" if data is None else "is damaged"
        raise TierProblem(TierFailure.DAMAGED, f"{table.uri}/{name} {what}: restore it from a copy of the store")
    return unpacked[1]
