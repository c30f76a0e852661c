"""Where in a lineage a time begins, or which record has the latest: by statistics of files, and by a few columns of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from raftlake.ports.tier import FoundRecord, SearchRequest
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.lineage_files import LineageFiles
from raftlake.tier.ordered_rows import offsets_of, rows_in_order
from raftlake.tier.store import Store
from raftlake.tier.table_files import TableFile

#: Microseconds in the table, milliseconds in the log.
_US_PER_MS = 1_000
_CONTROL = 1
_COLUMNS = ("offset", "timestamp", "kind", "leader_epoch", "incarnation")

#: Offsets, milliseconds since 1970, and leader epochs of the records of clients.
_Timed = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def search(store: Store, uri: str, files: LineageFiles, request: SearchRequest) -> FoundRecord | None:
    """See `RemoteTier.search`. Raises TierProblem."""
    within = files.overlapping(request.start_offset, request.end_offset)
    if request.timestamp_ms is None:
        return _latest(store, uri, within, request)
    candidates = [file for file in within if file.time_max is None or file.time_max >= request.timestamp_ms * _US_PER_MS]
    for timed in _timed(store, uri, candidates, request):
        rows = np.flatnonzero(timed[1] >= request.timestamp_ms)
        if len(rows):
            # What lies behind is not read.
            return _record(timed, int(rows[0]))
    return None


def _latest(store: Store, uri: str, files: Sequence[TableFile], request: SearchRequest) -> FoundRecord | None:
    """Files with the latest times come first, so that few are read."""
    best: FoundRecord | None = None
    for file in sorted(files, key=lambda file: (file.time_max is not None, -(file.time_max or 0))):
        if best is not None and file.time_max is not None and file.time_max < best.timestamp_ms * _US_PER_MS:
            break
        for timed in _timed(store, uri, [file], request):
            found = _record(timed, int(timed[1].argmax()))
            if best is None or (found.timestamp_ms, -found.offset) > (best.timestamp_ms, -best.offset):
                best = found
    return best


def _timed(store: Store, uri: str, files: Sequence[TableFile], request: SearchRequest) -> Iterator[_Timed]:
    """In the order of offsets. None of them is empty."""
    for rows in rows_in_order(store, uri, files, request.start_offset, request.end_offset, _COLUMNS):
        batch = rows.of_incarnation(request.lineage.incarnation).batch
        batch = batch.filter(pc.not_equal(batch.column("kind"), _CONTROL))
        if batch.num_rows:
            micros = pc.cast(batch.column("timestamp"), pa.int64()).to_numpy(zero_copy_only=False)
            epochs = pc.cast(batch.column("leader_epoch"), pa.int64()).to_numpy(zero_copy_only=False)
            yield offsets_of(batch), np.asarray(micros, np.int64) // _US_PER_MS, np.asarray(epochs, np.int64)


def _record(timed: _Timed, row: int) -> FoundRecord:
    offset, time_ms, epoch = (int(column[row]) for column in timed)
    return FoundRecord(offset=Offset(offset), timestamp_ms=time_ms, epoch=Epoch(epoch))
