"""A segment of a log -> Arrow rows from which the same batches can be made again: what the remote tier keeps.

Beside the columns of Spark's Kafka source each row has all that the header of its batch says. `segment_batches` goes the
other way. A segment is decoded in pieces of bounded size, whatever its own size is.

Decoding tries each uncompressed batch out: a batch that `segment_batches` would not write with the same CRC gets the bit
`NOT_CANONICAL` of `batch_attributes`. Legal batches of that kind have a base time unlike that of their first record, for
example, or a number in more bytes than it needs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raftlake.arrow.decode import (
    ARROW_BYTES_MAX,
    OFFSET_MAX,
    TIME_MS_MAX,
    SourceList,
    decode_compiled,
    record_schema,
    rows_from_records,
)
from raftlake.arrow.loading import LOADER, KernelLoader
from raftlake.arrow.segment_batches import BatchPlace, encode_rows
from raftlake.errors import CorruptBatch
from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.batch_header import BatchHeader, iterate_headers, parse_header
from raftlake.wire.batch_records import Record, decode_batch
from raftlake.wire.compression import DECOMPRESSED_BYTES_MAX
from raftlake.wire.primitives import BytesLike

#: pyarrow ships no types.
Arrow: TypeAlias = Any

#: In `batch_attributes`, above the 16 bits of the batch's own: the batch's CRC cannot be made again from its rows.
NOT_CANONICAL = 1 << 16
#: Payload bytes and rows behind one piece, unless the last batch of it alone is larger.
PIECE_BYTES = 64 << 20
PIECE_ROWS = 1_000_000

#: Records of clients; control records; records of clients whose transaction was aborted.
KIND_DATA, KIND_CONTROL, KIND_ABORTED = 0, 1, 2

_BATCH_COLUMNS: list[Arrow] = [
    pa.field("kind", pa.int8()),
    pa.field("leader_epoch", pa.int32()),
    pa.field("batch_base_offset", pa.int64()),
    pa.field("batch_crc", pa.int32()),
    pa.field("batch_attributes", pa.int32()),
    pa.field("producer_id", pa.int64()),
    pa.field("producer_epoch", pa.int32()),
    pa.field("base_sequence", pa.int32()),
    pa.field("segment_id", pa.string()),
    pa.field("incarnation", pa.int32()),
]


def segment_schema() -> Arrow:
    """The Arrow schema of a segment's rows. CRCs are the same 32 bits as a signed number."""
    return pa.schema([*record_schema(include_headers=True), *_BATCH_COLUMNS])


