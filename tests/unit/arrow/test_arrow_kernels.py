"""The compiled loops by themselves: varints at their edges, bounds of damaged payloads. Their results are compared with the
plain way in the property tests."""

from __future__ import annotations

import numpy as np
import pytest

from raftlake.arrow import kernels

VALUES = (0, -1, 1, 63, -64, 64, -65, 1 << 31, -(1 << 40), (1 << 63) - 1, -(1 << 63))


@pytest.mark.parametrize("value", VALUES)
def test_varints(value: int) -> None:
    target = np.zeros(16, np.uint8)
    end = kernels.write_varint(target, 0, value)
    assert end == kernels.varint_size(value)
    assert kernels.read_varint(target, 0, end) == (value, end)
    assert kernels.read_varint(target, 0, end - 1)[1] == -1


def test_a_varint_without_end_is_none() -> None:
    assert kernels.read_varint(np.full(16, 0xFF, np.uint8), 0, 16)[1] == -1


@pytest.mark.parametrize("encoded", ["ff" * 9 + "02", "80" * 9 + "02", "80" * 9 + "7f", "80" * 10 + "00", "80" * 10 + "01"])
def test_a_varint_of_more_than_64_bits_is_none(encoded: str) -> None:
    """As `primitives.read_varlong`: what one way refuses the other one does not read as another number."""
    raw = np.frombuffer(bytes.fromhex(encoded), np.uint8)
    assert kernels.read_varint(raw, 0, len(raw))[1] == -1


def decode(payload: bytes, count: int) -> int:
    rows = 4
    spans = np.array([(0, len(payload), count, 0, 3, 0, 0, 0)], np.int64)
    columns = [np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.int32)]
    for _ in range(2):
        columns += [np.zeros(rows + 1, np.int32), np.zeros(rows, np.uint8), np.zeros(max(len(payload), 1), np.uint8)]
    source = np.frombuffer(payload, np.uint8)
    return int(kernels.decode_spans(source, spans, 0, 100, 0, *columns, np.zeros((0, 3), np.int64)))


def test_damaged_payloads() -> None:
    record = b"\x0c\x00\x00\x00\x01\x01\x00"
    assert decode(record, 1) == 1
    assert decode(record * 4, 4) == 4
    for payload, count in (
        (b"", 1),
        (record, 2),
        (record + b"\0", 1),
        (b"\x0a" + record[1:], 1),
        (record[:4] + b"\x03\x01\x00", 1),
        (record[:4] + b"\x7e\x01\x00", 1),
        (record[:6] + b"\x7e", 1),
        (b"\x0c\x00\x00\x08\x01\x01\x00", 1),
        (b"\x0c\x00\x00\x01\x01\x01\x00", 1),
        (b"\x01" + record[1:], 1),
        (b"\x00" + record[1:], 1),
        (b"\xff" * 9 + b"\x01", 1),
        (b"\x20\x00" + b"\x80" * 10 + b"\x00" + record[3:], 1),  # a time of eleven bytes
        (b"\x1e\x00" + b"\x80" * 9 + b"\x02" + record[3:], 1),  # and one of 65 bits
    ):
        assert decode(payload, count) == kernels.DAMAGED
