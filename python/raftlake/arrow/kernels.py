"""The inner loops of `arrow/decode.py` and `arrow/encode.py`, compiled by numba: record payloads to columns and back.

Importing this module imports numba (about a second) and the first call compiles or loads from numba's cache, so only
`arrow/loading.py` does it, and only for inputs that are worth it. Input arrays are read-only ones throughout: numba
compiles a function again for every kind of array it meets.

Invariant: no kernel reads or writes outside of its arrays, whatever the payload claims: every read is checked against the
end of its record, and the output arrays are as long as the payloads, which bounds what can be copied out of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Longs: TypeAlias = npt.NDArray[np.int64]
Ints: TypeAlias = npt.NDArray[np.int32]
_F = TypeVar("_F", bound=Callable[..., Any])

#: Columns of a span: where a batch's payload lies and what its header says.
SPAN_START, SPAN_END, SPAN_COUNT, SPAN_BASE_OFFSET, SPAN_LAST_DELTA, SPAN_BASE_TIME, SPAN_APPEND_TIME, SPAN_TIME_TYPE = range(8)

#: Milliseconds that still fit into an Arrow timestamp of microseconds.
TIME_MS_MAX = (1 << 63) // 1000 - 1

#: Instead of a row count: the payload is damaged.
DAMAGED = -1


def _compile(function: _F) -> _F:
    """numba's compiled form, cached on disk where a directory for it can be found."""
    try:
        return cast(_F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:
        # No writable place for the cache ("no locator available"): compile once per process instead.
        return cast(_F, numba.njit(nogil=True)(function))


def _copy(target: Bytes, position: int, source: Bytes, start: int, size: int) -> None:
    """Copy `size` bytes. With unsigned indexes numba need not think of counting from the end, and vectorises the loop."""
    to = np.uint64(position)
    from_ = np.uint64(start)
    for index in range(np.uint64(size)):
        target[to + index] = source[from_ + index]


copy = _compile(_copy)


def _read_varint(source: Bytes, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint below `end` and the position after it; position -1 when there is none."""
    if position >= end:
        return 0, -1
    byte = int(source[position])
    position += 1
    value = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if position >= end:
            return 0, -1
        byte = int(source[position])
        position += 1
        # The tenth byte holds the 64th bit, and nothing follows it.
        if shift == 63 and byte > 1:
            return 0, -1
        value |= (byte & 0x7F) << shift
        shift += 7
    # The shift of a negative number is arithmetic: mask the copies of its sign away.
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), position


read_varint = _compile(_read_varint)


def _decode_spans(
    source: Bytes,
    spans: npt.NDArray[np.int64],
    start_offset: int,
    end_offset: int,
    row: int,
    offsets: Longs,
    times_us: Longs,
    time_types: Ints,
    key_ends: Ints,
    key_valid: Bytes,
    key_data: Bytes,
    value_ends: Ints,
    value_valid: Bytes,
    value_data: Bytes,
    header_spans: Longs,
) -> int:
    """Append the records of `spans` whose offset lies in [start_offset, end_offset) after `row` rows; the new number of
    rows, or DAMAGED. `key_ends[row]` and `value_ends[row]` say where the data so far ends. `header_spans` (rows x 3, or
    empty) receives where each record's headers begin and end and how many there are."""
    key_at = int(key_ends[row])
    value_at = int(value_ends[row])
    with_headers = header_spans.shape[0] > 0
    for span in range(spans.shape[0]):
        position = spans[span, SPAN_START]
        end = spans[span, SPAN_END]
        for _ in range(spans[span, SPAN_COUNT]):
            length, position = read_varint(source, position, end)
            if position < 0 or length < 1 or length > end - position:
                return DAMAGED
            stop = position + length
            time_delta, position = read_varint(source, position + 1, stop)
            if position < 0 or time_delta > TIME_MS_MAX or time_delta < -TIME_MS_MAX:
                return DAMAGED
            offset_delta, position = read_varint(source, position, stop)
            if position < 0 or offset_delta < 0 or offset_delta > spans[span, SPAN_LAST_DELTA]:
                return DAMAGED
            key_size, position = read_varint(source, position, stop)
            if position < 0 or key_size < -1 or key_size > stop - position:
                return DAMAGED
            key_start = position
            if key_size > 0:
                position += key_size
            value_size, position = read_varint(source, position, stop)
            if position < 0 or value_size < -1 or value_size > stop - position:
                return DAMAGED
            value_start = position
            if value_size > 0:
                position += value_size
            header_count, position = read_varint(source, position, stop)
            if position < 0 or header_count < 0 or header_count > (stop - position) // 2:
                return DAMAGED
            if header_count == 0 and position != stop:
                return DAMAGED
            offset = spans[span, SPAN_BASE_OFFSET] + offset_delta
            if start_offset <= offset < end_offset:
                offsets[row] = offset
                if spans[span, SPAN_TIME_TYPE] == 0:
                    time_ms = spans[span, SPAN_BASE_TIME] + time_delta
                else:
                    time_ms = spans[span, SPAN_APPEND_TIME]
                if time_ms > TIME_MS_MAX or time_ms < -TIME_MS_MAX:
                    return DAMAGED
                times_us[row] = time_ms * 1000
                time_types[row] = spans[span, SPAN_TIME_TYPE]
                if with_headers:
                    header_spans[row, 0] = position
                    header_spans[row, 1] = stop
                    header_spans[row, 2] = header_count
                key_valid[row] = key_size >= 0
                if key_size > 0:
                    copy(key_data, key_at, source, key_start, key_size)
                    key_at += key_size
                value_valid[row] = value_size >= 0
                if value_size > 0:
                    copy(value_data, value_at, source, value_start, value_size)
                    value_at += value_size
                row += 1
                key_ends[row] = key_at
                value_ends[row] = value_at
            position = stop
        if position != end:
            return DAMAGED
    return row


decode_spans = _compile(_decode_spans)


def _decode_headers(
    source: Bytes,
    header_spans: Longs,
    first_row: int,
    last_row: int,
    count: int,
    key_ends: Ints,
    key_data: Bytes,
    value_ends: Ints,
    value_valid: Bytes,
    value_data: Bytes,
) -> int:
    """Append the headers of rows [first_row, last_row) after `count` headers; the new number of headers, or DAMAGED."""
    key_at = int(key_ends[count])
    value_at = int(value_ends[count])
    for row in range(first_row, last_row):
        position = header_spans[row, 0]
        stop = header_spans[row, 1]
        for _ in range(header_spans[row, 2]):
            key_size, position = read_varint(source, position, stop)
            if position < 0 or key_size < 0 or key_size > stop - position:
                return DAMAGED
            copy(key_data, key_at, source, position, key_size)
            position += key_size
            key_at += key_size
            value_size, position = read_varint(source, position, stop)
            if position < 0 or value_size < -1 or value_size > stop - position:
                return DAMAGED
            value_valid[count] = value_size >= 0
            if value_size > 0:
                copy(value_data, value_at, source, position, value_size)
                position += value_size
                value_at += value_size
            count += 1
            key_ends[count] = key_at
            value_ends[count] = value_at
        if position != stop:
            return DAMAGED
    return count


decode_headers = _compile(_decode_headers)


def _varint_size(value: int) -> int:
    zigzag = (value << 1) ^ (value >> 63)
    if zigzag < 0:
        return 10
    size = 1
    while zigzag > 0x7F:
        zigzag >>= 7
        size += 1
    return size


varint_size = _compile(_varint_size)


def _write_varint(target: Bytes, position: int, value: int) -> int:
    zigzag = (value << 1) ^ (value >> 63)
    # Ten groups of seven bits hold 64 bits; the mask keeps the shift of a negative number logical.
    while zigzag > 0x7F or zigzag < 0:
        target[position] = (zigzag & 0x7F) | 0x80
        zigzag = (zigzag >> 7) & 0x01FFFFFFFFFFFFFF
        position += 1
    target[position] = zigzag
    return position + 1


write_varint = _compile(_write_varint)


def _field_size(ends: Longs, valid: Bytes, index: int) -> int:
    """Bytes of a nullable byte string: its length as a varint, then itself."""
    if valid[index] == 0:
        return 1
    size = ends[index + 1] - ends[index]
    return int(varint_size(size) + size)


field_size = _compile(_field_size)


def _write_field(target: Bytes, position: int, data: Bytes, ends: Longs, valid: Bytes, index: int) -> int:
    if valid[index] == 0:
        target[position] = 1
        return position + 1
    start = ends[index]
    size = ends[index + 1] - start
    position = write_varint(target, position, size)
    copy(target, position, data, start, size)
    return int(position + size)


write_field = _compile(_write_field)


def _plan_batch(
    row: int,
    row_count: int,
    size_max: int,
    times_ms: Longs,
    key_ends: Longs,
    key_valid: Bytes,
    value_ends: Longs,
    value_valid: Bytes,
    header_ends: Longs,
    header_key_ends: Longs,
    header_key_valid: Bytes,
    header_value_ends: Longs,
    header_value_valid: Bytes,
    body_sizes: Longs,
) -> tuple[int, int, int]:
    """Which rows from `row` on go into one batch of at most `size_max` payload bytes (but at least one row): the row after
    the last one, the payload's size, the largest timestamp. Fills `body_sizes`, the lengths of the records."""
    base = row
    base_ms = times_ms[row]
    max_ms = base_ms
    total = 0
    while row < row_count:
        size = 1 + varint_size(times_ms[row] - base_ms) + varint_size(row - base)
        size += field_size(key_ends, key_valid, row) + field_size(value_ends, value_valid, row)
        first = header_ends[row]
        last = header_ends[row + 1]
        size += varint_size(last - first)
        for header in range(first, last):
            size += field_size(header_key_ends, header_key_valid, header)
            size += field_size(header_value_ends, header_value_valid, header)
        framed = varint_size(size) + size
        if row > base and total + framed > size_max:
            break
        body_sizes[row] = size
        total += framed
        max_ms = max(max_ms, times_ms[row])
        row += 1
    return row, total, max_ms


plan_batch = _compile(_plan_batch)


def _fill_batch(
    target: Bytes,
    position: int,
    first_row: int,
    last_row: int,
    times_ms: Longs,
    key_data: Bytes,
    key_ends: Longs,
    key_valid: Bytes,
    value_data: Bytes,
    value_ends: Longs,
    value_valid: Bytes,
    header_ends: Longs,
    header_key_data: Bytes,
    header_key_ends: Longs,
    header_key_valid: Bytes,
    header_value_data: Bytes,
    header_value_ends: Longs,
    header_value_valid: Bytes,
    body_sizes: Longs,
) -> int:
    """Write the records of rows [first_row, last_row), as planned, from `position` on; the position after them."""
    base_ms = times_ms[first_row]
    for row in range(first_row, last_row):
        position = write_varint(target, position, body_sizes[row])
        target[position] = 0
        position = write_varint(target, position + 1, times_ms[row] - base_ms)
        position = write_varint(target, position, row - first_row)
        position = write_field(target, position, key_data, key_ends, key_valid, row)
        position = write_field(target, position, value_data, value_ends, value_valid, row)
        first = header_ends[row]
        last = header_ends[row + 1]
        position = write_varint(target, position, last - first)
        for header in range(first, last):
            position = write_field(target, position, header_key_data, header_key_ends, header_key_valid, header)
            position = write_field(target, position, header_value_data, header_value_ends, header_value_valid, header)
    return position


fill_batch = _compile(_fill_batch)


def _plan_batches(
    spans: Longs, times_ms: Longs, body_sizes: Longs, sizes: Longs, times_max: Longs, *shape: npt.NDArray[Any]
) -> None:
    """The payload's size and the largest timestamp of batches whose rows are given. `shape` is as `plan_batch` takes it."""
    for batch in range(spans.shape[0]):
        # numba knows how many `shape` are.
        _, sizes[batch], times_max[batch] = plan_batch(  # type: ignore[call-arg]
            spans[batch, 0], spans[batch, 1], 1 << 62, times_ms, *shape, body_sizes
        )


plan_batches = _compile(_plan_batches)


def _fill_batches(target: Bytes, gap: int, spans: Longs, times_ms: Longs, body_sizes: Longs, *columns: npt.NDArray[Any]) -> int:
    """Write the records of planned batches, each `gap` bytes behind the one before it; the position after the last one."""
    position = 0
    for batch in range(spans.shape[0]):
        position = fill_batch(  # type: ignore[call-arg]
            target, position + gap, spans[batch, 0], spans[batch, 1], times_ms, *columns, body_sizes
        )
    return position


fill_batches = _compile(_fill_batches)
