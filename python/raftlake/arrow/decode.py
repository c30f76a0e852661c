"""Record batches -> one Arrow record batch with the columns of Spark's Kafka source.

The headers of the batches are walked in Python (that costs per batch), their records in compiled loops or, for few of
them, in plain Python. Both ways give the same rows and refusals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raftlake.arrow.loading import LOADER, KernelLoader, Kernels
from raftlake.errors import CorruptBatch, ErrorCode, RequestRejected
from raftlake.wire.batch_header import HEADER_BYTES, BatchHeader, iterate_headers, require_crc
from raftlake.wire.batch_records import Record, decode_batch
from raftlake.wire.compression import DECOMPRESSED_BYTES_MAX, Compression, decompress
from raftlake.wire.primitives import BytesLike

#: pyarrow ships no types.
Arrow: TypeAlias = Any

OFFSET_MAX = (1 << 63) - 1
#: Payload bytes behind one result, unless the caller says otherwise; and what Arrow's binary columns can address at all.
DECODED_BYTES_MAX = 1 << 30
ARROW_BYTES_MAX = (1 << 31) - 1
#: A record has at least seven bytes: length, attributes, two deltas, two lengths, the number of headers.
_RECORD_BYTES_MIN = 7
#: Milliseconds that still fit into an Arrow timestamp of microseconds.
TIME_MS_MAX = OFFSET_MAX // 1000 - 1

HEADERS_TYPE: Arrow = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP_TYPE: Arrow = pa.timestamp("us", tz="UTC")
_COLUMNS: list[Arrow] = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP_TYPE),
    pa.field("timestampType", pa.int32()),
]


def record_schema(include_headers: bool) -> Arrow:
    """The Arrow schema of `decode_to_arrow`. timestampType is 0 for create time, 1 for log append time."""
    return pa.schema([*_COLUMNS, pa.field("headers", HEADERS_TYPE)] if include_headers else _COLUMNS)


def decode_to_arrow(
    buffers: Sequence[BytesLike],
    *,
    topic: str,
    partition: int,
    start_offset: int = 0,
    end_offset: int = OFFSET_MAX,
    include_headers: bool = False,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    loader: KernelLoader = LOADER,
) -> Arrow:
    """The records of all whole batches in `buffers`, in order, with offsets in [start_offset, end_offset), as one
    pyarrow.RecordBatch. Control batches and a partial batch at a buffer's end are left out.

    As in Spark's Kafka source, `headers` is null for a record without headers. Raises CorruptBatch for damage and for a
    batch that decompresses to more than `decompressed_bytes_max`, RequestRejected(MESSAGE_TOO_LARGE) when all payloads
    together exceed `decoded_bytes_max`: ask for fewer offsets at a time.
    """
    batches = [
        (view, header)
        for view in [memoryview(buffer) for buffer in buffers]
        for header in iterate_headers(view)
        if not header.is_control and header.base_offset < end_offset and header.end_offset > start_offset
    ]
    decoded_bytes_max = min(decoded_bytes_max, ARROW_BYTES_MAX)
    kernels = loader.kernels_for(sum(max(header.record_count, 0) for _, header in batches))
    if kernels is None:
        limits = (decompressed_bytes_max, decoded_bytes_max)
        records = _decode_plain(batches, start_offset, end_offset, *limits)
        return rows_from_records(records, topic, partition, include_headers)
    payloads = SourceList(decompressed_bytes_max, decoded_bytes_max)
    for view, header in batches:
        payloads.add(view, header)
    return decode_compiled(kernels, payloads.sources, topic, partition, start_offset, end_offset, include_headers)


def _require_size(total: int, decoded_bytes_max: int) -> None:
    if total > decoded_bytes_max:
        raise RequestRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the records hold more than {decoded_bytes_max} bytes: ask for fewer offsets at a time",
        )


# --- plain Python --------------------------------------------------------------------------------------------------------


def _decode_plain(
    batches: list[tuple[memoryview, BatchHeader]],
    start_offset: int,
    end_offset: int,
    decompressed_bytes_max: int,
    decoded_bytes_max: int,
) -> list[tuple[Record, int]]:
    """The records with their timestamp types."""
    rows: list[tuple[Record, int]] = []
    total = 0
    for view, header in batches:
        records = decode_batch(view, header, decompressed_bytes_max=decompressed_bytes_max)
        total += sum(len(record.key or b"") + len(record.value or b"") for record in records)
        _require_size(total, decoded_bytes_max)
        time_type = int(header.is_log_append_time)
        rows += [(record, time_type) for record in records if start_offset <= record.offset < end_offset]
    return rows


def rows_from_records(rows: list[tuple[Record, int]], topic: str, partition: int, include_headers: bool) -> Arrow:
    """The Arrow rows of records, each with its timestamp type."""
    for record, _ in rows:
        if not -TIME_MS_MAX <= record.timestamp_ms <= TIME_MS_MAX or not 0 <= record.offset <= OFFSET_MAX:
            raise CorruptBatch(f"record at offset {record.offset} has timestamp {record.timestamp_ms}")
    count = len(rows)
    columns = [
        pa.array([record.key for record, _ in rows], pa.binary()),
        pa.array([record.value for record, _ in rows], pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array([record.offset for record, _ in rows], pa.int64()),
        pa.array([record.timestamp_ms * 1000 for record, _ in rows], TIMESTAMP_TYPE),
        pa.array([time_type for _, time_type in rows], pa.int32()),
    ]
    if include_headers:
        headers = [
            [{"key": name, "value": value} for name, value in record.headers] if record.headers else None for record, _ in rows
        ]
        columns.append(pa.array(headers, HEADERS_TYPE))
    return pa.RecordBatch.from_arrays(columns, schema=record_schema(include_headers))


# --- compiled ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Source:
    """Payloads that lie in one piece of memory: a buffer as it came, or what one batch decompressed to."""

    view: memoryview
    #: One row per batch; the columns are the SPAN_ constants of `kernels`.
    spans: list[tuple[int, ...]] = field(default_factory=list)
    payload_bytes: int = 0
    record_count: int = 0


class SourceList:
    """The payloads of batches, each checked by its CRC and decompressed when it is added."""

    def __init__(self, decompressed_bytes_max: int, decoded_bytes_max: int) -> None:
        self._decompressed_bytes_max = decompressed_bytes_max
        self._decoded_bytes_max = decoded_bytes_max
        #: The buffer that the last of `sources` lies in, where it was not decompressed.
        self._current: memoryview | None = None
        self.sources: list[Source] = []
        self.payload_bytes = 0

    def add(self, view: memoryview, header: BatchHeader) -> None:
        require_crc(view, header)
        start, end = header.position + HEADER_BYTES, header.end_position
        if header.compression is not Compression.NONE:
            content = memoryview(decompress(header.compression, view[start:end], self._decompressed_bytes_max))
            self.sources.append(Source(content))
            self._current, start, end = None, 0, len(content)
        elif self._current is not view:
            self.sources.append(Source(view))
            self._current = view
        self.payload_bytes += end - start
        _require_size(self.payload_bytes, self._decoded_bytes_max)
        _add_span(self.sources[-1], header, start, end)


def _add_span(source: Source, header: BatchHeader, start: int, end: int) -> None:
    count = header.record_count
    if count < 0 or count * _RECORD_BYTES_MIN > end - start:
        raise CorruptBatch(f"batch at offset {header.base_offset}: {count} records in {end - start} bytes")
    times = (header.base_timestamp_ms, header.timestamp_ms_max)
    if not 0 <= header.base_offset <= OFFSET_MAX - max(header.last_offset_delta, 0) or not all(
        -TIME_MS_MAX <= time <= TIME_MS_MAX for time in times
    ):
        raise CorruptBatch(f"batch at offset {header.base_offset}: offset or timestamps {times} are out of range")
    is_append_time = int(header.is_log_append_time)
    source.spans.append((start, end, count, header.base_offset, header.last_offset_delta, *times, is_append_time))
    source.payload_bytes += end - start
    source.record_count += count


class _BytesColumn:
    """A growing column of nullable byte strings: where each ends, whether it is one, and the bytes."""

    __slots__ = ("data", "ends", "valid")

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        # The maxima reserve address space only; the system assigns memory on first use.
        self.ends = np.empty(rows_max + 1, np.int32)
        self.ends[0] = 0
        self.valid = np.empty(rows_max, np.uint8)
        self.data = np.empty(bytes_max, np.uint8)

    def finish(self, rows: int, type_: Arrow) -> Arrow:
        valid = self.valid[:rows]
        null_count = rows - int(np.count_nonzero(valid))
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little")) if null_count else None
        data = pa.py_buffer(self.data[: int(self.ends[rows])])
        return pa.Array.from_buffers(type_, rows, [bitmap, pa.py_buffer(self.ends[: rows + 1]), data], null_count)


def decode_compiled(
    kernels: Kernels,
    sources: list[Source],
    topic: str,
    partition: int,
    start_offset: int,
    end_offset: int,
    include_headers: bool,
) -> Arrow:
    """The Arrow rows of the records of `sources`; CorruptBatch where a payload is damaged."""
    rows_max = sum(source.record_count for source in sources)
    bytes_max = sum(source.payload_bytes for source in sources)
    offsets = np.empty(rows_max, np.int64)
    times_us = np.empty(rows_max, np.int64)
    time_types = np.empty(rows_max, np.int32)
    keys, values = _BytesColumn(rows_max, bytes_max), _BytesColumn(rows_max, bytes_max)
    header_spans = np.empty((rows_max if include_headers else 0, 3), np.int64)
    rows = 0
    row_limits: list[int] = []
    for source in sources:
        rows = kernels.decode_spans(
            np.frombuffer(source.view.toreadonly(), np.uint8),
            np.array(source.spans, np.int64),
            start_offset,
            end_offset,
            rows,
            offsets,
            times_us,
            time_types,
            keys.ends,
            keys.valid,
            keys.data,
            values.ends,
            values.valid,
            values.data,
            header_spans,
        )
        if rows == kernels.DAMAGED:
            raise CorruptBatch(f"records of {topic}-{partition} from offset {source.spans[0][3]} on are damaged")
        row_limits.append(rows)
    columns = [
        keys.finish(rows, pa.binary()),
        values.finish(rows, pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), rows),
        pa.repeat(pa.scalar(partition, pa.int32()), rows),
        pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(offsets[:rows])]),
        pa.Array.from_buffers(TIMESTAMP_TYPE, rows, [None, pa.py_buffer(times_us[:rows])]),
        pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(time_types[:rows])]),
    ]
    if include_headers:
        columns.append(_decode_headers(kernels, sources, row_limits, header_spans[:rows]))
    return pa.RecordBatch.from_arrays(columns, schema=record_schema(include_headers))


def _decode_headers(
    kernels: Kernels, sources: list[Source], row_limits: list[int], header_spans: npt.NDArray[np.int64]
) -> Arrow:
    counts = header_spans[:, 2]
    count_max = int(counts.sum())
    bytes_max = int((header_spans[:, 1] - header_spans[:, 0]).sum())
    names, values = _BytesColumn(count_max, bytes_max), _BytesColumn(count_max, bytes_max)
    names.valid[:] = 1
    count = first_row = 0
    for source, last_row in zip(sources, row_limits, strict=True):
        view = np.frombuffer(source.view.toreadonly(), np.uint8)
        columns = (names.ends, names.data, values.ends, values.valid, values.data)
        count = kernels.decode_headers(view, header_spans, first_row, last_row, count, *columns)
        if count == kernels.DAMAGED:
            raise CorruptBatch(f"record headers from offset {source.spans[0][3]} on are damaged")
        first_row = last_row
    keys = names.finish(count, pa.string())
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptBatch(f"a record header's key is not UTF-8: {error}") from error
    items = pa.StructArray.from_arrays([keys, values.finish(count, pa.binary())], fields=list(HEADERS_TYPE.value_type))
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=HEADERS_TYPE, mask=pa.array(counts == 0))
