"""A survivor's log beside its table: which records of the table the log lacks, or has otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.runtime.recovery.comparison import NO_TABLES, Epochs, absent, compare, comparison_of, unread
from raftlake.tier.entries import Tiered
from recoverkit import ORDERS, facts, told, told_table

CLICKS = GroupId("clicks", 0, bytes(range(16, 32)))
#: Of the table in most tests: [10, 120).
SHOWN = ((1, 10), (3, 60))


def leaving(log_start: int, log_end: int, *epochs: tuple[int, int], shown: Epochs = SHOWN) -> tuple[int, str]:  # type: ignore[assignment]
    known = [(Epoch(epoch), Offset(offset)) for epoch, offset in epochs]
    found = compare(facts(0, shown[0][1], 120, shown), Offset(log_start), Offset(log_end), known)  # type: ignore[arg-type]
    assert (found.start_offset, found.end_offset) == (10, 120)
    return found.leaving, found.reason


@pytest.mark.parametrize(
    ("log_start", "log_end", "epochs"),
    [
        (0, 120, [(1, 0), (3, 60)]),
        (10, 500, [(1, 10), (3, 60), (4, 130)]),
        (60, 121, [(3, 60)]),
        (119, 130, [(3, 119)]),
        (120, 120, [(3, 120)]),
        (120, 150, [(7, 120)]),
        (50, 120, [(1, 50), (3, 60)]),
    ],
)
def test_a_log_that_has_all_or_goes_on_from_the_end(log_start: int, log_end: int, epochs: list[tuple[int, int]]) -> None:
    assert leaving(log_start, log_end, *epochs) == (0, "")


@pytest.mark.parametrize(
    ("log_start", "log_end", "count"), [(0, 100, 20), (50, 119, 1), (0, 60, 60), (0, 10, 110), (0, 0, 110), (0, 5, 110)]
)
def test_a_log_that_ends_before_its_table(log_start: int, log_end: int, count: int) -> None:
    epochs = [(epoch, max(offset, log_start)) for epoch, offset in ((1, 0), (3, 60)) if offset < log_end]
    records = "record" if count == 1 else "records"
    assert leaving(log_start, log_end, *epochs) == (
        count,
        f"its table shows offsets up to 120, this log ends at {log_end}: {count} {records} would leave the table",
    )


@pytest.mark.parametrize(
    ("epochs", "since"),
    [([(1, 0), (2, 60)], 60), ([(1, 0), (2, 30), (3, 60)], 30), ([(1, 0), (3, 50)], 50), ([(1, 0), (3, 60), (4, 100)], 100)],
)
def test_a_log_with_other_records_at_the_same_offsets(epochs: list[tuple[int, int]], since: int) -> None:
    """KIP-405's scenario 5: the log is longer than the table, and is another history."""
    assert leaving(0, 200, *epochs) == (
        120 - since,
        f"its table has other records than this log from offset {since} on: {120 - since} records would leave the table",
    )


def test_a_log_that_is_another_one_from_its_start_on() -> None:
    assert leaving(50, 200, (2, 50)) == (
        70,
        "its table has other records than this log from offset 50 on: 70 records would leave the table",
    )


def test_a_log_that_begins_behind_the_table() -> None:
    assert leaving(130, 200, (4, 130)) == (
        110,
        "its table ends at 120, and this log begins at 130 only: 110 records would leave the table",
    )


def test_a_table_without_rows_loses_none() -> None:
    for log_end in (0, 100, 120, 200):
        found = compare(facts(0, 120, 120, ()), Offset(0), Offset(log_end), [(Epoch(1), Offset(0))] if log_end else [])
        assert (found.leaving, found.reason) == (0, "")


def test_tables_that_the_directory_does_not_know_are_told() -> None:
    known = {0: told(0, 0, 5, ((3, 0),)), 1: told(1, 2, 9, ((3, 2),)), 2: told(2, 9, 9, ())}
    dropped = told_table({0: told(0, 0, 4, ((1, 0),))}, "clicks", is_dropped=True)
    found = comparison_of([told_table(known), dropped], {}, "/t")
    unknown = found.unknown([ORDERS])
    assert {group.partition: (shown.leaving, shown.reason) for group, shown in unknown.items()} == {
        1: (7, "its table shows 7 records, and this directory has no log of it")
    }


def test_a_new_epoch_is_above_those_of_the_tables() -> None:
    one, two = told(0, 0, 5, ((3, 0),), leader_epoch=1_004), told(1, 0, 5, ((3, 0),), leader_epoch=2_004)
    found = comparison_of([told_table({0: one, 1: two})], {}, "/t")
    assert found.epoch_of(ORDERS, METADATA_GROUP) == 1_004
    assert found.epoch_of(ORDERS._replace(partition=1), METADATA_GROUP) == 2_004
    assert found.epoch_of(METADATA_GROUP, METADATA_GROUP) == 2_004
    assert found.epoch_of(ORDERS._replace(partition=7), METADATA_GROUP) == 0
    assert NO_TABLES.epoch_of(METADATA_GROUP, METADATA_GROUP) == 0
    dropped = replace(told_table({0: one}), is_dropped=True)
    assert comparison_of([dropped], {}, "/t").facts_of(ORDERS) is None
    assert unread("no answer").facts_of(ORDERS) is None


def test_a_table_of_which_the_keys_tell_has_to_be_there() -> None:
    """An unmounted file system looks like an empty directory."""
    copied = {
        ORDERS: Tiered(start_offset=Offset(2), end_offset=Offset(120)),
        CLICKS: Tiered(start_offset=Offset(0), end_offset=Offset(3)),
    }
    clicks = told_table({}, "clicks", topic_id=CLICKS.topic_id, is_dropped=True)
    found = comparison_of([clicks], copied, "/mnt/history")
    assert list(found.missing) == [ORDERS]
    assert "the offsets 2 to 119, and /mnt/history has none of it: mount the file system" in found.missing[ORDERS]
    assert comparison_of([told_table({})], {ORDERS: copied[ORDERS]}, "/t").missing == {}


def test_an_absent_directory_is_no_proof_that_nothing_was_copied() -> None:
    found = absent("/mnt/history")
    assert found.failure is not None and "not mounted" in found.failure and "(mkdir /mnt/history)" in found.failure
