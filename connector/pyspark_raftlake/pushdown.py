"""What the filters of a batch query leave of its ranges: partitions, offsets, times. Spark applies each filter again itself.

A filter is a condition that every wanted row meets. One that says nothing of these columns, or is of an unknown kind, leaves
everything.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark_raftlake.ranges import OffsetRange
from pyspark_raftlake.seam import ALL_TIMES, TimeSpan

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

#: The program of the Python process in which Spark asks for filters. It does so only where
#: `spark.sql.python.filterPushdown.enabled` is set, and refuses a reader that takes filters where it is not.
PUSHING_PROGRAM = "pyspark.sql.worker.data_source_pushdown_filters"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The rows that a query may want. None is without a limit."""

    partitions: frozenset[int] | None = None
    topics: frozenset[str] | None = None
    offset_min: int | None = None
    #: Inclusive.
    offset_max: int | None = None
    times: TimeSpan = ALL_TIMES

    def narrow(self, range_: OffsetRange) -> OffsetRange | None:
        """The part of a range that may hold wanted rows."""
        if self.partitions is not None and range_.partition not in self.partitions:
            return None
        if self.topics is not None and range_.topic not in self.topics:
            return None
        start = range_.start if self.offset_min is None else max(range_.start, self.offset_min)
        end = range_.end if self.offset_max is None else min(range_.end, self.offset_max + 1)
        return replace(range_, start=start, end=end) if start < end else None

    def _within(self, column: str, low: int | None, high: int | None) -> Wanted:
        if column == "offset":
            return replace(self, offset_min=_largest(self.offset_min, low), offset_max=_smallest(self.offset_max, high))
        times = TimeSpan(_largest(self.times.us_min, low), _smallest(self.times.us_max, high))
        return replace(self, times=times)

    def _among(self, column: str, values: frozenset[Any]) -> Wanted:
        if column == "partition":
            return replace(self, partitions=values if self.partitions is None else self.partitions & values)
        if column == "topic":
            return replace(self, topics=values if self.topics is None else self.topics & values)
        return self._within(column, min(values), max(values)) if values else self

    def meeting(self, condition: Filter) -> Wanted:
        """These rows, as far as they meet one more filter."""
        kind, values = type(condition).__name__, _values(condition)
        if values is None:
            return self
        column = condition.attribute[0]  # type: ignore[attr-defined]
        if kind in ("EqualTo", "EqualNullSafe", "In"):
            return self._among(column, frozenset(values))
        if column not in ("offset", "timestamp"):
            return self
        (value,) = values
        match kind:
            case "GreaterThan":
                return self._within(column, value + 1, None)
            case "GreaterThanOrEqual":
                return self._within(column, value, None)
            case "LessThan":
                return self._within(column, None, value - 1)
            case "LessThanOrEqual":
                return self._within(column, None, value)
        return self


ALL_ROWS = Wanted()


def wanted_by(filters: Iterable[Filter]) -> Wanted:
    """The rows that may meet all filters."""
    wanted = ALL_ROWS
    for condition in filters:
        wanted = wanted.meeting(condition)
    return wanted


def spark_pushes_filters() -> bool:
    """Whether this process may have a reader that takes filters."""
    return PUSHING_PROGRAM in sys.modules


def _values(condition: Filter) -> list[Any] | None:
    """The values that a filter compares with; None where it cannot be used."""
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    value: Any = getattr(condition, "value", None)
    if len(attribute) != 1 or value is None:
        return None
    values: list[Any] = list(value) if type(condition).__name__ == "In" else [value]
    match attribute[0]:
        case "offset" | "partition":
            is_usable = all(type(each) is int for each in values)
        case "topic":
            is_usable = all(type(each) is str for each in values)
        case "timestamp":
            is_usable = all(isinstance(each, datetime) and each.tzinfo is not None for each in values)
            values = [(each - _EPOCH) // _MICROSECOND for each in values] if is_usable else values
        case _:
            is_usable = False
    return values if is_usable and values else None


def _largest(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _smallest(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)
