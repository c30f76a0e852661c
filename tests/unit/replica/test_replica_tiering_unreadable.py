"""What cannot be read is told once for each reason, until it can be, and there is never too much of it."""

from __future__ import annotations

import pytest

from enginekit import ORDERS
from raftlake.ports.tier import TierError, TierFailure
from raftlake.replica.tiering.unreadable import ENTRIES_MAX, ENTRIES_OF_PARTITION_MAX, UnreadableParts
from remotekit import DAMAGED, LOST

OTHER = ORDERS._replace(partition=1)


def reasons(parts: UnreadableParts) -> list[str]:
    return [entry.error.reason for entry in parts.all()]


def test_the_same_reason_is_one_entry_with_all_its_offsets() -> None:
    parts = UnreadableParts()
    for offset, wall_ms in ((7, 100), (3, 200), (9, 300)):
        parts.note(ORDERS, DAMAGED, offset, wall_ms)
    parts.note(OTHER, DAMAGED, 1, 400)
    told = [(each.group, each.first, each.last, each.since_ms) for each in parts.all()]
    assert told == [(ORDERS, 3, 9, 100), (OTHER, 1, 1, 400)]


@pytest.mark.parametrize(
    ("start", "end", "is_over"),
    [(0, 3, False), (10, 12, False), (0, 4, True), (9, 10, True), (5, 6, True)],
)
def test_a_read_of_what_failed_ends_it(start: int, end: int, is_over: bool) -> None:
    parts = UnreadableParts()
    entry = parts.note(ORDERS, DAMAGED, 3, 1)
    assert parts.note(ORDERS, DAMAGED, 9, 1) is entry
    parts.note(OTHER, DAMAGED, 3, 1)
    parts.read(ORDERS, start, end)
    assert (entry not in parts) == is_over and len(parts.all()) == 2 - is_over


def test_any_read_shows_that_the_store_answers_again() -> None:
    parts = UnreadableParts()
    for group in (ORDERS, OTHER):
        parts.note(group, LOST, 3, 1)
    parts.read(ORDERS, 100, 101)
    assert [each.group for each in parts.all()] == [OTHER]
    parts.searched(OTHER)
    assert parts.all() == []


def test_a_search_ends_what_searches_told_alone() -> None:
    parts = UnreadableParts()
    parts.note(ORDERS, DAMAGED, None, 1)
    parts.note(ORDERS, TierError(TierFailure.DAMAGED, "b"), 3, 1)
    parts.read(ORDERS, 0, 2)
    assert len(parts.all()) == 2
    parts.searched(ORDERS)
    assert reasons(parts) == ["b"]


def test_a_file_that_neither_a_search_nor_a_read_could_use_is_one_entry() -> None:
    parts = UnreadableParts()
    for offset in (None, 5, None):
        entry = parts.note(ORDERS, DAMAGED, offset, 1)
    assert (entry.first, entry.last) == (5, 5) and len(parts.all()) == 1


def test_what_is_too_much_goes_the_oldest_first() -> None:
    parts = UnreadableParts()
    for number in range(ENTRIES_OF_PARTITION_MAX + 2):
        parts.note(ORDERS, TierError(TierFailure.DAMAGED, f"{number}"), number, 1)
    assert reasons(parts) == [f"{number}" for number in range(2, ENTRIES_OF_PARTITION_MAX + 2)]
    for index in range(1, ENTRIES_MAX + 5):
        parts.note(ORDERS._replace(partition=index), DAMAGED, 1, 1)
    assert len(parts.all()) == ENTRIES_MAX and parts.all()[0].group.partition == 5
