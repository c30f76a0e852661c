"""Many producer ids: how many a node remembers, what becomes of new ones beyond, and that all of them cost no long turn."""

from __future__ import annotations

import itertools
import logging
import tracemalloc

import pytest

from enginekit import Ground
from raftlake.errors import ErrorCode, StorageError
from raftlake.kv.commands import Delete, Txn, encode
from raftlake.kv.keys import topic_key
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.partition import producer_state, start_points
from raftlake.replica.partition.partition import NO_ROOM_FOR_PRODUCERS
from raftlake.replica.partition.producer_state import SLICE_PRODUCERS, ProducerStates, ProducerTally
from raftlake.replica.partition.start_points import Slices
from raftlake.replica.producer_care import PAUSE_MS, TELL_INTERVAL_MS, ProducerCare
from raftlake.replica.turn.housekeeping import EXPIRATION_INTERVAL_MS
from raftlake.wire import producer_snapshot
from raftlake.wire.api import ApiKey
from raftlake.wire.produce import ProducePartitionResult
from replica_cluster import Cluster, batch, produce_request
from reservedkit import commit

HOUR_MS = 3_600_000


class Quorum:
    """Idempotent producers with batches of one record."""

    def __init__(self, size: int = 1, *, partitions: int = 1, **settings: int) -> None:
        self.cluster = Cluster(size, **settings)
        self.groups = self.cluster.create_topic("t", partitions)

    def send(self, *batches: tuple[int, int], group: GroupId | None = None) -> list[ProducePartitionResult]:
        """(producer id, sequence) of each, in requests of one turn; -1: a plain producer."""
        group = group or self.groups[0]
        node = self.cluster.leader(group)
        answers = [
            self.cluster.send(
                node,
                ApiKey.PRODUCE,
                produce_request(
                    group, batch(b"x", producer_id=producer_id, producer_epoch=min(producer_id, 0), base_sequence=first)
                ),
            )
            for producer_id, first in batches
        ]
        self.cluster.run(5_000, until=lambda: all(answers))
        return [answer[0].topics[0].partitions[0] for answer in answers]

    def errors(self, *batches: tuple[int, int], group: GroupId | None = None) -> list[ErrorCode]:
        return [result.error for result in self.send(*batches, group=group)]

    def counts(self) -> set[int]:
        return {node.producers.tally.count for node in self.cluster.nodes.values()}


TAKEN, REFUSED = ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS

# --- the bound --------------------------------------------------------------------------------------------------------


def test_a_new_id_beyond_the_bound_is_refused_and_known_ones_go_on() -> None:
    quorum = Quorum(producer_ids_max=2)
    (first, _) = quorum.send((1, 0), (2, 0))
    (refused,) = quorum.send((3, 0))
    assert (refused.error, refused.error_message, refused.base_offset) == (REFUSED, NO_ROOM_FOR_PRODUCERS, -1)
    assert quorum.errors((1, 1), (2, 1), (-1, -1)) == [TAKEN] * 3
    (repeated,) = quorum.send((1, 0))
    assert (repeated.error, repeated.base_offset) == (TAKEN, first.base_offset)
    assert quorum.errors((2, 5)) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert quorum.counts() == {2}


def test_the_ids_of_one_turn_are_counted_one_after_the_other_and_over_all_partitions() -> None:
    quorum = Quorum(partitions=2, producer_ids_max=3)
    assert quorum.errors((1, 0)) == [TAKEN]
    other = quorum.groups[1]
    assert quorum.errors((1, 0), (2, 0), (3, 0), (2, 1), (4, 0), group=other) == [TAKEN, TAKEN, REFUSED, TAKEN, REFUSED]
    assert quorum.errors((1, 1)) == [TAKEN] and quorum.errors((2, 0)) == [REFUSED]


def test_nothing_behind_a_refused_batch_is_taken_before_it() -> None:
    """Both were under way; there is room when the second one comes again, alone."""
    quorum = Quorum(producer_ids_max=1, producer_id_expiration_ms=HOUR_MS)
    assert quorum.errors((1, 0), (2, 0), (2, 1)) == [TAKEN, REFUSED, REFUSED]
    quorum.cluster.run(HOUR_MS + 2 * EXPIRATION_INTERVAL_MS)
    assert quorum.counts() == {0}
    assert quorum.errors((2, 1)) == [ErrorCode.LEADER_NOT_AVAILABLE]
    assert quorum.errors((2, 0), (2, 1)) == [TAKEN, TAKEN]
    assert quorum.errors((1, 1)) == [REFUSED], "the first one was forgotten, and is new"


