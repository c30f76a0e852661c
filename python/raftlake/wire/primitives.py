"""The primitive types of the Kafka protocol, read from and written to memory.

Owns varints, strings, byte strings, arrays' lengths, ids and tagged fields, in their legacy and compact ("flexible", KIP-482)
forms. Knows no message. Invariant of every reader: it never allocates more than the buffer it was given holds, whatever
lengths the bytes claim; running off the end raises `WireError` or one of `DECODE_ERRORS`, which `api` turns into a
WireError in one place, so that readers need no bounds check of their own for fixed-size fields.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

from raftlake.errors import ErrorCode, InvariantViolation, WireError

BytesLike: TypeAlias = bytes | bytearray | memoryview

I8 = struct.Struct(">b")
I16 = struct.Struct(">h")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")
U16 = struct.Struct(">H")

#: The id that Kafka uses for "none".
ZERO_ID = bytes(16)
ID_BYTES = 16
#: Tagged fields that one structure may carry; Kafka's own messages have fewer than ten.
TAGS_MAX = 256

#: What hostile bytes can provoke in the readers besides WireError: a short buffer, text that is not UTF-8.
DECODE_ERRORS = (struct.error, IndexError, UnicodeDecodeError)

_ERRORS: dict[int, ErrorCode] = {code.value: code for code in ErrorCode}


def error_code(value: int) -> ErrorCode:
    """The error code for a number; like Kafka's own client, an unknown number becomes UNKNOWN_SERVER_ERROR."""
    return _ERRORS.get(value, ErrorCode.UNKNOWN_SERVER_ERROR)


# --- reading: every function takes a position and returns the value and the position after it ---------------------------


