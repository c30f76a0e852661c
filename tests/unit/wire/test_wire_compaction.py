"""What a pass of compaction leaves of a log: each rule, on logs of a few batches."""

from __future__ import annotations

import itertools

import pytest

from compactkit import (
    NOW_MS,
    RETENTION_MS,
    SALT,
    Asked,
    LogInTheMaking,
    compact,
    header_of,
    records_in,
    require_whole,
    shown,
)
from raftlake.errors import CorruptBatch, InvariantViolation
from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.batches import HEADER_BYTES, Record, build_batch, parse_header
from raftlake.wire.compaction import HORIZON_MS_MAX, KEY_BYTES_MAX, AbortedRanges, KeyMap, Rewriter, cut_empty, empty_batch
from raftlake.wire.record_fields import TOGETHER_MIN

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HORIZON_MS = NOW_MS + RETENTION_MS
MANY = TOGETHER_MIN * 2


# --- keys and values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_the_newest_record_of_each_key_stays_at_its_offset(codec: str) -> None:
    log = LogInTheMaking()
    log.data(("a", "1"), ("b", "1"), ("c", "1"), compression=codec)
    log.data(("a", "2"), ("d", "1"), compression=codec)
    log.data(("d", "2"), compression=codec)
    passed = compact(log.batches, Asked(until=log.end))
    assert shown(passed.batches) == [(1, "b", "1"), (2, "c", "1"), (3, "a", "2"), (5, "d", "2")]
    assert passed.records_removed == 2
    assert passed.clean_until == log.end
    require_whole(log.batches, passed.batches)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [TOGETHER_MIN - 1, MANY])
