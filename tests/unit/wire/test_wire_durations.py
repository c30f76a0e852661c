"""Ids and durations between our form, Kafka's text and kio's fields; the primitive readers at their edges."""

from __future__ import annotations

import datetime
import struct
import uuid

import pytest
from kio.serial.readers import read_datetime_i64

from raftlake.errors import ErrorCode, InvariantViolation, WireError
from raftlake.wire.durations import milliseconds, moment, moment_to_milliseconds, to_milliseconds
from raftlake.wire.ids import ZERO_ID, id_from_kio, id_from_text, id_to_kio, id_to_text, table_of, table_uri
from raftlake.wire.primitives import (
    TAGS_MAX,
    error_code,
    read_count,
    read_id,
    read_nullable_bytes,
    read_nullable_string,
    read_string,
    read_tags,
    read_uvarint,
    read_varlong,
    write_nullable_string,
    write_topic,
    write_uvarint,
    write_varlong,
)

METADATA_ID = bytes(15) + b"\1"


def test_ids_as_kafka_prints_them() -> None:
    assert id_to_text(METADATA_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert id_from_text("AAAAAAAAAAAAAAAAAAAAAQ") == METADATA_ID
    odd = bytes(range(240, 256))
    assert id_from_text(id_to_text(odd)) == odd
    assert "-" in id_to_text(b"\xfb" * 16) or "_" in id_to_text(b"\xff" * 16)


@pytest.mark.parametrize(
    "text", ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAAR", "A" * 23, "AAAAAAAAAAAAAAAAAAAA+Q", "é" * 22, "A" * 21 + "="]
)
def test_what_is_not_an_id_is_refused(text: str) -> None:
    with pytest.raises(WireError):
        id_from_text(text)


@pytest.mark.parametrize("topic", ["orders", "a-b", "-", f"x-{id_to_text(METADATA_ID)}"])
@pytest.mark.parametrize("root", ["/tier", "s3://bucket/", "/", "tier"])
def test_a_place_names_the_topic_whose_table_belongs_there(root: str, topic: str) -> None:
    uri = table_uri(root, topic, METADATA_ID)
    assert table_of(uri) == table_of(f"{uri}/") == table_of(uri.rpartition("/")[2]) == (topic, METADATA_ID)


@pytest.mark.parametrize(
    "name", ["", "orders", f"-{'A' * 22}", f"orders{'A' * 22}", f"orders-{'A' * 21}R", f"orders_{'A' * 22}"]
)
def test_another_name_is_that_of_no_table(name: str) -> None:
    assert table_of(f"/tier/{name}") is None


def test_ids_as_kio_holds_them() -> None:
    assert id_to_kio(METADATA_ID) == uuid.UUID(int=1)
    assert id_from_kio(uuid.UUID(int=1)) == METADATA_ID
    assert id_to_kio(ZERO_ID) is None
    assert id_from_kio(None) == ZERO_ID


@pytest.mark.parametrize("value", [0, 1, -1, 1234, (1 << 31) - 1, -(1 << 31)])
def test_durations(value: int) -> None:
    assert milliseconds(value) == datetime.timedelta(milliseconds=value)
    assert to_milliseconds(milliseconds(value)) == value


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), ((1 << 32) - 1, "ffffffff0f")]
)
def test_unsigned_varints(value: int, encoded: str) -> None:
    out = bytearray()
    write_uvarint(out, value)
    assert out.hex() == encoded
    assert read_uvarint(out, 0) == (value, len(out))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-64, "7f"),
        (64, "8001"),
        ((1 << 63) - 1, "feffffffffffffffff01"),
        (-(1 << 63), "ff" * 9 + "01"),
    ],
)
def test_signed_varints(value: int, encoded: str) -> None:
    out = bytearray()
    write_varlong(out, value)
    assert out.hex() == encoded
    assert read_varlong(out, 0) == (value, len(out))


@pytest.mark.parametrize("encoded", ["ffffffff10", "ffffffffff01", "80808080808080"])
def test_unsigned_varints_beyond_32_bits(encoded: str) -> None:
    with pytest.raises(WireError):
        read_uvarint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["ff" * 9 + "02", "80" * 10 + "01"])
def test_signed_varints_beyond_64_bits(encoded: str) -> None:
    with pytest.raises(WireError):
        read_varlong(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("flexible", [True, False])
def test_strings(flexible: bool) -> None:
    for value in (None, "", "plain", "é" * 200):
        out = bytearray(b"..")
        write_nullable_string(out, value, flexible)
        assert read_nullable_string(out, 2, flexible) == (value, len(out))
    with pytest.raises(WireError, match="null"):
        read_string(b"\x00" if flexible else b"\xff\xff", 0, flexible)
    with pytest.raises(WireError, match="does not fit"):
        read_string(b"\x05abc" if flexible else b"\x00\x04abc", 0, flexible)


def test_lengths_below_null_are_refused() -> None:
    with pytest.raises(WireError):
        read_nullable_string(b"\xff\xfe", 0, False)
    with pytest.raises(WireError):
        read_nullable_bytes(memoryview(b"\xff\xff\xff\xfe"), 0, False)
    with pytest.raises(WireError):
        read_count(b"\xff\xff\xff\xfe", 0, False, 1)
    with pytest.raises(WireError, match="null"):
        read_count(b"\xff\xff\xff\xff", 0, False, 1)
    with pytest.raises(WireError):
        read_id(bytes(15), 0)


def test_an_array_must_fit_into_what_is_left() -> None:
    assert read_count(b"\x03" + bytes(8), 0, True, 4) == (2, 1)
    with pytest.raises(WireError, match="2 elements"):
        read_count(b"\x03" + bytes(7), 0, True, 4)


def test_tagged_fields() -> None:
    assert read_tags(b"\x00", 0) == ([], 1)
    assert read_tags(b"\x02\x00\x01x\x07\x02yz", 0) == ([(0, 3, 4), (7, 6, 8)], 8)
    with pytest.raises(WireError, match="tagged fields"):
        read_tags(bytes.fromhex("8102") + bytes(TAGS_MAX * 3), 0)


def test_what_has_no_form_on_the_wire_is_our_own_mistake() -> None:
    with pytest.raises(InvariantViolation):
        write_nullable_string(bytearray(), "x" * 40_000, False)
    with pytest.raises(InvariantViolation):
        write_topic(bytearray(), None, None, False, True)
    for topic_id in (None, b"short"):
        with pytest.raises(InvariantViolation):
            write_topic(bytearray(), "name", topic_id, True, True)


def test_error_codes() -> None:
    assert error_code(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_code(-1) is error_code(31_000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_moments_are_kios_and_end_with_the_year_9999() -> None:
    for ms in (0, 1, 1_700_000_000_123):
        assert moment(ms) == read_datetime_i64(struct.pack(">q", ms), 0)[0]
        assert moment_to_milliseconds(moment(ms)) == ms
    assert [moment_to_milliseconds(moment(ms)) for ms in (-1, 253_402_300_799_999)] == [-1, 253_402_300_799_999]
    assert moment(2**63 - 1) == moment(253_402_300_799_999)
    assert moment(-(2**63)) == moment(-1)
