"""What a table tells of a lineage as a whole: for retention, and for the keys of the quorum that are made anew.

A table may have a hundred thousand files. Their statistics in the table's log tell offsets, epochs, times and copies. Only
files that hold several epochs or copies are looked into. The bytes in the log stand beside each copy: some copies are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow.compute as pc

from raftlake.ports.tier import Lineage, LineageFacts, RemoteFile, RemoteSegment, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.batch_reads import whole_start
from raftlake.tier.failures import TierProblem
from raftlake.tier.known_copies import KnownCopies
from raftlake.tier.lineage_files import LineageFiles
from raftlake.tier.ordered_rows import rows_in_order
from raftlake.tier.schema import end_app, epoch_app
from raftlake.tier.store import Store
from raftlake.tier.table_files import TableFile
from raftlake.tier.topic_table import TopicTable

#: pyarrow ships no types.
Arrow: TypeAlias = Any

#: Of the newest copies in `LineageFacts`.
NEWEST = 16
#: Copies of which the bytes in the log are looked up; those of the others are estimated by them.
_ASKED_MAX = 512
#: The same for one file that holds many copies.
_ASKED_OF_A_FILE_MAX = 16


def remote_file(store: Store, uri: str, copies: KnownCopies, file: TableFile) -> RemoteFile:
    """A file as retention sees it."""
    base, end = file.offset_min or 0, (file.offset_max or 0) + 1
    log_bytes: int | None
    known = None if file.segment_id is None else copies.beside(file.segment_id)[0]
    if known is not None and (known.segment.base_offset, known.segment.end_offset) == (base, end):
        time_ms, log_bytes = known.segment.timestamp_ms_max, known.segment.log_bytes
    else:
        time_ms = _time_ms(store, uri, file)
        ids = [file.segment_id] if file.segment_id is not None else sorted(_ids_in(store, uri, file))
        log_bytes = _log_bytes(copies, ids, file.rows or end - base, _ASKED_OF_A_FILE_MAX)
    return RemoteFile(
        base_offset=Offset(base),
        end_offset=Offset(end),
        timestamp_ms_max=time_ms,
        size=file.size,
        log_bytes=file.size if log_bytes is None else log_bytes,
    )


def _time_ms(store: Store, uri: str, file: TableFile) -> int:
    time_us = file.time_max
    if time_us is None:
        columns = (rows.column("timestamp") for rows in _rows_of(store, uri, file, "timestamp"))
        time_us = max((pc.max(column).cast("int64").as_py() for column in columns), default=-1)
    return max(int(time_us) // 1000, -1)


def _rows_of(store: Store, uri: str, file: TableFile, *names: str) -> Iterator[Arrow]:
    found = rows_in_order(store, uri, [file], file.offset_min or 0, (file.offset_max or 0) + 1, ["offset", *names])
    return (rows.batch for rows in found if rows.batch.num_rows)


def _ids_in(store: Store, uri: str, file: TableFile) -> set[str]:
    """The copies whose rows are in a file."""
    found: set[str] = set()
    for rows in _rows_of(store, uri, file, "segment_id"):
        found.update(name for name in rows.column("segment_id").unique().to_pylist() if name is not None)
    return found


def epochs_of(store: Store, uri: str, file: TableFile, incarnation: int, copies: KnownCopies) -> Iterator[tuple[int, int]]:
    """The leader epochs of what an incarnation may show of a file, each with its first offset; an epoch may come again."""
    if file.epoch_min is not None and file.epoch_min == file.epoch_max and file.is_of(incarnation):
        yield file.epoch_min, file.offset_min or 0
        return
    known = None if file.segment_id is None else copies.beside(file.segment_id)[0]
    if known is not None and known.segment.file == file.path:
        yield from known.segment.epochs
        return
    for rows in _rows_of(store, uri, file, "leader_epoch", "incarnation"):
        is_shown = np.asarray(pc.less_equal(rows.column("incarnation"), incarnation).fill_null(False))
        epochs, offsets = rows.column("leader_epoch").to_numpy()[is_shown], rows.column("offset").to_numpy()[is_shown]
        found, at = np.unique(epochs, return_index=True)
        yield from zip(found.tolist(), offsets[at].tolist(), strict=True)


def _log_bytes(copies: KnownCopies, ids: list[str], rows: int, asked_max: int) -> int | None:
    """The bytes in the log of so many rows, by some of the copies that they are from; None where nothing is known of those."""
    chosen = ids if len(ids) <= asked_max else [ids[at * len(ids) // asked_max] for at in range(asked_max)]
    known = [copy.segment for copy in (copies.beside(name)[0] for name in chosen) if copy is not None]
    offsets = sum(segment.end_offset - segment.base_offset for segment in known)
    return round(sum(segment.log_bytes for segment in known) * rows / offsets) if offsets else None


class FactsReader:
    """Makes the facts of one lineage."""

    def __init__(self, table: TopicTable, cluster_id: str, lineage: Lineage, files: LineageFiles, copies: KnownCopies) -> None:
        self._table = table
        self._store, self._uri = table.store, table.uri
        self._lineage = lineage
        self._files = files
        self._copies = copies
        self._last = table.transaction(end_app(cluster_id, lineage))
        self._epoch = table.transaction(epoch_app(cluster_id, lineage))

    def facts(self) -> LineageFacts:
        """TierProblem (ABSENT) where the table never showed a row of the lineage. One that an unclean election began has facts
        without any row too."""
        if self._last is None and (self._epoch is None or self._lineage.incarnation == 0):
            raise TierProblem(TierFailure.ABSENT, f"{self._uri} never showed a row of {self._lineage.group}")
        end = 0 if self._last is None else self._last + 1
        start = whole_start(self._store, self._uri, self._lineage, self._files)
        ids = self._ids()
        files = self._files.files
        rows = sum(file.rows or (file.offset_max or 0) + 1 - (file.offset_min or 0) for file in files)
        size = sum(file.size for file in files)
        log_bytes = _log_bytes(self._copies, ids, rows, _ASKED_MAX)
        epochs = self._epochs(start or 0)
        return LineageFacts(
            lineage=self._lineage,
            leader_epoch=Epoch(self._epoch if self._epoch is not None else epochs[-1][0]),
            start_offset=Offset(end if start is None else start),
            end_offset=Offset(end),
            segments=len(ids),
            size=size,
            log_bytes=size if log_bytes is None else log_bytes,
            epochs=epochs,
            newest=self._newest(),
        )

    def _ids(self) -> list[str]:
        """The copies that the table shows, in the order of their files."""
        found: dict[str, None] = {}
        for file in self._files.files:
            if file.segment_id is not None:
                found[file.segment_id] = None
            else:
                found |= dict.fromkeys(_ids_in(self._store, self._uri, file))
        return list(found)

    def _epochs(self, start: int) -> tuple[tuple[Epoch, Offset], ...]:
        firsts: dict[int, int] = {}
        for file in self._files.files:
            for epoch, offset in epochs_of(self._store, self._uri, file, self._lineage.incarnation, self._copies):
                firsts[epoch] = min(offset, firsts.get(epoch, offset))
        known = [(Epoch(epoch), Offset(max(firsts[epoch], start))) for epoch in sorted(firsts)]
        # What is before the first whole batch does not count.
        first = max((index for index, (_, offset) in enumerate(known) if offset == start), default=0)
        return tuple(known[first:])

    def _newest(self) -> tuple[RemoteSegment, ...]:
        found: list[RemoteSegment] = []
        offset = self._files.end - 1
        while len(found) < NEWEST and offset >= (self._files.start or 0) and (known := self._copies.at(offset)) is not None:
            found.append(known.segment)
            offset = known.segment.base_offset - 1
        return tuple(reversed(found))
