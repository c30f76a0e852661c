"""Codecs for the cold messages, compiled from kio's dataclasses.

kio supplies the messages (one typed dataclass per version, generated from Kafka's own schemas); this module supplies the
bytes. kio's own reader is not used on bytes from the network: it allocates whatever an array's length claims, and a length
of 2^31 ends the process; unknown tagged fields, which newer peers may send, are an error to it. Here array lengths are
bounded by the bytes that are left, unknown tagged fields are skipped, and unknown error codes become UNKNOWN_SERVER_ERROR.

Invariant: decoding raises nothing but `WireError` and `DECODE_ERRORS`; what it allocates is bounded by a small multiple of
the buffer.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.static.protocol import Entity

from raftlake.errors import InvariantViolation, WireError
from raftlake.wire.durations import milliseconds, moment, moment_to_milliseconds, to_milliseconds
from raftlake.wire.ids import id_from_kio, id_to_kio
from raftlake.wire.primitives import (
    I16,
    I32,
    I64,
    ID_BYTES,
    read_id,
    read_nullable_bytes,
    read_nullable_count,
    read_nullable_string,
    read_string,
    read_tags,
    skip_tags,
    write_count,
    write_nullable_string,
    write_tag,
    write_uvarint,
)

#: A value of any field: the static types are kio's dataclasses', which this module handles generically.
Value: TypeAlias = Any
Read: TypeAlias = Callable[[memoryview, int], tuple[Value, int]]
Write: TypeAlias = Callable[[bytearray, Value], None]

_NUMBERS: Mapping[str, str] = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "uint16": ">H"}
_KIO_ERRORS: dict[int, KioErrorCode] = {code.value: code for code in KioErrorCode}


#: What a field of a tagged structure is where its description names no default.
_ZEROS: Mapping[str, Value] = {"string": "", "int8": 0, "int16": 0, "int32": 0, "int64": 0, "uint16": 0}


class HandWritten:
    """A part of a message that writes itself, in the version of the message that it is put into.

    It is for parts that a message has thousands of. The schema does not check it: its maker has to put the right part there.
    """

    __slots__ = ()

    #: A method of each of them: appends its bytes.
    write_to: Callable[[bytearray], None]


class Codec(NamedTuple):
    read: Read
    write: Write
    #: The fewest bytes that a value can have: bounds the length of arrays.
    size_min: int


class _Tagged(NamedTuple):
    name: str
    codec: Codec
    default: Value


def decode(message_type: type[Entity], view: memoryview, position: int) -> tuple[Value, int]:
    """The message at `position` and the position after it; WireError or DECODE_ERRORS when the bytes are not one."""
    return entity_codec(message_type).read(view, position)


def encode(out: bytearray, message: Entity) -> None:
    """Append a kio message in the version of its class."""
    entity_codec(type(message)).write(out, message)


@cache
def entity_codec(entity: type[Entity]) -> Codec:
    """The codec of a kio dataclass, built from its fields' metadata once."""
    flexible = entity.__flexible__
    plain: list[tuple[str, Codec]] = []
    tagged: dict[int, _Tagged] = {}
    for field in dataclasses.fields(entity):
        tag = field.metadata.get("tag")
        if tag is None:
            plain.append((field.name, _field_codec(field, flexible)))
        elif not flexible:
            raise InvariantViolation(f"{entity.__qualname__}.{field.name}: a tagged field needs a flexible version")
        else:
            tagged[tag] = _Tagged(field.name, _field_codec(field, flexible), _tagged_default(entity, field))
    size_min = sum(codec.size_min for _, codec in plain) + flexible
    return Codec(_entity_reader(entity, plain, tagged, flexible), _entity_writer(plain, tagged, flexible), size_min)


