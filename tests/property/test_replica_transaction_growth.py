"""How much longer the value of a transaction's key gets with each step: what `kv.quota` lets pass in a full key space."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raftlake.kv.commands import EndTxn, Put, Txn
from raftlake.kv.commands import encode as encode_txn
from raftlake.kv.keyspace import entry_bytes
from raftlake.kv.machine import StateMachine
from raftlake.kv.quota import END_GROWTH_BYTES, OPEN, Quota
from raftlake.kv.rules import Decided
from raftlake.kv.strict_json import Refused
from raftlake.replica.transaction_entry import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    Outcome,
    Transaction,
    TransactionState,
    decode,
    encode,
    transaction_key,
)
from raftlake.replica.transaction_index import TransactionIndex, fault_of_change
from raftlake.replica.transactions.raising import EndAndRaise
from raftlake.replica.transactions.requests import InitProducer, TimeOut, Write

_S = TransactionState
ID_MAX = 2**63 - 1
NEW_ID = ID_MAX - 1
P0, P1 = (bytes(range(1, 17)), 0), (bytes(16), 1)
#: At each border between two numbers of digits.
producer_ids = st.sampled_from([0, 9, 10, 999_999, ID_MAX - 2])
epochs = st.sampled_from([0, 8, 9, 98, 99, 998, 999, 9_998, 9_999, EPOCH_EXHAUSTED - 1, EPOCH_EXHAUSTED, EPOCH_MAX])
times = st.sampled_from([-1, 0, 1_700_000_000_000, ID_MAX])
IDLE = Transaction(transactional_id="a", producer_id=ID_MAX - 2, epoch=9_999, timeout_ms=1, state=_S.EMPTY)
OPEN_ONE = replace(IDLE, epoch=EPOCH_EXHAUSTED, state=_S.ONGOING, partitions=frozenset({P0}))


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(list(_S)))
    is_prepared = state in (_S.PREPARE_COMMIT, _S.PREPARE_ABORT)
    may_be_marked = state not in (_S.EMPTY, _S.ONGOING)
    found = Transaction(
        transactional_id=draw(st.sampled_from(["a", '"state":"Ongoing"', "\\", "é"])),
        producer_id=draw(producer_ids),
        epoch=draw(epochs),
        timeout_ms=draw(st.sampled_from([1, 2**31 - 1])),
        state=state,
        partitions=frozenset(draw(st.sets(st.sampled_from([P0, P1])))) if is_prepared or state is _S.ONGOING else frozenset(),
        started_ms=draw(times),
        updated_ms=draw(times),
        last_producer_id=draw(st.sampled_from([-1, 0, ID_MAX])),
        last_epoch=draw(st.sampled_from([-1, 0, EPOCH_MAX])),
        ended=draw(st.sampled_from(list(Outcome))),
        is_retired=may_be_marked and draw(st.booleans()),
        is_raised=may_be_marked and draw(st.booleans()),
        next_producer_id=draw(st.sampled_from([-1, ID_MAX])) if is_prepared else -1,
    )
    assert not isinstance(decode(transaction_key(found.transactional_id), encode(found)), Refused)
    return found


def steps(standing: Transaction, wall_ms: int) -> list[Transaction]:
    """What may follow, but for partitions that are added."""
    name, (producer_id, epoch) = standing.transactional_id, standing.successor
    requests = [
        *(
            EndAndRaise(transactional_id=name, producer_id=producer_id, epoch=epoch, commit=commit, new_id=NEW_ID)
            for commit in (True, False)
        ),
        *(
            InitProducer(transactional_id=name, timeout_ms=2**31 - 1, expected=expected, new_id=NEW_ID)
            for expected in (None, standing.successor)
        ),
        TimeOut(transactional_id=name, producer_id=standing.producer_id, epoch=standing.epoch),
    ]
    found = [request.judge(standing, wall_ms) for request in requests]
    after = [step.transaction for step in found if isinstance(step, Write)]
    after += [standing.completed()] if standing.is_prepared else []
    return [each for each in after if fault_of_change(each, standing) is None]


def ends_by_command(standing: Transaction) -> list[bytes]:
    key, index = transaction_key(standing.transactional_id), TransactionIndex()
    assert index.take(key, encode(standing)) is None
    found = [
        index.judge_end(EndTxn(standing.producer_id, standing.epoch, commit, retires_epoch=retires))
        for commit in (True, False)
        for retires in (True, False)
    ]
    return [each.change[1] for each in found if isinstance(each, Decided) and each.change is not None]


@given(transactions(), times)
@example(IDLE, ID_MAX)
@example(OPEN_ONE, ID_MAX)
def test_no_step_makes_a_value_longer_than_the_quota_lets_pass(standing: Transaction, wall_ms: int) -> None:
    before = len(encode(standing))
    values = [*map(encode, steps(standing, wall_ms)), *ends_by_command(standing)]
    assert all(len(value) - before <= END_GROWTH_BYTES for value in values)


@given(transactions())
def test_only_an_open_transaction_says_so(standing: Transaction) -> None:
    """Whatever its id says."""
    assert (OPEN in encode(standing)) is standing.is_ongoing


@pytest.mark.parametrize(("standing", "longest"), [(IDLE, END_GROWTH_BYTES), (OPEN_ONE, END_GROWTH_BYTES - 1)])
def test_the_longest_steps_are_as_long_as_that(standing: Transaction, longest: int) -> None:
    assert max(len(encode(after)) for after in steps(standing, ID_MAX)) - len(encode(standing)) == longest


@pytest.mark.parametrize(
    "standing", [IDLE, OPEN_ONE, replace(OPEN_ONE, producer_id=1_000, epoch=0, started_ms=1, updated_ms=1)]
)
def test_each_step_passes_in_a_full_key_space_one_after_the_other(standing: Transaction) -> None:
    """EndTxn of version 5 was refused for good."""
    key, machine = transaction_key("a"), StateMachine()
    full = Quota(entry_bytes(key, len(encode(standing))))
    offset, waiting = 1, [standing]
    while waiting and offset < 20:
        each = waiting.pop()
        machine.apply(offset, encode_txn(Txn((), (Put(key, encode(each)),))))
        offset += 1
        following = steps(each, ID_MAX)
        for after in following:
            reservation = full.reserve(machine, Txn((), (Put(key, encode(after)),)))
            assert reservation is not None
            full.release(reservation)
        waiting += following
    assert offset == 20
