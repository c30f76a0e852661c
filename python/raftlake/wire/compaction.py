"""What compaction makes of the batches of a log (KIP-58, KIP-534): the newest offset of each key, and the batches anew.

A pass has two steps. `KeyMap` learns where each key stands last in the part that is dirty. `Rewriter` then takes all batches
from the start of the log on, and leaves out what is of no use any more. The module knows bytes only. The caller reads the
batches, checks their CRCs and writes what comes out.

Invariants:

- Offsets have no gaps, and each offset keeps its leader epoch: what was removed leaves batches without records.
- A batch of which everything stays is the same byte for byte. So a pass over a clean log changes nothing.
- A tombstone gets its delete horizon in a pass that knows all older values of its key, and so removes them. In the dirty part
  a horizon counts for nothing: the leader's pass set it before the batch was fetched. The older values are still here, and a
  reader on its way may have seen them. So the pass sets the horizon anew.
- A marker goes only where the pass has seen no batch of its transaction, not even an empty one, and below the dirty part: so
  all that begins below what is known to be compacted is decided, whatever was saved about it before. A marker that aborts
  stays as long as the index of aborted transactions names it: a reader that was told of the transaction waits for its marker.

Kafka's counterparts are Cleaner, CleanedTransactionMetadata and MemoryRecords.filterTo. Kafka leaves gaps between offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol

from raftlake.errors import InvariantViolation
from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.batch_header import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
)
from raftlake.wire.batch_records import assemble_batch
from raftlake.wire.compression import Compression, compress
from raftlake.wire.control import read_end_marker
from raftlake.wire.primitives import BytesLike, read_varlong, write_varlong
from raftlake.wire.record_columns import RecordColumns, read_columns

NO_PRODUCER = -1
NO_TIMESTAMP = -1
#: A key up to this length stands in the map as it is, a longer one as a digest that is one byte longer: so no two keys are
#: taken for one.
KEY_BYTES_MAX = 32
#: In microseconds it has 63 bits: readers make such of the times of a batch.
HORIZON_MS_MAX = ((1 << 63) - 1) // 1000
#: What a header can tell.
_OFFSETS_MAX = 1 << 31
_SEQUENCE_MASK = 0x7FFFFFFF


class CompactionRequest(Protocol):
    """What both steps have to know. `ports.driver.Compaction` tells the meaning of each. The aborted transactions are all that
    begin below the end of the dirty part, also those whose markers stand behind that end."""

    @property
    def dirty_from(self) -> int: ...
    @property
    def now_ms(self) -> int: ...
    @property
    def delete_retention_ms(self) -> int: ...
    @property
    def tombstones_below(self) -> int: ...
    @property
    def aborted(self) -> Sequence[AbortedTransaction]: ...
    @property
    def last_batches(self) -> frozenset[int]: ...
    @property
    def last_markers(self) -> frozenset[tuple[int, int]]: ...
    @property
    def unsettled(self) -> frozenset[int]: ...
    @property
    def keys_max(self) -> int: ...


class AbortedRanges:
    """Which batches belong to aborted transactions."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._ranges: dict[int, tuple[list[int], list[int]]] = {}
        for each in sorted(aborted, key=lambda entry: entry.first_offset):
            firsts, lasts = self._ranges.setdefault(each.producer_id, ([], []))
            firsts.append(each.first_offset)
            lasts.append(each.last_offset)

    def hold(self, header: BatchHeader) -> bool:
        """Whether the data batch is of an aborted transaction."""
        if not header.is_transactional or header.producer_id not in self._ranges:
            return False
        firsts, lasts = self._ranges[header.producer_id]
        index = bisect_right(firsts, header.base_offset) - 1
        return index >= 0 and header.base_offset <= lasts[index]


