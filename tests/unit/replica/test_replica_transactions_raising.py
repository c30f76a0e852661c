"""EndTxn that raises the epoch: the table of Kafka's coordinator, and what follows from it (KIP-890 part 2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlake.errors import ErrorCode
from raftlake.replica.transaction_entry import EPOCH_EXHAUSTED, Outcome, Transaction, TransactionState, decode, encode
from raftlake.replica.transaction_entry import transaction_key as key_of
from raftlake.replica.transaction_index import fault_of_change
from raftlake.replica.transactions.raising import INVALID, EndAndRaise
from raftlake.replica.transactions.requests import (
    FENCED,
    UNMAPPED,
    AddPartitions,
    Answer,
    End,
    InitProducer,
    Step,
    TakeId,
    TimeOut,
    Wait,
    Write,
)

S = TransactionState
NOW = 77
P0 = (bytes(range(1, 17)), 0)
EMPTY = Transaction(transactional_id="a", producer_id=10, epoch=3, timeout_ms=1000, state=S.EMPTY, updated_ms=1)
ONGOING = replace(EMPTY, state=S.ONGOING, partitions=frozenset({P0}), started_ms=5)
#: Ended by a producer that had epoch 2, and has 3 now.
BEFORE = replace(ONGOING, epoch=2)
COMMITTING, ABORTING = BEFORE.raised(True), BEFORE.raised(False)
COMMITTED, ABORTED = COMMITTING.completed(), ABORTING.completed()
STATES = {each.state.value: each for each in (EMPTY, ONGOING, COMMITTING, ABORTING, COMMITTED, ABORTED)}
TOLD = Answer(ErrorCode.NONE, 10, 3)
NEXT = Answer(ErrorCode.NONE, 10, 4)


def end(commit: bool, epoch: int = 3, producer_id: int = 10, new_id: int | None = None) -> EndAndRaise:
    return EndAndRaise(transactional_id="a", producer_id=producer_id, epoch=epoch, commit=commit, new_id=new_id)


def taken(step: Step, before: Transaction) -> Transaction:
    """What the step writes, which the rules of the keys let through, and which is read back as it is."""
    assert isinstance(step, Write)
    assert fault_of_change(step.transaction, before) is None
    assert decode(key_of("a"), encode(step.transaction)) == step.transaction
    return step.transaction


def empty_abort(before: Transaction) -> Step:
    aborted = replace(
        before,
        epoch=4,
        state=S.COMPLETE_ABORT,
        started_ms=NOW,
        updated_ms=NOW,
        last_producer_id=10,
        last_epoch=3,
        ended=Outcome.ABORT,
        is_raised=True,
    )
    return Write(aborted, NEXT)


@pytest.mark.parametrize("state", STATES)
def test_the_current_epoch_ends_what_is_ongoing_or_aborts_nothing(state: str) -> None:
    standing = STATES[state]
    told: dict[str, tuple[Step, Step]] = {
        "Empty": (INVALID, empty_abort(EMPTY)),
        "CompleteCommit": (INVALID, empty_abort(COMMITTED)),
        "CompleteAbort": (INVALID, empty_abort(ABORTED)),
        "PrepareCommit": (Wait(), Wait()),
        "PrepareAbort": (Wait(), Wait()),
        "Ongoing": (
            Write(replace(ONGOING.raised(True), updated_ms=NOW), NEXT),
            Write(replace(ONGOING.raised(False), updated_ms=NOW), NEXT),
        ),
    }
    assert (end(True).judge(standing, NOW), end(False).judge(standing, NOW)) == told[state]
    for step in told[state]:
        if isinstance(step, Write):
            assert taken(step, standing).epoch == 4


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", STATES)
def test_a_repeated_end_names_the_epoch_before_and_is_answered_alike(state: str, commit: bool) -> None:
    same, other = ("Commit", "Abort") if commit else ("Abort", "Commit")
    told: dict[str, Step] = dict.fromkeys((f"Prepare{same}", f"Complete{same}"), TOLD)
    told |= dict.fromkeys((f"Prepare{other}", f"Complete{other}"), INVALID)
    assert end(commit, 2).judge(STATES[state], NOW) == told.get(state, FENCED)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", STATES)
def test_strangers_are_refused(state: str, commit: bool) -> None:
    standing = STATES[state]
    assert end(commit, 1).judge(standing, NOW) == end(commit, 4).judge(standing, NOW) == FENCED
    for nobody in (11, -1):
        assert end(commit, -1, nobody).judge(standing, NOW) == end(commit, 3, nobody).judge(standing, NOW) == UNMAPPED
    assert end(commit).judge(None, NOW) == UNMAPPED


@pytest.mark.parametrize("state", ["CompleteCommit", "CompleteAbort"])
def test_an_epoch_that_was_given_to_another_producer_is_told_to_nobody_else(state: str) -> None:
    """Kafka tells it to whoever had the epoch before: two producers then have the same one."""
    others = replace(STATES[state], is_raised=False, last_producer_id=-1, last_epoch=-1)
    assert end(True, 2).judge(others, NOW) == end(False, 2).judge(others, NOW) == FENCED


def test_a_producer_whose_time_was_over_hears_of_it_by_aborting() -> None:
    fence = TimeOut(transactional_id="a", producer_id=10, epoch=3).judge(ONGOING, NOW)
    fenced = taken(fence, ONGOING)
    for standing in (fenced, fenced.completed()):
        assert end(False).judge(standing, NOW) == NEXT
        assert end(True).judge(standing, NOW) == INVALID
        assert end(False, -1, -1).judge(standing, NOW) == UNMAPPED
    again = InitProducer(transactional_id="a", timeout_ms=1, expected=(10, 3))
    assert again.judge(fenced.completed(), NOW) == FENCED


def test_whoever_takes_over_tells_the_other_producer_no_epoch() -> None:
    fenced = taken(InitProducer(transactional_id="a", timeout_ms=1).judge(ONGOING, NOW), ONGOING)
    assert end(False).judge(fenced, NOW) == end(False).judge(fenced.completed(), NOW) == FENCED


def test_where_epochs_are_used_up_the_producer_gets_another_id_with_the_decision() -> None:
    last = replace(ONGOING, epoch=EPOCH_EXHAUSTED)
    assert end(True, EPOCH_EXHAUSTED).judge(last, NOW) == TakeId()
    step = end(True, EPOCH_EXHAUSTED, new_id=50).judge(last, NOW)
    decided = taken(step, last)
    told = Answer(ErrorCode.NONE, 50, 0)
    assert isinstance(step, Write)
    assert (step.answer, decided.producer_id, decided.epoch) == (told, 10, EPOCH_EXHAUSTED + 1), "the markers fence the old id"
    complete = decided.completed()
    assert fault_of_change(complete, decided) is None
    assert (complete.producer_id, complete.epoch, complete.state) == (50, 0, S.COMPLETE_COMMIT)
    for standing in (decided, complete):
        assert end(True, EPOCH_EXHAUSTED).judge(standing, NOW) == told
        assert end(False, EPOCH_EXHAUSTED).judge(standing, NOW) == INVALID
        assert end(True, EPOCH_EXHAUSTED, 11).judge(standing, NOW) == UNMAPPED
        assert end(True, EPOCH_EXHAUSTED + 1).judge(standing, NOW) in (FENCED, UNMAPPED)


def test_the_new_id_goes_on_once_the_markers_are_written() -> None:
    decided = replace(ONGOING, epoch=EPOCH_EXHAUSTED).raised(True, 50)
    add = AddPartitions(transactional_id="a", producer_id=50, epoch=0, partitions=frozenset({P0}))
    init = InitProducer(transactional_id="a", timeout_ms=1, expected=(50, 0))
    assert add.judge(decided, NOW) == init.judge(decided, NOW) == end(False, 0, 50).judge(decided, NOW) == Wait()
    # The next transaction takes the place of Complete*.
    following = taken(add.judge(decided.completed(), NOW), decided)
    assert (following.producer_id, following.epoch, following.is_raised) == (50, 0, False)
    renewed = taken(init.judge(decided.completed(), NOW), decided)
    assert (renewed.producer_id, renewed.epoch) == (50, 1)


def test_an_empty_abort_with_the_last_epoch_takes_another_id_too() -> None:
    last = replace(EMPTY, epoch=EPOCH_EXHAUSTED)
    assert end(False, EPOCH_EXHAUSTED).judge(last, NOW) == TakeId()
    aborted = taken(end(False, EPOCH_EXHAUSTED, new_id=50).judge(last, NOW), last)
    assert (aborted.producer_id, aborted.epoch, aborted.state) == (50, 0, S.COMPLETE_ABORT)
    assert end(False, EPOCH_EXHAUSTED).judge(aborted, NOW) == Answer(ErrorCode.NONE, 50, 0)


def test_the_epoch_of_a_fence_is_for_no_producer() -> None:
    fenced = TimeOut(transactional_id="a", producer_id=10, epoch=EPOCH_EXHAUSTED)
    decided = taken(fenced.judge(replace(ONGOING, epoch=EPOCH_EXHAUSTED), NOW), replace(ONGOING, epoch=EPOCH_EXHAUSTED))
    for standing in (decided, decided.completed()):
        assert end(False, EPOCH_EXHAUSTED).judge(standing, NOW) == FENCED
        assert end(False, EPOCH_EXHAUSTED + 1, new_id=50).judge(standing, NOW) == FENCED


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"])
def test_what_a_command_ended_ends_once_more_in_the_same_way_with_the_next_epoch(state: str, commit: bool) -> None:
    """With its old epoch the producer would count from 0, and its batches would pass for repeated ones."""
    decided = ONGOING.decided("Commit" in state).retired()
    standing = decided if state.startswith("Prepare") else decided.completed()
    step = end(commit).judge(standing, NOW)
    if ("Commit" in state) is not commit:
        assert step == INVALID
    elif standing.is_prepared:
        assert step == Wait()
    else:
        after = taken(step, standing)
        assert (step.answer, after.epoch, after.state, after.is_retired) == (NEXT, 4, standing.state, False)  # type: ignore[union-attr]
        assert end(commit).judge(after, NOW) == NEXT
        last = replace(standing, epoch=EPOCH_EXHAUSTED)
        assert end(commit, EPOCH_EXHAUSTED).judge(last, NOW) == TakeId()
        assert taken(end(commit, EPOCH_EXHAUSTED, new_id=50).judge(last, NOW), last).producer_id == 50


def test_older_requests_go_on_beside() -> None:
    """EndTxn below version 5 leaves the epoch as it is, whatever ended the transaction before."""
    begun = AddPartitions(transactional_id="a", producer_id=10, epoch=3, partitions=frozenset({P0})).judge(COMMITTED, NOW)
    following = taken(begun, COMMITTED)
    old = End(transactional_id="a", producer_id=10, epoch=3, commit=True)
    assert type(old.judge(following, NOW)).__name__ == "Decide"
    kept = following.decided(True).completed()
    assert (kept.epoch, kept.is_raised) == (3, False)
    assert end(True, 2).judge(kept, NOW) == FENCED, "the decision that raised the epoch was the one before"
