"""Durations as kio's messages hold them, without the clock library that this package may not import."""

from __future__ import annotations

from typing import Protocol

from kio.serial.readers import read_timedelta_i32
from kio.static.primitive import i32Timedelta

from raftlake.wire.primitives import I32


class Duration(Protocol):
    """What is needed of a time span."""

    def total_seconds(self) -> float: ...


def milliseconds(value: int) -> i32Timedelta:
    """A 32-bit number of milliseconds -> the field of a kio message."""
    return read_timedelta_i32(I32.pack(value), 0)[0]


def to_milliseconds(value: Duration) -> int:
    return round(value.total_seconds() * 1000)