class KeyMap:
    """The first step: the newest offset of each key in the dirty part of a log."""

    def __init__(self, request: CompactionRequest, salt: bytes) -> None:
        """`salt`, at most 16 bytes, is chosen at random for each pass: nobody can prepare keys whose digests are equal."""
        self._aborted = AbortedRanges(request.aborted)
        self._dirty_from = request.dirty_from
        self._keys_max = request.keys_max
        self._digest = blake2b(digest_size=KEY_BYTES_MAX + 1, salt=salt)
        self._newest: dict[bytes | None, int] = {}
        #: Each key has one value below, once the log is rewritten: the end of the last batch that was taken.
        self.clean_until: int = request.dirty_from

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._newest)

    def add(self, buffer: BytesLike, header: BatchHeader) -> bool:
        """Take the next batch, whole. False where the map is full: then the batch is not taken, and the map ends before it. At
        least one batch is taken. What ends below the dirty part is passed over. Raises CorruptBatch."""
        if header.end_offset <= self._dirty_from:
            return True
        if len(self._newest) >= self._keys_max and self.clean_until > self._dirty_from:
            return False
        if header.record_count > 0 and not header.is_control and not self._aborted.hold(header):
            columns, base = read_columns(buffer, header), header.base_offset
            known = self._known_as(columns.keys)
            self._newest.update(zip(known, [base + delta for delta in columns.offset_deltas], strict=True))
            self._newest.pop(None, None)
        self.clean_until = header.end_offset
        return True

    def newest(self, keys: list[bytes | None]) -> list[int | None]:
        """The newest offset of each key, None for a key that the dirty part does not hold."""
        return list(map(self._newest.get, self._known_as(keys)))

    def _known_as(self, keys: list[bytes | None]) -> list[bytes | None]:
        if max(map(len, filter(None, keys)), default=0) <= KEY_BYTES_MAX:
            return keys
        return [key if key is None or len(key) <= KEY_BYTES_MAX else self._long_key(key) for key in keys]

    def _long_key(self, key: bytes) -> bytes:
        digest = self._digest.copy()
        digest.update(key)
        return digest.digest()


class _Open(NamedTuple):
    """Batches without records that are held back, since more of them may follow."""

    base_offset: int
    end_offset: int
    leader_epoch: int


