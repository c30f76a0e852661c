"""Kafka's rules for the sequences of idempotent producers, at their edges: the wrap, a new epoch, a repetition of another size,
what is not written yet, and producers that a log does not know."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.replica.partition.producer_state import BATCHES_KEPT, SEQUENCE_MODULUS, ProducerStates, last_sequence_of
from raftlake.wire import producer_snapshot
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch, produce_request

LAST = SEQUENCE_MODULUS - 1
PRODUCER = 7


class Log:
    """The producers of a log that nothing but their batches stands in."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0

    def check(self, sequence: int, count: int, *, epoch: int = 0) -> int | None:
        """The base offset of the batch that this one repeats, or None when it may be appended."""
        found = self.states.check(PRODUCER, epoch, sequence, count, history_trimmed=False)
        return None if found is None else found.base_offset

    def note(self, sequence: int, count: int, *, epoch: int = 0) -> int:
        """Append without a check; the base offset."""
        base = self.end
        self.states.record(PRODUCER, epoch, sequence, count, base, 0)
        self.end += count
        return base

    def append(self, sequence: int, count: int, *, epoch: int = 0) -> int:
        assert self.check(sequence, count, epoch=epoch) is None
        return self.note(sequence, count, epoch=epoch)

    def refuses(self, sequence: int, count: int, *, epoch: int = 0) -> ErrorCode:
        with pytest.raises(RequestRejected) as caught:
            self.check(sequence, count, epoch=epoch)
        return caught.value.code

    def restart(self) -> None:
        """What a start point of the log's end tells, as its bytes."""
        self.states.settle(self.end)
        data = producer_snapshot.encode(self.states.at(self.end))
        self.states = ProducerStates()
        self.states.restore(producer_snapshot.packed_rows(data))


@pytest.fixture
def log() -> Log:
    return Log()


# --- refused, and coming again ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_behind_a_batch_that_was_refused_nothing_of_a_new_producer_is_taken(is_trimmed: bool) -> None:
    """Both were under way when there was no room. There is room when the second one comes again, and a log that may have
    forgotten its producer would take it."""
    states = ProducerStates()
    states.has_forgotten = is_trimmed
    for sequence in (10, 12):
        states.send_back(PRODUCER, 0, sequence)
    with pytest.raises(RequestRejected) as caught:
        states.check(PRODUCER, 0, 12, 2, history_trimmed=is_trimmed)
    assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE
    for sequence in (10, 12):
        assert states.check(PRODUCER, 0, sequence, 2, history_trimmed=is_trimmed) is None
        states.record(PRODUCER, 0, sequence, 2, sequence, 0)


def test_the_oldest_of_those_that_were_refused_counts_and_another_epoch_does_not() -> None:
    states = ProducerStates()
    states.has_forgotten = True
    for sequence in (12, 10, 14):
        states.send_back(PRODUCER, 1, sequence)
    with pytest.raises(RequestRejected):
        states.check(PRODUCER, 1, 11, 1, history_trimmed=False)
    assert states.check(PRODUCER, 1, 10, 1, history_trimmed=False) is None
    assert states.check(PRODUCER, 2, 99, 1, history_trimmed=False) is None
    states.forget_sent_back()
    assert states.check(PRODUCER, 1, 14, 1, history_trimmed=False) is None


