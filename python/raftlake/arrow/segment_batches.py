"""The rows of a segment -> its batches, at their own offsets and with their own epochs, attributes and producers.

Batches are written as usual clients write them: the base time is that of the first record, each number takes as few bytes as
it can. So an uncompressed batch of theirs is the same again to the byte. A compressed one holds the same records, compressed
anew with its own codec.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from raftlake.arrow.decode import HEADERS_TYPE
from raftlake.arrow.encode import bytes_column, checked_headers, combined, frozen, header_columns, records_of, times_of
from raftlake.arrow.loading import LOADER, KernelLoader, Kernels
from raftlake.errors import CorruptBatch, InvariantViolation
from raftlake.wire.batch_header import CODEC_MASK, HEADER_BYTES
from raftlake.wire.batch_records import assemble_batch, encode_records, seal_batch
from raftlake.wire.compression import Compression, compress
from raftlake.wire.primitives import BytesLike

#: pyarrow ships no types.
Arrow: TypeAlias = Any

#: Rows that are encoded together, at most, unless one batch alone has more.
_ROWS_TOGETHER = 200_000

#: The columns that `encode_segment` needs.
ENCODED_COLUMNS = (
    "key",
    "value",
    "offset",
    "timestamp",
    "headers",
    "leader_epoch",
    "batch_base_offset",
    "batch_attributes",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)


class BatchPlace(NamedTuple):
    """Rows [first_row, end_row) are a batch; and what its header says."""

    first_row: int
    end_row: int
    base_offset: int
    leader_epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


def encode_segment(rows: Arrow, loader: KernelLoader = LOADER) -> Iterator[BytesLike]:
    """The batches of `rows`, a table or a record batch with (at least) ENCODED_COLUMNS: whole batches of one partition and
    incarnation, in the order of their offsets. Each batch is a buffer of its own. CorruptBatch names the offset where the rows
    of a batch are missing or out of order."""
    places = list(_places(rows))
    first = 0
    while first < len(places):
        last = first + 1
        while last < len(places) and places[last].end_row - places[first].first_row <= _ROWS_TOGETHER:
            last += 1
        start = places[first].first_row
        part = rows.slice(start, places[last - 1].end_row - start)
        moved = [
            place._replace(first_row=place.first_row - start, end_row=place.end_row - start) for place in places[first:last]
        ]
        yield from encode_rows(part, moved, loader)
        first = last


def _places(rows: Arrow) -> Iterator[BatchPlace]:
    numbers = {name: _numbers(rows, name) for name in ("offset", "batch_base_offset")}
    offsets, bases = numbers["offset"], numbers["batch_base_offset"]
    if not len(offsets):
        return
    firsts = np.flatnonzero(np.concatenate([[True], bases[1:] != bases[:-1]]))
    ends = np.append(firsts[1:], len(offsets))
    wanted = bases + (np.arange(len(offsets)) - np.repeat(firsts, ends - firsts))
    wrong = np.flatnonzero(offsets != wanted)
    if len(wrong):
        row = int(wrong[0])
        raise CorruptBatch(f"batch at offset {bases[row]}: offset {wanted[row]} is missing, {offsets[row]} is in its place")
    heads = [
        _numbers(rows, name)[firsts].tolist()
        for name in ("batch_base_offset", "leader_epoch", "batch_attributes", "producer_id", "producer_epoch", "base_sequence")
    ]
    for first, end, base, epoch, attributes, *producer in zip(firsts.tolist(), ends.tolist(), *heads, strict=True):
        # The header has 16 bits of attributes, as a signed number.
        yield BatchPlace(first, end, base, epoch, ((attributes & 0xFFFF) ^ 0x8000) - 0x8000, *producer)


def _numbers(rows: Arrow, name: str) -> npt.NDArray[np.int64]:
    column = combined(rows.column(name))
    if column.null_count:
        raise CorruptBatch(f"the column {name} has {column.null_count} nulls")
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def encode_rows(rows: Arrow, places: Sequence[BatchPlace], loader: KernelLoader = LOADER) -> Iterator[BytesLike]:
    """The batches of `rows` at `places`, in their order. Places may leave rows out."""
    if not places:
        return
    times_ms = times_of(rows.column("timestamp"), rows.num_rows, -1)
    key, value = combined(rows.column("key")), combined(rows.column("value"))
    headers = combined(rows.column("headers"))
    headers = headers if headers.type == HEADERS_TYPE else checked_headers(headers)
    kernels = loader.kernels_for(rows.num_rows)
    if kernels is None:
        records = records_of(key, value, headers, times_ms)
        for place in places:
            times = times_ms[place.first_row : place.end_row].tolist()
            payload = encode_records(records[place.first_row : place.end_row], times)
            yield assemble_batch(_compressed(place, payload), **_head(place, times[0], max(times)))
        return
    yield from _encode_compiled(kernels, times_ms, key, value, headers, places)


def _compressed(place: BatchPlace, payload: BytesLike) -> BytesLike:
    codec = Compression(place.attributes & CODEC_MASK)
    return payload if codec is Compression.NONE else compress(codec, payload)


def _head(place: BatchPlace, base_ms: int, max_ms: int) -> dict[str, int]:
    return {
        "attributes": place.attributes,
        "base_offset": place.base_offset,
        "leader_epoch": place.leader_epoch,
        "base_timestamp_ms": base_ms,
        "timestamp_ms_max": max_ms,
        "producer_id": place.producer_id,
        "producer_epoch": place.producer_epoch,
        "base_sequence": place.base_sequence,
        "record_count": place.end_row - place.first_row,
    }


def _encode_compiled(
    kernels: Kernels, times_ms: npt.NDArray[np.int64], key: Arrow, value: Arrow, headers: Arrow, places: Sequence[BatchPlace]
) -> Iterator[memoryview | bytearray]:
    """All batches in one piece of memory, with room for each header in front of its payload."""
    rows = len(times_ms)
    keys, values, lists = bytes_column(key, rows), bytes_column(value, rows), header_columns(headers, rows)
    spans = frozen(np.array([(place.first_row, place.end_row) for place in places], np.int64))
    body_sizes = np.empty(rows, np.int64)
    sizes, times_max = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
    shape = (*keys[1:], *values[1:], lists.ends, *lists.keys[1:], *lists.values[1:])
    kernels.plan_batches(spans, times_ms, body_sizes, sizes, times_max, *shape)
    memory = memoryview(bytearray(int(sizes.sum()) + HEADER_BYTES * len(places)))
    columns = (*keys, *values, lists.ends, *lists.keys, *lists.values)
    target = np.frombuffer(memory, np.uint8)
    filled = kernels.fill_batches(target, HEADER_BYTES, spans, times_ms, body_sizes, *columns)
    if filled != len(memory):
        raise InvariantViolation(f"batches were planned with {len(memory)} bytes and got {filled}")
    start = 0
    for place, size, max_ms in zip(places, sizes.tolist(), times_max.tolist(), strict=True):
        batch = memory[start : start + HEADER_BYTES + size]
        start += len(batch)
        head = _head(place, int(times_ms[place.first_row]), max_ms)
        if place.attributes & CODEC_MASK:
            yield assemble_batch(_compressed(place, batch[HEADER_BYTES:]), **head)
        else:
            seal_batch(batch, **head)
            yield batch