class Rewriter:
    """The second step. It takes all batches from the log start on, ascending, up to the end of the segment that holds the last
    one of the dirty part. What begins at or above `KeyMap.clean_until` stays as it is."""

    def __init__(self, keys: KeyMap, request: CompactionRequest) -> None:
        self._keys = keys
        self._request = request
        self._aborted = AbortedRanges(request.aborted)
        self._aborting = {each.last_offset for each in request.aborted}
        self._horizon_ms = min(request.now_ms + request.delete_retention_ms, HORIZON_MS_MAX)
        self._empty: _Open | None = None
        #: Producers with a transaction of which the pass has seen a batch, and no marker behind it.
        self._in_transaction: set[int] = set()
        self.records_removed = 0
        #: When the first of those tombstones and markers may go that wait for their time; None where none waits.
        self.next_horizon_ms: int | None = None

    def rewrite(self, buffer: BytesLike, header: BatchHeader) -> list[bytes]:
        """Take the next batch. Returns the batches that are to be written now: none where it is held back. Raises
        CorruptBatch."""
        if header.base_offset >= self._keys.clean_until:
            return self._behind_empty(bytes(memoryview(buffer)[header.position : header.end_position]))
        kept = self._rewrite_control(buffer, header) if header.is_control else self._rewrite_data(buffer, header)
        return self._hold_back(header) if kept is None else self._behind_empty(kept)

    def end_segment(self) -> list[bytes]:
        """What was held back. The caller writes it, and goes on in a new segment."""
        held, self._empty = self._empty, None
        if held is None:
            return []
        return [empty_batch(held.base_offset, held.end_offset, held.leader_epoch)]

    # --- batches without records -------------------------------------------------------------------------------------

    def _behind_empty(self, batch: bytes) -> list[bytes]:
        return [*self.end_segment(), batch]

    def _hold_back(self, header: BatchHeader) -> list[bytes]:
        held = self._empty
        if held is not None and held.end_offset != header.base_offset:
            raise InvariantViolation(f"batch at {header.base_offset} behind {held.end_offset}")
        if (
            held is not None
            and held.leader_epoch == header.leader_epoch
            and header.end_offset - held.base_offset <= _OFFSETS_MAX
        ):
            self._empty = held._replace(end_offset=header.end_offset)
            return []
        flushed = self.end_segment()
        self._empty = _Open(header.base_offset, header.end_offset, header.leader_epoch)
        return flushed

    # --- data --------------------------------------------------------------------------------------------------------

    def _rewrite_data(self, buffer: BytesLike, header: BatchHeader) -> bytes | None:
        """None where nothing is left of the batch but its offsets."""
        if header.is_transactional:
            self._in_transaction.add(header.producer_id)
        if header.record_count <= 0:
            return self._without_records(header)
        if self._aborted.hold(header):
            self.records_removed += header.record_count
            return self._without_records(header)
        columns = read_columns(buffer, header)
        kept = self._kept(columns, header)
        removed = header.record_count - len(kept)
        self.records_removed += removed
        if not kept:
            return self._without_records(header)
        horizon = header.delete_horizon_ms
        if True in columns.tombstones and any(columns.tombstones[index] for index in kept):
            if self._is_dirty(header):
                self._await(self._horizon_ms)
                return _with_horizon(header, columns, kept, self._horizon_ms)
            self._await(horizon)
        if not removed:
            return bytes(memoryview(buffer)[header.position : header.end_position])
        return _with_records(header, columns, kept)

    def _is_dirty(self, header: BatchHeader) -> bool:
        return self._request.dirty_from <= header.base_offset and header.end_offset <= self._keys.clean_until

    def _without_records(self, header: BatchHeader) -> bytes | None:
        request, producer_id = self._request, header.producer_id
        is_needed = header.last_offset in request.last_batches or producer_id in request.unsettled
        return _header_alone(header) if is_needed and producer_id != NO_PRODUCER else None

    def _kept(self, columns: RecordColumns, header: BatchHeader) -> list[int]:
        """Which records stay, ascending."""
        base, horizon = header.base_offset, header.delete_horizon_ms
        newest = self._keys.newest(columns.keys)
        kept = [
            index
            for index, (key, delta, newer) in enumerate(zip(columns.keys, columns.offset_deltas, newest, strict=True))
            if key is not None and (newer is None or newer <= base + delta)
        ]
        is_over = horizon is not None and horizon <= self._request.now_ms and not self._is_dirty(header)
        if not is_over or True not in columns.tombstones:
            return kept
        staying_from = self._request.tombstones_below - base
        return [index for index in kept if not columns.tombstones[index] or columns.offset_deltas[index] >= staying_from]

    # --- control -----------------------------------------------------------------------------------------------------

    def _rewrite_control(self, buffer: BytesLike, header: BatchHeader) -> bytes | None:
        """What is no marker stays. A marker gets its delete horizon wherever it stands: what makes it useless is seen in this
        very pass."""
        if header.record_count <= 0:
            return None
        batch = bytes(memoryview(buffer)[header.position : header.end_position])
        if read_end_marker(batch) is None:
            return batch
        has_batches = header.producer_id in self._in_transaction
        self._in_transaction.discard(header.producer_id)
        producer = header.producer_id, header.producer_epoch
        is_known = producer in self._request.last_markers or header.producer_id in self._request.unsettled
        if has_batches or is_known or header.last_offset in self._aborting:
            return batch
        horizon = header.delete_horizon_ms
        if horizon is None:
            columns = read_columns(buffer, header)
            self._await(self._horizon_ms)
            return _with_horizon(header, columns, range(len(columns)), self._horizon_ms)
        # Above what is known to be compacted, a start would take the transaction for an open one.
        below = min(self._request.tombstones_below, self._request.dirty_from)
        if horizon <= self._request.now_ms and header.last_offset < below:
            self.records_removed += header.record_count
            return None
        self._await(horizon)
        return batch

    def _await(self, horizon_ms: int | None) -> None:
        """Something stays that has this horizon. One that is behind waits for `tombstones_below`."""
        if horizon_ms is not None and (self.next_horizon_ms is None or horizon_ms < self.next_horizon_ms):
            self.next_horizon_ms = horizon_ms