def test_a_sparse_batch_keeps_the_numbers_of_its_header(codec: str, count: int) -> None:
    log = LogInTheMaking()
    fields = {"compression": codec, "producer_id": 7, "producer_epoch": 3, "base_sequence": 40}
    log.data(*[Record(key=b"%d" % i, value=b"v", timestamp_ms=NOW_MS + i) for i in range(count)], **fields)
    log.data(("0", "new"), (str(count - 1), "new"), ("9", "new"))
    passed = compact(log.batches, Asked(until=log.end))
    before, after = header_of(log.batches[0]), header_of(passed.batches[0])
    assert after.record_count == count - 3
    assert after.timestamp_ms_max == NOW_MS + count - 2
    same = ("base_offset", "last_offset_delta", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")
    for name in (*same, "base_timestamp_ms", "attributes", "magic"):
        assert getattr(after, name) == getattr(before, name), name
    expected = [(i, NOW_MS + i) for i in range(count) if i not in (0, 9, count - 1)]
    assert [(each.offset, each.timestamp_ms) for each in records_in(passed.batches[:1])] == expected


def test_runs_of_kept_records_are_copied_whole() -> None:
    log = LogInTheMaking()
    log.data(*[(f"k{i}", f"v{i}") for i in range(8)])
    log.data(("k2", "n"), ("k5", "n"))
    passed = compact(log.batches, Asked(until=log.end))
    kept = [(i, f"k{i}", f"v{i}") for i in (0, 1, 3, 4, 6, 7)]
    assert shown(passed.batches) == [*kept, (8, "k2", "n"), (9, "k5", "n")]


def test_a_batch_of_which_everything_stays_is_the_same_bytes() -> None:
    log = LogInTheMaking()
    log.data(("a", "1"), compression="gzip")
    log.data(("b", "1"), compression="zstd")
    passed = compact(log.batches, Asked(until=log.end))
    assert passed.batches == log.batches
    assert passed.records_removed == 0


def test_records_without_a_key_go() -> None:
    log = LogInTheMaking()
    log.data((None, "1"), ("", "empty"), ("a", "1"), (None, "2"))
    assert shown(compact(log.batches, Asked(until=log.end)).batches) == [(1, "", "empty"), (2, "a", "1")]


def test_headers_and_times_of_kept_records_stay() -> None:
    log = LogInTheMaking()
    kept = Record(key=b"k", value=b"v", timestamp_ms=NOW_MS - 5_000, headers=(("h", b"1"), ("n", None)))
    log.data(Record(key=b"x", value=b"1", timestamp_ms=NOW_MS), kept)
    log.data(("x", "2"))
    (found, _) = records_in(compact(log.batches, Asked(until=log.end)).batches)
    assert found == kept._replace(offset=1)


def test_the_append_time_of_a_batch_stays() -> None:
    log = LogInTheMaking()
    log.data(("x", "1"), ("k", "1"), time_ms=NOW_MS + 77, log_append_time=True)
    log.data(("x", "2"), ("t", None), time_ms=NOW_MS + 99, log_append_time=True)
    passed = compact(log.batches, Asked(until=log.end))
    assert [each.timestamp_ms for each in records_in(passed.batches)] == [NOW_MS + 77, NOW_MS + 99, NOW_MS + 99]


def test_long_keys_are_told_apart() -> None:
    size = KEY_BYTES_MAX + 40
    keys = ["a" * size, "a" * (size - 1) + "b", "a" * KEY_BYTES_MAX, "a" * (KEY_BYTES_MAX + 1)]
    log = LogInTheMaking()
    log.data(*[(key, "old") for key in keys])
    log.data(*[(key, "new") for key in keys])
    assert shown(compact(log.batches, Asked(until=log.end)).batches) == [(4 + i, key, "new") for i, key in enumerate(keys)]


def test_what_was_compacted_before_gives_way_to_newer_values_only() -> None:
    """Below the dirty part nothing is collected: a key that stands there twice was never compacted, and stays."""
    log = LogInTheMaking()
    log.data(("a", "1"))
    dirty = log.data(("b", "1"))
    log.data(("a", "2"))
    assert shown(compact(log.batches, Asked(dirty_from=dirty, until=log.end)).batches) == [(1, "b", "1"), (2, "a", "2")]
    last = compact(log.batches, Asked(dirty_from=2, until=2))
    assert last.batches == log.batches and last.clean_until == 2


# --- the bounds of a pass ----------------------------------------------------------------------------------------------------


def test_the_map_ends_at_the_batch_where_it_is_full() -> None:
    log = LogInTheMaking()
    log.data(("a", "1"), ("b", "1"), ("a", "2"))
    log.data(("c", "1"))
    log.data(("a", "3"), (None, "stays"), ("t", None))
    passed = compact(log.batches, Asked(until=log.end, keys_max=3))
    assert passed.clean_until == 4
    assert shown(passed.batches) == [(1, "b", "1"), (2, "a", "2"), (3, "c", "1"), *shown(log.batches[2:])]
    assert passed.batches[-1] == log.batches[-1]


def test_a_map_takes_at_least_one_batch() -> None:
    log = LogInTheMaking()
    log.data(("a", "1"), ("b", "1"), ("a", "2"))
    log.data(("b", "2"))
    passed = compact(log.batches, Asked(until=log.end, keys_max=1))
    assert passed.clean_until == 3
    assert shown(passed.batches) == [(1, "b", "1"), (2, "a", "2"), (3, "b", "2")]


def test_a_map_that_is_full_takes_no_batch_any_more() -> None:
    log = LogInTheMaking()
    for key in ("a", "b"):
        log.data((key, "1"))
    keys = KeyMap(Asked(until=log.end, keys_max=1), SALT)
    taken = [keys.add(batch, header_of(batch)) for batch in log.batches]
    assert taken == [True, False]
    assert len(keys) == 1 and keys.newest([b"a", b"b"]) == [0, None]


# --- tombstones --------------------------------------------------------------------------------------------------------------


def tombstone_log() -> LogInTheMaking:
    log = LogInTheMaking()
    log.data(("a", "1"), ("b", "1"))
    log.data(("a", None), ("c", "1"), time_ms=NOW_MS - 3)
    return log


@pytest.mark.parametrize("codec", CODECS)
def test_a_tombstone_waits_for_its_horizon(codec: str) -> None:
    log = LogInTheMaking()
    log.data(("a", "1"), ("b", "1"))
    records = [Record(key=b"a", timestamp_ms=NOW_MS - 3), Record(key=b"c", value=b"1", timestamp_ms=NOW_MS + 5)]
    log.data(*records, compression=codec)
    first = compact(log.batches, Asked(until=log.end))
    assert shown(first.batches) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    assert first.next_horizon_ms == HORIZON_MS
    header = header_of(first.batches[-1])
    assert header.delete_horizon_ms == header.base_timestamp_ms == HORIZON_MS
    assert [each.timestamp_ms for each in records_in(first.batches[-1:])] == [NOW_MS - 3, NOW_MS + 5]
    assert header.timestamp_ms_max == NOW_MS + 5

    early = compact(first.batches, Asked(dirty_from=log.end, until=log.end, now_ms=HORIZON_MS - 1))
    assert early.batches == first.batches and early.next_horizon_ms == HORIZON_MS
    due = compact(first.batches, Asked(dirty_from=log.end, until=log.end, now_ms=HORIZON_MS))
    assert shown(due.batches) == [(1, "b", "1"), (3, "c", "1")]
    assert due.next_horizon_ms is None and due.records_removed == 1
    assert [each.timestamp_ms for each in records_in(due.batches[-1:])] == [NOW_MS + 5]
    require_whole(log.batches, due.batches)


def test_a_later_pass_does_not_set_the_horizon_anew() -> None:
    log = tombstone_log()
    first = compact(log.batches, Asked(until=log.end))
    again = compact(first.batches, Asked(dirty_from=log.end, until=log.end, now_ms=NOW_MS + 5))
    assert again.batches == first.batches


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("waited_ms", [5, RETENTION_MS, 3 * RETENTION_MS])
def test_a_horizon_that_was_fetched_is_set_anew_where_older_values_go(codec: str, waited_ms: int) -> None:
    """A follower has the value, and fetched the tombstone of a log that was compacted already. A reader at the follower has
    seen the value, and must have all of `delete.retention.ms` to come to the tombstone. Kafka's cleaner counts from the pass
    of the leader."""
    log = LogInTheMaking()
    log.data(("a", "1"), ("b", "1"))
    log.data(Record(key=b"a", timestamp_ms=NOW_MS - 3), compression=codec)
    of_leader = compact(log.batches, Asked(until=log.end))
    fetched = [log.batches[0], of_leader.batches[1]]
    assert header_of(fetched[1]).delete_horizon_ms == HORIZON_MS

    first = compact(fetched, Asked(until=log.end, now_ms=NOW_MS + waited_ms))
    assert shown(first.batches) == [(1, "b", "1"), (2, "a", None)]
    assert first.next_horizon_ms == header_of(first.batches[1]).delete_horizon_ms == HORIZON_MS + waited_ms
    assert [each.timestamp_ms for each in records_in(first.batches[1:])] == [NOW_MS - 3]
    early = compact(first.batches, Asked(dirty_from=log.end, until=log.end, now_ms=HORIZON_MS + waited_ms - 1))
    assert early.batches == first.batches
    due = compact(first.batches, Asked(dirty_from=log.end, until=log.end, now_ms=HORIZON_MS + waited_ms))
    assert shown(due.batches) == [(1, "b", "1")]


def test_a_horizon_behind_the_end_of_the_map_stays_as_it_was_fetched() -> None:
    log = LogInTheMaking()
    log.data(("a", "1"))
    log.data(("b", None))
    fetched = [log.batches[0], compact(log.batches, Asked(until=log.end)).batches[1]]
    passed = compact(fetched, Asked(until=log.end, now_ms=HORIZON_MS, keys_max=1))
    assert passed.clean_until == 1 and passed.batches == fetched


def test_no_horizon_is_set_below_the_dirty_part() -> None:
    """Older values of the key may be there that this pass does not know to be older."""
    log = tombstone_log()
    log.data(("d", "1"))
    passed = compact(log.batches, Asked(dirty_from=4, until=log.end))
    assert passed.batches == log.batches and passed.next_horizon_ms is None


def test_a_batch_that_only_ends_in_the_dirty_part_gets_no_horizon() -> None:
    log = tombstone_log()
    passed = compact(log.batches, Asked(dirty_from=3, until=log.end))
    assert header_of(passed.batches[-1]).delete_horizon_ms is None


def test_tombstones_that_a_voter_may_lack_stay() -> None:
    log = LogInTheMaking()
    log.data(("a", None), ("b", None), ("c", "1"))
    first = compact(log.batches, Asked(until=log.end))
    due = compact(first.batches, Asked(dirty_from=3, until=3, now_ms=HORIZON_MS, tombstones_below=1))
    assert shown(due.batches) == [(1, "b", None), (2, "c", "1")]
    later = compact(due.batches, Asked(dirty_from=3, until=3, now_ms=HORIZON_MS, tombstones_below=2))
    assert shown(later.batches) == [(2, "c", "1")]


def test_a_horizon_of_values_alone_is_not_waited_for() -> None:
    log = tombstone_log()
    first = compact(log.batches, Asked(until=log.end))
    grown = [*first.batches, bytes(build_batch([Record(key=b"a", value=b"2")], base_offset=4, leader_epoch=1, timestamp_ms=1))]
    second = compact(grown, Asked(until=5))
    assert shown(second.batches) == [(1, "b", "1"), (3, "c", "1"), (4, "a", "2")]
    assert second.next_horizon_ms is None
    assert header_of(second.batches[1]).delete_horizon_ms == HORIZON_MS


def test_a_newer_value_removes_a_tombstone_at_once() -> None:
    log = tombstone_log()
    log.data(("a", "2"))
    passed = compact(log.batches, Asked(until=log.end))
    assert shown(passed.batches) == [(1, "b", "1"), (3, "c", "1"), (4, "a", "2")]
    assert header_of(passed.batches[1]).delete_horizon_ms is None


def test_the_earliest_horizon_is_told() -> None:
    log = LogInTheMaking()
    log.data(("a", None))
    first = compact(log.batches, Asked(until=log.end))
    batch = bytes(build_batch([Record(key=b"b")], base_offset=1, leader_epoch=1, timestamp_ms=NOW_MS))
    second = compact([*first.batches, batch], Asked(dirty_from=1, until=2, now_ms=NOW_MS + 5))
    assert second.next_horizon_ms == HORIZON_MS
    third = compact(second.batches, Asked(dirty_from=2, until=2, now_ms=HORIZON_MS))
    assert third.next_horizon_ms == HORIZON_MS + 5


# --- batches without records -------------------------------------------------------------------------------------------------


def test_neighbours_without_records_become_one() -> None:
    log = LogInTheMaking()
    for _ in range(3):
        log.data(("a", "1"), ("b", "1"))
    log.leader_change(5)
    log.data(("a", "2"))
    log.data(("a", "3"))
    log.data(("a", "4"), ("b", "4"))
    passed = compact(log.batches, Asked(until=log.end))
    spans = [(header_of(each).base_offset, header_of(each).end_offset, header_of(each).record_count) for each in passed.batches]
    assert spans == [(0, 6, 0), (6, 7, 1), (7, 9, 0), (9, 11, 2)]
    require_whole(log.batches, passed.batches)
    empty = header_of(passed.batches[0])
    assert empty.size == HEADER_BYTES
    assert (empty.attributes, empty.base_timestamp_ms, empty.timestamp_ms_max) == (0, -1, -1)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence) == (-1, -1, -1)