def read_uvarint(buffer: BytesLike, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position + 1
    raise WireError("unsigned varint is longer than 32 bits")


def read_varlong(buffer: BytesLike, position: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits (also reads the 32-bit ones of a record, whose range the caller checks)."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise WireError("varint is longer than 64 bits")
    if value > 0xFFFFFFFFFFFFFFFF:
        raise WireError("varint is longer than 64 bits")
    return (value >> 1) ^ -(value & 1), position


def _does_not_fit(what: str, length: int, position: int, buffer: BytesLike) -> WireError:
    return WireError(f"{what} of {length} bytes at {position} does not fit into {len(buffer)} bytes")


def read_string(buffer: BytesLike, position: int, flexible: bool) -> tuple[str, int]:
    value, position = read_nullable_string(buffer, position, flexible)
    if value is None:
        raise WireError("a string that may not be null is null")
    return value, position


def read_nullable_string(buffer: BytesLike, position: int, flexible: bool) -> tuple[str | None, int]:
    if flexible:
        length, position = read_uvarint(buffer, position)
        length -= 1
    else:
        (length,) = I16.unpack_from(buffer, position)
        position += 2
    if length == -1:
        return None, position
    end = position + length
    if length < 0 or end > len(buffer):
        raise _does_not_fit("string", length, position, buffer)
    return str(buffer[position:end], "utf-8"), end


def read_nullable_bytes(buffer: memoryview, position: int, flexible: bool) -> tuple[memoryview | None, int]:
    """A byte string or a records field, as a slice of the buffer."""
    if flexible:
        length, position = read_uvarint(buffer, position)
        length -= 1
    else:
        (length,) = I32.unpack_from(buffer, position)
        position += 4
    if length == -1:
        return None, position
    end = position + length
    if length < 0 or end > len(buffer):
        raise _does_not_fit("byte string", length, position, buffer)
    return buffer[position:end], end


def read_nullable_count(buffer: BytesLike, position: int, flexible: bool, size_min: int) -> tuple[int | None, int]:
    """The length of an array whose elements have at least `size_min` bytes each; None for a null array."""
    if flexible and buffer[position] == 0:
        return None, position + 1
    if not flexible and I32.unpack_from(buffer, position)[0] == -1:
        return None, position + 4
    return read_count(buffer, position, flexible, size_min)


def read_count(buffer: BytesLike, position: int, flexible: bool, size_min: int) -> tuple[int, int]:
    """As `read_nullable_count`, for an array that may not be null."""
    if flexible:
        count, position = read_uvarint(buffer, position)
        count -= 1
    else:
        (count,) = I32.unpack_from(buffer, position)
        position += 4
    if count < 0 or count * size_min > len(buffer) - position:
        if count == -1:
            raise WireError("an array that may not be null is null")
        raise WireError(f"array of {count} elements at {position} does not fit into {len(buffer)} bytes")
    return count, position


def read_id(buffer: BytesLike, position: int) -> tuple[bytes, int]:
    end = position + ID_BYTES
    if end > len(buffer):
        raise _does_not_fit("id", ID_BYTES, position, buffer)
    return bytes(buffer[position:end]), end


def read_tags(buffer: BytesLike, position: int) -> tuple[list[tuple[int, int, int]], int]:
    """Tagged fields as (tag, start, end) in ascending order of tags, which the protocol demands."""
    count, position = read_uvarint(buffer, position)
    if count == 0:
        return [], position
    if count > TAGS_MAX:
        raise WireError(f"{count} tagged fields, allowed are {TAGS_MAX}")
    tags: list[tuple[int, int, int]] = []
    previous = -1
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        if tag <= previous:
            raise WireError(f"tagged field {tag} follows {previous}")
        previous = tag
        length, position = read_uvarint(buffer, position)
        end = position + length
        if end > len(buffer):
            raise _does_not_fit("tagged field", length, position, buffer)
        tags.append((tag, position, end))
        position = end
    return tags, position


def skip_tags(buffer: BytesLike, position: int) -> int:
    """The position after tagged fields that mean nothing to us: unknown ones are ignored (KIP-482)."""
    if buffer[position] == 0:
        return position + 1
    return read_tags(buffer, position)[1]


def require_end(buffer: BytesLike, position: int, what: str) -> None:
    if position != len(buffer):
        raise WireError(f"{what}: {len(buffer) - position} bytes are left over")


# --- writing: every function appends to a bytearray --------------------------------------------------------------------


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varlong(out: bytearray, value: int) -> None:
    """A zigzag varint; `value` lies within 64 bits."""
    write_uvarint(out, (value << 1) ^ (value >> 63))


def write_nullable_string(out: bytearray, value: str | None, flexible: bool) -> None:
    if value is None:
        out += b"\x00" if flexible else b"\xff\xff"
        return
    encoded = value.encode()
    if flexible:
        write_uvarint(out, len(encoded) + 1)
    else:
        if len(encoded) > 0x7FFF:
            raise InvariantViolation(f"a string of {len(encoded)} bytes has no form on the wire")
        out += I16.pack(len(encoded))
    out += encoded


def write_count(out: bytearray, count: int, flexible: bool) -> None:
    """The length of an array; -1 for null."""
    if flexible:
        write_uvarint(out, count + 1)
    else:
        out += I32.pack(count)


def write_tag(out: bytearray, tag: int, content: bytes | bytearray) -> None:
    write_uvarint(out, tag)
    write_uvarint(out, len(content))
    out += content


def write_topic(out: bytearray, name: str | None, topic_id: bytes | None, by_id: bool, flexible: bool) -> None:
    """The head of a topic: its id where the version speaks of ids, else its name."""
    if by_id:
        if topic_id is None or len(topic_id) != ID_BYTES:
            raise InvariantViolation(f"topic {name!r} needs its 16-byte id in this version")
        out += topic_id
    else:
        if name is None:
            raise InvariantViolation("a topic needs its name in this version")
        write_nullable_string(out, name, flexible)


def read_topic(buffer: BytesLike, position: int, by_id: bool, flexible: bool) -> tuple[str | None, bytes | None, int]:
    """The counterpart of `write_topic`: (name, None, position) or (None, id, position)."""
    if by_id:
        topic_id, position = read_id(buffer, position)
        return None, topic_id, position
    name, position = read_string(buffer, position, flexible)
    return name, None, position
