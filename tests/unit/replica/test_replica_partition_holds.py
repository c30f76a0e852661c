"""Transactional batches that wait at their partition: their order, and what becomes of them."""

from __future__ import annotations

from enginekit import AnyTransaction, Ground
from raftlake.errors import ErrorCode
from raftlake.replica.partition.holds import Holds, is_needed, may_append
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.partition.producer_state import ProducerStates
from raftlake.wire.batches import EndMarker, iterate_headers
from replica_cluster import batch
from txnkit import PRODUCER, records


class Unknown:
    """Nothing is known of any transaction."""

    def __init__(self) -> None:
        self.looked_up: list[PendingAppend] = []

    def judge(self, partition: Partition, pending: PendingAppend) -> ErrorCode | None:
        return None

    def look_up(self, partition: Partition, pending: PendingAppend) -> None:
        self.looked_up.append(pending)


class World:
    def __init__(self) -> None:
        self.ground = Ground()
        self.partition = self.ground.lead()
        self.gate = Unknown()
        self.told: list[tuple[int, ErrorCode, int]] = []

    def queue(self, sequence: int, producer_id: int = PRODUCER) -> PendingAppend:
        data = records(b"x", sequence=sequence, producer_id=producer_id)

        def done(error: ErrorCode, offset: int, _why: str = "") -> None:
            self.told.append((sequence, error, offset))

        pending = PendingAppend(data, tuple(iterate_headers(data)), 1 << 40, done, True)
        self.partition.appending.append(pending)
        return pending

    def admit(self, *, known: bool = False) -> list[int]:
        """The sequences of what is admitted."""
        gate = AnyTransaction() if known else self.gate
        admitted = self.partition.admit(lambda group, done: done(True), gate=gate)
        return [pending.headers[0].base_sequence for pending in admitted]


def test_the_first_one_is_looked_up_and_what_follows_waits_behind_it() -> None:
    world = World()
    first = world.queue(0)
    world.queue(1)
    assert world.admit() == []
    world.queue(2)
    assert world.admit(known=True) == [], "also what comes when it would be known"
    assert world.gate.looked_up == [first]
    world.queue(3)
    assert world.partition.end_hold(PRODUCER)
    assert world.admit(known=True) == [0, 1, 2, 3], "those that waited come first"
    assert not world.partition.end_hold(PRODUCER)


def test_other_producers_do_not_wait() -> None:
    world = World()
    world.queue(0)
    world.admit()
    world.queue(0, producer_id=8)
    assert world.admit(known=True) == [0]


def test_what_cannot_be_judged_comes_again() -> None:
    world = World()
    world.queue(0)
    world.queue(1)
    world.admit()
    world.partition.refuse_held(PRODUCER)
    assert world.told == [(sequence, ErrorCode.NOT_ENOUGH_REPLICAS, -1) for sequence in (0, 1)]
    assert world.admit(known=True) == []


def test_without_a_gate_no_transaction_begins() -> None:
    world = World()
    world.queue(0)
    assert world.partition.admit(lambda group, done: done(True)) == []
    assert world.told == [(0, ErrorCode.INVALID_TXN_STATE, -1)]


def test_holds_give_all_that_waits_once() -> None:
    world = World()
    waiting = [world.queue(sequence, producer_id) for sequence, producer_id in ((0, 7), (0, 8), (1, 7))]
    holds = Holds()
    for pending in waiting:
        holds.add(pending)
    assert 7 in holds and 9 not in holds
    assert list(holds.take_all()) == [waiting[0], waiting[2], waiting[1]]
    assert not holds


def test_which_batches_need_a_judgement() -> None:
    states = ProducerStates()
    (first,) = iterate_headers(records(b"x", sequence=0))
    (plain,) = iterate_headers(batch(b"x", producer_id=PRODUCER, producer_epoch=0, base_sequence=0))
    (without,) = iterate_headers(batch(b"x"))
    (newer,) = iterate_headers(records(b"x", sequence=0, epoch=1))
    assert [may_append(states, each) for each in (first, plain, without)] == [None, ErrorCode.NONE, ErrorCode.NONE]
    states.record(PRODUCER, 0, 0, 1, 5, 0, True)
    assert [may_append(states, each) for each in (first, plain, without, newer)] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NONE,
        None,
    ]


def test_which_markers_are_needed() -> None:
    def marker(epoch: int) -> EndMarker:
        return EndMarker(producer_id=PRODUCER, epoch=epoch, commit=True, coordinator_epoch=0)

    states = ProducerStates()
    assert not is_needed(states, marker(0)), "of a producer that is not known"
    states.record(PRODUCER, 3, 0, 1, 5, 0, True)
    assert [is_needed(states, marker(epoch)) for epoch in (2, 3, 4)] == [False, True, True]
    states.end_transaction(marker(3), 6, 0)
    assert [is_needed(states, marker(epoch)) for epoch in (2, 3, 4)] == [False, False, True]


def test_a_marker_is_written_where_its_transaction_may_have_been_forgotten() -> None:
    """Another replica may have it open. Also where batches of the producer are known: a snapshot of a compacted log closes what
    was open (simulator, seed 873000191)."""

    def marker(epoch: int) -> EndMarker:
        return EndMarker(producer_id=PRODUCER, epoch=epoch, commit=True, coordinator_epoch=0)

    states = ProducerStates()
    states.has_forgotten = True
    assert is_needed(states, marker(3)), "nothing is known"
    states.record(PRODUCER, 3, 0, 1, 5, 0, False)
    assert [is_needed(states, marker(epoch)) for epoch in (2, 3, 4)] == [False, True, True]
