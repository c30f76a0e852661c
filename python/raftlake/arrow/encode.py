"""Arrow columns -> record batches ready to produce.

Rows are cut into batches by size; each batch is sized first and then written in place, so that its bytes are written once.
Offsets start at 0 and epochs at -1 in every batch: the leader stamps them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raftlake.arrow.decode import HEADERS_TYPE
from raftlake.arrow.loading import LOADER, KernelLoader, Kernels
from raftlake.errors import ErrorCode, InvariantViolation, RequestRejected
from raftlake.wire.batch_header import HEADER_BYTES
from raftlake.wire.batch_records import Record, assemble_batch, build_batch, seal_batch
from raftlake.wire.compression import Compression, compress

#: pyarrow ships no types.
Arrow: TypeAlias = Any

#: The sequence number after the largest one is 0.
_SEQUENCE_COUNT = 1 << 31
BATCH_BYTES_MAX = 1 << 20


class _Producer(NamedTuple):
    producer_id: int
    epoch: int
    sequence: int

    def after(self, rows: int) -> _Producer:
        """The state for a batch that begins `rows` rows later."""
        if self.sequence < 0:
            return self
        return self._replace(sequence=(self.sequence + rows) % _SEQUENCE_COUNT)


def encode_from_arrow(
    key: Arrow | None,
    value: Arrow | None,
    headers: Arrow | None = None,
    timestamps: Arrow | None = None,
    *,
    timestamp_ms: int,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    compression: str = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    loader: KernelLoader = LOADER,
) -> list[bytearray]:
    """Batches of at most `batch_bytes_max` bytes before compression (a larger record gets a batch of its own), in row order.

    Columns are arrays or chunked arrays of one length; None is a column of nulls. `key` and `value` are binary or string of
    any width, `headers` list<struct<key string, value binary>>, `timestamps` a timestamp of any unit (rounded down to
    milliseconds). A row without a timestamp gets `timestamp_ms`. With a producer id, batches take consecutive sequence
    numbers from `base_sequence` on, one per record; records per batch: `parse_header(batch).record_count`. Raises
    RequestRejected(INVALID_RECORD) for a header with a null key.
    """
    rows = max(len(column) for column in (key, value, headers, timestamps, ()) if column is not None)
    if any(column is not None and len(column) != rows for column in (key, value, headers, timestamps)):
        raise InvariantViolation("the columns to encode have different lengths")
    headers = None if headers is None else checked_headers(headers)
    times_ms = times_of(timestamps, rows, timestamp_ms)
    producer = _Producer(producer_id, producer_epoch, base_sequence)
    payload_max = batch_bytes_max - HEADER_BYTES
    kernels = loader.kernels_for(rows)
    if kernels is None:
        records = records_of(key, value, headers, times_ms)
        return list(_encode_plain(records, payload_max, compression, producer))
    columns = (bytes_column(key, rows), bytes_column(value, rows), header_columns(headers, rows))
    return list(_encode_compiled(kernels, times_ms, *columns, payload_max, Compression[compression.upper()], producer))


def times_of(timestamps: Arrow | None, rows: int, timestamp_ms: int) -> npt.NDArray[np.int64]:
    if timestamps is None:
        return frozen(np.full(rows, timestamp_ms, np.int64))
    column = combined(timestamps).cast(pa.timestamp("ms"), safe=False).cast(pa.int64()).fill_null(timestamp_ms)
    return frozen(column.to_numpy(zero_copy_only=False))


def checked_headers(headers: Arrow) -> Arrow:
    lists = combined(headers).cast(HEADERS_TYPE)
    keys, _ = lists.flatten().flatten()
    if keys.null_count:
        raise RequestRejected(ErrorCode.INVALID_RECORD, "a record header has a null key")
    return lists


def combined(column: Arrow) -> Arrow:
    """One array: a chunked array's chunks joined."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else pa.array([], column.type)
    )


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A read-only, contiguous view: the one kind of input array that the kernels are compiled for."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


# --- plain Python --------------------------------------------------------------------------------------------------------


def records_of(key: Arrow | None, value: Arrow | None, headers: Arrow | None, times_ms: npt.NDArray[np.int64]) -> list[Record]:
    nothing: list[None] = [None] * len(times_ms)
    keys = nothing if key is None else combined(key).cast(pa.large_binary()).to_pylist()
    values = nothing if value is None else combined(value).cast(pa.large_binary()).to_pylist()
    lists = nothing if headers is None else headers.to_pylist()
    return [
        Record(0, time_ms, key_, value_, tuple((item["key"], item["value"]) for item in items or ()))
        for time_ms, key_, value_, items in zip(times_ms.tolist(), keys, values, lists, strict=True)
    ]


