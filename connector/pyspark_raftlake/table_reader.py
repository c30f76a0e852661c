"""Executor: a range of offsets from the files of a topic's Delta table, as the Arrow record batches of the source.

The plan names files of one version. OPTIMIZE and retention take files out of the table, and VACUUM from the store. Where a file
is gone, the newest version tells which files hold the rest of the range. `LostRows` says that none does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_raftlake.errors import LostRows
from pyspark_raftlake.ranges import OffsetRange
from pyspark_raftlake.seam import ALL_TIMES, FileIndex, Shown
from pyspark_raftlake.tables import TablePiece, open_history
from raftlake.arrow.records import KIND_ABORTED, KIND_DATA, record_schema
from raftlake.tier.reader import FileProblem, Store, TableFile, TopicHistory, read_files, store_of, time_ranges

#: Rows of one Arrow batch, at most. Spark pays for each batch.
ROWS_TOGETHER = 131_072


class TableReader:
    def __init__(
        self, piece: TablePiece, partition: OffsetRange, *, include_headers: bool, reads_committed: bool = True
    ) -> None:
        """`reads_committed`: without the records of aborted transactions."""
        self._kinds = pa.array([KIND_DATA] if reads_committed else [KIND_DATA, KIND_ABORTED], pa.int8())
        self._piece = piece
        self._partition = partition
        self._schema = record_schema(include_headers)
        self._files = piece.files
        self._uri = piece.place.uri
        self._store: Store | None = None
        self._history: TopicHistory | None = None

    def rows(self, position: int, end: int) -> Iterator[tuple[int, Any]]:
        """The records with offsets from `position` to below `end`, in their order. Each batch comes with the offset behind it;
        it is None where offsets hold no wanted record. Ends before `end` where the table does. Raises LostRows, or the
        TierProblem of the table or the store."""
        files: Sequence[TableFile] | None = self._files
        while position < end:
            if files is None:
                shown = self._look(position)
                end, files = min(end, shown.end), self._newest().files(self._partition.partition, position, end)
            try:
                for behind, batch in self._of(files, position, end):
                    position = behind
                    yield behind, batch
                return
            except FileProblem as problem:
                # A file that the newest version shows as well is damaged, or somebody removed it by hand.
                if self._is_shown_still(problem):
                    raise
                files = None

    def _look(self, position: int) -> Shown:
        """What the newest version of the table shows."""
        offsets = self._newest().offsets(self._partition.partition)
        if offsets is None or not Shown(*offsets).holds(position):
            start = None if offsets is None or offsets.end <= position else offsets.start
            told = f"the table at {self._uri} does not show offset {position} of partition {self._partition.partition}"
            raise LostRows(told, start)
        return Shown(*offsets)

    def _newest(self) -> TopicHistory:
        if self._history is None:
            self._history = open_history(self._piece.place)
            self._uri, self._store = self._history.uri, self._history.store
        return self._history

    def _is_shown_still(self, problem: FileProblem) -> bool:
        if self._history is not None:
            self._history.refresh()
        return any(file.path == problem.path for file in self._newest().files(self._partition.partition))

    def _of(self, files: Sequence[TableFile], start: int, end: int) -> Iterator[tuple[int, Any]]:
        """The rows of some files; ranges of times that nobody asks for are left out."""
        store = self._store
        if store is None:
            store = self._store = store_of(self._uri, dict(self._piece.place.storage))
        whole = OffsetRange(topic=self._partition.topic, partition=self._partition.partition, start=start, end=end)
        span = self._piece.times
        wanted = [whole]
        if span != ALL_TIMES:
            groups = [group for file in files for group in time_ranges(store, self._uri, file)]
            wanted = FileIndex(groups).without_times(whole, span)
        names = ["key", "value", "offset", "timestamp", "timestampType", "kind", *self._schema.names[7:]]
        for each in wanted:
            for batch in read_files(store, self._uri, files, each.start, each.end, names, rows_together=ROWS_TOGETHER):
                behind = int(batch.column("offset")[-1].as_py()) + 1
                yield behind, self._records(batch)
        if not wanted or wanted[-1].end < end:
            yield end, None

    def _records(self, batch: Any) -> Any | None:
        """The records of clients with the columns of the source."""
        is_record = pc.is_in(batch.column("kind"), value_set=self._kinds)
        if not pc.all(is_record).as_py():
            batch = batch.filter(is_record)
        if not batch.num_rows:
            return None
        constants = {"topic": self._partition.topic, "partition": self._partition.partition}
        columns = [
            pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
            if field.name in constants
            else batch.column(field.name)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
