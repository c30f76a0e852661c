"""What a leader does about a replica without a vote that stands far above it: it asks it, or saves for its epoch."""

from __future__ import annotations

from raftkit.replica import Replica
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft.credit import QUESTION_MS, QUESTIONS, REQUEST_STEP_MS, REQUEST_STEPS
from raftlake.raft.messages import VoteRequest

LOG = (((5, 0),), 3)


def asked_by(replica: Replica) -> list[VoteRequest]:
    return [each.request for each in replica.took(do.SendRequest) if each.destination == 9]


def test_a_leader_asks_who_is_refused_at_its_address_and_believes_the_answer() -> None:
    """A removed voter stood farther above its leader than requests raise an epoch, and followed nobody for good: simulator,
    seeds 796001477 and 796002500."""
    replica = Replica.leader(epoch=6, log=LOG)
    far = 7 + REQUEST_STEPS
    assert replica.pre_vote(9, far).error is ErrorCode.INVALID_REQUEST
    (question,) = asked_by(replica)
    assert question.pre_vote and question.epoch == 6
    replica.answer_vote(9, granted=False, error=ErrorCode.FENCED_LEADER_EPOCH, epoch=far, leader=-1, request=question)
    assert replica.core.epoch == far


def test_requests_that_are_refused_cause_few_questions_and_none_to_voters() -> None:
    replica = Replica.leader(epoch=6, log=LOG)
    far = 17 + REQUEST_STEPS
    asked = 0
    for _ in range(20):
        assert replica.pre_vote(9, far).error is ErrorCode.INVALID_REQUEST
        asked += len(asked_by(replica))
    assert asked == QUESTIONS
    replica.now_ms += QUESTION_MS
    for _ in range(2):
        replica.pre_vote(2, far)
        assert not replica.took(do.SendRequest), "a voter is asked anyhow"
    replica.pre_vote(9, far)
    assert len(asked_by(replica)) == 1


def test_a_leader_that_cannot_ask_takes_an_epoch_when_as_much_has_come_back() -> None:
    """An observer's address may not be known to its leader."""
    replica = Replica.leader(epoch=6, log=LOG)
    far = 6 + REQUEST_STEPS + 3
    for wait_ms in (0, 3 * REQUEST_STEP_MS - 1):
        replica.now_ms += wait_ms
        assert replica.pre_vote(9, far).error is ErrorCode.INVALID_REQUEST
    replica.now_ms += 1
    replica.pre_vote(9, far)
    assert replica.core.epoch == far


def test_a_follower_asks_nobody_who_is_refused() -> None:
    replica = Replica.follower(epoch=6, log=LOG)
    replica.took(do.SendRequest)
    assert replica.pre_vote(9, 7 + REQUEST_STEPS).error is ErrorCode.INVALID_REQUEST
    assert not replica.took(do.SendRequest)
