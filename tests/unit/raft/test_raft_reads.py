"""Linearizable reads: what has to be proven, what counts as proof, and that it is shared."""

from __future__ import annotations

import pytest

from raftkit.replica import Replica
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.roles import Leader, PendingRead
from raftlake.raft.types import Epoch, NodeId


def serving(**kwargs: object) -> Replica:
    """A leader of epoch 6 whose LeaderChange at offset 0 is committed; voter 2 has it."""
    replica = Replica.leader(epoch=6, **kwargs)
    for voter in replica.core.other_voters:
        replica.fetch(voter, 1, 6)
    assert replica.core.is_serving_leader
    return replica


@pytest.mark.parametrize("role", ["Unattached", "Follower", "Prospective", "Candidate", "Resigned"])
def test_only_a_leader_answers(role: str) -> None:
    replica = Replica.in_role(role, epoch=6)
    answer = replica.read(5, sequence=0)
    assert answer is not None
    assert (answer.error, answer.leader_epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 6)
    assert answer.leader_id == replica.core.leader_id


def confirm(replica: Replica, voter: int, *, follows: int, leader_epoch: int = 6) -> None:
    """A round that covers a Fetch of that epoch."""
    confirmed = on.ReplicaConfirmed(
        replica_id=NodeId(voter), at_ms=replica.now_ms, follows=follows, leader_epoch=Epoch(leader_epoch)
    )
    replica.step(confirmed)


def pending(replica: Replica) -> list[PendingRead]:
    assert isinstance(replica.core.role, Leader)
    return replica.core.role.pending_reads


def test_a_read_waits_for_a_majority_that_fetched_after_it() -> None:
    replica = serving()
    assert replica.read(5, sequence=8) is None
    assert replica.took(do.ReleaseFetchRounds) == [do.ReleaseFetchRounds()]
    assert len(pending(replica)) == 1
    replica.fetch(2, 1, 6, follows=8)
    assert replica.took(do.AnswerRead) == [], "it may have left before the read came"
    replica.fetch(2, 1, 6, follows=9)
    (answer,) = replica.took(do.AnswerRead)
    assert (answer.read_id, answer.error, answer.offset, answer.leader_id, answer.leader_epoch) == (
        5,
        ErrorCode.NONE,
        1,
        1,
        6,
    )
    assert pending(replica) == []


def test_a_round_without_news_is_proof_too() -> None:
    replica = serving()
    replica.read(5, sequence=8)
    confirm(replica, 3, follows=9)
    assert [answer.read_id for answer in replica.took(do.AnswerRead)] == [5]


def test_the_clock_of_one_fetch_never_goes_back() -> None:
    replica = serving()
    replica.fetch(2, 1, 6, follows=12)
    replica.fetch(2, 1, 6, follows=3)
    answer = replica.read(5, sequence=11)
    assert answer is not None
    assert answer.error is ErrorCode.NONE


def test_five_voters_need_two_of_the_others() -> None:
    replica = serving(voters=(1, 2, 3, 4, 5))
    replica.read(5, sequence=8)
    replica.fetch(2, 1, 6, follows=9)
    assert replica.took(do.AnswerRead) == []
    replica.fetch(2, 1, 6, follows=10)
    assert replica.took(do.AnswerRead) == [], "one voter confirms once, however often it asks"
    replica.fetch(4, 1, 6, follows=9)
    assert len(replica.took(do.AnswerRead)) == 1


def test_observers_prove_nothing() -> None:
    replica = serving()
    replica.read(5, sequence=8)
    replica.fetch(9, 1, 6, follows=99)
    confirm(replica, 9, follows=100)
    assert replica.took(do.AnswerRead) == []
    assert len(pending(replica)) == 1


def test_fetches_of_another_epoch_prove_nothing() -> None:
    replica = serving()
    replica.read(5, sequence=8)
    for epoch in (5, 7):
        replica.fetch(2, 1, 5, epoch=epoch, follows=99)
        assert replica.took(do.AnswerRead) == []