def test_neighbours_of_different_epochs_stay_apart() -> None:
    log = LogInTheMaking()
    log.data(("a", "1"))
    log.epoch = 2
    log.data(("a", "2"))
    log.data(("a", "3"))
    passed = compact(log.batches, Asked(until=log.end))
    assert [(header_of(each).base_offset, header_of(each).leader_epoch) for each in passed.batches] == [(0, 1), (1, 2), (2, 2)]


def test_neighbours_in_different_groups_of_segments_stay_apart() -> None:
    log = LogInTheMaking()
    for _ in range(3):
        log.data(("a", "1"))
    passed = compact(log.batches, Asked(until=log.end), segment_ends=[1])
    assert [header_of(each).base_offset for each in passed.batches] == [0, 1, 2]


def test_one_header_covers_no_more_offsets_than_it_can_tell() -> None:
    """Two empty batches of 2^30 offsets are one, a third one is another."""
    empty = [empty_batch(i << 30, (i + 1) << 30, 1) for i in range(3)]
    passed = compact(empty, Asked(until=3 << 30))
    assert [header_of(each).last_offset_delta for each in passed.batches] == [(1 << 31) - 1, (1 << 30) - 1]


def test_batches_that_do_not_follow_one_another_are_refused() -> None:
    keys = KeyMap(Asked(until=9), SALT)
    keys.clean_until = 9
    rewriter = Rewriter(keys, Asked(until=9))
    rewriter.rewrite(empty_batch(0, 2, 1), header_of(empty_batch(0, 2, 1)))
    with pytest.raises(InvariantViolation):
        rewriter.rewrite(empty_batch(3, 4, 1), header_of(empty_batch(3, 4, 1)))


