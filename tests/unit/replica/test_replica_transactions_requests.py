"""What each request asks for over each state of a transaction: a table, and what follows from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlake.errors import ErrorCode
from raftlake.kv.commands import EndTxn
from raftlake.replica.transaction_entry import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    PARTITIONS_MAX,
    Outcome,
    Transaction,
    TransactionState,
)
from raftlake.replica.transaction_index import fault_of_change
from raftlake.replica.transactions.requests import (
    DONE,
    FENCED,
    UNMAPPED,
    AddPartitions,
    Answer,
    Decide,
    End,
    InitProducer,
    Step,
    TakeId,
    TimeOut,
    Wait,
    Write,
)

S = TransactionState
TOPIC = bytes(range(1, 17))
P0, P1, P2 = (TOPIC, 0), (TOPIC, 1), (TOPIC, 2)
EMPTY = Transaction(transactional_id="a", producer_id=10, epoch=3, timeout_ms=1000, state=S.EMPTY, updated_ms=1)
ONGOING = replace(EMPTY, state=S.ONGOING, partitions=frozenset({P0, P1}), started_ms=5)
COMMITTING, ABORTING = ONGOING.decided(True), ONGOING.decided(False)
COMMITTED, ABORTED = COMMITTING.completed(), ABORTING.completed()
RETIRED = {each.state.value: each.retired() for each in (COMMITTING, ABORTING, COMMITTED, ABORTED)}
STATES = {"nothing": None, **{each.state.value: each for each in (EMPTY, ONGOING, COMMITTING, ABORTING, COMMITTED, ABORTED)}}
NOW = 77
INVALID = Answer(ErrorCode.INVALID_TXN_STATE)


def add(*partitions: tuple[bytes, int], producer_id: int = 10, epoch: int = 3) -> AddPartitions:
    return AddPartitions(transactional_id="a", producer_id=producer_id, epoch=epoch, partitions=frozenset(partitions))


def end(commit: bool, producer_id: int = 10, epoch: int = 3) -> End:
    return End(transactional_id="a", producer_id=producer_id, epoch=epoch, commit=commit)


def begin(before: Transaction) -> Step:
    return Write(replace(before, state=S.ONGOING, partitions=frozenset({P2}), started_ms=NOW, updated_ms=NOW), DONE)


@pytest.mark.parametrize("state", STATES)
def test_partitions_are_added(state: str) -> None:
    told: dict[str, Step] = {
        "nothing": UNMAPPED,
        "Empty": begin(EMPTY),
        "Ongoing": Write(replace(ONGOING, partitions=frozenset({P0, P1, P2}), updated_ms=NOW), DONE),
        "PrepareCommit": Wait(),
        "PrepareAbort": Wait(),
        "CompleteCommit": begin(COMMITTED),
        "CompleteAbort": begin(ABORTED),
    }
    standing = STATES[state]
    assert add(P2).judge(standing, NOW) == told[state]
    if standing is not None:
        assert add(P2, epoch=2).judge(standing, NOW) == add(P2, epoch=4).judge(standing, NOW) == FENCED
        assert add(P2, producer_id=11).judge(standing, NOW) == UNMAPPED


def test_partitions_that_are_there_are_not_added_again() -> None:
    assert add(P0).judge(ONGOING, NOW) == add(P1, P0).judge(ONGOING, NOW) == DONE
    many = frozenset((TOPIC, index) for index in range(PARTITIONS_MAX))
    full = replace(ONGOING, partitions=many)
    assert add(P0).judge(full, NOW) == DONE
    refused = add((TOPIC, PARTITIONS_MAX)).judge(full, NOW)
    assert isinstance(refused, Answer)
    assert refused.error is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", STATES)
def test_transactions_end(state: str, commit: bool) -> None:
    same, other = ("Commit", "Abort") if commit else ("Abort", "Commit")
    told: dict[str, Step] = {
        "nothing": UNMAPPED,
        "Empty": INVALID,
        "Ongoing": Decide(EndTxn(10, 3, commit, retires_epoch=False), DONE),
        f"Prepare{same}": DONE,
        f"Complete{same}": DONE,
        f"Prepare{other}": INVALID,
        f"Complete{other}": INVALID,
    }
    standing = STATES[state]
    assert end(commit).judge(standing, NOW) == told[state]
    if standing is not None:
        assert end(commit, epoch=2).judge(standing, NOW) == end(commit, epoch=4).judge(standing, NOW) == FENCED
        assert end(commit, producer_id=11).judge(standing, NOW) == UNMAPPED


@pytest.mark.parametrize("state", RETIRED)
def test_with_an_epoch_that_a_command_retired_nothing_begins(state: str) -> None:
    """Also where the producer names no partition but those of the ended transaction."""
    retired = RETIRED[state]
    assert add(P2).judge(retired, NOW) == add(P0).judge(retired, NOW) == add().judge(retired, NOW) == FENCED
    assert add(P2, producer_id=11).judge(retired, NOW) == UNMAPPED


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", RETIRED)
def test_what_a_command_ended_ends_once_more_in_the_same_way_alone(state: str, commit: bool) -> None:
    assert end(commit).judge(RETIRED[state], NOW) == (DONE if ("Commit" in state) is commit else INVALID)
    assert end(commit, epoch=4).judge(RETIRED[state], NOW) == FENCED


def init(expected: tuple[int, int] | None = None, new_id: int | None = None) -> InitProducer:
    return InitProducer(transactional_id="a", timeout_ms=2000, expected=expected, new_id=new_id)


def next_epoch(before: Transaction, last: tuple[int, int] = (-1, -1)) -> Step:
    told = replace(
        before,
        epoch=before.epoch + 1,
        timeout_ms=2000,
        state=S.EMPTY,
        partitions=frozenset(),
        updated_ms=NOW,
        last_producer_id=last[0],
        last_epoch=last[1],
    )
    return Write(told, Answer(ErrorCode.NONE, told.producer_id, told.epoch))


@pytest.mark.parametrize("expected", [None, (10, 3)])
@pytest.mark.parametrize("state", STATES)
def test_producers_begin(state: str, expected: tuple[int, int] | None) -> None:
    last = expected or (-1, -1)
    fence = replace(ABORTING, epoch=4, updated_ms=NOW, last_producer_id=last[0], last_epoch=last[1])
    told: dict[str, Step] = {
        "nothing": TakeId(),
        "Empty": next_epoch(EMPTY, last),
        "Ongoing": Write(fence, None),
        "PrepareCommit": Wait(),
        "PrepareAbort": Wait(),
        "CompleteCommit": next_epoch(COMMITTED, last),
        "CompleteAbort": next_epoch(ABORTED, last),
    }
    standing = STATES[state]
    assert init(expected).judge(standing, NOW) == told[state]
    if standing is not None:
        for other in ((10, 2), (10, 4), (11, 3)):
            assert init(other).judge(standing, NOW) == FENCED


@pytest.mark.parametrize("expected", [None, (10, 3)])
@pytest.mark.parametrize("state", RETIRED)
def test_producers_begin_anew_over_a_retired_epoch(state: str, expected: tuple[int, int] | None) -> None:
    retired = RETIRED[state]
    if retired.is_prepared:
        assert init(expected).judge(retired, NOW) == Wait()
        return
    step = init(expected).judge(retired, NOW)
    assert step == next_epoch(replace(retired, is_retired=False), expected or (-1, -1))
    assert isinstance(step, Write)
    assert not step.transaction.is_retired
    assert isinstance(add(P2, epoch=4).judge(step.transaction, NOW), Write)
    used_up = replace(retired, epoch=EPOCH_EXHAUSTED)
    other = init(new_id=50).judge(used_up, NOW)
    assert isinstance(other, Write)
    assert (other.answer, other.transaction.is_retired) == (Answer(ErrorCode.NONE, 50, 0), False)


def test_nobody_gets_a_retired_epoch_from_a_repetition() -> None:
    """The epoch came from InitProducerId. The same request, late, would get it once more."""
    named = replace(COMMITTED, epoch=4, last_producer_id=10, last_epoch=3)
    assert init((10, 3)).judge(named, NOW) == Answer(ErrorCode.NONE, 10, 4)
    assert init((10, 3)).judge(named.retired(), NOW) == FENCED


def test_a_first_producer_gets_an_id_of_its_own() -> None:
    first = Transaction(transactional_id="a", producer_id=50, epoch=0, timeout_ms=2000, state=S.EMPTY, updated_ms=NOW)
    for expected in (None, (10, 3)):
        assert init(expected, new_id=50).judge(None, NOW) == Write(first, Answer(ErrorCode.NONE, 50, 0))


@pytest.mark.parametrize("state", [each for each in STATES if each != "nothing"])
def test_a_repetition_is_answered_alike_and_changes_nothing(state: str) -> None:
    found = STATES[state]
    assert found is not None
    standing = replace(found, epoch=4, last_producer_id=10, last_epoch=3)
    again = init((10, 3)).judge(standing, NOW)
    assert again == (Wait() if standing.is_prepared else Answer(ErrorCode.NONE, 10, 4))


@pytest.mark.parametrize("epoch", [EPOCH_EXHAUSTED, EPOCH_EXHAUSTED + 1])
def test_a_producer_whose_epochs_are_used_up_gets_another_id(epoch: int) -> None:
    used_up = replace(ABORTED, epoch=epoch)
    for expected in (None, (10, epoch)):
        assert init(expected).judge(used_up, NOW) == TakeId()
        step = init(expected, new_id=50).judge(used_up, NOW)
        assert isinstance(step, Write)
        assert step.answer == Answer(ErrorCode.NONE, 50, 0)
        told = step.transaction
        assert (told.producer_id, told.epoch, told.state, told.ended) == (50, 0, S.EMPTY, Outcome.ABORT)
        assert (told.last_producer_id, told.last_epoch) == (10, -1 if expected is None else epoch)
        if expected is not None:
            assert init(expected).judge(told, NOW) == Answer(ErrorCode.NONE, 50, 0)
    assert init((10, epoch - 1)).judge(used_up, NOW) == FENCED


def test_whoever_fenced_its_own_last_epoch_gets_another_id() -> None:
    """The epoch of the abort is for no producer then."""
    fenced = replace(ABORTED, epoch=EPOCH_EXHAUSTED + 1, last_producer_id=10, last_epoch=EPOCH_EXHAUSTED)
    step = init((10, EPOCH_EXHAUSTED), new_id=50).judge(fenced, NOW)
    assert isinstance(step, Write)
    assert (step.answer, step.transaction.last_epoch) == (Answer(ErrorCode.NONE, 50, 0), EPOCH_EXHAUSTED)


def test_time_that_is_over_aborts_the_one_transaction_that_it_was_for() -> None:
    out = TimeOut(transactional_id="a", producer_id=10, epoch=3)
    known = replace(ONGOING, last_producer_id=10, last_epoch=2)
    assert out.judge(known, NOW) == Write(replace(ABORTING, epoch=4, updated_ms=NOW, is_raised=True), DONE)
    for standing in (None, EMPTY, COMMITTING, ABORTED, replace(ONGOING, epoch=4), replace(ONGOING, producer_id=11)):
        assert out.judge(standing, NOW) == DONE


@pytest.mark.parametrize("state", [each for each in STATES if each != "nothing"])
def test_nothing_begins_in_the_epoch_that_no_producer_gets(state: str) -> None:
    found = STATES[state]
    assert found is not None
    standing = replace(found, epoch=EPOCH_EXHAUSTED)
    assert not isinstance(add(P2, epoch=EPOCH_EXHAUSTED).judge(standing, NOW), Answer)
    step = add(P2, epoch=EPOCH_MAX).judge(replace(found, epoch=EPOCH_MAX), NOW)
    assert isinstance(step, Answer)
    assert step.error is ErrorCode.PRODUCER_FENCED
    assert str(EPOCH_MAX) in step.why
    # Whoever had the epoch before is refused as ever.
    assert add(P2, epoch=EPOCH_EXHAUSTED).judge(replace(found, epoch=EPOCH_MAX), NOW) == FENCED


@pytest.mark.parametrize("epoch", [EPOCH_EXHAUSTED - 1, EPOCH_EXHAUSTED, EPOCH_MAX])
def test_an_abort_raises_the_epoch_where_there_is_another_one(epoch: int) -> None:
    standing = replace(ONGOING, epoch=epoch, last_producer_id=9, last_epoch=4)
    out = TimeOut(transactional_id="a", producer_id=10, epoch=epoch).judge(standing, NOW)
    fence = init((10, epoch)).judge(standing, NOW)
    assert isinstance(out, Write)
    assert isinstance(fence, Write)
    if epoch == EPOCH_MAX:
        retired = replace(ABORTING, epoch=epoch, updated_ms=NOW, is_retired=True)
        assert (out, fence) == (Write(retired, DONE), Write(retired, None))
    else:
        assert out == Write(replace(ABORTING, epoch=epoch + 1, updated_ms=NOW, is_raised=True), DONE)
        assert (fence.transaction.epoch, fence.transaction.is_retired) == (epoch + 1, False)
    for step in (out, fence):
        assert fault_of_change(step.transaction, standing) is None