def _tagged_default(entity: type[Entity], field: dataclasses.Field[Value]) -> Value:
    """What a tagged field means where it is not sent. A structure has no default in kio's classes; Kafka's is the one whose
    fields have theirs, and zero or nothing where they name none."""
    if field.default is not dataclasses.MISSING:
        return field.default
    if not dataclasses.is_dataclass(field.type):
        raise InvariantViolation(f"{entity.__qualname__}.{field.name}: a tagged field needs a default")
    unsaid = [inner for inner in dataclasses.fields(field.type) if inner.default is dataclasses.MISSING]
    zeros = {inner.name: _ZEROS.get(inner.metadata.get("kafka_type", "")) for inner in unsaid}
    if None in zeros.values():
        raise InvariantViolation(f"{entity.__qualname__}.{field.name}: a structure whose default is not known: {zeros}")
    return field.type(**zeros)  # type: ignore[operator]


def _entity_reader(
    entity: type[Entity], plain: Sequence[tuple[str, Codec]], tagged: Mapping[int, _Tagged], flexible: bool
) -> Read:
    readers = [(name, codec.read) for name, codec in plain]
    absent = {known.name: known.default for known in tagged.values()}

    def read(view: memoryview, position: int) -> tuple[Value, int]:
        values: dict[str, Value] = dict(absent)
        for name, read_field in readers:
            values[name], position = read_field(view, position)
        if flexible:
            if not tagged or view[position] == 0:
                position = skip_tags(view, position)
            else:
                position = read_tagged(view, position, values)
        return entity(**values), position

    def read_tagged(view: memoryview, position: int, values: dict[str, Value]) -> int:
        tags, position = read_tags(view, position)
        for tag, start, end in tags:
            known = tagged.get(tag)
            if known is None:
                continue
            values[known.name], stop = known.codec.read(view[:end], start)
            if stop != end:
                raise WireError(f"tagged field {tag} has {end - start} bytes, its value {stop - start}")
        return position

    return read


def _entity_writer(plain: Sequence[tuple[str, Codec]], tagged: Mapping[int, _Tagged], flexible: bool) -> Write:
    writers = [(name, codec.write) for name, codec in plain]
    ordered = sorted(tagged.items())

    def write(out: bytearray, message: Value) -> None:
        if isinstance(message, HandWritten):
            message.write_to(out)
            return
        for name, write_field in writers:
            write_field(out, getattr(message, name))
        if flexible:
            write_tagged(out, message)

    def write_tagged(out: bytearray, message: Value) -> None:
        present = [(tag, known, getattr(message, known.name)) for tag, known in ordered]
        present = [(tag, known, value) for tag, known, value in present if value != known.default]
        write_uvarint(out, len(present))
        for tag, known, value in present:
            content = bytearray()
            known.codec.write(content, value)
            write_tag(out, tag, content)

    return write


def _field_codec(field: dataclasses.Field[Value], flexible: bool) -> Codec:
    type_, nullable = _without_none(field.type)
    if not _is_generic(type_, tuple):
        return _value_codec(field, type_, flexible, nullable)
    # Of an array only the array itself can be null.
    element, _ = _without_none(get_args(type_)[0])
    return _array_codec(_value_codec(field, element, flexible, False), flexible, nullable)


def _is_generic(type_: object, origin: object) -> bool:
    return get_origin(type_) is origin


def _without_none(type_: Value) -> tuple[Value, bool]:
    """`X | None` -> (X, True); `X` -> (X, False)."""
    if not _is_generic(type_, UnionType):
        return type_, False
    (inner,) = (argument for argument in get_args(type_) if argument is not NoneType)
    return inner, True


def _value_codec(field: dataclasses.Field[Value], type_: Value, flexible: bool, nullable: bool) -> Codec:
    if dataclasses.is_dataclass(type_) and not nullable:
        return entity_codec(type_)  # type: ignore[arg-type]
    kafka_type: str = field.metadata.get("kafka_type", "a nullable structure")
    match kafka_type:
        case "string":
            return _string_codec(flexible, nullable)
        case "bytes" if not nullable:
            return _bytes_codec(flexible)
        case "uuid":
            return _ID
        case "bool":
            return _BOOL
        case "error_code":
            return _ERROR_CODE
        case "timedelta_i32":
            return _TIMEDELTA
        case "datetime_i64" if not nullable:
            return _MOMENT
        case _ if kafka_type in _NUMBERS and not nullable:
            return _number_codec(_NUMBERS[kafka_type])
        case _:
            raise InvariantViolation(f"field {field.name}: {kafka_type} is not in any message that is spoken here")


