"""The rows of a partition's files in the order of their offsets, in pieces of bounded memory, whoever wrote the files.

The unit is the row group. Row groups whose ranges of offsets overlap nobody else's and whose rows are in order are streamed: so
are all files as the tier wrote them. The others, which OPTIMIZE may have made, are read in windows of offsets: each window is
picked out of all row groups concerned, and sorted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raftlake.arrow.records import segment_schema
from raftlake.ports.tier import TierFailure
from raftlake.tier.failures import RESTORE, STORE_ERRORS, TierProblem, problem_of, words_of
from raftlake.tier.store import Store
from raftlake.tier.table_files import TableFile, groups_by_overlap

#: pyarrow ships no types.
Arrow: TypeAlias = Any

#: Rows that are decoded together, and the bytes behind them, at most: unless one row alone has more.
_ROWS_TOGETHER = 32_768
_BYTES_TOGETHER = 16 << 20
#: Rows and bytes that are sorted together.
WINDOW_ROWS = 500_000
WINDOW_BYTES = 64 << 20
#: What is read at once of a column.
_BUFFER_BYTES = 4 << 20


class FileProblem(TierProblem):
    """A file is not as the table's log says: gone, of another size, or no Parquet."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(TierFailure.DAMAGED, f"{what}: {RESTORE}")
        self.path = path
        #: The reason without what to do.
        self.what = what


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one partition, and the files that they are from."""

    batch: Arrow
    paths: tuple[str, ...]
    #: The place in `paths` for each row; None where all are from the only one.
    origins: npt.NDArray[np.int64] | None = None

    def path_of(self, row: int) -> str:
        return self.paths[0 if self.origins is None else int(self.origins[row])]

    def of_incarnation(self, incarnation: int) -> Rows:
        """Those that an incarnation may show: its own, and what it took over of older ones."""
        is_one = pc.less_equal(self.batch.column("incarnation"), incarnation).fill_null(False)
        if pc.all(is_one).as_py():
            return self
        origins = None if self.origins is None else self.origins[np.asarray(is_one)]
        return Rows(self.batch.filter(is_one), self.paths, origins)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group, and which offsets of the wanted ones it holds."""

    file: TableFile
    index: int
    rows: int
    offset_min: int
    offset_max: int
    is_ordered: bool
    row_bytes: int


@contextlib.contextmanager
def judged(store: Store, uri: str, file: TableFile) -> Iterator[None]:
    """An error while a file is read: FileProblem where the file is to blame, else the TierProblem of the store."""
    try:
        yield
    except STORE_ERRORS as error:
        raise _problem(store, uri, file, error) from error


def _problem(store: Store, uri: str, file: TableFile, error: BaseException) -> TierProblem:
    place = f"{uri}/{file.path}"
    try:
        size = store.size(file.path)
        if size is None:
            return FileProblem(file.path, f"{place} is gone")
        if size != file.size:
            return FileProblem(file.path, f"{place} has {size} bytes and not {file.size}")
        store.checksum(file.path)
    except STORE_ERRORS as unread:
        return problem_of(unread, "read", place)
    return FileProblem(file.path, f"{place} cannot be read: {words_of(error)}")


def rows_in_order(
    store: Store,
    uri: str,
    files: Sequence[TableFile],
    start: int,
    end: int,
    columns: Sequence[str] | None = None,
    rows_together: int | None = None,
) -> Iterator[Rows]:
    """The rows of one partition's files with offsets from `start` to below `end`, in their order, at most `rows_together` at a
    time. What is missing, or is there twice, is so here too. `columns` are some of `segment_schema`, or all. Raises FileProblem
    or TierProblem."""
    names = segment_schema().names if columns is None else columns
    reader = _Reader(store, uri, start, end, [name for name in segment_schema().names if name in names], rows_together)
    ranges: list[tuple[int, int, int]] = []
    for number, file in enumerate(files):
        if file.offset_min is not None and file.offset_max is not None:
            if file.offset_max >= start and file.offset_min < end:
                ranges.append((file.offset_min, file.offset_max, number))
        elif groups := reader.groups(file):
            ranges.append((min(group.offset_min for group in groups), max(group.offset_max for group in groups), number))
    for numbers in groups_by_overlap(ranges):
        groups = [group for number in numbers for group in reader.groups(files[number])]
        for places in groups_by_overlap((group.offset_min, group.offset_max, at) for at, group in enumerate(groups)):
            together = [groups[at] for at in places]
            if len(together) == 1 and together[0].is_ordered:
                yield from reader.stream(together[0])
            else:
                yield from reader.windows(together)


def row_groups(store: Store, uri: str, file: TableFile) -> list[RowGroup]:
    """All row groups of a file, each with the offsets that it really holds."""
    return _Reader(store, uri, 0, np.iinfo(np.int64).max, ["offset"]).groups(file)