class SegmentDecoder:
    """Decodes one segment, which comes in as many buffers of whole batches as its reader likes."""

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        segment_id: str,
        incarnation: int,
        base_offset: int,
        aborted: Iterable[AbortedTransaction] = (),
        decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
        piece_bytes: int = PIECE_BYTES,
        piece_rows: int = PIECE_ROWS,
        loader: KernelLoader = LOADER,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._segment_id = segment_id
        self._incarnation = incarnation
        #: By producer id, each from its first record to its marker.
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        for each in sorted(aborted, key=lambda each: each.first_offset):
            self._aborted.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
        self._decompressed_bytes_max = decompressed_bytes_max
        self._piece_bytes = piece_bytes
        self._piece_rows = piece_rows
        self._loader = loader
        #: The offset that the next batch has to begin with.
        self.next_offset = base_offset
        #: The leader epochs so far, each with its first offset.
        self.epochs: list[tuple[int, int]] = []

    def decode(self, batches: BytesLike) -> Iterator[Arrow]:
        """The rows of these batches, in pieces. CorruptBatch names the offset of a batch that is damaged, that does not begin
        where the one before it ends, or whose leader epoch is lower."""
        view = memoryview(batches)
        headers: list[BatchHeader] = []
        rows = size = position = 0
        for header in iterate_headers(view):
            self._admit(header)
            position = header.end_position
            headers.append(header)
            rows += header.record_count
            size += header.size
            if rows >= self._piece_rows or size >= self._piece_bytes:
                yield from self._pieces(view, headers)
                headers, rows, size = [], 0, 0
        if position != len(view):
            raise CorruptBatch(
                f"{len(view) - position} bytes at the end, from offset {self.next_offset} on, are no whole batch"
            )
        if headers:
            yield from self._pieces(view, headers)

    def finish(self, end_offset: int) -> None:
        """CorruptBatch unless all rows up to `end_offset` came."""
        if self.next_offset != end_offset:
            raise CorruptBatch(f"the batches end at offset {self.next_offset}, and not at {end_offset}")

    def _admit(self, header: BatchHeader) -> None:
        offset, epoch = header.base_offset, header.leader_epoch
        if offset != self.next_offset:
            raise CorruptBatch(f"a batch begins at offset {offset}, and the one before it ends at {self.next_offset}")
        if header.record_count < 1 or header.last_offset_delta != header.record_count - 1 or header.end_offset > OFFSET_MAX:
            lacks = 0 <= header.record_count <= header.last_offset_delta
            why = ": compaction has removed records of it, and a table has no place for such a batch" if lacks else ""
            raise CorruptBatch(
                f"batch at offset {offset}: {header.record_count} records, last offset delta {header.last_offset_delta}{why}"
            )
        if not all(-TIME_MS_MAX <= time <= TIME_MS_MAX for time in (header.base_timestamp_ms, header.timestamp_ms_max)):
            raise CorruptBatch(f"batch at offset {offset}: its timestamps are out of range")
        if epoch < (self.epochs[-1][0] if self.epochs else 0):
            raise CorruptBatch(f"batch at offset {offset}: its leader epoch {epoch} is lower than that of the batch before it")
        if not self.epochs or epoch > self.epochs[-1][0]:
            self.epochs.append((epoch, offset))
        self.next_offset = header.end_offset

    def _pieces(self, view: memoryview, headers: list[BatchHeader]) -> Iterator[Arrow]:
        """One piece, or more where the batches are compressed and hold more than it seems."""
        kernels = self._loader.kernels_for(sum(header.record_count for header in headers))
        if kernels is None:
            records: list[tuple[Record, int]] = []
            for header in headers:
                content = decode_batch(view, header, decompressed_bytes_max=self._decompressed_bytes_max)
                records += [(record, int(header.is_log_append_time)) for record in content]
            yield self._with_batch_columns(rows_from_records(records, self._topic, self._partition, True), view, headers)
            return
        payloads, first = SourceList(self._decompressed_bytes_max, ARROW_BYTES_MAX), 0
        for index, header in enumerate(headers, 1):
            payloads.add(view, header)
            if payloads.payload_bytes >= self._piece_bytes or index == len(headers):
                rows = decode_compiled(kernels, payloads.sources, self._topic, self._partition, 0, OFFSET_MAX, True)
                yield self._with_batch_columns(rows, view, headers[first:index])
                payloads, first = SourceList(self._decompressed_bytes_max, ARROW_BYTES_MAX), index

    def _with_batch_columns(self, rows: Arrow, view: memoryview, headers: list[BatchHeader]) -> Arrow:
        offsets = rows.column("offset").to_numpy()
        wrong = np.flatnonzero(offsets != np.arange(headers[0].base_offset, headers[0].base_offset + len(offsets)))
        if len(wrong) or len(offsets) != headers[-1].end_offset - headers[0].base_offset:
            at = headers[0].base_offset + int(wrong[0]) if len(wrong) else headers[-1].base_offset
            raise CorruptBatch(f"the records of a batch have other offsets than its header says, from {at} on")
        attributes = [header.attributes & 0xFFFF for header in headers]
        for index in _not_canonical(rows, headers, self._loader):
            attributes[index] |= NOT_CANONICAL
        counts = np.array([header.record_count for header in headers])
        by_batch = _ByBatch(counts)
        columns = [
            by_batch.spread([self._kind(header) for header in headers], np.int8),
            by_batch.spread([header.leader_epoch for header in headers], np.int32),
            by_batch.spread([header.base_offset for header in headers], np.int64),
            by_batch.spread([_signed(header.crc, 32) for header in headers], np.int32),
            by_batch.spread(attributes, np.int32),
            by_batch.spread([header.producer_id for header in headers], np.int64),
            by_batch.spread([header.producer_epoch for header in headers], np.int32),
            by_batch.spread([header.base_sequence for header in headers], np.int32),
            pa.repeat(pa.scalar(self._segment_id, pa.string()), len(offsets)),
            pa.repeat(pa.scalar(self._incarnation, pa.int32()), len(offsets)),
        ]
        return pa.RecordBatch.from_arrays([*rows.columns, *columns], schema=segment_schema())

    def _kind(self, header: BatchHeader) -> int:
        if header.is_control:
            return KIND_CONTROL
        aborted = self._aborted.get(header.producer_id) if header.is_transactional else None
        if not aborted:
            return KIND_DATA
        # A producer has one transaction at a time, so they do not overlap.
        index = bisect_right(aborted, (header.base_offset, OFFSET_MAX)) - 1
        return KIND_ABORTED if index >= 0 and header.base_offset < aborted[index][1] else KIND_DATA


def decode_segment(
    batches: BytesLike,
    *,
    topic: str,
    partition: int,
    segment_id: str,
    incarnation: int,
    base_offset: int,
    end_offset: int,
    aborted: Iterable[AbortedTransaction] = (),
    piece_bytes: int = PIECE_BYTES,
    piece_rows: int = PIECE_ROWS,
    loader: KernelLoader = LOADER,
) -> Iterator[Arrow]:
    """The rows of a segment that is in memory as a whole, in pieces of about `piece_bytes` or `piece_rows`: control records
    too. Raises CorruptBatch as SegmentDecoder does, at the piece concerned."""
    decoder = SegmentDecoder(
        topic=topic,
        partition=partition,
        segment_id=segment_id,
        incarnation=incarnation,
        base_offset=base_offset,
        aborted=aborted,
        piece_bytes=piece_bytes,
        piece_rows=piece_rows,
        loader=loader,
    )
    yield from decoder.decode(batches)
    decoder.finish(end_offset)


class _ByBatch(NamedTuple):
    counts: npt.NDArray[np.int64]

    def spread(self, values: list[int], type_: type[np.signedinteger[Any]]) -> Arrow:
        """A column that has the value of a batch in each of its rows."""
        return pa.array(np.repeat(np.array(values, type_), self.counts))


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _not_canonical(rows: Arrow, headers: list[BatchHeader], loader: KernelLoader) -> Iterator[int]:
    """The places in `headers` of the uncompressed batches that the rows do not give again with the same CRC."""
    places: list[BatchPlace] = []
    end = 0
    for header in headers:
        first, end = end, end + header.record_count
        if not header.is_compressed:
            fields = (header.base_offset, header.leader_epoch, header.attributes)
            producer = (header.producer_id, header.producer_epoch, header.base_sequence)
            places.append(BatchPlace(first, end, *fields, *producer))
    plain = (index for index, header in enumerate(headers) if not header.is_compressed)
    for index, batch in zip(plain, encode_rows(rows, places, loader), strict=True):
        if parse_header(batch).crc != headers[index].crc:
            yield index
