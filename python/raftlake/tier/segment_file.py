"""The batches of a segment -> one Parquet file in the store of its table, with the statistics that a Delta commit takes.

Row groups hold 100,000 rows at most, or one piece of decoded batches: 64 MiB. Rows are in the order of their offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raftlake.arrow.records import LOADER, KernelLoader, SegmentDecoder, segment_schema
from raftlake.errors import CorruptBatch
from raftlake.ports.tier import CopyRequest, RemoteSegment
from raftlake.tier.batch_source import source_bytes, windows
from raftlake.tier.remote_segments import SEGMENT_KEY, file_name, footer_json
from raftlake.tier.schema import STATISTICS_COLUMNS
from raftlake.tier.store import OutputFile, Store, sink

#: pyarrow ships no types.
Arrow: TypeAlias = Any

ROW_GROUP_ROWS = 100_000
_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)
#: Columns that hardly change from row to row. Offsets and times are written as differences instead.
_DICTIONARY_COLUMNS = [
    "key",
    "topic",
    "timestampType",
    "kind",
    "leader_epoch",
    "batch_base_offset",
    "batch_crc",
    "batch_attributes",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "segment_id",
    "incarnation",
]


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file that is complete in the store, and what its commit says of it."""

    segment: RemoteSegment
    #: Delta's statistics, as JSON.
    statistics: str


def file_schema() -> Arrow:
    """The columns of a file: the path tells the partition."""
    schema = segment_schema()
    return schema.remove(schema.get_field_index("partition"))


def write_segment(store: Store, request: CopyRequest, loader: KernelLoader = LOADER) -> SegmentFile:
    """Write the rows of a copy. CorruptBatch where its batches are damaged or are not what was asked for; the file is not
    finished then. A store's errors go through."""
    lineage = request.lineage
    name = file_name(lineage.group.partition, request.segment_id)
    decoder = SegmentDecoder(
        topic=lineage.group.topic,
        partition=lineage.group.partition,
        segment_id=request.segment_id,
        incarnation=lineage.incarnation,
        base_offset=request.base_offset,
        aborted=request.aborted,
        loader=loader,
    )
    ranges = Ranges("timestamp", "kind", "leader_epoch")
    file = store.create(name)
    with parquet_writer(file) as writer:
        for window in chain.from_iterable(map(windows, request.sources)):
            for rows in decoder.decode(window):
                ranges.add(rows)
                writer.write_batch(rows.drop_columns(["partition"]), row_group_size=ROW_GROUP_ROWS)
        decoder.finish(request.end_offset)
        _require_epochs(request, decoder)
        segment = RemoteSegment(
            segment_id=request.segment_id,
            base_offset=request.base_offset,
            end_offset=request.end_offset,
            leader_epoch=request.leader_epoch,
            epochs=request.epochs,
            timestamp_ms_max=ranges.timestamp_ms_max,
            log_bytes=sum(map(source_bytes, request.sources)),
            size=0,
            crc=0,
            file=name,
        )
        writer.add_key_value_metadata({SEGMENT_KEY: footer_json(lineage, segment)})
    file.finish()
    known = {
        "offset": (request.base_offset, request.end_offset - 1),
        "incarnation": (lineage.incarnation,) * 2,
        "segment_id": (request.segment_id,) * 2,
    }
    return SegmentFile(replace(segment, size=file.size, crc=file.crc), ranges.statistics(known))


def parquet_writer(file: OutputFile) -> Arrow:
    """Writes rows of a table as all files of the tier have them."""
    return pq.ParquetWriter(
        sink(file),
        file_schema(),
        compression="zstd",
        compression_level=1,
        use_dictionary=_DICTIONARY_COLUMNS,
        column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
        write_statistics=list(STATISTICS_COLUMNS),
        write_page_index=True,
        # A byte that is not as it was is found by who reads a page, also where a batch has no CRC that can be made again.
        write_page_checksum=True,
        store_schema=False,
    )


def _require_epochs(request: CopyRequest, decoder: SegmentDecoder) -> None:
    found = tuple(decoder.epochs)
    if found != request.epochs:
        raise CorruptBatch(f"the batches have the leader epochs {found}, and not {request.epochs}")
    if found and found[-1][0] > request.leader_epoch:
        raise CorruptBatch(f"a batch is of leader epoch {found[-1][0]}, after that of its copy, {request.leader_epoch}")


class Ranges:
    """The least and the largest value of columns over all pieces. Times are in microseconds."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._rows = 0
        self._ranges: dict[str, tuple[Any, Any]] = {}

    def add(self, rows: Arrow) -> None:
        """The next rows."""
        self._rows += rows.num_rows
        for name in self._names:
            column = rows.column(name)
            found = pc.min_max(column.cast(pa.int64()) if name == "timestamp" else column).as_py()
            low, high = self._ranges.get(name, (found["min"], found["max"]))
            self._ranges[name] = (min(low, found["min"]), max(high, found["max"]))

    @property
    def timestamp_ms_max(self) -> int:
        """-1 where no record has a time."""
        return max(int(self._ranges["timestamp"][1]) // 1000, -1)

    def statistics(self, known: Mapping[str, tuple[Any, Any]]) -> str:
        """Delta's statistics, as JSON; `known` are ranges of other columns."""
        ranges = {**self._ranges, **known}
        times = ranges["timestamp"]
        try:
            ranges["timestamp"] = (_iso(times[0]), _iso(times[1]))
        except OverflowError:
            # A time that no calendar of four digits has: without a range the file is always looked at.
            del ranges["timestamp"]
        return json.dumps(
            {
                "numRecords": self._rows,
                "minValues": {name: low for name, (low, _) in ranges.items()},
                "maxValues": {name: high for name, (_, high) in ranges.items()},
                "nullCount": dict.fromkeys(STATISTICS_COLUMNS, 0),
            }
        )


def _iso(time_us: int) -> str:
    """A time as Delta's statistics have it: in milliseconds, which is all that a record has."""
    return (_EPOCH_START + timedelta(microseconds=time_us)).strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_us // 1000 % 1000:03d}Z"
