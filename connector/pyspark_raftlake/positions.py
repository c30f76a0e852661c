"""Positions that users name, turned into offsets: earliest, latest, offsets, timestamps.

Asked once per query: a position's meaning depends on the log at that time. Offsets that retention removed or that are not
written yet are an error or are moved into the log, as `failOnDataLoss` says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from pyspark_raftlake import errors
from pyspark_raftlake.data_loss import report_data_loss
from pyspark_raftlake.log_view import LogView
from pyspark_raftlake.offsets import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Earliest,
    Latest,
    Position,
    TopicPartition,
    topics_of,
)
from pyspark_raftlake.options import SourceOptions
from raftlake.errors import ConfigError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    offsets: dict[TopicPartition, int]
    #: Partitions that start where the log ended when they were asked for.
    late_bound: frozenset[TopicPartition]
    #: These, and those that may have started so when they were asked for earlier: a record of the asked time came later.
    maybe_late_bound: frozenset[TopicPartition]


def resolve_start(view: LogView, position: Position | None, options: SourceOptions) -> Start:
    """Where a query begins, for every partition that it reads."""
    partitions = view.require_selected()
    match position:
        case Earliest() | None:
            return _start(_earliest(view, partitions), ())
        case Latest():
            return _start(_latest(view, partitions), partitions)
        case AtOffsets(offsets):
            require_known(view, "startingOffsets", position)
            _require_all(errors.incomplete_offsets, "startingOffsets", offsets, partitions)
            found = _within_the_log(view, offsets, fail=options.fail_on_data_loss)
            return _start(found, [partition for partition, offset in offsets.items() if offset == LATEST])
        case AtTimestamp() | AtTimestamps():
            timestamps_ms = _timestamps("startingOffsetsByTimestamp", view, position, partitions)
            return _start_at_timestamps(view, timestamps_ms, options)
        case _:
            assert_never(position)


def resolve_end(view: LogView, position: Position | None, options: SourceOptions) -> dict[TopicPartition, int]:
    """Where a batch query ends (exclusive), for every partition that it reads."""
    partitions = view.require_selected()
    match position:
        case Latest() | None:
            return _latest(view, partitions)
        case Earliest():
            return _earliest(view, partitions)
        case AtOffsets(offsets):
            require_known(view, "endingOffsets", position)
            _require_all(errors.incomplete_offsets, "endingOffsets", offsets, partitions)
            return _end_at_offsets(view, offsets, fail=options.fail_on_data_loss)
        case AtTimestamp() | AtTimestamps():
            timestamps_ms = _timestamps("endingOffsetsByTimestamp", view, position, partitions)
            found = _at_timestamps(view, timestamps_ms)
            unmatched = _latest(view, [partition for partition, offset in found.items() if offset < 0])
            return found | unmatched
        case _:
            assert_never(position)


def require_known(view: LogView, option: str, position: Position | None) -> None:
    """ConfigError when a position names partitions that do not exist."""
    match position:
        case AtOffsets(offsets):
            view.require_existing(option, offsets)
        case AtTimestamps(timestamps_ms):
            view.require_existing(f"{option}ByTimestamp", timestamps_ms)
        case Earliest() | Latest() | AtTimestamp() | None:
            return
        case _:
            assert_never(position)


def _start_at_timestamps(view: LogView, timestamps_ms: Mapping[TopicPartition, int], options: SourceOptions) -> Start:
    found = _at_timestamps(view, timestamps_ms)
    unmatched = [partition for partition, offset in found.items() if offset < 0]
    if unmatched and not options.starts_at_latest_without_match:
        raise errors.no_offset_for_timestamp(unmatched[0], timestamps_ms[unmatched[0]])
    maybe = found if options.starts_at_latest_without_match else ()
    return _start(found | _latest(view, unmatched), unmatched, maybe)


def _start(
    offsets: dict[TopicPartition, int], late_bound: Iterable[TopicPartition], maybe: Iterable[TopicPartition] = ()
) -> Start:
    late = frozenset(late_bound)
    return Start(offsets=offsets, late_bound=late, maybe_late_bound=late.union(maybe))


def _timestamps(
    option: str, view: LogView, position: AtTimestamp | AtTimestamps, partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, int]:
    if isinstance(position, AtTimestamp):
        return dict.fromkeys(partitions, position.timestamp_ms)
    view.require_existing(option, position.timestamps_ms)
    _require_all(errors.incomplete_timestamps, option, position.timestamps_ms, partitions)
    return dict(position.timestamps_ms)


def _require_all(
    error: Callable[[str, Iterable[object], Iterable[object]], ConfigError],
    option: str,
    offsets: Mapping[TopicPartition, int],
    partitions: tuple[TopicPartition, ...],
) -> None:
    if set(offsets) != set(partitions):
        raise error(option, offsets, partitions)


def _within_the_log(view: LogView, offsets: Mapping[TopicPartition, int], *, fail: bool) -> dict[TopicPartition, int]:
    """Starting offsets with -1 and -2 resolved; those outside of the log are lost data, or moved to its nearer end."""
    first, last = _earliest(view, offsets), _latest(view, offsets)
    found: dict[TopicPartition, int] = {}
    for partition, offset in offsets.items():
        if offset in (EARLIEST, LATEST):
            found[partition] = first[partition] if offset == EARLIEST else last[partition]
            continue
        found[partition] = min(max(offset, first[partition]), last[partition])
        if found[partition] != offset:
            held = f"[{first[partition]}, {last[partition]})"
            report_data_loss(f"startingOffsets for {partition} is {offset}, but the log holds {held} only", fail=fail)
    return found


def _end_at_offsets(view: LogView, offsets: Mapping[TopicPartition, int], *, fail: bool) -> dict[TopicPartition, int]:
    """Ending offsets with -1 resolved; those that are not written yet are refused, or moved to the log's end."""
    last = _latest(view, offsets)
    found: dict[TopicPartition, int] = {}
    for partition, offset in offsets.items():
        found[partition] = last[partition] if offset == LATEST else min(offset, last[partition])
        if offset > last[partition]:
            beyond = errors.end_beyond_the_log(partition, offset, last[partition])
            if fail:
                raise beyond
            _log.warning("%s", beyond)
    return found


# --- offsets of all that was asked for; a topic that vanishes meanwhile does not exist ---------------------------------------


def _earliest(view: LogView, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return _all_of(view, partitions, view.earliest(partitions))


def _latest(view: LogView, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return _all_of(view, partitions, view.latest(partitions))


def _at_timestamps(view: LogView, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return _all_of(view, timestamps_ms, view.at_timestamps(timestamps_ms))


def _all_of(
    view: LogView, partitions: Collection[TopicPartition], found: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    vanished = topics_of(partition for partition in partitions if partition not in found)
    if vanished:
        view.require_told(vanished)
        raise view.missing_topics(vanished)
    return found