# --- making batches ----------------------------------------------------------------------------------------------------------


def empty_batch(base_offset: int, end_offset: int, leader_epoch: int) -> bytes:
    """A batch that covers the offsets [base_offset, end_offset), and holds no record."""
    return bytes(
        assemble_batch(
            b"",
            attributes=0,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            base_timestamp_ms=NO_TIMESTAMP,
            timestamp_ms_max=NO_TIMESTAMP,
            producer_id=NO_PRODUCER,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=0,
            last_offset_delta=end_offset - base_offset - 1,
        )
    )


def cut_empty(batch: BytesLike, start: int) -> bytes:
    """A batch without records that begins at `start`, one of the offsets of `batch`, and ends where `batch` ends. `batch`
    begins at the first byte, and holds no record."""
    header = parse_header(batch)
    if header.record_count > 0 or not header.base_offset <= start <= header.last_offset:
        raise InvariantViolation(f"batch at {header.base_offset}: it cannot be cut at {start}")
    before, sequence = start - header.base_offset, header.base_sequence
    return _header_alone(
        header._replace(
            base_offset=start,
            last_offset_delta=header.last_offset_delta - before,
            base_sequence=sequence if sequence < 0 else (sequence + before) & _SEQUENCE_MASK,
        )
    )


def _header_alone(header: BatchHeader) -> bytes:
    """What tells who wrote the batch, and with which sequence numbers."""
    return _assemble(header, b"", 0, header.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT), NO_TIMESTAMP, NO_TIMESTAMP)


def _with_records(header: BatchHeader, columns: RecordColumns, kept: Sequence[int]) -> bytes:
    """Only these records of the batch: all of their numbers are as they were."""
    payload, ends = columns.payload, columns.ends
    pieces: list[bytes] = []
    first = before = kept[0]
    for index in kept[1:]:
        if index != before + 1:
            pieces.append(payload[ends[first - 1] if first else 0 : ends[before]])
            first = index
        before = index
    pieces.append(payload[ends[first - 1] if first else 0 : ends[before]])
    times = header.base_timestamp_ms, _time_max(header, columns, kept)
    return _assemble(header, b"".join(pieces), len(kept), header.attributes, *times)


def _with_horizon(header: BatchHeader, columns: RecordColumns, kept: Sequence[int], horizon_ms: int) -> bytes:
    """These records, and a delete horizon in place of the base timestamp: their times are told relative to it."""
    payload, ends = columns.payload, columns.ends
    records = bytearray()
    shift_ms = header.base_timestamp_ms - horizon_ms
    for index in kept:
        # The length of a record stands before its attributes, one byte, and these before the time.
        attributes_at = read_varlong(payload, ends[index - 1] if index else 0)[1]
        behind_time = read_varlong(payload, attributes_at + 1)[1]
        body = bytearray(payload[attributes_at : attributes_at + 1])
        write_varlong(body, _as_int64(columns.time_deltas_ms[index] + shift_ms))
        body += payload[behind_time : ends[index]]
        write_varlong(records, len(body))
        records += body
    times = horizon_ms, _time_max(header, columns, kept)
    return _assemble(header, records, len(kept), header.attributes | DELETE_HORIZON_BIT, *times)


def _time_max(header: BatchHeader, columns: RecordColumns, kept: Sequence[int]) -> int:
    if header.is_log_append_time:
        return header.timestamp_ms_max
    return header.base_timestamp_ms + max([columns.time_deltas_ms[index] for index in kept])


def _as_int64(value: int) -> int:
    """Java's arithmetic wraps around, and so do its readers."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _assemble(
    header: BatchHeader, payload: BytesLike, record_count: int, attributes: int, base_timestamp_ms: int, timestamp_ms_max: int
) -> bytes:
    codec = Compression(attributes & CODEC_MASK)
    return bytes(
        assemble_batch(
            payload if codec is Compression.NONE else compress(codec, payload),
            attributes=attributes,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            base_timestamp_ms=base_timestamp_ms,
            timestamp_ms_max=timestamp_ms_max,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            record_count=record_count,
            last_offset_delta=header.last_offset_delta,
        )
    )
