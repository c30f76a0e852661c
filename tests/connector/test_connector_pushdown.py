"""Filters of a batch query: which offsets, partitions and times they leave, and that in doubt everything is left."""

from __future__ import annotations

import sys
import types
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pyspark_raftlake.pushdown import ALL_ROWS, PUSHING_PROGRAM, spark_pushes_filters, wanted_by
from pyspark_raftlake.ranges import OffsetRange
from pyspark_raftlake.seam import TimeSpan

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
NOON_US = 1_704_110_400_000_000


def narrowed(*filters: Filter, partition: int = 0) -> tuple[int, int] | None:
    found = wanted_by(filters).narrow(OffsetRange(topic="t", partition=partition, start=10, end=20))
    return None if found is None else (found.start, found.end)


OFFSETS = [
    (GreaterThan(("offset",), 12), (13, 20)),
    (GreaterThanOrEqual(("offset",), 12), (12, 20)),
    (LessThan(("offset",), 12), (10, 12)),
    (LessThanOrEqual(("offset",), 12), (10, 13)),
    (EqualTo(("offset",), 12), (12, 13)),
    (EqualNullSafe(("offset",), 19), (19, 20)),
    (EqualTo(("offset",), 20), None),
    (LessThan(("offset",), 10), None),
    (In(("offset",), (14, 12, 17)), (12, 18)),
    (EqualTo(("partition",), 0), (10, 20)),
    (EqualTo(("partition",), 1), None),
    (In(("partition",), (1, 2)), None),
    (In(("topic",), ("u", "t")), (10, 20)),
    (EqualTo(("topic",), "u"), None),
]


@pytest.mark.parametrize(("condition", "expected"), OFFSETS, ids=str)
def test_what_a_filter_leaves_of_a_range(condition: Filter, expected: tuple[int, int] | None) -> None:
    assert narrowed(condition) == expected


def test_all_filters_hold_together() -> None:
    assert narrowed(GreaterThan(("offset",), 12), LessThan(("offset",), 18), GreaterThan(("offset",), 11)) == (13, 18)
    assert narrowed(In(("partition",), (0, 1)), In(("partition",), (1, 2))) is None
    assert narrowed(In(("partition",), (0, 1)), In(("partition",), (1, 2)), partition=1) == (10, 20)


NOTHING_SAID = [
    Not(EqualTo(("offset",), 12)),
    IsNotNull(("offset",)),
    IsNull(("offset",)),
    EqualTo(("value",), b"x"),
    EqualTo(("headers", "offset"), 12),
    EqualTo(("offset",), None),
    EqualTo(("offset",), 12.5),
    EqualTo(("offset",), True),
    In(("offset",), (12, None)),
    In(("offset",), ()),
    GreaterThan(("partition",), 5),
    StringStartsWith(("topic",), "u"),
    GreaterThan(("timestamp",), NOON.replace(tzinfo=None)),
]


@pytest.mark.parametrize("condition", NOTHING_SAID, ids=str)
def test_a_filter_that_cannot_be_used_leaves_everything(condition: Filter) -> None:
    assert wanted_by([condition]) == ALL_ROWS


def test_times_are_exact_to_the_microsecond() -> None:
    def times(*filters: Filter) -> TimeSpan:
        return wanted_by(filters).times

    at = ("timestamp",)
    assert times(GreaterThan(at, NOON)) == (NOON_US + 1, None)
    assert times(GreaterThanOrEqual(at, NOON + timedelta(microseconds=3))) == (NOON_US + 3, None)
    assert times(LessThan(at, NOON), GreaterThan(at, NOON - timedelta(seconds=1))) == (NOON_US - 999_999, NOON_US - 1)
    assert times(LessThanOrEqual(at, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))) == (None, -1)
    assert times(EqualTo(at, NOON)) == (NOON_US, NOON_US)


def test_a_reader_takes_filters_only_where_spark_pushes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark refuses a reader with `pushFilters` while its setting is off, which it is by default."""
    monkeypatch.delitem(sys.modules, PUSHING_PROGRAM, raising=False)
    assert not spark_pushes_filters()
    monkeypatch.setitem(sys.modules, PUSHING_PROGRAM, types.ModuleType("any"))
    assert spark_pushes_filters()
