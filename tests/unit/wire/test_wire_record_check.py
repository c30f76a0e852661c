"""Records that are not what their batch's header says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.wire.batch_records import Record, build_batch
from raftlake.wire.batches import HEADER_BYTES
from raftlake.wire.primitives import write_varlong
from raftlake.wire.record_check import BLOCK_RECORDS, COPIED_BYTES_MAX, RECORDS_MAX, TOGETHER_MIN, require_keys, require_records

MANY = TOGETHER_MIN + 10
#: More than one block, and a last one that is not full.
BLOCKS = BLOCK_RECORDS * 2 + 77


def number(value: int) -> bytes:
    out = bytearray()
    write_varlong(out, value)
    return bytes(out)


def framed(body: bytes) -> bytes:
    return number(len(body)) + body


def body_of(
    index: int,
    *,
    timestamp: bytes = b"\x00",
    delta: bytes | None = None,
    key: bytes = b"\x01",
    value: bytes = number(1) + b"v",
    headers: bytes = b"\x00",
) -> bytes:
    return b"\x00" + timestamp + (number(index) if delta is None else delta) + key + value + headers


def payload_of(count: int, odd: Callable[[int], bytes] | None = None, at: int = 0) -> bytes:
    """`count` small records; the one `at` is what `odd` makes for its index."""
    return b"".join(odd(index) if odd is not None and index == at else framed(body_of(index)) for index in range(count))


def refusal(payload: bytes, count: int) -> str:
    with pytest.raises(RequestRejected) as caught:
        require_records(payload, count)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    return caught.value.message


@pytest.mark.parametrize("count", [1, 2, TOGETHER_MIN - 1, TOGETHER_MIN, MANY, BLOCK_RECORDS, BLOCKS])
def test_what_our_own_producers_build_is_sound(count: int) -> None:
    records = [
        Record(
            key=None if index % 5 == 0 else bytes(index % 131),
            value=None if index % 7 == 0 else bytes((index * 37) % 260),
            headers=(("name", b"x"), ("é", None)) if index % 11 == 0 else (),
            timestamp_ms=1_700_000_000_000 + index * 1_000_003,
        )
        for index in range(count)
    ]
    batch = build_batch(records, timestamp_ms=1_700_000_000_000)
    require_records(memoryview(batch)[HEADER_BYTES:], count)


@pytest.mark.parametrize("size", [127, 128, 16_383, 16_384, 1 << 21])
def test_lengths_of_every_width(size: int) -> None:
    records = [Record(key=bytes(size), value=bytes(3)) for _ in range(2)] + [Record(value=b"x")] * TOGETHER_MIN
    batch = build_batch(records, timestamp_ms=0)
    require_records(memoryview(batch)[HEADER_BYTES:], len(records))


ODD: dict[str, tuple[Callable[[int], bytes], str]] = {
    "longer than the batch": (lambda index: number(10**6) + b"x", "a length of 1000000 bytes"),
    "of a negative length": (lambda index: number(-3) + body_of(index), "a length of -3 bytes"),
    "with another offset delta": (lambda index: framed(body_of(index + 1)), "its offset delta is"),
    "longer than its content": (lambda index: framed(body_of(index) + b"rest"), "its content ends -4 bytes"),
    "shorter than its content": (lambda index: number(3) + body_of(index), "its length says 3 bytes"),
    "with a key beyond its end": (lambda index: framed(body_of(index, key=number(5_000))), ""),
    "with a key of length -2": (lambda index: framed(body_of(index, key=number(-2))), "a field of -2 bytes"),
    "of a negative length that would fit": (
        lambda index: number(-len(body_of(index)) - 1) + body_of(index),
        "a length of -",
    ),
    "with a key of length -2 and a byte of it": (
        lambda index: framed(body_of(index, key=number(-2) + b"k")),
        "a field of -2 bytes",
    ),
    "with a value of length -3 and two bytes of it": (
        lambda index: framed(body_of(index, value=number(-3) + b"vv")),
        "a field of -3 bytes",
    ),
    "with a number of 33 bits": (lambda index: framed(body_of(index, key=number(1 << 32))), "a number of more than 32 bits"),
    "with a value of length -2": (lambda index: framed(body_of(index, value=number(-2))), "a field of -2 bytes"),
    "with less than no headers": (lambda index: framed(body_of(index, headers=number(-1))), "-1 headers do not fit"),
    "with a million headers": (lambda index: framed(body_of(index, headers=number(10**6))), "1000000 headers do not fit"),
    "with a header without a name": (
        lambda index: framed(body_of(index, headers=number(1) + number(-1) + number(-1))),
        "a header's name of -1 bytes",
    ),
    "with a header's name that is no text": (
        lambda index: framed(body_of(index, headers=number(1) + number(1) + b"\xff" + number(-1))),
        "can't decode byte 0xff",
    ),
    "with a header's value beyond its end": (
        lambda index: framed(body_of(index, headers=number(1) + number(1) + b"n" + number(100))),
        "its length says",
    ),
    "with a number of more than 32 bits": (
        lambda index: framed(body_of(index, key=b"\x81\x80\x80\x80\x80\x00")),
        "a number of more than 32 bits",
    ),
    "with a time of more than 64 bits": (
        lambda index: framed(body_of(index, timestamp=b"\xff" * 10 + b"\x01")),
        "varint is longer than 64 bits",
    ),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize(("count", "at"), [(1, 0), (3, 2), (MANY, 0), (MANY, MANY - 2), (BLOCKS, BLOCK_RECORDS + 5)])
def test_a_record_that_cannot_be_walked_is_named(odd: tuple[Callable[[int], bytes], str], count: int, at: int) -> None:
    make, reason = odd
    message = refusal(payload_of(count, make, at), count)
    assert message.startswith(f"record {at} of {count}: ") and reason in message


@pytest.mark.parametrize("count", [1, MANY])
def test_the_count_of_the_header_is_the_number_of_records(count: int) -> None:
    payload = payload_of(count)
    assert refusal(payload, count + 1) == f"record {count} of {count + 1}: the batch ends in the middle of it"
    assert refusal(payload + b"rest", count) == f"{count} records: 4 bytes follow the last one"
    assert refusal(b"", count).startswith("record 0")
    assert refusal(payload[:-1], count).startswith(f"record {count - 1} of {count}: a length of")


def test_a_batch_of_too_many_records_is_refused_before_it_is_looked_at() -> None:
    assert f"{RECORDS_MAX} are accepted" in refusal(b"", RECORDS_MAX + 1)
    assert refusal(b"", RECORDS_MAX) == f"record 0 of {RECORDS_MAX}: the batch ends in the middle of it"


def test_times_and_numbers_may_be_written_in_more_bytes_than_they_need() -> None:
    """Overlong varints within 32 and 64 bits are read by everybody."""
    for count in (1, MANY):
        wide = framed(body_of(0, timestamp=b"\x80" * 9 + b"\x00", delta=b"\x80\x80\x80\x80\x00", key=b"\x81\x80\x80\x00"))
        require_records(wide + payload_of(count)[len(framed(body_of(0))) :], count)


# --- keys ------------------------------------------------------------------------------------------------------------------


def keyed(count: int, without: int | None = None, *, timestamp: bytes = b"\x00", key: bytes = number(1) + b"k") -> bytes:
    """Records with a key, but for one."""
    return b"".join(
        framed(body_of(index, timestamp=timestamp, key=b"\x01" if index == without else key)) for index in range(count)
    )


@pytest.mark.parametrize("timestamp", [b"\x00", number(200), number(-(1 << 40))])
@pytest.mark.parametrize("key", [b"\x00", number(1) + b"k", number(300) + b"k" * 300])
def test_records_with_keys_are_taken(timestamp: bytes, key: bytes) -> None:
    """An empty key is a key. Times and offsets of more than one byte stand before it."""
    payload = keyed(200, timestamp=timestamp, key=key)
    require_records(payload, 200)
    require_keys(payload, 200)


@pytest.mark.parametrize("without", [0, 1, 63, 64, 65, 198, 199])
@pytest.mark.parametrize("timestamp", [b"\x00", number(1 << 40)])
def test_a_record_without_a_key_is_refused_and_named(without: int, timestamp: bytes) -> None:
    payload = keyed(200, without, timestamp=timestamp)
    require_records(payload, 200)
    with pytest.raises(
        RequestRejected, match=f"record {without} of 200: Compacted topic cannot accept message without key"
    ) as caught:
        require_keys(memoryview(payload), 200)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_large_payload_is_looked_at_where_it_is() -> None:
    large = number(COPIED_BYTES_MAX) + b"k" * COPIED_BYTES_MAX
    require_keys(keyed(2, key=large), 2)
    with pytest.raises(RequestRejected, match="record 1 of 2"):
        require_keys(keyed(2, 1, key=large), 2)