@pytest.mark.parametrize("epoch", [5, 7])
def test_a_round_that_covers_a_fetch_of_another_epoch_proves_nothing(epoch: int) -> None:
    """Simulator, seeds 797008267 and 797011128: the sender fetched in our epoch before, and elected another leader."""
    replica = serving()
    replica.fetch(2, 1, 6, follows=3)
    replica.read(5, sequence=8)
    replica.now_ms += 10
    replica.fetch(2, 1, 6, epoch=epoch, follows=9)
    before_ms = replica.core.role.voters[NodeId(2)].fetched_at_ms
    confirm(replica, 2, follows=9, leader_epoch=epoch)
    assert replica.took(do.AnswerRead) == []
    assert replica.core.role.voters[NodeId(2)].fetched_at_ms == before_ms, "nor that it follows us still"
    confirm(replica, 2, follows=9)
    assert len(replica.took(do.AnswerRead)) == 1


def test_a_diverging_fetch_is_proof() -> None:
    """It asks in our epoch; where its log parted does not matter for who leads."""
    replica = serving()
    replica.read(5, sequence=8)
    replica.fetch(2, 3, 4, follows=9)
    assert len(replica.took(do.AnswerRead)) == 1


def test_reads_share_a_round_and_later_ones_wait_for_theirs() -> None:
    replica = serving()
    replica.read(5, sequence=8)
    replica.read(6, sequence=8)
    assert replica.took(do.ReleaseFetchRounds) == [], "one release per answer counter is enough"
    replica.read(7, sequence=9)
    assert len(replica.took(do.ReleaseFetchRounds)) == 1
    replica.fetch(2, 1, 6, follows=9)
    assert [answer.read_id for answer in replica.took(do.AnswerRead)] == [5, 6]
    replica.fetch(2, 1, 6, follows=10)
    assert [answer.read_id for answer in replica.took(do.AnswerRead)] == [7]


def test_the_offset_is_the_high_watermark_of_the_reads_arrival() -> None:
    """What is acknowledged while the proof is under way need not be in the read, and the asking replica may not have it yet."""
    replica = serving()
    replica.append(4)
    replica.flush()
    replica.read(5, sequence=8)
    replica.fetch(2, 5, 6, follows=9)
    (answer,) = replica.took(do.AnswerRead)
    assert answer.offset == 1
    assert replica.core.high_watermark == 5
    kinds = [type(action) for action in replica.actions]
    assert kinds.index(do.AdvanceHighWatermark) < kinds.index(do.AnswerRead)


def test_a_new_leader_answers_nothing_before_it_committed_an_entry_of_its_epoch() -> None:
    """Promise 2 (a): its high watermark may lie below what an earlier leader acknowledged."""
    replica = Replica.leader(epoch=6, log=(((5, 0),), 9))
    replica.read(5, sequence=0)
    replica.fetch(2, 9, 5, follows=3)
    replica.fetch(3, 9, 5, follows=3)
    assert replica.took(do.AnswerRead) == []
    replica.fetch(2, 10, 6, follows=4)
    (answer,) = replica.took(do.AnswerRead)
    assert (answer.error, answer.offset) == (ErrorCode.NONE, 10)


def test_a_lone_voter_answers_at_once_when_it_serves() -> None:
    replica = Replica(voters=(1,), epoch=5)
    assert replica.read(5, sequence=0) is None
    assert replica.took(do.ReleaseFetchRounds) == []
    replica.flush()
    assert [answer.read_id for answer in replica.took(do.AnswerRead)] == [5]
    answer = replica.read(6, sequence=0)
    assert answer is not None
    assert answer.offset == 1


@pytest.mark.parametrize("how", ["begin", "vote", "resign", "check quorum"])
def test_losing_leadership_refuses_all_reads(how: str) -> None:
    replica = serving()
    replica.read(5, sequence=8)
    replica.read(6, sequence=9)
    match how:
        case "begin":
            replica.begin(3, 7)
        case "vote":
            replica.vote(3, 7)
        case "resign":
            replica.step(on.ResignRequested())
        case _:
            replica.pass_time(10_000)
    answers = [(answer.read_id, answer.error) for answer in replica.took(do.AnswerRead)]
    assert answers == [(5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert not replica.core.is_leader