def test_the_newest_batch_of_a_producer_stays_without_records() -> None:
    log = LogInTheMaking()
    fields = {"producer_id": 9, "producer_epoch": 2, "compression": "lz4", "log_append_time": True}
    log.data(("a", "1"), base_sequence=0, **fields)
    log.data(("a", "2"), ("b", "2"), base_sequence=1, **fields)
    log.data(("a", "3"), ("b", "3"))
    passed = compact(log.batches, Asked(until=log.end, last_batches=frozenset({2, 4})))
    assert [header_of(each).record_count for each in passed.batches] == [0, 0, 2]
    kept = header_of(passed.batches[1])
    assert (kept.producer_id, kept.producer_epoch, kept.base_sequence, kept.last_offset_delta) == (9, 2, 1, 1)
    assert (kept.base_timestamp_ms, kept.timestamp_ms_max) == (-1, -1)
    assert kept.size == HEADER_BYTES and not kept.is_compressed and kept.is_log_append_time
    again = compact(passed.batches, Asked(until=log.end, last_batches=frozenset({2, 4})))
    assert again.batches == passed.batches
    later = compact(passed.batches, Asked(until=log.end, last_batches=frozenset({4})))
    assert [header_of(each).base_offset for each in later.batches] == [0, 3]


def test_the_newest_offset_of_no_producer_keeps_no_batch() -> None:
    log = LogInTheMaking()
    log.data(("a", "1"))
    log.data(("a", "2"))
    log.data(("a", "3"))
    passed = compact(log.batches, Asked(until=log.end, last_batches=frozenset({0, 1, 2})))
    assert [header_of(each).base_offset for each in passed.batches] == [0, 2]