def _encode_plain(records: list[Record], payload_max: int, compression: str, producer: _Producer) -> Iterator[bytearray]:
    first, size = 0, 0
    for index, record in enumerate(records):
        record_size = _size_bound(record)
        if index > first and size + record_size > payload_max:
            yield _plain_batch(records[first:index], compression, producer.after(first))
            first, size = index, 0
        size += record_size
    if first < len(records):
        yield _plain_batch(records[first:], compression, producer.after(first))


def _size_bound(record: Record) -> int:
    """Bytes that a record takes at most: 10 per varint of 64 bits, 5 per length."""
    size = 31 + len(record.key or b"") + len(record.value or b"")
    return size + sum(10 + len(name.encode()) + len(value or b"") for name, value in record.headers)


def _plain_batch(records: list[Record], compression: str, producer: _Producer) -> bytearray:
    return build_batch(
        records,
        timestamp_ms=records[0].timestamp_ms,
        compression=compression,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
    )


# --- compiled ------------------------------------------------------------------------------------------------------------


class BytesColumn(NamedTuple):
    """Nullable byte strings."""

    data: npt.NDArray[np.uint8]
    #: One more than rows: row i is data[ends[i]:ends[i + 1]].
    ends: npt.NDArray[np.int64]
    valid: npt.NDArray[np.uint8]


class HeaderColumns(NamedTuple):
    """Record headers: how many each row has, their keys and values."""

    #: One more than rows: row i has headers[ends[i]:ends[i + 1]].
    ends: npt.NDArray[np.int64]
    keys: BytesColumn
    values: BytesColumn


def bytes_column(column: Arrow | None, rows: int) -> BytesColumn:
    if column is None:
        empty = np.zeros(0, np.uint8)
        return BytesColumn(frozen(empty), frozen(np.zeros(rows + 1, np.int64)), frozen(np.zeros(rows, np.uint8)))
    array = combined(column).cast(pa.large_binary())
    _, ends, data = array.buffers()
    valid = np.ones(rows, np.uint8) if array.null_count == 0 else array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
    return BytesColumn(
        frozen(np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)),
        frozen(np.frombuffer(ends, np.int64)[array.offset : array.offset + rows + 1] if rows else np.zeros(1, np.int64)),
        frozen(valid),
    )


def header_columns(headers: Arrow | None, rows: int) -> HeaderColumns:
    if headers is None:
        return HeaderColumns(frozen(np.zeros(rows + 1, np.int64)), bytes_column(None, 0), bytes_column(None, 0))
    # A null list may still span elements: it counts as empty, and `flatten` leaves them out.
    counts = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.zeros(rows + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    items = headers.flatten()
    keys, values = items.flatten()
    return HeaderColumns(frozen(ends), bytes_column(keys, len(items)), bytes_column(values, len(items)))


def _encode_compiled(
    kernels: Kernels,
    times_ms: npt.NDArray[np.int64],
    key: BytesColumn,
    value: BytesColumn,
    headers: HeaderColumns,
    payload_max: int,
    codec: Compression,
    producer: _Producer,
) -> Iterator[bytearray]:
    rows = len(times_ms)
    body_sizes = np.empty(rows, np.int64)
    key_shape, value_shape = key[1:], value[1:]
    header_shape = (headers.ends, *headers.keys[1:], *headers.values[1:])
    columns = (*key, *value, headers.ends, *headers.keys, *headers.values)
    row = 0
    while row < rows:
        end, size, max_ms = kernels.plan_batch(
            row, rows, payload_max, times_ms, *key_shape, *value_shape, *header_shape, body_sizes
        )
        batch = bytearray(HEADER_BYTES + size)
        target = np.frombuffer(batch, np.uint8)
        position = kernels.fill_batch(target, HEADER_BYTES, row, end, times_ms, *columns, body_sizes)
        if position != len(batch):
            raise InvariantViolation(f"a batch was planned with {len(batch)} bytes and got {position}")
        yield _seal(batch, codec, int(times_ms[row]), int(max_ms), end - row, producer.after(row))
        row = end


def _seal(batch: bytearray, codec: Compression, base_ms: int, max_ms: int, record_count: int, producer: _Producer) -> bytearray:
    header = {
        "attributes": int(codec),
        "base_offset": 0,
        "leader_epoch": -1,
        "base_timestamp_ms": base_ms,
        "timestamp_ms_max": max_ms,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "base_sequence": producer.sequence,
        "record_count": record_count,
    }
    if codec is not Compression.NONE:
        return assemble_batch(compress(codec, memoryview(batch)[HEADER_BYTES:]), **header)
    seal_batch(batch, **header)
    return batch
