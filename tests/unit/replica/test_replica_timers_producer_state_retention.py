"""Timers, idempotent producers, retention: the driver's pure parts, and what becomes of producers where records are gone."""

from __future__ import annotations

import itertools

import pytest

from raftlake.errors import ErrorCode, RequestRejected, StorageError
from raftlake.ports.driver import SegmentInfo
from raftlake.raft.types import NodeId, Offset
from raftlake.replica.config import Endpoint, NodeConfig
from raftlake.replica.configs.in_force import in_force
from raftlake.replica.partition.producer_state import BATCHES_KEPT, SENT_BACK_MAX, SEQUENCE_MODULUS, ProducerStates
from raftlake.replica.partition.retention import Kept, first_offset_to_keep, kept_here
from raftlake.replica.timers import SWEEP_AT_MIN, TimerQueue
from replica_cluster import Cluster, batch


def test_timers_run_in_order_of_time_then_of_scheduling() -> None:
    timers = TimerQueue()
    ran: list[str] = []
    timers.schedule(20, lambda: ran.append("late"))
    timers.schedule(10, lambda: ran.append("first"))
    timers.schedule(10, lambda: ran.append("second"))
    timers.run_due(15)
    assert ran == ["first", "second"]
    assert timers.next_ms() == 20


def test_a_cancelled_timer_neither_runs_nor_wakes_anybody() -> None:
    timers = TimerQueue()
    timer = timers.schedule(10, lambda: pytest.fail("cancelled"))
    timers.schedule(30, lambda: None)
    timer.cancel()
    assert timers.next_ms() == 30
    timers.run_due(20)


def test_what_a_call_schedules_waits_for_the_next_pass_however_early_it_is_due() -> None:
    timers = TimerQueue()
    ran: list[str] = []

    def again() -> None:
        ran.append("again")
        assert len(ran) < 10, "a pass ends"
        timers.schedule(5, again)

    timers.schedule(10, again)
    timers.schedule(10, lambda: ran.append("other"))
    timers.run_due(10)
    assert ran == ["again", "other"]
    assert timers.next_ms() == 5, "it is due at once"
    timers.run_due(10)
    assert ran == ["again", "other", "again"]


def test_a_due_call_may_be_cancelled_by_one_that_runs_before_it() -> None:
    timers = TimerQueue()
    timers.schedule(10, lambda: later.cancel())
    later = timers.schedule(10, lambda: pytest.fail("cancelled"))
    timers.run_due(10)
    assert timers.next_ms() is None


def test_calls_behind_one_that_raised_are_still_due() -> None:
    timers = TimerQueue()
    ran: list[int] = []

    def fail() -> None:
        raise StorageError("the disk is gone")

    timers.schedule(10, fail)
    timers.schedule(10, lambda: ran.append(1))
    timers.schedule(10, lambda: ran.append(2))
    with pytest.raises(StorageError):
        timers.run_due(10)
    assert timers.next_ms() == 10
    timers.run_due(10)
    assert ran == [1, 2]


def test_whoever_sleeps_until_the_next_call_is_told_when_it_comes_closer() -> None:
    told: list[int] = []
    timers = TimerQueue(lambda: told.append(1))
    timers.schedule(20, lambda: None)
    timers.schedule(30, lambda: None)
    assert len(told) == 1
    timers.schedule(10, lambda: timers.schedule(11, lambda: None))
    assert len(told) == 2
    timers.run_due(10)
    assert (timers.next_ms(), len(told)) == (11, 2)


def test_cancelled_timers_do_not_pile_up_until_they_are_due() -> None:
    """Ten seconds' worth of reads, each with a time limit that is cancelled when it is answered."""
    timers = TimerQueue()
    kept = [timers.schedule(5_000_000 + number, lambda: None) for number in range(700)]
    for number in range(50_000):
        timers.schedule(10_000 + number, lambda: pytest.fail("cancelled")).cancel()
    assert len(timers) < 4 * SWEEP_AT_MIN
    assert timers.next_ms() == kept[0].at_ms
    timers.run_due(1_000_000)


