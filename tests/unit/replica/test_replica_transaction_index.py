"""Which change of a transaction takes effect, and what a node knows of all transactions, applied and from a snapshot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlake.kv.commands import Compare, Delete, EndTxn, Put, Txn, encode
from raftlake.kv.machine import StateMachine, TxnResult
from raftlake.replica import transaction_entry
from raftlake.replica.reserved_rules import ReservedRules
from raftlake.replica.transaction_entry import Outcome, Transaction, TransactionState, transaction_key
from raftlake.replica.transaction_index import TransactionIndex

S = TransactionState
TOPIC = bytes(range(1, 17))
PARTS = frozenset({(TOPIC, 0), (TOPIC, 1)})
EMPTY = Transaction(transactional_id="a", producer_id=10, epoch=3, timeout_ms=1000, state=S.EMPTY)
ONGOING = replace(EMPTY, state=S.ONGOING, partitions=PARTS)
COMMITTING = ONGOING.decided(True)
ABORTING = ONGOING.decided(False)
FENCING = replace(ABORTING, epoch=4)
COMMITTED = COMMITTING.completed()
ABORTED = ABORTING.completed()
ENDED_BY_COMMAND = COMMITTED.retired()
ALL = (EMPTY, ONGOING, COMMITTING, ABORTING, COMMITTED, ABORTED)


class Space:
    """A state machine under the rules, and what it became of each put."""

    def __init__(self) -> None:
        self.machine = StateMachine(rules=ReservedRules)

    @property
    def index(self) -> TransactionIndex:
        assert isinstance(self.machine.rules, ReservedRules)
        return self.machine.rules.transactions

    def apply(self, *ops: Put | Delete | EndTxn, compares: tuple[Compare, ...] = ()) -> TxnResult:
        return self.machine.apply(max(self.machine.applied_offset, 1), encode(Txn(compares, ops)))

    def put(self, *transactions: Transaction) -> TxnResult:
        return self.apply(*(as_put(each) for each in transactions))

    def standing(self, transactional_id: str = "a") -> Transaction | None:
        entry = self.machine.get(transaction_key(transactional_id))
        if entry is None:
            return None
        found = transaction_entry.decode(transaction_key(transactional_id), entry.value)
        return found if isinstance(found, Transaction) else None


def as_put(transaction: Transaction) -> Put:
    return Put(transaction_key(transaction.transactional_id), transaction_entry.encode(transaction))


ENDED = {S.PREPARE_COMMIT: Outcome.COMMIT, S.PREPARE_ABORT: Outcome.ABORT}
NEXT_EPOCH = replace(EMPTY, epoch=4)
NEXT_ID = replace(EMPTY, producer_id=11, epoch=0, last_producer_id=10)
CHANGES: list[tuple[Transaction, Transaction, bool]] = [
    (EMPTY, ONGOING, True),
    (EMPTY, NEXT_EPOCH, True),
    (EMPTY, NEXT_ID, True),
    (EMPTY, replace(NEXT_ID, last_producer_id=-1), False),
    (EMPTY, replace(EMPTY, epoch=2), False),
    (EMPTY, COMMITTING, False),
    (EMPTY, COMMITTED, False),
    (EMPTY, replace(ONGOING, epoch=4), False),
    (ONGOING, replace(ONGOING, partitions=PARTS | {(TOPIC, 7)}), True),
    (ONGOING, replace(ONGOING, partitions=frozenset({(TOPIC, 0)})), False),
    (ONGOING, replace(ONGOING, epoch=4), False),
    (ONGOING, COMMITTING, True),
    (ONGOING, replace(COMMITTING, epoch=4), False),
    (ONGOING, replace(COMMITTING, partitions=frozenset()), False),
    (ONGOING, ABORTING, True),
    (ONGOING, FENCING, True),
    (ONGOING, replace(FENCING, epoch=5), False),
    (ONGOING, EMPTY, False),
    (ONGOING, NEXT_ID, False),
    (ONGOING, COMMITTED, False),
    (COMMITTING, COMMITTED, True),
    (COMMITTING, replace(COMMITTED, epoch=4), False),
    (COMMITTING, ABORTING, False),
    (COMMITTING, ABORTED, False),
    (COMMITTING, replace(COMMITTED, ended=Outcome.ABORT), False),
    (COMMITTING, replace(COMMITTING, epoch=4), False),
    (COMMITTING, replace(COMMITTING, partitions=frozenset()), False),
    (COMMITTING, ONGOING, False),
    (COMMITTING, replace(ONGOING, ended=Outcome.ABORT), False),
    (COMMITTING, replace(ONGOING, ended=Outcome.COMMIT), True),
    (COMMITTING, replace(ONGOING, ended=Outcome.COMMIT, epoch=4), False),
    (COMMITTING, replace(NEXT_EPOCH, ended=Outcome.COMMIT), True),
    (COMMITTING, replace(NEXT_ID, ended=Outcome.COMMIT), True),
    (FENCING, replace(NEXT_EPOCH, epoch=5, ended=Outcome.ABORT), True),
    (FENCING, replace(NEXT_EPOCH, epoch=3, ended=Outcome.ABORT), False),
    (FENCING, NEXT_EPOCH, False),
    (FENCING, COMMITTED, False),
    (COMMITTED, ONGOING, True),
    (COMMITTED, NEXT_EPOCH, True),
    (COMMITTED, NEXT_ID, True),
    (COMMITTED, ABORTED, False),
    (COMMITTED, ABORTING, False),
    (ABORTED, ONGOING, True),
    (ABORTED, COMMITTED, False),
    (COMMITTING, COMMITTING.retired(), True),
    (COMMITTED, ENDED_BY_COMMAND, True),
    (COMMITTING.retired(), ENDED_BY_COMMAND, True),
    (COMMITTING.retired(), COMMITTING, False),
    (COMMITTING.retired(), COMMITTED, False),
    (COMMITTING.retired(), replace(ONGOING, ended=Outcome.COMMIT), False),
    (COMMITTING.retired(), replace(NEXT_EPOCH, ended=Outcome.COMMIT), True),
    (ENDED_BY_COMMAND, COMMITTED, False),
    (ENDED_BY_COMMAND, ONGOING, False),
    (ENDED_BY_COMMAND, EMPTY, False),
    (ENDED_BY_COMMAND, NEXT_EPOCH, True),
    (ENDED_BY_COMMAND, NEXT_ID, True),
    (ENDED_BY_COMMAND, replace(ENDED_BY_COMMAND, epoch=4), False),
]


@pytest.mark.parametrize(("before", "after", "is_taken"), CHANGES)
def test_what_may_follow_what(before: Transaction, after: Transaction, is_taken: bool) -> None:
    space = Space()
    space.put(before)
    result = space.put(after)

    assert [key for key, _ in result.ignored] == ([] if is_taken else [transaction_key("a")])
    assert space.standing() == space.index.by_key[transaction_key("a")] == (after if is_taken else before)
    entry = space.machine.get(transaction_key("a"))
    assert entry is not None
    assert entry.version == result.offset


def test_spoilt_values_take_no_effect_over_a_transaction_and_stand_where_there_is_none() -> None:
    space, key = Space(), transaction_key("a")
    space.apply(Put(key, b"spoilt"))
    assert space.index.by_key == {}
    space.put(EMPTY)
    for value in (b"", b"{}", transaction_entry.encode(replace(EMPTY, transactional_id="b"))):
        assert space.apply(Put(key, value)).ignored
        assert space.standing() == EMPTY


def test_a_producer_id_stands_under_one_key() -> None:
    space = Space()
    space.put(EMPTY)
    other = replace(EMPTY, transactional_id="b", epoch=9)
    assert [key for key, _ in space.put(other).ignored] == [transaction_key("b")]
    assert space.index.of(10) == EMPTY
    assert space.standing("b") is None
    space.put(NEXT_ID)
    assert space.index.of(10) is None
    assert space.put(other).ignored == ()
    assert space.index.of(10) == other
    assert space.index.of(11) == NEXT_ID
    space.apply(Delete(transaction_key("b")))
    assert space.index.of(10) is None
    assert space.index.key_of(11) == transaction_key("a")


def test_what_is_under_way_is_known_applied_and_from_a_snapshot() -> None:
    space = Space()
    for number, each in enumerate((EMPTY, ONGOING, COMMITTING, FENCING, COMMITTED, ABORTED)):
        space.put(replace(each, transactional_id=f"id-{number}", producer_id=100 + number))
    other = Space()
    other.machine.restore(space.machine.snapshot())
    for index in (space.index, other.index):
        assert list(index.ongoing) == [transaction_key("id-1")]
        assert list(index.prepared) == [transaction_key("id-2"), transaction_key("id-3")]
        assert [found.state if (found := index.of(100 + number)) else None for number in range(7)] == [
            S.EMPTY,
            S.ONGOING,
            S.PREPARE_COMMIT,
            S.PREPARE_ABORT,
            S.COMPLETE_COMMIT,
            S.COMPLETE_ABORT,
            None,
        ]
    space.apply(Delete(transaction_key("id-1")), Delete(transaction_key("id-2")))
    assert (list(space.index.ongoing), list(space.index.prepared)) == ([], [transaction_key("id-3")])


def test_of_two_keys_with_one_producer_in_a_snapshot_the_older_one_counts() -> None:
    for names in (("a", "b"), ("b", "a")):
        bare, first, second = (
            StateMachine(),
            replace(ONGOING, transactional_id=names[0]),
            replace(COMMITTING, transactional_id=names[1]),
        )
        bare.apply(1, encode(Txn((), (as_put(first),))))
        bare.apply(2, encode(Txn((), (as_put(second),))))
        space = Space()
        space.machine.restore(bare.snapshot())
        assert space.index.of(10) == first
        assert list(space.index.by_key) == [transaction_key(names[0])]
        assert (list(space.index.ongoing), list(space.index.prepared)) == ([transaction_key(names[0])], [])
        emptied = space.machine.get(transaction_key(names[1]))
        assert emptied is not None
        assert emptied.value == b""


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_decides_an_ongoing_transaction_once(commit: bool) -> None:
    space = Space()
    space.put(ONGOING)
    first = space.apply(EndTxn(10, 3, commit))
    decided = (COMMITTING if commit else ABORTING).retired()

    assert (first.succeeded, space.standing()) == (True, decided)
    for standing in (decided, decided.completed()):
        space.put(standing)
        version = space.machine.applied_offset - 1
        again = space.apply(EndTxn(10, 3, commit))
        entry = space.machine.get(transaction_key("a"))
        assert entry is not None
        assert (again.succeeded, entry.version, space.standing()) == (True, version, standing)
        ((producer_id, why),) = space.apply(EndTxn(10, 3, not commit)).refused
        assert (producer_id, standing.state.value in why) == (10, True)


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_that_kafkas_clients_ask_for_leaves_the_epoch_as_it_is(commit: bool) -> None:
    space, ending = Space(), EndTxn(10, 3, commit, retires_epoch=False)
    space.put(ONGOING)
    decided = COMMITTING if commit else ABORTING
    assert (space.apply(ending).succeeded, space.standing()) == (True, decided)
    assert (space.apply(ending).succeeded, space.standing()) == (True, decided)
    assert space.put(decided.completed(), replace(NEXT_EPOCH, transactional_id="b", producer_id=11)).succeeded
    assert space.put(replace(ONGOING, ended=decided.decision)).ignored == ()
    for before in (decided.retired(), decided.completed().retired()):
        other = Space()
        other.put(before)
        assert (other.apply(ending).succeeded, other.standing()) == (True, before)


@pytest.mark.parametrize("standing", [COMMITTING, COMMITTED, ABORTING, ABORTED])
def test_a_command_retires_the_epoch_also_of_what_was_decided_so_before(standing: Transaction) -> None:
    """Else the same command, once more, would end the next transaction."""
    space, commit = Space(), standing.decision is Outcome.COMMIT
    space.put(standing)
    assert space.apply(EndTxn(10, 3, not commit)).refused
    assert space.standing() == standing
    assert space.apply(EndTxn(10, 3, commit)).succeeded
    assert space.standing() == standing.retired()
    version = space.machine.applied_offset - 1
    assert space.apply(EndTxn(10, 3, commit), Put("k", b"")).succeeded
    entry = space.machine.get(transaction_key("a"))
    assert entry is not None
    assert (entry.version, space.standing()) == (version, standing.retired())


def test_a_command_that_comes_late_ends_no_other_transaction() -> None:
    """It was sent once more after its answer, and finds the producer at work again."""
    space = Space()
    space.put(ONGOING)
    command = (Put("progress", b"1"), EndTxn(10, 3, True))
    assert space.apply(*command).succeeded
    space.put(COMMITTED.retired())
    assert space.put(replace(ONGOING, ended=Outcome.COMMIT)).ignored
    assert space.apply(*command).succeeded
    begun = replace(ONGOING, epoch=4, ended=Outcome.COMMIT)
    space.put(replace(NEXT_EPOCH, ended=Outcome.COMMIT))
    space.put(begun)
    space.apply(Put("progress", b"2"))
    for state in (space, restored(space)):
        (refused,) = state.apply(*command).refused
        assert refused == (10, "the producer 10 has the epoch 4, not 3")
        entry = state.machine.get("progress")
        assert entry is not None
        assert (state.standing(), entry.value) == (begun, b"2")


def test_a_retired_epoch_is_known_from_a_snapshot_and_from_a_replay() -> None:
    space, commands = Space(), [as_put(ONGOING), EndTxn(10, 3, True)]
    for command in commands:
        space.apply(command)
    other = restored(space)
    for state in (space, other):
        assert state.standing() == state.index.of(10) == COMMITTING.retired()
        assert state.put(COMMITTED).ignored
        assert state.put(ENDED_BY_COMMAND).ignored == ()
        assert state.put(replace(ONGOING, ended=Outcome.COMMIT)).ignored


def restored(space: Space) -> Space:
    other = Space()
    other.machine.restore(space.machine.snapshot())
    return other


@pytest.mark.parametrize(
    ("standing", "ending", "told"),
    [
        (ONGOING, EndTxn(11, 3, True), "no transactional id has the producer id 11"),
        (ONGOING, EndTxn(10, 2, True), "has the epoch 3, not 2"),
        (ONGOING, EndTxn(10, 4, True), "has the epoch 3, not 4"),
        (EMPTY, EndTxn(10, 3, True), "is Empty"),
        (EMPTY, EndTxn(10, 3, False), "is Empty"),
    ],
)
def test_what_cannot_end_says_why(standing: Transaction, ending: EndTxn, told: str) -> None:
    space = Space()
    space.put(standing)
    result = space.apply(ending, Put("k", b""))
    assert not result.succeeded
    assert told in result.refused[0][1]
    assert (space.standing(), space.machine.get("k")) == (standing, None)


def test_several_producers_end_together_with_compares_and_puts_or_nothing_happens() -> None:
    space = Space()
    rows = [replace(ONGOING, transactional_id=f"id-{number}", producer_id=100 + number) for number in range(3)]
    space.put(*rows)
    ends = [EndTxn(100, 3, True), EndTxn(101, 3, False), EndTxn(102, 3, True)]
    for ops, compares in (
        ([*ends[:2], EndTxn(102, 2, True)], ()),
        (ends, (Compare("progress", 7),)),
        ([*ends, EndTxn(999, 0, True)], (Compare("progress", 0),)),
    ):
        result = space.apply(Put("progress", b"1"), *ops, compares=compares)
        assert not result.succeeded
        assert (result.refused != ()) is (compares != (Compare("progress", 7),))
        assert [space.standing(row.transactional_id) for row in rows] == rows
        assert space.machine.get("progress") is None
    done = space.apply(Put("progress", b"1"), *ends, compares=(Compare("progress", 0),))
    assert done.succeeded
    assert [found.state if (found := space.standing(row.transactional_id)) else None for row in rows] == [
        S.PREPARE_COMMIT,
        S.PREPARE_ABORT,
        S.PREPARE_COMMIT,
    ]
    assert {entry.version for _, entry in space.machine.list("", None, 9)[0]} == {done.offset}