def test_each_replica_counts_alike_over_failover_restart_and_deletion() -> None:
    quorum = Quorum(3, partitions=3, producer_ids_max=4)
    for group in quorum.groups[:2]:
        assert quorum.errors((1, 0), (2, 0), group=group) == [TAKEN, TAKEN]
    quorum.cluster.run(2_000)
    assert quorum.counts() == {4}
    group = quorum.groups[2]
    for _ in range(3):
        node_id = quorum.cluster.leader(group).config.node_id
        quorum.cluster.stop(node_id)
        assert quorum.errors((9, 0), group=group) == [REFUSED]
        assert quorum.errors((-1, -1), group=group) == [TAKEN]
        quorum.cluster.start(node_id)
        quorum.cluster.run(5_000)
        assert quorum.counts() == {4}
    commit(quorum.cluster, [encode(Txn(compares=(), ops=(Delete(topic_key("t")),)))])
    quorum.cluster.run(5_000)
    assert quorum.counts() == {0}
    (group,) = quorum.cluster.create_topic("u")
    assert quorum.errors((9, 0), group=group) == [TAKEN]


def test_states_that_were_dropped_count_no_more_whatever_they_do() -> None:
    tally = ProducerTally(10)
    states = ProducerStates(tally)
    for producer_id in range(3):
        states.record(producer_id, 0, 0, 1, producer_id, 0)
    again = ProducerStates(tally)
    again.restore(states.packed(2))
    assert tally.count == 5
    states.drop()
    states.drop()
    states.record(9, 0, 0, 1, 9, 0)
    assert tally.count == 2 == len(again)


def test_an_operator_is_told_before_new_ids_are_refused_and_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    quorum = Quorum(producer_ids_max=20)
    quorum.send(*((producer_id, 0) for producer_id in range(18)))
    with caplog.at_level(logging.WARNING, "raftlake.producers"):
        quorum.cluster.run(1_000)
        assert caplog.messages == []
        quorum.send((18, 0))
        quorum.cluster.run(TELL_INTERVAL_MS)
        assert [message.split(";")[0] for message in caplog.messages] == ["19 producer ids are remembered, producer.ids.max=20"]
        quorum.send((19, 0))
        quorum.cluster.run(TELL_INTERVAL_MS)
    assert len(caplog.messages) == 2 and "new ones are refused until" in caplog.messages[1]


# --- what they cost ---------------------------------------------------------------------------------------------------


def many(count: int, *, tally: ProducerTally | None = None) -> ProducerStates:
    states = ProducerStates(tally)
    for number in range(count):
        states.record(number * 7_919 % 1_000_003, 0, 0, 1, number, 1_000 + number)
    states.settle(count)
    return states


def test_a_producer_id_takes_less_than_two_hundred_bytes() -> None:
    count = 20_000
    tracemalloc.start()
    try:
        states = many(count)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(states) == count and size / count < 200


def test_all_producers_are_handed_out_in_small_slices_as_they_were() -> None:
    count = 3 * SLICE_PRODUCERS + 5
    states = many(count)
    before = states.packed(count)
    frozen = states.freeze(count)
    assert frozen.row_count == count
    found = []
    for number, rows in enumerate(frozen.slices()):
        assert len(rows) <= SLICE_PRODUCERS * producer_snapshot.ENTRY.size
        found.append(rows)
        for producer_id in (number * 7_919, 1_000_003 + number):
            states.record(producer_id, 1, 0, 1, count + number, 0)
        states.settle(count + number + 1)
    assert b"".join(found) == before
    frozen.release_at_once()
    assert len(states) == count + 4 and states.row_count == len(states)


def test_idle_ids_are_forgotten_in_slices_and_who_writes_meanwhile_is_none() -> None:
    count = 3 * SLICE_PRODUCERS
    tally = ProducerTally()
    states = many(count, tally=tally)
    last = (count - 1) * 7_919 % 1_000_003
    looking = states.expiring(1_000 + count)
    next(looking)
    assert tally.count == len(states) == count - SLICE_PRODUCERS
    states.record(last, 0, 1, 1, count, 9_999_999)
    steps = sum(1 for _ in looking)
    assert steps >= 4, "what is forgotten goes in slices too"
    assert [(row.producer_id, row.last_sequence) for row in states.at(count + 1)] == [(last, 0), (last, 1)]
    assert tally.count == 1 and states.has_forgotten


def test_what_is_held_is_put_right_by_the_last_one_who_lets_go() -> None:
    states = many(3)
    first, second = states.freeze(3), states.freeze(3)
    states.record(77, 0, 0, 1, 3, 0)
    states.settle(4)
    first.release_at_once()
    assert 77 not in states._entries and len(states.at(4)) == 4
    second.release_at_once()
    assert 77 in states._entries and not states._changed


class Line:
    """`ProducerCare` of a quorum of one node that has a log, and no timer but what a test lets run."""

    def __init__(self) -> None:
        self.cluster = Cluster(1)
        self.care = self.cluster.leader().producers
        self.done: list[str] = []

    def work(self, name: str, slices: int) -> Slices:
        for number in range(slices):
            self.done.append(f"{name}{number}")
            yield


def test_one_slice_is_done_at_a_time_with_a_pause() -> None:
    line = Line()
    line.care.in_slices(line.work("a", 2))
    line.care.in_slices(line.work("b", 2))
    assert line.done == ["a0"]
    seen = []
    for _ in range(6):
        line.cluster.run(PAUSE_MS)
        seen.append(len(line.done))
    assert line.done == ["a0", "a1", "b0", "b1"] and seen[0] == 2
    assert max(after - before for before, after in itertools.pairwise(seen)) == 1
    line.care.in_slices(line.work("c", 1))
    assert line.done[-1] == "c0", "nothing else waits"