def test_timers_keep_their_order_when_cancelled_ones_are_thrown_out() -> None:
    timers = TimerQueue()
    ran: list[int] = []
    for number in range(3 * SWEEP_AT_MIN):
        timer = timers.schedule(number // 7, lambda number=number: ran.append(number))  # type: ignore[misc]
        if number % 3:
            timer.cancel()
    timers.run_due(10_000)
    assert ran == list(range(0, 3 * SWEEP_AT_MIN, 3))


def _check(states: ProducerStates, epoch: int, sequence: int, count: int = 1, *, trimmed: bool = False) -> int | None:
    """The base offset of the duplicate, or None."""
    duplicate = states.check(7, epoch, sequence, count, history_trimmed=trimmed)
    return None if duplicate is None else duplicate.base_offset


def _rejected(states: ProducerStates, epoch: int, sequence: int) -> ErrorCode:
    with pytest.raises(RequestRejected) as caught:
        states.check(7, epoch, sequence, 1, history_trimmed=False)
    return caught.value.code


def test_a_retry_of_any_of_the_last_batches_is_recognised_with_its_offset() -> None:
    states = ProducerStates()
    for i in range(BATCHES_KEPT + 1):
        assert _check(states, 0, 10 * i, 10) is None
        states.record(7, 0, 10 * i, 10, 100 + 10 * i, 0)
    for i in range(1, BATCHES_KEPT + 1):
        assert _check(states, 0, 10 * i, 10) == 100 + 10 * i
    # The oldest is forgotten: it cannot be told from a gap, so it is refused rather than appended twice.
    assert _rejected(states, 0, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_refused() -> None:
    states = ProducerStates()
    assert _check(states, 0, 3, trimmed=True) is None
    states.record(7, 0, 0, 2, 50, 0)
    assert _rejected(states, 0, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _check(states, 0, 2) is None


def test_an_unknown_producer_amid_its_sequence_is_sent_back_once() -> None:
    """Then it comes with the oldest batch that it has under way, be it one that another node had refused before."""
    states = ProducerStates()
    assert _rejected(states, 0, 5) is ErrorCode.LEADER_NOT_AVAILABLE
    assert _rejected(states, 0, 6) is ErrorCode.LEADER_NOT_AVAILABLE
    assert _rejected(states, 1, 5) is ErrorCode.LEADER_NOT_AVAILABLE, "another epoch has another sequence"
    assert _check(states, 0, 4) is None
    states.record(7, 0, 4, 1, 50, 0)
    assert _check(states, 0, 5) is None
    assert _rejected(states, 0, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_only_so_many_producers_that_were_sent_back_are_remembered() -> None:
    states = ProducerStates()
    for producer_id in range(SENT_BACK_MAX + 1):
        with pytest.raises(RequestRejected):
            states.check(producer_id, 0, 5, 1, history_trimmed=False)
    assert states.check(SENT_BACK_MAX, 0, 5, 1, history_trimmed=False) is None
    with pytest.raises(RequestRejected):
        states.check(0, 0, 5, 1, history_trimmed=False)
    assert len(states._sent_back) == SENT_BACK_MAX


def test_a_newer_producer_epoch_starts_at_zero_and_fences_the_older_one() -> None:
    states = ProducerStates()
    states.record(7, 0, 0, 5, 50, 0)
    assert _rejected(states, 1, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _check(states, 1, 0) is None
    states.record(7, 1, 0, 1, 60, 0)
    assert _rejected(states, 0, 5) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequence_numbers_wrap_after_the_largest_int32() -> None:
    states = ProducerStates()
    states.record(7, 0, SEQUENCE_MODULUS - 2, 4, 50, 0)
    assert _check(states, 0, 2) is None
    assert _check(states, 0, SEQUENCE_MODULUS - 2, 4) == 50


def _segments(*sizes: int) -> list[SegmentInfo]:
    return [SegmentInfo(Offset(10 * i), Offset(10 * i + 10), size, timestamp_ms_max=1000 * i) for i, size in enumerate(sizes)]


def _kept(**settings: int) -> Kept:
    """What a node with a remote tier keeps on its disk."""
    here = Endpoint("h", 9092)
    node = NodeConfig(node_id=NodeId(1), voters={NodeId(1): here}, listener=here, **settings)  # type: ignore[arg-type]
    return kept_here(in_force({}, node), is_tiered=True)


@pytest.mark.parametrize(
    ("settings", "high_watermark", "expected"),
    [
        ({}, 30, 0),
        ({"retention_bytes": 200}, 30, 10),
        ({"retention_bytes": 100}, 30, 20),
        ({"retention_bytes": 0}, 30, 20),
        ({"retention_bytes": 100}, 15, 10),
        ({"retention_ms": 1500}, 30, 10),
        ({"retention_ms": 100}, 30, 20),
        ({"retention_ms": 5000}, 30, 0),
        ({"retention_ms": 0, "retention_bytes": 0}, 5, 0),
    ],
)
def test_retention_takes_whole_closed_committed_segments_oldest_first(
    settings: dict[str, int], high_watermark: int, expected: int
) -> None:
    assert first_offset_to_keep(_segments(100, 100, 100), _kept(**settings), 2000, high_watermark) == expected


@pytest.mark.parametrize("base", [0, 70])
@pytest.mark.parametrize("ages_ms", list(itertools.product((0, 1_000, 1_001, 9_000), repeat=3)))
def test_retention_by_time_stops_at_the_first_segment_that_is_young(ages_ms: tuple[int, ...], base: int) -> None:
    """Timestamps are the producers' and need not ascend: what lies behind a segment that stays has to stay, however old."""
    segments = [
        SegmentInfo(Offset(base + 10 * i), Offset(base + 10 * i + 10), 100, timestamp_ms_max=10_000 - age_ms)
        for i, age_ms in enumerate((*ages_ms, 9_000))
    ]
    old = list(itertools.takewhile(lambda age_ms: age_ms > 1_000, ages_ms))
    keep_from = first_offset_to_keep(segments, _kept(retention_ms=1_000), 10_000, base + 40)
    assert keep_from == base + 10 * len(old)


@pytest.mark.parametrize("settings", [{"retention_ms": 0}, {"retention_bytes": 0}, {"retention_ms": 0, "retention_bytes": 0}])
@pytest.mark.parametrize("high_watermark", range(41))
def test_retention_takes_a_segment_whose_last_record_is_committed_and_none_behind_another(
    settings: dict[str, int], high_watermark: int
) -> None:
    expected = min(high_watermark // 10 * 10, 30)
    assert first_offset_to_keep(_segments(100, 100, 100, 100), _kept(**settings), 99_999, high_watermark) == expected


@pytest.mark.parametrize(
    ("sizes", "bytes_max", "expected"),
    [
        ((300, 10, 10, 10), 30, 10),
        ((300, 10, 10, 10), 31, 0),
        ((10, 300, 10, 10), 300, 10),
        ((10, 300, 10, 10), 20, 20),
        ((10, 10, 300, 10), 310, 20),
        ((10, 10, 10, 300), 0, 30),
    ],
)
def test_retention_by_size_keeps_at_least_so_many_bytes(sizes: tuple[int, ...], bytes_max: int, expected: int) -> None:
    assert first_offset_to_keep(_segments(*sizes), _kept(retention_bytes=bytes_max), 0, 40) == expected


def test_a_segment_that_one_limit_keeps_may_go_by_the_other() -> None:
    """The first by its age, the second, which is young, by the bytes that are too many."""
    segments = [SegmentInfo(Offset(10 * i), Offset(10 * i + 10), 100, time) for i, time in enumerate((1, 99_000, 1, 99_000))]
    settings = {"retention_ms": 5_000}
    assert first_offset_to_keep(segments, _kept(**settings), 100_000, 40) == 10
    assert first_offset_to_keep(segments, _kept(**settings, retention_bytes=300), 100_000, 40) == 10
    assert first_offset_to_keep(segments, _kept(**settings, retention_bytes=200), 100_000, 40) == 30


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"retention_bytes": 200, "local_retention_bytes": 100}, 20),
        ({"retention_bytes": 200, "local_retention_bytes": -2}, 10),
        ({"retention_bytes": 200, "local_retention_bytes": -1}, 10),
        ({"local_retention_bytes": 0}, 20),
        ({"retention_ms": 1_500, "local_retention_ms": 100}, 20),
        ({"retention_ms": 1_500, "local_retention_ms": -2}, 10),
        ({"local_retention_ms": 1_500}, 10),
    ],
)
def test_local_retention_goes_before_the_total_one(settings: dict[str, int], expected: int) -> None:
    assert first_offset_to_keep(_segments(100, 100, 100), _kept(**settings), 2000, 30) == expected


@pytest.mark.parametrize(
    ("ended", "below", "expected"), [(0, 40, 0), (9, 40, 0), (10, 40, 10), (25, 40, 20), (40, 40, 30), (40, 15, 10)]
)
def test_what_total_retention_has_ended_goes_whatever_local_disks_keep(ended: int, below: int, expected: int) -> None:
    assert first_offset_to_keep(_segments(100, 100, 100, 100), _kept(retention_bytes=10_000), 99_999, below, ended) == expected


def test_nothing_is_to_keep_of_no_segment() -> None:
    assert first_offset_to_keep([], _kept(retention_ms=0), 100_000, 40) == 0


@pytest.mark.parametrize(("times", "kept_from"), [((9, 0, 0, 9), 0), ((0, 9, 0, 0), 1), ((0, 0, 9, 0), 2), ((0, 0, 0, 9), 3)])
def test_a_topic_whose_times_do_not_ascend_is_trimmed_up_to_the_first_young_segment(
    times: tuple[int, ...], kept_from: int
) -> None:
    """On each replica, and again after a restart: the time of a closed segment then comes from what is on its disk."""
    cluster = Cluster(3, segment_bytes=400, retention_check_interval_ms=500, retention_ms=600_000)
    (group,) = cluster.create_topic("t")
    wall_ms = cluster.leader(group).engine.clock.wall_ms()
    ends = []
    for time in (*times, 0):
        made = cluster.produce(group, batch(bytes(300), timestamp_ms=wall_ms - (0 if time else 700_000)))
        assert made.error is ErrorCode.NONE
        ends.append(made.base_offset + 1)
    for _ in range(2):
        cluster.run(3_000)
        starts = {node.partitions[group].log.start_offset for node in cluster.nodes.values()}
        # In front of all stands a segment with the leader's first record alone, which has no time.
        assert starts == {ends[kept_from - 1] if kept_from else 1}
        for node_id in list(cluster.nodes):
            cluster.stop(node_id)
            cluster.start(node_id)


def test_a_follower_that_begins_behind_a_snapshot_knows_the_producers_from_it() -> None:
    """It may lead next, and a retry of a batch that it never saw must not be appended again."""
    cluster = Cluster(3, segment_bytes=400, retention_bytes=800, retention_check_interval_ms=500)
    (group,) = cluster.create_topic("t")
    once = batch(b"once", producer_id=7, producer_epoch=0, base_sequence=0)
    first = cluster.produce(group, bytearray(once))
    for _ in range(20):
        assert cluster.produce(group, batch(bytes(200))).error is ErrorCode.NONE
    cluster.run(5_000, until=lambda: all(node.partitions[group].core.log_start > 0 for node in cluster.nodes.values()))
    cluster.run(1_000)
    late = cluster.followers(group)[0].config.node_id
    cluster.stop(late)
    del cluster.disks[late].logs[group]
    cluster.disks[late].snapshots.forget(group)

    def has_all() -> bool:
        node, leader = cluster.nodes[late], cluster.leader(group)
        return group in node.partitions and node.partitions[group].core.log_end == leader.partitions[group].core.log_end

    cluster.start(late)
    cluster.run(10_000, until=has_all)
    assert cluster.nodes[late].partitions[group].log.start_offset > first.base_offset
    for _ in range(2):
        partition = cluster.nodes[late].partitions[group]
        known = {row.producer_id: row.last_offset for row in partition.producers.at(partition.log.end_offset)}
        assert known == {7: first.base_offset}
        cluster.stop(late)
        cluster.start(late)
        cluster.run(10_000, until=has_all)