# --- transactions ------------------------------------------------------------------------------------------------------------


def transaction(log: LogInTheMaking, *pairs: tuple[str, str | None], commit: bool, producer: int = 9) -> None:
    log.data(*pairs, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
    log.marker(producer, commit=commit)


def test_records_of_aborted_transactions_go_and_remove_nothing() -> None:
    log = LogInTheMaking()
    log.data(("a", "1"))
    transaction(log, ("a", "no"), ("b", "no"), commit=False)
    transaction(log, ("c", "yes"), commit=True)
    log.data(("d", "1"))
    passed = compact(log.batches, Asked(until=log.end, aborted=tuple(log.aborted)))
    assert shown(passed.batches) == [(0, "a", "1"), (4, "c", "yes"), (6, "d", "1")]
    assert [header_of(each).is_control for each in passed.batches] == [False, False, True, False, True, False]
    require_whole(log.batches, passed.batches)


def test_a_transaction_whose_abort_stands_behind_the_pass_counts_as_aborted() -> None:
    log = LogInTheMaking()
    log.data(("a", "1"))
    log.data(("a", "no"), producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    until = log.data(("z", "1"))
    log.marker(9, commit=False)
    passed = compact(log.batches, Asked(until=until, aborted=tuple(log.aborted)))
    assert shown(passed.batches) == [(0, "a", "1"), (2, "z", "1")]


def test_ranges_of_aborted_transactions() -> None:
    ranges = AbortedRanges(
        [AbortedTransaction(9, 20, 25, 26), AbortedTransaction(9, 5, 10, 11), AbortedTransaction(8, 5, 30, 5)]
    )

    def holds(offset: int, producer: int, *, transactional: bool = True) -> bool:
        record = [Record(key=b"k", value=b"v")]
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "transactional": transactional}
        return ranges.hold(header_of(bytes(build_batch(record, base_offset=offset, timestamp_ms=1, **fields))))  # type: ignore[arg-type]

    assert [offset for offset in range(40) if holds(offset, 9)] == [*range(5, 11), *range(20, 26)]
    assert [offset for offset in range(40) if holds(offset, 8)] == [*range(5, 31)]
    assert not holds(7, 7) and not holds(7, 9, transactional=False)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_goes_when_nothing_of_its_transaction_is_left(commit: bool) -> None:
    log = LogInTheMaking()
    transaction(log, ("a", "1"), commit=commit)
    log.data(("a", "2"))
    asked = Asked(until=log.end, aborted=tuple(log.aborted))

    def markers(batches: list[bytes]) -> list[int | None]:
        return [header_of(each).delete_horizon_ms for each in batches if header_of(each).is_control]

    first = compact(log.batches, asked)
    assert markers(first.batches) == [None]
    named = compact(first.batches, asked)
    if not commit:
        assert named.batches == first.batches, "the index still names the transaction"
    clean = {"dirty_from": log.end, "until": log.end}
    second = compact(first.batches, Asked(**clean))  # type: ignore[arg-type]
    assert markers(second.batches) == [HORIZON_MS] and second.next_horizon_ms == HORIZON_MS
    assert records_in(second.batches, include_control=True) == records_in(first.batches, include_control=True)
    waiting = compact(second.batches, Asked(now_ms=HORIZON_MS - 1, **clean))  # type: ignore[arg-type]
    assert waiting.batches == second.batches and waiting.next_horizon_ms == HORIZON_MS
    held = compact(second.batches, Asked(now_ms=HORIZON_MS, tombstones_below=1, **clean))  # type: ignore[arg-type]
    assert held.batches == second.batches
    third = compact(second.batches, Asked(now_ms=HORIZON_MS, **clean))  # type: ignore[arg-type]
    assert markers(third.batches) == [] and third.records_removed == 1
    assert shown(third.batches) == [(2, "a", "2")]
    assert [header_of(each).base_offset for each in third.batches] == [0, 2]


def test_an_empty_batch_of_a_transaction_keeps_its_marker() -> None:
    log = LogInTheMaking()
    transaction(log, ("a", "1"), commit=True)
    log.data(("a", "2"))
    asked = Asked(until=log.end, last_batches=frozenset({0}))
    first = compact(log.batches, asked)
    assert header_of(first.batches[0]).record_count == 0 and header_of(first.batches[0]).is_transactional
    second = compact(first.batches, asked)
    assert second.batches == first.batches


def test_a_marker_belongs_to_the_batches_since_the_marker_before() -> None:
    log = LogInTheMaking()
    transaction(log, ("a", "1"), commit=True)
    log.marker(9, commit=True)
    passed = compact(log.batches, Asked(until=log.end))
    assert [header_of(each).delete_horizon_ms for each in passed.batches] == [None, None, HORIZON_MS]


def test_the_newest_marker_of_a_producer_stays() -> None:
    log = LogInTheMaking()
    log.marker(9, commit=True)
    passed = compact(log.batches, Asked(until=log.end, last_markers=frozenset({(9, 0)})))
    assert passed.batches == log.batches


def test_a_marker_above_what_is_known_to_be_compacted_stays() -> None:
    log = LogInTheMaking()
    log.marker(9, commit=True)
    first = compact(log.batches, Asked(until=log.end))
    for dirty_from in (0, log.end):
        later = compact(first.batches, Asked(until=log.end, dirty_from=dirty_from, now_ms=HORIZON_MS))
        assert later.records_removed == (dirty_from == log.end)


def test_of_a_producer_whose_newest_batch_may_be_cut_all_batches_stay() -> None:
    log = LogInTheMaking()
    fields = {"producer_id": 9, "producer_epoch": 0}
    for sequence in range(3):
        log.data(("a", str(sequence)), base_sequence=sequence, **fields)
    log.marker(9, commit=True)
    passed = compact(log.batches, Asked(until=log.end, unsettled=frozenset({9})))
    headers = [header_of(batch) for batch in passed.batches]
    assert [(header.producer_id, header.record_count) for header in headers] == [(9, 0), (9, 0), (9, 1), (9, 1)]
    assert passed.batches[-1] == log.batches[-1]


def test_control_batches_of_raft_stay() -> None:
    log = LogInTheMaking()
    log.leader_change(2)
    log.data(("a", "1"))
    log.leader_change(3)
    passed = compact(log.batches, Asked(until=log.end, now_ms=HORIZON_MS * 2))
    assert passed.batches == log.batches


# --- repetition, cutting, damage ---------------------------------------------------------------------------------------------


def test_a_pass_over_a_clean_log_changes_nothing() -> None:
    log = tombstone_log()
    transaction(log, ("e", "1"), commit=True)
    log.data(("a", "3"), ("b", "3"))
    first = compact(log.batches, Asked(until=log.end))
    for dirty_from in range(log.end + 1):
        again = compact(first.batches, Asked(dirty_from=dirty_from, until=log.end))
        assert again.batches == first.batches and again.records_removed == 0


def test_an_empty_batch_is_cut_where_a_reader_begins() -> None:
    batch = empty_batch(10, 20, 7)
    for start in range(10, 20):
        header = header_of(cut_empty(batch, start))
        assert (header.base_offset, header.end_offset, header.leader_epoch) == (start, 20, 7)
        assert header.base_sequence == -1
    assert cut_empty(batch, 10) == batch
    for outside in (9, 20):
        with pytest.raises(InvariantViolation):
            cut_empty(batch, outside)


def test_a_cut_leaves_the_last_sequence_of_the_batch() -> None:
    log = LogInTheMaking()
    log.data(*[("a", "1")] * 4, producer_id=3, producer_epoch=0, base_sequence=(1 << 31) - 2)
    log.data(("a", "2"))
    batch = compact(log.batches, Asked(until=log.end, last_batches=frozenset({3}))).batches[0]
    assert [header_of(cut_empty(batch, start)).base_sequence for start in range(4)] == [(1 << 31) - 2, (1 << 31) - 1, 0, 1]


def test_a_batch_with_records_is_not_cut() -> None:
    log = LogInTheMaking()
    log.data(("a", "1"), ("b", "1"))
    with pytest.raises(InvariantViolation):
        cut_empty(log.batches[0], 1)


def test_records_that_cannot_be_read_are_told() -> None:
    batch = bytearray(build_batch([Record(key=b"k", value=b"v")], leader_epoch=1, timestamp_ms=1))
    batch[HEADER_BYTES] = 0x7F
    with pytest.raises(CorruptBatch, match="batch at offset 0"):
        KeyMap(Asked(until=1), SALT).add(batch, parse_header(batch))


def test_a_horizon_fits_into_the_time_of_a_reader() -> None:
    log = LogInTheMaking()
    log.data(("a", None))
    passed = compact(log.batches, Asked(until=log.end, delete_retention_ms=(1 << 63) - 1))
    assert header_of(passed.batches[0]).delete_horizon_ms == HORIZON_MS_MAX
    assert HORIZON_MS_MAX * 1000 < 1 << 63


def test_every_time_that_a_record_can_have_survives_a_horizon() -> None:
    times = (-1, 0, 1, NOW_MS - (1 << 40), NOW_MS + (1 << 40), (1 << 63) - 1)
    for first, second in itertools.permutations(times, 2):
        log = LogInTheMaking()
        log.data(Record(key=b"a", timestamp_ms=first), Record(key=b"b", timestamp_ms=second), time_ms=5)
        passed = compact(log.batches, Asked(until=log.end))
        found = [each.timestamp_ms for each in records_in(passed.batches)]
        assert found == [each.timestamp_ms for each in records_in(log.batches)]