class _Reader:
    def __init__(
        self, store: Store, uri: str, start: int, end: int, names: list[str], rows_together: int | None = None
    ) -> None:
        self._store = store
        self._uri = uri
        self._start = start
        self._end = end
        self._names = names
        self._rows_together = rows_together or _ROWS_TOGETHER
        self._read = [name for name in dict.fromkeys([*names, "offset"]) if name != "partition"]
        self._schema = pa.schema([segment_schema().field(name) for name in names])
        #: The file that was used last stays open.
        self._open: tuple[str, Arrow] | None = None

    def _parquet(self, file: TableFile) -> Arrow:
        if self._open is None or self._open[0] != file.path:
            # Without threads of its own: they would call Python's file while the interpreter ends.
            source = self._store.open(file.path)
            parquet = pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True)
            self._open = (file.path, parquet)
        return self._open[1]

    def groups(self, file: TableFile) -> list[RowGroup]:
        """The row groups that hold wanted offsets."""
        with judged(self._store, self._uri, file):
            metadata = self._parquet(file).metadata
            found = [self._group(file, metadata.row_group(index), index) for index in range(metadata.num_row_groups)]
        return [group for group in found if group is not None]

    def _group(self, file: TableFile, metadata: Arrow, index: int) -> RowGroup | None:
        columns = [metadata.column(at) for at in range(metadata.num_columns)]
        told = next((column.statistics for column in columns if column.path_in_schema == "offset"), None)
        if told is not None and told.has_min_max and (told.max < self._start or told.min >= self._end):
            return None
        low, high, before, is_ordered = np.iinfo(np.int64).max, -1, -1, True
        for batch in self._batches(file, index, ["offset"], _ROWS_TOGETHER):
            offsets = offsets_of(batch)
            low, high = min(low, int(offsets.min())), max(high, int(offsets.max()))
            is_ordered = is_ordered and int(offsets[0]) > before and bool((offsets[1:] > offsets[:-1]).all())
            before = int(offsets[-1])
        if high < self._start or low >= self._end:
            return None
        return RowGroup(
            file, index, metadata.num_rows, low, high, is_ordered, max(1, metadata.total_byte_size // metadata.num_rows)
        )

    def _batches(self, file: TableFile, index: int, names: list[str], rows: int) -> Iterator[Arrow]:
        found = self._parquet(file).iter_batches(rows, row_groups=[index], columns=names, use_threads=False)
        yield from (batch for batch in found if batch.num_rows)

    def _wanted(self, group: RowGroup, start: int, end: int) -> Iterator[tuple[Arrow, npt.NDArray[np.int64]]]:
        """The rows of a group within a range of offsets, and their offsets."""
        rows = max(1, min(self._rows_together, _BYTES_TOGETHER // group.row_bytes))
        with judged(self._store, self._uri, group.file):
            for batch in self._batches(group.file, group.index, self._read, rows):
                offsets = offsets_of(batch)
                is_wanted = (offsets >= start) & (offsets < end)
                if not is_wanted.any():
                    continue
                # Not all types of other writers can be filtered.
                fitted = self._fitted(batch, group.file.partition)
                yield (fitted, offsets) if is_wanted.all() else (fitted.filter(pa.array(is_wanted)), offsets[is_wanted])

    def _fitted(self, batch: Arrow, partition: int) -> Arrow:
        """In the types of our schema: other writers have other types of text."""
        arrays = []
        for field in self._schema:
            if field.name == "partition":
                arrays.append(pa.repeat(pa.scalar(partition, field.type), batch.num_rows))
            elif field.name in batch.schema.names:
                arrays.append(batch.column(field.name).cast(field.type))
            else:
                raise ValueError(f"it has no column {field.name}")
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def stream(self, group: RowGroup) -> Iterator[Rows]:
        """The rows of a group that is in order."""
        for batch, _ in self._wanted(group, self._start, self._end):
            yield Rows(batch, (group.file.path,))

    def windows(self, groups: Sequence[RowGroup]) -> Iterator[Rows]:
        """The rows of several groups, sorted window by window."""
        row_bytes = max(group.row_bytes for group in groups)
        size = max(1, min(WINDOW_ROWS, WINDOW_BYTES // row_bytes))
        start: int | None = max(self._start, min(group.offset_min for group in groups))
        last = min(self._end - 1, max(group.offset_max for group in groups))
        while start is not None and start <= last:
            end = min(start + size, last + 1)
            concerned = [group for group in groups if group.offset_min < end and group.offset_max >= start]
            found = [self._window(concerned, start, end)] if concerned else [None]
            yield from (rows for rows in found if rows is not None)
            # Behind a window without rows there may be a long way to the next one.
            start = end if found[0] is not None else self._first_from(groups, end)

    def _window(self, groups: Sequence[RowGroup], start: int, end: int) -> Rows | None:
        paths = tuple(dict.fromkeys(group.file.path for group in groups))
        batches: list[Arrow] = []
        offsets: list[npt.NDArray[np.int64]] = []
        origins: list[npt.NDArray[np.int64]] = []
        for group in groups:
            for batch, found in self._wanted(group, start, end):
                batches.append(batch)
                offsets.append(found)
                origins.append(np.full(len(found), paths.index(group.file.path), np.int64))
        if not batches:
            return None
        order = np.argsort(np.concatenate(offsets), kind="stable")
        table = pa.Table.from_batches(batches, self._schema).take(pa.array(order)).combine_chunks()
        (batch,) = table.to_batches()
        return Rows(batch, paths, np.concatenate(origins)[order])

    def _first_from(self, groups: Sequence[RowGroup], start: int) -> int | None:
        """The first offset that there is from `start` on."""
        first: int | None = None
        for group in groups:
            if group.offset_max < start:
                continue
            with judged(self._store, self._uri, group.file):
                for batch in self._batches(group.file, group.index, ["offset"], _ROWS_TOGETHER):
                    offsets = offsets_of(batch)
                    behind = offsets[offsets >= start]
                    if len(behind) and (first is None or behind.min() < first):
                        first = int(behind.min())
        return first


def offsets_of(batch: Arrow) -> npt.NDArray[np.int64]:
    """The offsets of rows. ValueError where a row has none."""
    column = batch.column("offset")
    if column.null_count:
        raise ValueError(f"{column.null_count} rows have no offset: another program has written them")
    return np.asarray(pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False), np.int64)
