"""Whether the records of a batch are what its header says, so that everybody can read them.

The CRC of a batch proves only that it arrived as its producer made it. A batch whose records cannot be walked would stop every
reader of its partition for good, so the leader looks before it appends (as Kafka's LogValidator does). Knows the frame of
a record (lengths, offset delta, names of headers) and no key and no value.

Few records of the common shape are walked in one loop (1 µs each). Many are checked together: plain Python hops from length to
length (0.15 µs a record), numpy looks at all that lies in between (0.05 µs). Where these have a doubt, the careful way
decides and words the refusal.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from raftlake.errors import ErrorCode, RequestRejected, WireError
from raftlake.wire.primitives import BytesLike, read_varlong

#: Kafka has no such limit; 8 MiB of the smallest records there are is a little more. It bounds what one batch can cost.
RECORDS_MAX = 1_000_000
#: Below this many records numpy's calls cost more than they save.
TOGETHER_MIN = 48
#: Records that are looked at together, at most.
BLOCK_RECORDS = 8_192

#: A payload above this is read where it is.
COPIED_BYTES_MAX = 1 << 20

_INT32_BYTES_MAX = 5

Positions: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]


def require_records(payload: BytesLike, count: int) -> None:
    """The (uncompressed) payload of a batch holds `count` whole records with offset deltas 0, 1, 2, ... and nothing else.

    Raises RequestRejected(INVALID_RECORD) that names the first record that is wrong.
    """
    if count > RECORDS_MAX:
        raise RequestRejected(ErrorCode.INVALID_RECORD, f"a batch of {count} records; {RECORDS_MAX} are accepted at most")
    # Single bytes are read faster from `bytes` than from a memoryview, but a large copy keeps all threads waiting.
    data = bytes(payload) if len(payload) <= COPIED_BYTES_MAX else memoryview(payload)
    if count < TOGETHER_MIN:
        first, position = _check_common(data, count)
    else:
        first, position = _check_together(data, count)
    if first < count or position != len(data):
        _check_each(data, position, first, count)


def require_keys(payload: BytesLike, count: int) -> None:
    """Each of the records, which `require_records` has found sound, has a key. Raises RequestRejected(INVALID_RECORD). It names
    the first one without a key, in Kafka's words."""
    data = bytes(payload) if len(payload) <= COPIED_BYTES_MAX else memoryview(payload)
    position = 0
    for index in range(count):
        length, position = read_varlong(data, position)
        end = position + length
        position += 1
        # Time, and offset.
        while data[position] >= 0x80:
            position += 1
        position += 1
        while data[position] >= 0x80:
            position += 1
        # A length of -1.
        if data[position + 1] == 1:
            raise RequestRejected(
                ErrorCode.INVALID_RECORD,
                f"record {index} of {count}: Compacted topic cannot accept message without key",
            )
        position = end


# --- few ---------------------------------------------------------------------------------------------------------------------


def _check_common(data: bytes | memoryview, count: int) -> tuple[int, int]:
    """The first record that is not of the common shape (without headers, numbers of one or two bytes) and its position: all
    before it are sound. In one piece, because calls would be half of the time."""
    position = 0
    for index in range(count):
        start = position
        try:
            raw = data[position]
            position += 1
            if raw >= 0x80:
                raw = raw & 0x7F | data[position] << 7
                position += 1
            end = position + (raw >> 1)
            position += 1
            if data[position] >= 0x80:
                position += 1
            # Each index is one byte, for there are fewer than `TOGETHER_MIN`.
            if raw & 1 or raw > 0x3FFF or data[position] >= 0x80 or data[position + 1] != 2 * index:
                return index, start
            position += 2
            for _ in (0, 1):
                raw = data[position]
                position += 1
                if raw != 1:
                    if raw >= 0x80:
                        raw = raw & 0x7F | data[position] << 7
                        position += 1
                    if raw & 1 or raw > 0x3FFF:
                        return index, start
                    position += raw >> 1
            if data[position] or position + 1 != end:
                return index, start
        except IndexError:
            return index, start
        position = end
    return count, position


# --- one at a time -----------------------------------------------------------------------------------------------------------


def _check_each(data: bytes | memoryview, position: int, first: int, count: int) -> None:
    """The records from the `first` on, which begins at `position`."""
    index = first
    try:
        for index in range(first, count):
            position = _check_one(data, position, index)
        index = count
        if position != len(data):
            raise WireError(f"{len(data) - position} bytes follow the last one")
    except (IndexError, WireError, UnicodeDecodeError) as error:
        reason = "the batch ends in the middle of it" if isinstance(error, IndexError) else str(error)
        where = f"record {index} of {count}" if index < count else f"{count} records"
        raise RequestRejected(ErrorCode.INVALID_RECORD, f"{where}: {reason}") from error