def test_a_known_producer_is_not_sent_back(log: Log) -> None:
    log.append(0, 3)
    log.states.send_back(PRODUCER, 0, 3)
    assert log.check(3, 1) is None and log.refuses(4, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# --- the wrap ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("beyond", [0, 1, 2, 4])
def test_the_sequence_after_the_largest_one_is_zero(log: Log, beyond: int, *, restarts: bool) -> None:
    """`beyond`: records of the batch behind the largest sequence. With none the batch ends exactly there."""
    first = LAST - 2
    count = 3 + beyond
    log.note(first - 10, 10)
    wrapping = log.append(first, count)
    if restarts:
        log.restart()
    assert log.check(first, count) == wrapping
    for wrong in (beyond + 1, LAST, LAST - 1, (beyond - 1) % SEQUENCE_MODULUS):
        assert log.refuses(wrong, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    following = log.append(beyond, 2)
    if restarts:
        log.restart()
    assert (log.check(first, count), log.check(beyond, 2)) == (wrapping, following)
    log.append(beyond + 2, 1)


def test_the_last_sequence_of_a_batch_at_the_wrap() -> None:
    assert [last_sequence_of(LAST - 2, count) for count in (1, 2, 3, 4)] == [LAST - 2, LAST - 1, LAST, 0]


def test_a_batch_of_one_record_has_the_largest_sequence(log: Log) -> None:
    log.note(LAST - 1, 1)
    assert log.append(LAST, 1) == 1
    log.restart()
    assert log.check(LAST, 1) == 1
    assert log.append(0, 1) == 2


# --- epochs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
def test_a_new_epoch_goes_on_with_its_second_batch(log: Log, *, restarts: bool) -> None:
    """What the old epoch had appended counts no more: neither its last sequence nor its batches."""
    for number in range(3):
        log.append(2 * number, 2)
    first = log.append(0, 3, epoch=1)
    if restarts:
        log.restart()
    for wrong in (6, 2, 4):
        assert log.refuses(wrong, 2, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    second = log.append(3, 2, epoch=1)
    assert log.check(0, 3, epoch=1) == first
    if restarts:
        log.restart()
    assert log.check(3, 2, epoch=1) == second
    assert log.append(5, 1, epoch=1) == second + 2


@pytest.mark.parametrize("sequence", [0, 2, 4, 6])
def test_nothing_of_an_older_epoch_is_taken_be_it_a_repetition_or_the_next(log: Log, sequence: int) -> None:
    for number in range(3):
        log.append(2 * number, 2)
    log.append(0, 2, epoch=1)
    assert log.refuses(sequence, 2, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("sequence", [1, 2, 4, LAST])
def test_a_new_epoch_begins_with_sequence_zero_alone(log: Log, sequence: int) -> None:
    log.append(0, 4)
    assert log.refuses(sequence, 1, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refuses(sequence, 1, epoch=9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append(0, 1, epoch=9)


def test_a_new_epoch_has_five_batches_of_its_own(log: Log) -> None:
    log.append(0, 2)
    bases = [log.append(2 * number, 2, epoch=1) for number in range(BATCHES_KEPT + 2)]
    log.restart()
    assert [log.check(2 * number, 2, epoch=1) for number in range(2, BATCHES_KEPT + 2)] == bases[2:]
    for forgotten in (0, 2):
        assert log.refuses(forgotten, 2, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# --- repetitions of another size --------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("number", range(BATCHES_KEPT))
def test_a_known_first_sequence_with_another_size_is_no_repetition(log: Log, number: int, *, restarts: bool) -> None:
    bases = [log.append(3 * each, 3) for each in range(BATCHES_KEPT)]
    if restarts:
        log.restart()
    for count in (1, 2, 4, 6, 3 * BATCHES_KEPT):
        assert log.refuses(3 * number, count) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.check(3 * number, 3) == bases[number]


def test_a_known_last_sequence_with_another_size_is_no_repetition(log: Log) -> None:
    log.append(0, 3)
    log.append(3, 3)
    for sequence, count in ((1, 2), (2, 1), (4, 2), (5, 1), (0, 6)):
        assert log.refuses(sequence, count) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# --- what is noted and not written yet --------------------------------------------------------------------------------


@pytest.mark.parametrize("settled", [0, 2, 4])
def test_what_begins_exactly_at_the_end_of_the_log_is_not_below_it(log: Log, settled: int) -> None:
    """Three batches are noted before the first of them is written. Each may begin a segment, and its base gets a point."""
    for number in range(3):
        log.append(2 * number, 2)
    log.states.settle(settled)
    for end in range(settled, 7, 2):
        rows = log.states.at(end)
        assert [row.last_offset for row in rows] == list(range(1, end, 2))
    log.states.settle(6)
    assert [row.last_offset for row in log.states.at(6)] == [1, 3, 5]


def test_a_new_epoch_that_is_not_written_yet_leaves_the_old_one_standing(log: Log) -> None:
    log.append(0, 2)
    log.append(2, 2)
    log.states.settle(log.end)
    log.append(0, 2, epoch=1)
    assert [(row.epoch, row.last_sequence) for row in log.states.at(4)] == [(0, 1), (0, 3)]
    log.states.settle(4)
    assert [(row.epoch, row.last_sequence) for row in log.states.at(4)] == [(0, 1), (0, 3)]
    assert [(row.epoch, row.last_sequence) for row in log.states.at(6)] == [(1, 1)]


# --- producers that are not known -------------------------------------------------------------------------------------


def test_an_unknown_producer_begins_with_the_oldest_batch_also_around_the_wrap(log: Log) -> None:
    """Two batches are under way, the second one begins with 0, where a new producer begins: it has to wait all the same."""
    oldest = LAST - 1
    assert log.refuses(oldest, 2) is ErrorCode.LEADER_NOT_AVAILABLE
    assert log.refuses(0, 3) is ErrorCode.LEADER_NOT_AVAILABLE
    log.append(oldest, 2)
    log.append(0, 3)
    log.append(3, 1)


def test_an_unknown_producer_that_was_sent_back_behind_the_wrap_comes_with_what_lies_before_it(log: Log) -> None:
    """The oldest was refused elsewhere, so that the one behind the wrap came first. The oldest was sent back for ever."""
    assert log.refuses(1, 3) is ErrorCode.LEADER_NOT_AVAILABLE
    log.append(LAST - 1, 3)
    log.append(1, 3)


def test_an_unknown_producer_that_was_sent_back_may_come_with_its_very_first_batch(log: Log) -> None:
    assert log.refuses(5, 3) is ErrorCode.LEADER_NOT_AVAILABLE
    log.append(0, 5)
    log.append(5, 3)


def test_whom_a_leader_sent_back_is_forgotten_when_it_leads_no_more() -> None:
    """What was refused between two terms of one node is missing in the second one, like in the first."""
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    second = batch(b"b", producer_id=PRODUCER, producer_epoch=0, base_sequence=2)
    assert cluster.produce(group, bytearray(second), node=leader).error is ErrorCode.LEADER_NOT_AVAILABLE
    leader.partitions[group].on_leadership_lost()
    assert cluster.produce(group, bytearray(second), node=leader).error is ErrorCode.LEADER_NOT_AVAILABLE
    first = batch(b"a", b"a", producer_id=PRODUCER, producer_epoch=0, base_sequence=0)
    assert cluster.produce(group, first, node=leader).error is ErrorCode.NONE
    assert cluster.produce(group, second, node=leader).error is ErrorCode.NONE


def test_batches_of_one_turn_are_checked_one_after_the_other() -> None:
    """The node notes each before it is written: the next one, a repetition and one of another size come in the same turn."""
    cluster = Cluster(1)
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)

    def made(sequence: int, count: int, epoch: int = 0) -> bytearray:
        return batch(*[b"x"] * count, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence)

    batches = [made(0, 2), made(2, 3), made(2, 3), made(2, 2), made(5, 1), made(0, 2, 1), made(2, 1, 1), made(6, 1)]
    answers = [cluster.send(leader, ApiKey.PRODUCE, produce_request(group, each)) for each in batches]
    cluster.run(1000, until=lambda: all(answers))
    results = [answer[0].topics[0].partitions[0] for answer in answers]
    assert [(result.error, result.base_offset) for result in results] == [
        (ErrorCode.NONE, 1),
        (ErrorCode.NONE, 3),
        (ErrorCode.NONE, 3),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (ErrorCode.NONE, 6),
        (ErrorCode.NONE, 7),
        (ErrorCode.NONE, 9),
        (ErrorCode.INVALID_PRODUCER_EPOCH, -1),
    ]
