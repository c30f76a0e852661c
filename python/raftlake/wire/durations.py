"""Durations and moments as kio's messages hold them, without the clock library that this package may not import.

A moment is milliseconds since 1970 on the wire, and a datetime in a message. Kafka says -1 for "never". A datetime ends with
the year 9999; later ones are moved to its end.
"""

from __future__ import annotations

from typing import Any, Protocol

from kio.serial.readers import read_datetime_i64, read_timedelta_i32
from kio.static.primitive import i32Timedelta

from raftlake.wire.primitives import I32, I64


class Duration(Protocol):
    """What is needed of a time span."""

    def total_seconds(self) -> float: ...


def milliseconds(value: int) -> i32Timedelta:
    """A 32-bit number of milliseconds -> the field of a kio message."""
    return read_timedelta_i32(I32.pack(value), 0)[0]


def to_milliseconds(value: Duration) -> int:
    return round(value.total_seconds() * 1000)


_START: Any = read_datetime_i64(I64.pack(0), 0)[0]
_MILLISECOND: Any = milliseconds(1)
#: "Never", and the last one of the year 9999.
MOMENT_MS_MIN, MOMENT_MS_MAX = -1, 253_402_300_799_999


def moment(ms: int) -> Any:
    """Milliseconds since 1970 -> the field of a kio message."""
    return _START + max(MOMENT_MS_MIN, min(ms, MOMENT_MS_MAX)) * _MILLISECOND


def moment_to_milliseconds(value: Any) -> int:
    found: int = (value - _START) // _MILLISECOND
    return found