def _check_one(data: bytes | memoryview, position: int, index: int) -> int:
    """Where the record at `position` ends."""
    length, position = _read_int(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise WireError(f"a length of {length} bytes, {len(data) - position} are left")
    _, position = read_varlong(data, position + 1)
    delta, position = _read_int(data, position)
    if delta != index:
        raise WireError(f"its offset delta is {delta}")
    position = _skip_bytes(data, position)
    position = _skip_bytes(data, position)
    headers, position = _read_int(data, position)
    if headers:
        position = _skip_headers(data, position, headers)
    if position != end:
        raise WireError(f"its length says {length} bytes, its content ends {position - end:+} bytes from there")
    return end


def _read_int(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """A zigzag varint of 32 bits."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, after = read_varlong(data, position)
    if after - position > _INT32_BYTES_MAX or not -(1 << 31) <= value < 1 << 31:
        raise WireError("a number of more than 32 bits")
    return value, after


def _skip_bytes(data: bytes | memoryview, position: int) -> int:
    """The position behind a key or a value. A length of -1 means null."""
    length, position = _read_int(data, position)
    if length < -1:
        raise WireError(f"a field of {length} bytes")
    return position + max(length, 0)


def _skip_headers(data: bytes | memoryview, position: int, count: int) -> int:
    # A header has at least two bytes: its name's and its value's length.
    if not 0 < count <= (len(data) - position) // 2:
        raise WireError(f"{count} headers do not fit")
    for _ in range(count):
        length, position = _read_int(data, position)
        if length < 0 or position + length > len(data):
            raise WireError(f"a header's name of {length} bytes")
        str(data[position : position + length], "utf-8")
        position = _skip_bytes(data, position + length)
    return position


# --- many together -----------------------------------------------------------------------------------------------------------


def _check_together(data: bytes | memoryview, count: int) -> tuple[int, int]:
    """The first record that is still to be looked at and its position: all of them are behind it, or there is a doubt."""
    octets = np.frombuffer(data, np.uint8)
    first = position = 0
    while first < count:
        ends = _ends(data, position, min(BLOCK_RECORDS, count - first))
        if not ends or not _is_sound(data, octets, position, np.array(ends, np.int64), first):
            break
        first += len(ends)
        position = ends[-1]
    return first, position


def _ends(data: bytes | memoryview, position: int, count: int) -> list[int]:
    """Where each of `count` records ends by its length; none when one ends outside of the data. Lengths of more than three
    bytes are left to the careful way."""
    ends: list[int] = []
    append = ends.append
    try:
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                position += 1 + (byte >> 1)
            else:
                second = data[position + 1]
                if second < 0x80:
                    position += 2 + ((byte & 0x7F | second << 7) >> 1)
                else:
                    position += 3 + ((byte & 0x7F | (second & 0x7F) << 7 | data[position + 2] << 14) >> 1)
            append(position)
    except IndexError:
        return []
    return ends if position <= len(data) else []


def _is_sound(data: bytes | memoryview, octets: Octets, position: int, ends: Positions, first: int) -> bool:
    """Whether the records between `position` and `ends` are beyond doubt. Positions only grow, so one that went astray does
    not come back to its record's end."""
    begins = np.empty_like(ends)
    begins[0] = position
    begins[1:] = ends[:-1]
    fields = _Fields(octets, begins)
    length = fields.take_int()
    is_sound = (length & 1 == 0) & (fields.positions + (length >> 1) == ends)
    fields.positions += 1
    fields.skip_varint()
    is_sound &= fields.take_int() == 2 * np.arange(first, first + len(ends))
    for _ in ("key", "value"):
        size = fields.take_int()
        is_sound &= (size & 1 == 0) | (size == 1)
        fields.positions += size >> 1
    headers = fields.take_int()
    if fields.is_astray or not bool(is_sound.all()):
        return False
    with_headers = np.flatnonzero(headers)
    for index in with_headers.tolist():
        try:
            raw = int(headers[index])
            fields.positions[index] = _skip_headers(data, int(fields.positions[index]), (raw >> 1) ^ -(raw & 1))
        except (IndexError, WireError, UnicodeDecodeError):
            return False
    return bool((fields.positions == ends).all())


class _Fields:
    """One field after another of many records. Numbers are taken as they are written: zigzag, so 1 is -1."""

    def __init__(self, octets: Octets, positions: Positions) -> None:
        self._octets = octets
        self._last = len(octets) - 1
        self.positions = positions.copy()
        #: A number was longer than it may be, or beyond the end of the data.
        self.is_astray = False

    def take_int(self) -> Positions:
        octet = self._take()
        values = (octet & 0x7F).astype(np.int64)
        longer = np.flatnonzero(octet >= 0x80)
        for shift in (7, 14, 21):
            if not len(longer):
                return values
            octet = self._take(longer)
            values[longer] |= (octet & 0x7F).astype(np.int64) << shift
            longer = longer[octet >= 0x80]
        self.is_astray |= bool(len(longer))
        return values

    def skip_varint(self) -> None:
        longer = np.flatnonzero(self._take() >= 0x80)
        for _ in range(8):
            if not len(longer):
                return
            longer = longer[self._take(longer) >= 0x80]
        self.is_astray |= bool(len(longer))

    def _take(self, of: npt.NDArray[np.int64] | None = None) -> Octets:
        """The octets at the positions (of some records), which move on by one."""
        positions = self.positions if of is None else self.positions[of]
        if len(positions) and int(positions.max()) > self._last:
            self.is_astray = True
            positions = np.minimum(positions, self._last)
        octets: Octets = self._octets[positions]
        if of is None:
            self.positions += 1
        else:
            self.positions[of] += 1
        return octets