def test_work_that_was_given_up_holds_nothing_up_and_a_disk_that_fails_stops_the_node() -> None:
    line = Line()
    given_up = line.work("b", 5)
    line.care.in_slices(line.work("a", 1))
    line.care.in_slices(given_up)
    line.care.in_slices(line.work("c", 1))
    given_up.close()
    line.cluster.run(10 * PAUSE_MS)
    assert line.done == ["a0", "c0"]

    def failing() -> Slices:
        yield
        raise StorageError("the disk is gone")

    line.care.in_slices(failing())
    with pytest.raises(StorageError, match="the disk is gone"):
        line.cluster.run(PAUSE_MS)


def failing(slices: int, error: Exception) -> Slices:
    for _ in range(slices):
        yield
    raise error


@pytest.mark.parametrize("slices", [0, 1, 2])
@pytest.mark.parametrize("is_first", [False, True])
def test_work_that_fails_holds_nothing_up(slices: int, *, is_first: bool) -> None:
    """The line stood still: whatever was to be done with producer ids waited for ever."""
    line, ground = Line(), Ground()
    care = ProducerCare(ground.engine)
    if not is_first:
        care.in_slices(line.work("before", 1))
    works = [failing(slices, StorageError("the disk is gone")), line.work("second", 1)]

    def begin() -> None:
        while works:
            care.in_slices(works.pop(0))
        ground.run(10 * PAUSE_MS)

    with pytest.raises(StorageError, match="the disk is gone"):
        begin()
    begin()
    care.in_slices(line.work("last", 2))
    ground.run(10 * PAUSE_MS)
    assert line.done == [*([] if is_first else ["before0"]), "second0", "last0", "last1"]


def test_idle_ids_are_looked_for_again_after_a_look_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line()
    (group,) = line.cluster.create_topic("t")
    assert line.cluster.produce(group, batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0)).error is TAKEN
    partition = line.cluster.leader(group).partitions[group]
    with monkeypatch.context() as patch:
        patch.setattr(ProducerStates, "expiring", lambda self, _: failing(0, MemoryError()))
        with pytest.raises(MemoryError):
            line.care.expire([partition], 1 << 60)
    assert len(partition.producers) == 1
    line.care.expire([partition], 1 << 60)
    assert not partition.producers


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two producers are many."""
    monkeypatch.setattr(producer_state, "SLICE_PRODUCERS", 2)
    monkeypatch.setattr(start_points, "SLICE_PRODUCERS", 2)
    monkeypatch.setattr(start_points, "RECORD_BYTES", 2 * producer_snapshot.ENTRY.size)


@pytest.mark.usefixtures("few")
def test_ids_of_all_partitions_are_looked_through_a_slice_at_a_time() -> None:
    quorum = Quorum(partitions=3, producer_id_expiration_ms=HOUR_MS)
    for group in quorum.groups:
        quorum.send(*((producer_id, 0) for producer_id in range(7)), group=group)
    assert quorum.counts() == {21}
    quorum.cluster.run(HOUR_MS + 2 * EXPIRATION_INTERVAL_MS)
    assert quorum.counts() == {0}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("is_restarted", [False, True])
def test_retention_waits_for_the_points_of_many_producers_and_a_late_follower_knows_all(*, is_restarted: bool) -> None:
    """The snapshot at the log's start has several records then. A retry of what nobody has any more is not appended again."""
    quorum = Quorum(3, segment_bytes=600, retention_bytes=900, retention_check_interval_ms=500)
    cluster, (group,) = quorum.cluster, quorum.groups
    first = [result.base_offset for result in quorum.send(*((producer_id, 0) for producer_id in range(9)))]
    for _ in range(30):
        assert quorum.errors((-1, -1)) == [TAKEN]
        assert cluster.produce(group, batch(bytes(200))).error is TAKEN
    cluster.run(
        5_000, until=lambda: all(node.partitions[group].log.start_offset > max(first) for node in cluster.nodes.values())
    )
    late = cluster.followers(group)[0].config.node_id
    cluster.stop(late)
    del cluster.disks[late].logs[group]
    cluster.disks[late].snapshots.forget(group)
    cluster.start(late)
    leader = cluster.leader(group)

    def has_all() -> bool:
        node = cluster.nodes[late]
        return group in node.partitions and node.partitions[group].core.log_end == leader.partitions[group].core.log_end

    cluster.run(10_000, until=has_all)
    if is_restarted:
        cluster.stop(late)
        cluster.start(late)
        cluster.run(10_000, until=has_all)
    partition = cluster.nodes[late].partitions[group]
    assert {row.producer_id: row.last_offset for row in partition.producers.at(partition.log.end_offset)} == dict(
        enumerate(first)
    )
    assert [result.base_offset for result in quorum.send(*((producer_id, 0) for producer_id in range(9)))] == first
