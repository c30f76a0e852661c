"""The rows of a lineage -> the batches that the log had, from an offset on, in pieces of a few MiB.

A cursor keeps what it has read ahead. So whoever reads on where the last piece ended decodes each row once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raftlake.arrow.records import ENCODED_COLUMNS, LOADER, NOT_CANONICAL, KernelLoader, encode_segment
from raftlake.errors import RequestRejected, WireError
from raftlake.ports.tier import Lineage, TierFailure
from raftlake.tier.failures import STORE_ERRORS, TierProblem, words_of
from raftlake.tier.known_copies import written_by_the_tier
from raftlake.tier.lineage_files import LineageFiles
from raftlake.tier.reader import read_files
from raftlake.tier.store import Store
from raftlake.tier.table_files import TableFile
from raftlake.wire.batch_header import CODEC_MASK, parse_header
from raftlake.wire.primitives import BytesLike

#: pyarrow ships no types.
Arrow: TypeAlias = Any

#: Files that are looked at together.
_FILES_TOGETHER = 16
_COLUMNS = (*ENCODED_COLUMNS, "batch_crc")
#: What rows that are no batch make the encoder raise.
_NOT_ENCODABLE = (WireError, RequestRejected, OverflowError, struct.error, *STORE_ERRORS)


class Batch(NamedTuple):
    data: BytesLike
    end_offset: int


class Cursor:
    """Batches from the one that holds `offset` on. Raises TierProblem, and is of no use any more then."""

    def __init__(
        self, store: Store, uri: str, lineage: Lineage, files: LineageFiles, offset: int, loader: KernelLoader = LOADER
    ) -> None:
        base = base_of(store, uri, lineage, files, offset)
        self._batches = batches_of(store, uri, lineage, files, base, files.end, loader)
        self._ahead: Batch | None = None
        self.next_offset = base
        #: Nothing more comes from the files that this cursor has.
        self.is_over = False

    def take(self, end_offset: int, size_max: int) -> bytes:
        """The batches that follow, as long as they end at `end_offset` at most, and with at most so many bytes; one at least,
        where its end allows it."""
        parts: list[BytesLike] = []
        size = 0
        while self.next_offset < end_offset and not self.is_over:
            try:
                batch = self._ahead = self._ahead or next(self._batches, None)
            except TierProblem:
                self.is_over = True
                if not parts:
                    raise
                # What is whole comes first.
                break
            if batch is None:
                self.is_over = True
            elif batch.end_offset > end_offset or (parts and size + len(batch.data) > size_max):
                break
            else:
                parts.append(batch.data)
                size += len(batch.data)
                self.next_offset, self._ahead = batch.end_offset, None
        return b"".join(parts)


def base_of(store: Store, uri: str, lineage: Lineage, files: LineageFiles, offset: int) -> int:
    """The first offset of the batch that holds an offset."""
    holding = files.holding(offset)
    found = read_files(store, uri, holding, offset, offset + 1, ["batch_base_offset"], lineage.incarnation)
    base = next(rows.column("batch_base_offset")[0].as_py() for rows in found if rows.num_rows)
    if base is None or not 0 <= base <= offset:
        raise _damaged(uri, files, offset, f"its batch begins at {base}")
    return int(base)


def whole_end(store: Store, uri: str, lineage: Lineage, files: LineageFiles, file: TableFile) -> int:
    """Where the last batch ends that a file holds up to its end, whoever has its beginning. OPTIMIZE cuts files by their size,
    also amid a batch."""
    end = (file.offset_max or 0) + 1
    if written_by_the_tier(file) or not files.holding(end):
        return end
    return base_of(store, uri, lineage, files, end)


def whole_start(store: Store, uri: str, lineage: Lineage, files: LineageFiles) -> int | None:
    """The first offset that begins a batch; the end where none does, and None without files."""
    start = files.start
    if start is None or written_by_the_tier(files.files[0]) or base_of(store, uri, lineage, files, start) == start:
        return start
    for rows in read_files(store, uri, files.files, start, files.end, ["offset", "batch_base_offset"], lineage.incarnation):
        begins = rows.filter(pc.equal(rows.column("offset"), rows.column("batch_base_offset")))
        if begins.num_rows:
            return int(begins.column("offset")[0].as_py())
    return files.end


def batches_of(
    store: Store, uri: str, lineage: Lineage, files: LineageFiles, start: int, end: int, loader: KernelLoader = LOADER
) -> Iterator[Batch]:
    """The batches with the offsets from `start` to below `end`, of which each is the boundary of a batch. TierProblem (DAMAGED)
    where a row is missing, or a batch has not the CRC that it had."""
    rest: Arrow | None = None
    for rows, is_end in _rows(store, uri, lineage, files, start, end):
        together = pa.Table.from_batches([rows] if rest is None else [*rest.to_batches(), rows])
        # The last batch may go on.
        first = together.num_rows if is_end else _last_batch(together)
        yield from _encoded(uri, files, together.slice(0, first), loader)
        rest = together.slice(first) if first < together.num_rows else None
    if rest is not None:
        yield from _encoded(uri, files, rest, loader)


def _last_batch(rows: Arrow) -> int:
    """The first row of the last batch."""
    bases = rows["batch_base_offset"].combine_chunks()
    others = np.flatnonzero(pc.not_equal(bases, bases[-1]))
    return int(others[-1]) + 1 if len(others) else 0


def _rows(store: Store, uri: str, lineage: Lineage, files: LineageFiles, start: int, end: int) -> Iterator[tuple[Arrow, bool]]:
    """Rows, and whether they end with the copy that they are of."""
    while start < end:
        following = min(end, files.end_of_window(start, _FILES_TOGETHER))
        some = files.overlapping(start, following)
        ends = {file.offset_max for file in some if written_by_the_tier(file)}
        for rows in read_files(store, uri, some, start, following, _COLUMNS, lineage.incarnation):
            if rows.num_rows:
                yield rows, rows.column("offset")[-1].as_py() in ends
        start = following


def _encoded(uri: str, files: LineageFiles, rows: Arrow, loader: KernelLoader) -> Iterator[Batch]:
    if not rows.num_rows:
        return
    offset = int(rows["offset"][0].as_py())
    try:
        bases = _numbers(rows, "batch_base_offset")
        firsts = np.flatnonzero(np.concatenate([[True], bases[1:] != bases[:-1]]))
        crcs = (_numbers(rows, "batch_crc")[firsts] & 0xFFFFFFFF).tolist()
        attributes = _numbers(rows, "batch_attributes")[firsts].tolist()
        for data, crc, bits in zip(encode_segment(rows, loader), crcs, attributes, strict=True):
            header = parse_header(data)
            offset = header.base_offset
            if not bits & (CODEC_MASK | NOT_CANONICAL) and header.crc != crc:
                raise _damaged(uri, files, offset, f"its batch had the CRC {crc:#010x}, its rows make {header.crc:#010x}")
            yield Batch(data, header.end_offset)
            offset = header.end_offset
    except _NOT_ENCODABLE as error:
        raise _damaged(uri, files, offset, words_of(error)) from error


def _numbers(rows: Arrow, name: str) -> Any:
    column = rows[name].combine_chunks()
    if column.null_count:
        raise ValueError(f"the column {name} has {column.null_count} nulls")
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def _damaged(uri: str, files: LineageFiles, offset: int, what: str) -> TierProblem:
    names = ", ".join(f"{uri}/{file.path}" for file in files.holding(offset)) or uri
    return TierProblem(
        TierFailure.DAMAGED,
        f"{names}: offset {offset} is not as it was written: {what}: restore the file from a copy of the store",
    )
