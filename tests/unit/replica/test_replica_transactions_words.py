"""Why producers are refused, in words: who asks, who goes on under the transactional id, and what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlake.errors import ErrorCode
from raftlake.replica.transaction_entry import EPOCH_EXHAUSTED, Transaction, TransactionState
from raftlake.replica.transactions.raising import EndAndRaise
from raftlake.replica.transactions.requests import AddPartitions, Answer, End, InitProducer, Request, TimeOut
from raftlake.replica.transactions.words import NEW_PRODUCER, explained

E, S = ErrorCode, TransactionState
EMPTY = Transaction(transactional_id="a", producer_id=10, epoch=3, timeout_ms=1000, state=S.EMPTY, updated_ms=1)
ONGOING = replace(EMPTY, state=S.ONGOING, started_ms=5)
OLD: list[Request] = [
    InitProducer(transactional_id="a", timeout_ms=1, expected=(10, 2)),
    AddPartitions(transactional_id="a", producer_id=10, epoch=2),
    End(transactional_id="a", producer_id=10, epoch=2, commit=True),
    EndAndRaise(transactional_id="a", producer_id=10, epoch=2, commit=True),
]


@pytest.mark.parametrize("request_", OLD, ids=lambda each: type(each).__name__)
def test_each_request_of_a_fenced_producer_is_told_its_epoch_and_the_newest(request_: Request) -> None:
    step = request_.judge(EMPTY, 77)
    assert step == Answer(E.PRODUCER_FENCED)
    why = explained(step, request_, EMPTY).why
    assert why.startswith("producer 10 has epoch 2, the newest is 3: another producer") and why.endswith(NEW_PRODUCER)


def test_the_newest_may_be_of_another_producer_id_where_epochs_are_used_up() -> None:
    used_up = replace(ONGOING, epoch=EPOCH_EXHAUSTED).raised(True, 11)
    asked = AddPartitions(transactional_id="a", producer_id=10, epoch=EPOCH_EXHAUSTED)
    why = explained(Answer(E.PRODUCER_FENCED), asked, used_up).why
    assert f"producer 10 has epoch {EPOCH_EXHAUSTED}, the newest is 0 of producer 11: " in why


def test_a_retired_epoch_is_the_newest_and_was_ended_by_a_command() -> None:
    retired = ONGOING.decided(False).completed().retired()
    asked = AddPartitions(transactional_id="a", producer_id=10, epoch=3)
    step = asked.judge(retired, 77)
    assert isinstance(step, Answer)
    told = "producer 10: a command has ended the transaction of epoch 3 and retired it"
    assert explained(step, asked, retired).why.startswith(told)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_stands_against_the_decision_is_told_the_state(commit: bool) -> None:
    ended = ONGOING.decided(not commit).completed()
    for standing, then in ((ended, ""), (ended.retired(), f"; {NEW_PRODUCER}")):
        asked = End(transactional_id="a", producer_id=10, epoch=3, commit=commit)
        step = asked.judge(standing, 77)
        assert step == Answer(E.INVALID_TXN_STATE)
        words = f"producer 10 epoch 3 cannot {'commit' if commit else 'abort'}: the state is {ended.state.value}{then}"
        assert explained(Answer(E.INVALID_TXN_STATE), asked, standing).why == words


def test_a_producer_that_the_id_does_not_have_is_told_whose_it_is() -> None:
    asked = End(transactional_id="a", producer_id=12, epoch=3, commit=True)
    unmapped = Answer(E.INVALID_PRODUCER_ID_MAPPING)
    assert asked.judge(EMPTY, 77) == asked.judge(None, 77) == unmapped
    assert explained(unmapped, asked, EMPTY).why.startswith("the transactional id has producer 10, not 12; ")
    assert explained(unmapped, asked, None).why.startswith("the transactional id is not known, or was forgotten; ")


def test_what_is_granted_passes_or_is_explained_already_stays_as_it_is() -> None:
    asked = AddPartitions(transactional_id="a", producer_id=10, epoch=2)
    for answer in (
        Answer(E.NONE, 10, 3),
        Answer(E.CONCURRENT_TRANSACTIONS),
        Answer(E.POLICY_VIOLATION, why="a transaction has at most"),
    ):
        assert explained(answer, asked, EMPTY) == answer
    over = TimeOut(transactional_id="a", producer_id=10, epoch=3)
    assert explained(Answer(E.NONE), over, EMPTY) == Answer(E.NONE)
