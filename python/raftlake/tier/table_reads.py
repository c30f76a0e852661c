"""The calls of `RemoteTier` that only read, on Delta tables: each returns its answer when it has one.

A table stays open with the list of its files. `read` looks for a newer version where an offset is not in the list, where a file
is gone, or after some seconds; all other calls look each time. A consumer that reads on goes on with its cursor.
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from raftlake.arrow.records import LOADER, KernelLoader
from raftlake.errors import RequestRejected, WireError, one_line
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import (
    FoundRecord,
    Lineage,
    LineageFacts,
    ReadRequest,
    RemoteFile,
    RemoteSegment,
    RemoteState,
    SearchRequest,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Offset
from raftlake.tier.as_left import require_as_left
from raftlake.tier.batch_reads import Cursor, batches_of, whole_end
from raftlake.tier.calls import TierSettings
from raftlake.tier.failures import RESTORE, STORE_ERRORS, TierProblem, problem_of
from raftlake.tier.known_copies import KnownCopies
from raftlake.tier.lineage_facts import FactsReader, remote_file
from raftlake.tier.lineage_files import LineageFiles, lineage_files
from raftlake.tier.remote_segments import file_name
from raftlake.tier.schema import newest_incarnation
from raftlake.tier.table_files import files_of, list_files
from raftlake.tier.time_search import search
from raftlake.tier.topic_table import TopicTable

#: pyarrow ships no types.
Arrow: TypeAlias = Any
T = TypeVar("T")

#: Tables that stay open, each with the list of its files.
_TABLES_MAX = 32
#: Lineages whose files are sorted, and cursors that stand somewhere, each with some MiB of rows.
_LINEAGES_MAX, _CURSORS_MAX = 64, 8
#: How long `read` goes by a version of a table that has all that it looks for.
VIEW_SECONDS = 5.0
#: Of one answer, unless a single batch has more.
READ_BYTES_MAX = 8 << 20


@dataclass(slots=True)
class _View:
    """A table as it was seen."""

    table: TopicTable
    seen_at: float = float("-inf")
    version: int = -1
    listed: Arrow = None
    lineages: dict[Lineage, LineageFiles] = field(default_factory=dict)

    def look(self, now: float) -> None:
        """See the newest version."""
        self.seen_at = float("-inf")
        self.table.refresh()
        if self.listed is None or self.version != self.table.version:
            self.listed, self.lineages = list_files(self.table.table), {}
            self.version = self.table.version
        self.seen_at = now

    def files(self, lineage: Lineage) -> LineageFiles:
        if lineage not in self.lineages:
            if len(self.lineages) >= _LINEAGES_MAX:
                self.lineages.clear()
            files = files_of(self.listed, lineage.group.partition)
            self.lineages[lineage] = lineage_files(self.table.store, self.table.uri, files, lineage.incarnation)
        return self.lineages[lineage]

    def copies(self, lineage: Lineage) -> KnownCopies:
        return KnownCopies(self.table.store, self.table.uri, lineage, self.files(lineage))


class TableReads:
    """The tables of one tier, read-only. One call at a time. `now` is a clock in seconds that never goes back."""

    def __init__(
        self, settings: TierSettings, loader: KernelLoader = LOADER, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._loader = loader
        self._now = now
        self._views: OrderedDict[GroupId, _View] = OrderedDict()
        #: By the offset at which each goes on.
        self._cursors: OrderedDict[tuple[Lineage, int], Cursor] = OrderedDict()

    # --- calls ---

    def check(self, lineage: Lineage, segment: RemoteSegment) -> TierError | None:
        """See `RemoteTier.check`. Where somebody rewrote the file, its rows are compared: each one is there, and each batch
        that is not compressed has its CRC. The auxiliary bytes belong to the copy."""

        def check(view: _View) -> None:
            require_as_left(view.table, self._settings.cluster_id, lineage)
            self._check(view, lineage, segment)

        return self._answer(lineage.group, check)

    def read(self, request: ReadRequest) -> bytes | TierError:
        """See `RemoteTier.read`."""
        return self._answer(request.lineage.group, lambda view: self._read(view, request), is_fresh=False)

    def search(self, request: SearchRequest) -> FoundRecord | TierError | None:
        """See `RemoteTier.search`."""

        def found(view: _View) -> FoundRecord | None:
            return search(view.table.store, view.table.uri, view.files(request.lineage), request)

        return self._answer(request.lineage.group, found)

    def find(self, lineage: Lineage, offset: Offset) -> RemoteState | TierError:
        """See `RemoteTier.find`. The segment is as it was written, also where somebody rewrote its file."""
        return self._answer(lineage.group, lambda view: self._find(view, lineage, offset))

    def oldest(self, lineage: Lineage, count: int) -> tuple[RemoteFile, ...] | TierError:
        """See `RemoteTier.oldest`."""

        def first_files(view: _View) -> tuple[RemoteFile, ...]:
            store, uri, files, copies = view.table.store, view.table.uri, view.files(lineage), view.copies(lineage)
            return tuple(
                # What is behind it goes with the file that ends the batch.
                replace(remote_file(store, uri, copies, file), end_offset=Offset(whole_end(store, uri, lineage, files, file)))
                for file in files.files[: max(count, 0)]
            )

        answer = self._answer(lineage.group, first_files)
        return () if isinstance(answer, TierError) and answer.failure is TierFailure.ABSENT else answer

    def facts(self, of: Lineage | GroupId) -> LineageFacts | TierError:
        """See `RemoteTier.facts`."""

        def read(view: _View) -> LineageFacts:
            lineage = of
            if not isinstance(lineage, Lineage):
                newest = newest_incarnation(view.table.transaction, self._settings.cluster_id, lineage)
                lineage = Lineage(lineage, newest or 0)
            reader = FactsReader(view.table, self._settings.cluster_id, lineage, view.files(lineage), view.copies(lineage))
            return reader.facts()

        return self._answer(of.group if isinstance(of, Lineage) else of, read)

    # --- how a call goes ---

    def _answer(self, group: GroupId, call: Callable[[_View], T], *, is_fresh: bool = True) -> T | TierError:
        view = self._view(group)
        try:
            if is_fresh or self._now() - view.seen_at >= VIEW_SECONDS:
                view.look(self._now())
            seen = view.version
            try:
                return call(view)
            except TierProblem as problem:
                if problem.error.failure is not TierFailure.DAMAGED:
                    raise
                # A file may have gone since the table was seen: the newest version says whether it has to be there.
                view.look(self._now())
                if view.version == seen:
                    raise
            return call(view)
        except TierProblem as problem:
            return problem.error
        except (WireError, RequestRejected) as error:
            return TierError(TierFailure.DAMAGED, f"{view.table.uri}: {group}: {one_line(error)}")
        except STORE_ERRORS as error:
            return problem_of(error, "read the table", view.table.uri).error

    def _view(self, group: GroupId) -> _View:
        whole = group._replace(partition=0)
        view = self._views.pop(whole, None) or _View(TopicTable(self._settings, whole, may_create=False))
        self._views[whole] = view
        if len(self._views) > _TABLES_MAX:
            self._views.popitem(last=False)
        return view

    # --- check ---

    def _check(self, view: _View, lineage: Lineage, segment: RemoteSegment) -> None:
        uri = view.table.uri
        files = view.files(lineage).overlapping(segment.base_offset, segment.end_offset)
        if not files:
            raise TierProblem(TierFailure.ABSENT, f"{uri} does not show {segment.file}")
        copies = view.copies(lineage)
        is_as_written = segment.file == file_name(lineage.group.partition, segment.segment_id)
        if is_as_written and any(file.path == segment.file for file in files):
            self._check_file(view, segment)
        else:
            self._check_rows(view, lineage, segment, copies)
        known, lacking = copies.beside(segment.segment_id)
        if known is None or not _is_of_the_same_copy(known.segment, segment):
            raise TierProblem(TierFailure.DAMAGED, f"{lacking or f'{uri}: the facts beside {segment.file} differ'}: {RESTORE}")

    def _check_file(self, view: _View, segment: RemoteSegment) -> None:
        store, uri = view.table.store, view.table.uri
        size = store.size(segment.file)
        if size != segment.size:
            found = "is gone" if size is None else f"has {size} bytes and not {segment.size}"
            raise TierProblem(TierFailure.DAMAGED, f"{uri}/{segment.file} {found}: {RESTORE}")
        if (crc := store.checksum(segment.file)) != segment.crc:
            raise TierProblem(
                TierFailure.DAMAGED,
                f"{uri}/{segment.file} has the checksum {crc:#010x} and not {segment.crc:#010x}: {RESTORE}",
            )

    def _check_rows(self, view: _View, lineage: Lineage, segment: RemoteSegment, copies: KnownCopies) -> None:
        store, uri, files = view.table.store, view.table.uri, view.files(lineage)
        for offset in (segment.base_offset, segment.end_offset - 1):
            if copies.id_at(offset) != segment.segment_id:
                raise TierProblem(TierFailure.ABSENT, f"{uri} shows offset {offset} with another copy than {segment.file}")
        base, end = segment.base_offset, segment.end_offset
        for _ in batches_of(store, uri, lineage, files, base, end, self._loader):
            pass

    # --- read and find ---

    def _read(self, view: _View, request: ReadRequest) -> bytes:
        if request.end_offset <= request.offset:
            return b""
        lineage = request.lineage
        cursor = self._cursors.pop((lineage, request.offset), None)
        # A cursor goes by the files that it began with: what is shown now decides whether it may go on.
        if not view.files(lineage).holding(request.offset):
            view.look(self._now())
        files = view.files(lineage)
        if not files.holding(request.offset):
            raise TierProblem(TierFailure.ABSENT, f"{view.table.uri} does not show offset {request.offset}")
        size_max = min(request.size_max, READ_BYTES_MAX)
        found: bytes | None = None
        if cursor is not None:
            # Its files may be gone where those of the newest version are not.
            with contextlib.suppress(TierProblem):
                found = cursor.take(request.end_offset, size_max)
        if cursor is None or found is None:
            cursor = Cursor(view.table.store, view.table.uri, lineage, files, request.offset, self._loader)
            found = cursor.take(request.end_offset, size_max)
        if not cursor.is_over:
            self._cursors[(lineage, cursor.next_offset)] = cursor
            if len(self._cursors) > _CURSORS_MAX:
                self._cursors.popitem(last=False)
        return found

    def _find(self, view: _View, lineage: Lineage, offset: Offset) -> RemoteState:
        copies = view.copies(lineage)
        known = copies.at(offset)
        if known is None:
            raise TierProblem(TierFailure.ABSENT, f"{view.table.uri} does not show offset {offset}")
        holding = known.segment
        while known is not None:
            if known.auxiliary is None:
                raise TierProblem(TierFailure.DAMAGED, f"{known.lacking}: {RESTORE}")
            if known.auxiliary:
                return RemoteState(known.segment, known.auxiliary, None if known.segment == holding else holding)
            # An unclean election cut this copy at its end, where nobody noted a state.
            known = copies.at(known.segment.end_offset)
        raise TierProblem(
            TierFailure.ABSENT,
            f"{view.table.uri}: no copy from offset {offset} on has the state at its end: an election cut it",
        )


def _is_of_the_same_copy(known: RemoteSegment, segment: RemoteSegment) -> bool:
    """The facts are those of the copy as it was written, or what its rows told a claim: they were in a file of somebody else,
    and the file beside the copy was not there."""
    if segment.file == known.file:
        return segment == known
    told = (segment.segment_id, segment.base_offset, segment.end_offset, segment.epochs)
    return told == (known.segment_id, known.base_offset, known.end_offset, known.epochs)
