"""The bytes of a snapshot file (KIP-630), exactly as Kafka's: record batches with offsets from 0.

The first batch is a control batch that begins with SnapshotHeader (type 3; with kraft.version 1 the version and the voters
follow in the same batch), the last one a control batch with SnapshotFooter (type 4), and between them are data batches. Every
batch carries the snapshot's epoch. Knows neither files nor what the data means: `SnapshotScanner` is given a function that
reads. Invariant: it hands out only batches whose CRC is right, and ends without an error only behind the footer.

Kafka's format does not say which offset a snapshot is of; its name alone does. Ours says so in a tagged field of the header,
which Kafka passes over (KIP-482), so that one snapshot under the name of another is damage and not a state of the past.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from raftlake.errors import CorruptBatch, WireError
from raftlake.wire.batch_header import HEADER_BYTES, BatchHeader, parse_header, validate
from raftlake.wire.batch_records import Record, build_batch, decode_records
from raftlake.wire.control import ControlType
from raftlake.wire.primitives import I64, read_tags, write_tag

_KEY = struct.Struct(">hh")
#: SnapshotHeaderRecord version 0: version, lastContainedLogTimestamp; then the tags.
_HEADER_VALUE = struct.Struct(">hq")
#: Our tag in it: the exclusive end offset.
END_OFFSET_TAG = 10630
#: SnapshotFooterRecord version 0: version, no tags.
_FOOTER_VALUE = struct.Struct(">hB")
#: A batch of a snapshot that claims more than this is damage: no data batch is ever larger.
BATCH_BYTES_MAX = 64 << 20

ReadAt = Callable[[int, int], bytes]


class SnapshotBatch(NamedTuple):
    """A checked batch of a snapshot."""

    header: BatchHeader
    data: memoryview


def header_batch(
    epoch: int, timestamp_ms: int, last_contained_ms: int, more: Sequence[Record] = (), end_offset: int | None = None
) -> bytes:
    """The first batch. `more` are control records that stand behind the header: kraft.version and voters. `end_offset` is what
    the snapshot is of; None leaves that to its name, as Kafka does."""
    value = bytearray(_HEADER_VALUE.pack(0, last_contained_ms))
    value.append(end_offset is not None)
    if end_offset is not None:
        write_tag(value, END_OFFSET_TAG, I64.pack(end_offset))
    first = Record(offset=0, timestamp_ms=timestamp_ms, key=_KEY.pack(0, ControlType.SNAPSHOT_HEADER), value=bytes(value))
    return bytes(build_batch([first, *more], base_offset=0, leader_epoch=epoch, timestamp_ms=timestamp_ms, control=True))


def data_batch(offset: int, epoch: int, timestamp_ms: int, values: Sequence[bytes]) -> bytes:
    """One batch of data records at `offset`."""
    records = [Record(timestamp_ms=timestamp_ms, key=None, value=value) for value in values]
    return bytes(build_batch(records, base_offset=offset, leader_epoch=epoch, timestamp_ms=timestamp_ms))


def footer_batch(offset: int, epoch: int, timestamp_ms: int) -> bytes:
    """The last batch."""
    record = Record(timestamp_ms=timestamp_ms, key=_KEY.pack(0, ControlType.SNAPSHOT_FOOTER), value=_FOOTER_VALUE.pack(0, 0))
    return bytes(build_batch([record], base_offset=offset, leader_epoch=epoch, timestamp_ms=timestamp_ms, control=True))


class SnapshotScanner:
    """Reads the snapshot of `end_offset` (None: of any), of `size` bytes (None: not known), batch by batch. Raises CorruptBatch
    at the first thing wrong."""

    __slots__ = ("_end_offset", "_epoch", "_offset", "_read", "_size", "is_complete", "position")

    def __init__(self, read: ReadAt, size: int | None, epoch: int, end_offset: int | None = None) -> None:
        self._end_offset = end_offset
        self._read = read
        self._size = size
        self._epoch = epoch
        self._offset = 0
        #: Where the next batch begins.
        self.position = 0
        #: The footer has been read and nothing follows it.
        self.is_complete = False

    def next(self) -> SnapshotBatch | None:
        """The next batch, header and footer included; None behind the footer."""
        if self.is_complete:
            return None
        position = self.position
        head = self._read(position, HEADER_BYTES)
        header = parse_header(head)
        left = BATCH_BYTES_MAX if self._size is None else self._size - position
        if not HEADER_BYTES <= header.size <= min(BATCH_BYTES_MAX, left):
            raise CorruptBatch(f"snapshot batch at byte {position} claims {header.size} of {left} bytes left")
        data = memoryview(head + self._read(position + HEADER_BYTES, header.size - HEADER_BYTES))
        if len(data) != header.size or not validate(data):
            raise CorruptBatch(f"snapshot batch at byte {position} is cut short")
        if header.base_offset != self._offset or header.leader_epoch != self._epoch:
            raise CorruptBatch(
                f"snapshot batch at byte {position} has offset {header.base_offset} and epoch {header.leader_epoch}, "
                f"expected are {self._offset} and {self._epoch}"
            )
        if position == 0:
            self._require_header(header, data)
        self.position += header.size
        self._offset = header.end_offset
        if header.is_control and control_types(header, data)[-1:] == [ControlType.SNAPSHOT_FOOTER]:
            self.is_complete = True
            if self._size is not None and self.position != self._size:
                raise CorruptBatch(f"{self._size - self.position} bytes follow the snapshot's footer")
        elif self.position == self._size:
            raise CorruptBatch("snapshot ends without its footer")
        return SnapshotBatch(header, data)

    def _require_header(self, header: BatchHeader, data: memoryview) -> None:
        if control_types(header, data)[:1] != [ControlType.SNAPSHOT_HEADER]:
            raise CorruptBatch("snapshot does not begin with its header")
        told = _told_end_offset(data)
        if told is not None and self._end_offset not in (None, told):
            raise CorruptBatch(f"it is the snapshot of offset {told}")


def _told_end_offset(data: memoryview) -> int | None:
    """What the header in the first batch of a snapshot says that it is of. Raises CorruptBatch."""
    value = next(iter(decode_records(data, include_control=True))).value or b""
    try:
        tags, _ = read_tags(memoryview(value), _HEADER_VALUE.size)
        ours = [(start, end) for tag, start, end in tags if tag == END_OFFSET_TAG]
        return int.from_bytes(value[ours[0][0] : ours[0][1]], "big") if ours else None
    except (IndexError, WireError) as error:
        raise CorruptBatch(f"undecodable snapshot header: {error}") from error


def control_types(header: BatchHeader, data: memoryview) -> list[int]:
    """The types of the control records in a batch; none for a data batch."""
    if not header.is_control:
        return []
    types: list[int] = []
    for record in decode_records(data, include_control=True):
        if record.key is None or len(record.key) < _KEY.size:
            raise CorruptBatch("control record without a version and a type")
        types.append(_KEY.unpack_from(record.key)[1])
    return types


class SnapshotAssembler:
    """Checks a snapshot that arrives in pieces of any size; keeps at most one unfinished batch of it."""

    __slots__ = ("_buffer", "_count", "_scanner", "_start", "_total")

    def __init__(self, epoch: int, end_offset: int | None = None) -> None:
        self._buffer = bytearray()
        #: Where in the snapshot the buffer begins.
        self._start = 0
        self._total = 0
        self._count = 0
        # The size is not known to the scanner: what follows the footer is found by `feed`.
        self._scanner = SnapshotScanner(self._read, None, epoch, end_offset)

    def _read(self, position: int, size: int) -> bytes:
        first = position - self._start
        return bytes(memoryview(self._buffer)[first : first + size])

    @property
    def is_complete(self) -> bool:
        """Header, footer and everything between them have come, and nothing else."""
        return self._scanner.is_complete and self._scanner.position == self._total

    def feed(self, data: bytes | bytearray | memoryview) -> list[tuple[int, SnapshotBatch]]:
        """The batches that this piece completes, with their numbers in the snapshot. Raises CorruptBatch."""
        self._buffer += data
        self._total += len(data)
        found: list[tuple[int, SnapshotBatch]] = []
        while not self._scanner.is_complete and self._has_batch():
            batch = self._scanner.next()
            assert batch is not None
            found.append((self._count, batch))
            self._count += 1
        del self._buffer[: self._scanner.position - self._start]
        self._start = self._scanner.position
        if self._scanner.is_complete and self._buffer:
            raise CorruptBatch(f"{len(self._buffer)} bytes follow the snapshot's footer")
        return found

    def _has_batch(self) -> bool:
        first = self._scanner.position - self._start
        if len(self._buffer) - first < HEADER_BYTES:
            return False
        size = parse_header(self._buffer, first).size
        # An impossible size is for the scanner to refuse.
        return not HEADER_BYTES <= size <= BATCH_BYTES_MAX or len(self._buffer) - first >= size