def _array_codec(element: Codec, flexible: bool, nullable: bool) -> Codec:
    read_element, write_element, size_min = element

    def read(view: memoryview, position: int) -> tuple[Value, int]:
        count, position = read_nullable_count(view, position, flexible, size_min)
        if count is None:
            if nullable:
                return None, position
            raise WireError("an array that may not be null is null")
        values: list[Value] = []
        for _ in range(count):
            value, position = read_element(view, position)
            values.append(value)
        return tuple(values), position

    def write(out: bytearray, values: Value) -> None:
        write_count(out, -1 if values is None else len(values), flexible)
        for value in values or ():
            write_element(out, value)

    return Codec(read, write, 1 if flexible else 4)


def _string_codec(flexible: bool, nullable: bool) -> Codec:
    reader = read_nullable_string if nullable else read_string

    def read(view: memoryview, position: int) -> tuple[Value, int]:
        return reader(view, position, flexible)

    def write(out: bytearray, value: Value) -> None:
        write_nullable_string(out, value, flexible)

    return Codec(read, write, 1 if flexible else 2)


@cache
def _bytes_codec(flexible: bool) -> Codec:
    def read(view: memoryview, position: int) -> tuple[Value, int]:
        value, position = read_nullable_bytes(view, position, flexible)
        if value is None:
            raise WireError("a byte string that may not be null is null")
        return bytes(value), position

    def write(out: bytearray, value: Value) -> None:
        write_count(out, len(value), flexible)
        out += value

    return Codec(read, write, 1 if flexible else 4)


@cache
def _number_codec(format_: str) -> Codec:
    number = struct.Struct(format_)
    unpack, pack, size = number.unpack_from, number.pack, number.size

    def read(view: memoryview, position: int) -> tuple[Value, int]:
        return unpack(view, position)[0], position + size

    def write(out: bytearray, value: Value) -> None:
        out += pack(value)

    return Codec(read, write, size)


def _read_bool(view: memoryview, position: int) -> tuple[Value, int]:
    return view[position] != 0, position + 1


def _write_bool(out: bytearray, value: Value) -> None:
    out.append(bool(value))


def _read_error_code(view: memoryview, position: int) -> tuple[Value, int]:
    (code,) = I16.unpack_from(view, position)
    return _KIO_ERRORS.get(code, KioErrorCode.unknown_server_error), position + 2


def _write_error_code(out: bytearray, value: Value) -> None:
    # An IntEnum of either kind: kio's or ours.
    out += I16.pack(value)


def _read_timedelta(view: memoryview, position: int) -> tuple[Value, int]:
    return milliseconds(I32.unpack_from(view, position)[0]), position + 4


def _write_timedelta(out: bytearray, value: Value) -> None:
    out += I32.pack(to_milliseconds(value))


def _read_moment(view: memoryview, position: int) -> tuple[Value, int]:
    (ms,) = I64.unpack_from(view, position)
    return moment(ms), position + 8


def _write_moment(out: bytearray, value: Value) -> None:
    out += I64.pack(moment_to_milliseconds(value))


def _read_id(view: memoryview, position: int) -> tuple[Value, int]:
    raw, position = read_id(view, position)
    return id_to_kio(raw), position


def _write_id(out: bytearray, value: Value) -> None:
    out += id_from_kio(value)


_BOOL = Codec(_read_bool, _write_bool, 1)
_ERROR_CODE = Codec(_read_error_code, _write_error_code, 2)
_TIMEDELTA = Codec(_read_timedelta, _write_timedelta, 4)
_MOMENT = Codec(_read_moment, _write_moment, 8)
_ID = Codec(_read_id, _write_id, ID_BYTES)
