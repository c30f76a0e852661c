"""How far another's word raises the epoch: forged requests bring about no last one, and keep no honest epoch out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftkit.replica import CONFIG, Replica
from raftkit.voters import disk_key, known_voters
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.credit import (
    ANSWER_STEP_MS,
    ANSWER_STEPS,
    OBSERVER_STEP_MS,
    OBSERVER_STEPS,
    OWN_STEP_MS,
    OWN_STEPS,
    REQUEST_STEP_MS,
    REQUEST_STEPS,
)
from raftlake.raft.leaps import highest_of_requests
from raftlake.raft.messages import VoteRequest
from raftlake.raft.types import EPOCH_MAX, NO_VOTERS

LOG = (((5, 0),), 3)
FAR = 5 * ANSWER_STEPS

REQUESTS: dict[str, Callable[[Replica, int], ErrorCode]] = {
    "vote": lambda replica, epoch: replica.vote(3, epoch, (9, 5)).error,
    "pre-vote": lambda replica, epoch: replica.pre_vote(3, epoch, (9, 5)).error,
    "begin": lambda replica, epoch: replica.begin(3, epoch).error,
    "end": lambda replica, epoch: replica.end(3, epoch, (1,)).error,
}


def refused(replica: Replica) -> list[tuple[int, int, int]]:
    return [(each.source, each.epoch, each.own_epoch) for each in replica.took(do.ReportRefusedEpoch)]


def spend_requests(replica: Replica) -> int:
    """Somebody forges the highest epoch that requests may name; what the epoch is then."""
    highest = highest_of_requests(replica.core, replica.now_ms)
    replica.pre_vote(3, highest)
    assert replica.core.epoch == highest == highest_of_requests(replica.core, replica.now_ms)
    return highest


def answer(replica: Replica, voter: int, epoch: int, leader: int = -1, request: VoteRequest | None = None) -> None:
    """A (pre-)vote, the one under way unless told otherwise, is answered by the epoch of the voter."""
    fenced = ErrorCode.FENCED_LEADER_EPOCH
    replica.answer_vote(voter, granted=False, error=fenced, epoch=epoch, leader=leader, request=request)


def skip(replica: Replica, duration_ms: int) -> None:
    """A pause of the process."""
    replica.now_ms += duration_ms
    replica.step(on.DeadlineReached())


def prospective(epoch: int = 5, **kwargs: object) -> Replica:
    return Replica.prospective(epoch=epoch, log=LOG, **kwargs)


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("make", [Replica.unattached, Replica.follower, Replica.candidate, Replica.leader])
def test_a_request_raises_the_epoch_so_far_and_no_farther(make: Callable[..., Replica], kind: str) -> None:
    replica = make(epoch=6, log=LOG)
    view = replica.view
    top = 6 + REQUEST_STEPS
    for epoch in (top + 1, EPOCH_MAX):
        assert REQUESTS[kind](replica, epoch) is ErrorCode.INVALID_REQUEST
        assert replica.view == view and replica.took(do.SaveElectionState) == []
        assert refused(replica) == [(3, epoch, 6)]
    REQUESTS[kind](replica, top)
    assert replica.core.epoch == top, "what was refused costs nothing"
    assert refused(replica) == []


def test_many_small_steps_are_one_large_step() -> None:
    replica = Replica.unattached(epoch=6, log=LOG)
    for epoch in range(7, 7 + REQUEST_STEPS):
        assert replica.begin(2 + epoch % 2, epoch).error is ErrorCode.NONE
    assert replica.begin(2, 7 + REQUEST_STEPS).error is ErrorCode.INVALID_REQUEST
    assert replica.vote(3, 7 + REQUEST_STEPS, (9, 5)).error is ErrorCode.INVALID_REQUEST, "all kinds together"


def test_steps_come_back_one_by_one_whoever_spent_them() -> None:
    """An honest candidate asks again each 20 ms."""
    replica = Replica.unattached(epoch=6, log=LOG)
    epoch = spend_requests(replica)
    for _ in range(3):
        replica.now_ms += REQUEST_STEP_MS - 1
        assert replica.vote(3, epoch + 1, (9, 5)).error is ErrorCode.INVALID_REQUEST
        replica.now_ms += 1
        assert replica.vote(3, epoch + 2, (9, 5)).error is ErrorCode.INVALID_REQUEST
        granted = replica.vote(3, epoch + 1, (9, 5))
        assert (granted.error, granted.vote_granted) == (ErrorCode.NONE, True)
        epoch += 1


def test_all_steps_come_back_and_no_more() -> None:
    replica = Replica.unattached(epoch=6, log=LOG)
    spend_requests(replica)
    for idle_ms, steps in [(REQUEST_STEPS * REQUEST_STEP_MS - 1, REQUEST_STEPS - 1), (10**12, REQUEST_STEPS)]:
        epoch = replica.core.epoch
        replica.now_ms += idle_ms
        assert spend_requests(replica) == epoch + steps


@pytest.mark.parametrize("kind", ["begin", "end"])
def test_what_is_refused_for_another_reason_costs_nothing(kind: str) -> None:
    """Else steps were spent and the epoch stood: who spends them moves nobody, and still takes them from honest candidates."""
    replica = Replica.unattached(epoch=6, log=LOG)
    for _ in range(3):
        ask = replica.begin if kind == "begin" else replica.end
        assert ask(77, 6 + REQUEST_STEPS).error is ErrorCode.INVALID_REQUEST, "a stranger cannot lead static voters"
    assert replica.core.epoch == 6
    assert highest_of_requests(replica.core, replica.now_ms) == 6 + REQUEST_STEPS


def test_a_hostile_hour_takes_a_few_epochs_a_second() -> None:
    replica = Replica.unattached(epoch=6, log=LOG)
    hour_ms = 3_600_000
    for _ in range(hour_ms // 1_000):
        replica.now_ms += 1_000
        spend_requests(replica)
    assert replica.core.epoch <= 6 + REQUEST_STEPS + hour_ms // REQUEST_STEP_MS
    # Nine voters, each moved by requests and by its own candidacies, one after the other.
    a_second = 9 * (1_000 / REQUEST_STEP_MS + 1_000 / OWN_STEP_MS)
    assert a_second < 1_000 / ANSWER_STEP_MS, "who catches up by answers is faster"
    year_s = 365 * 24 * 3_600
    assert EPOCH_MAX / a_second > year_s and year_s < EPOCH_MAX * ANSWER_STEP_MS / 1_000


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_the_answer_of_one_voter_raises_the_epoch_so_far_and_no_farther(error: ErrorCode) -> None:
    replica = Replica.follower(epoch=6, log=LOG)
    replica.answer_fetch(error=error, leader=3, epoch=7 + ANSWER_STEPS)
    assert replica.view == ("Follower", 6, 2)
    assert refused(replica) == [(2, 7 + ANSWER_STEPS, 6)]
    assert replica.core.fetch_retry_at_ms is not None, "it asks again, later"
    skip(replica, CONFIG.retry_backoff_ms)
    replica.answer_fetch(error=error, leader=3, epoch=6 + ANSWER_STEPS)
    assert replica.view == ("Follower", 6 + ANSWER_STEPS, 3)


def test_spent_requests_leave_the_answers_their_room() -> None:
    """The attack of one message: nobody could be elected for an hour."""
    replica = Replica.unattached(epoch=6, log=LOG)
    epoch = spend_requests(replica)
    assert replica.vote(3, epoch + 1, (9, 5)).error is ErrorCode.INVALID_REQUEST
    replica.answer_fetch(error=ErrorCode.FENCED_LEADER_EPOCH, epoch=epoch + 1)
    assert replica.core.epoch == epoch + 1
    assert replica.vote(3, epoch + 1, (9, 5)).vote_granted


@pytest.mark.parametrize(("first", "second", "reached"), [(FAR, FAR, FAR), (FAR, FAR + 9, FAR + 9), (FAR + 9, FAR, FAR)])
def test_what_a_majority_answers_is_believed_at_once(first: int, second: int, reached: int) -> None:
    replica = prospective()
    answer(replica, 2, first, leader=3)
    assert replica.view == ("Prospective", 5, -1)
    answer(replica, 3, second, leader=3)
    assert replica.core.epoch == reached
    assert replica.took(do.SaveElectionState)[-1].state.epoch == reached
    # What lies above it is a step like any other.
    replica.answer_fetch(error=ErrorCode.FENCED_LEADER_EPOCH, epoch=reached + 9)
    assert replica.core.epoch == reached + 9


def test_one_voter_is_no_majority_however_often_it_answers() -> None:
    replica = prospective()
    for _ in range(5):
        answer(replica, 2, FAR)
        assert replica.core.epoch == 5
        replica.pass_time(CONFIG.retry_backoff_ms)
    # Both have said that they are beyond this.
    answer(replica, 3, FAR - 1)
    assert replica.core.epoch == FAR - 1


def test_a_majority_is_one_of_the_voters_of_five() -> None:
    replica = prospective(voters=(1, 2, 3, 4, 5))
    for voter, epoch in ((2, FAR + 2), (3, FAR + 1)):
        answer(replica, voter, epoch)
        assert replica.core.epoch == 5
    answer(replica, 4, FAR)
    assert replica.core.epoch == FAR


def test_the_other_of_two_voters_is_no_majority() -> None:
    """Its address may be that of another by now."""
    replica = prospective(voters=(1, 2))
    answer(replica, 2, FAR)
    assert replica.core.epoch == 5


def test_what_strangers_answer_is_no_majority_and_is_not_waited_for() -> None:
    """An old node at a bootstrap address, after a recovery in a new line of epochs."""
    replica = Replica(local=9, epoch=6, log=LOG, voters=(1, 2, 3), bootstrap=(-2, -3))
    for _ in range(12):
        replica.answer_fetch(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=FAR if replica.core.fetch_peer < 0 else 6)
        skip(replica, FAR * ANSWER_STEP_MS)
        assert replica.core.epoch == 6


def test_a_minority_that_is_left_is_believed_in_the_end() -> None:
    """Two of three are left, one far ahead: else they could never elect anybody."""
    replica = prospective()
    request = replica.vote_in_flight(2)
    half_ms = (FAR - ANSWER_STEPS) * ANSWER_STEP_MS // 2
    for wait_ms in (0, half_ms, half_ms - 1):
        skip(replica, wait_ms)
        answer(replica, 2, 5 + FAR, request=request)
        assert replica.core.epoch == 5
    skip(replica, 1)
    answer(replica, 2, 5 + FAR, leader=2, request=request)
    assert replica.view == ("Follower", 5 + FAR, 2)


def test_small_steps_in_between_do_not_end_the_wait() -> None:
    replica = prospective(voters=(1, 2, 3, 4, 5))
    request = replica.vote_in_flight(2)
    answer(replica, 2, 5 + FAR, request=request)
    skip(replica, (FAR - ANSWER_STEPS) * ANSWER_STEP_MS)
    answer(replica, 3, 8, request=request)
    assert replica.core.epoch == 8
    answer(replica, 2, 5 + FAR, request=request)
    assert replica.core.epoch == 5 + FAR


def test_a_replica_that_has_nothing_takes_any_epoch_from_an_answer_and_not_from_a_request() -> None:
    replica = Replica()
    assert replica.begin(2, FAR).error is ErrorCode.INVALID_REQUEST
    assert replica.view == ("Unattached", 0, -1)
    replica.answer_fetch(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=3, epoch=FAR)
    assert replica.view == ("Follower", FAR, 3)
    assert replica.begin(2, FAR + REQUEST_STEPS + 1).error is ErrorCode.INVALID_REQUEST, "from then on as anybody"
    assert replica.begin(2, FAR + REQUEST_STEPS).error is ErrorCode.NONE


@pytest.mark.parametrize("known", [{"epoch": 1}, {"log": (((1, 0),), 1)}])
def test_a_replica_that_has_a_vote_or_a_record_is_not_new(known: dict[str, object]) -> None:
    replica = Replica(**known)  # type: ignore[arg-type]
    if replica.core.fetch_in_flight is None:
        replica.pass_until_role("Prospective")
        answer(replica, 2, FAR, leader=3)
    else:
        replica.answer_fetch(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=3, epoch=FAR)
    assert replica.core.epoch == 1
    assert len(refused(replica)) == 1


def test_a_replica_without_a_vote_takes_less_than_a_leader_can_take_from_it() -> None:
    assert OBSERVER_STEPS < REQUEST_STEPS and OBSERVER_STEP_MS > REQUEST_STEP_MS
    # A leader with nothing left takes it up within seconds all the same (simulator, seed 3 with epochs forged all the time),
    # and what one took as a voter that votes no longer (seed 1066).
    assert OBSERVER_STEPS * REQUEST_STEP_MS <= 5_000 and REQUEST_STEPS * REQUEST_STEP_MS <= 10_000
    replica = Replica(local=9, epoch=6, log=LOG)
    assert replica.pre_vote(3, 7 + OBSERVER_STEPS).error is ErrorCode.INVALID_REQUEST
    assert spend_requests(replica) == 6 + OBSERVER_STEPS
    replica.now_ms += OBSERVER_STEP_MS
    assert spend_requests(replica) == 7 + OBSERVER_STEPS


@pytest.mark.parametrize("leader", ["a voter", "a voter that its log does not know", "an address"])
def test_an_observer_tells_a_leader_of_a_lower_epoch_its_own(leader: str) -> None:
    """A forged epoch would keep it out for good: the leader refuses its fetches, and it does not campaign."""
    peer = {"a voter": 2, "a voter that its log does not know": 7, "an address": -2}[leader]
    bootstrap, leads = ((-2,), 2) if peer < 0 else ((), peer)
    replica = Replica(
        epoch=6, leader=leads, log=LOG, directory=b"mine", bootstrap=bootstrap, voter_keys=known_voters((2,), offset=1)
    )
    while replica.core.fetch_peer != peer:
        replica.fail(replica.core.fetch_peer, replica.core.fetch_in_flight)  # type: ignore[arg-type]
        skip(replica, CONFIG.retry_backoff_ms)
    replica.answer_fetch(error=ErrorCode.UNKNOWN_LEADER_EPOCH, leader=leads, epoch=5)
    (request,) = replica.sent(VoteRequest).values()
    assert (request.epoch, request.pre_vote, request.log_end.offset) == (6, True, 0)
    known = peer == 2
    assert request.voter_id == (2 if known else -1)
    assert request.voter_directory_id == (disk_key(2) if known else Replica().core.local).directory_id
    assert list(replica.sent(VoteRequest)) == [peer]


def test_a_voter_that_campaigns_tells_its_epoch_by_that() -> None:
    replica = Replica.unattached(epoch=6, log=LOG)
    replica.answer_fetch(error=ErrorCode.UNKNOWN_LEADER_EPOCH, leader=2, epoch=5)
    assert replica.sent(VoteRequest) == {}


def test_a_voter_that_is_told_to_lead_a_higher_epoch_begins_the_next_one() -> None:
    """A forged BeginQuorumEpoch in our name: the voter that got it would follow us for ever, and we never be in its epoch."""
    replica = prospective()
    answer(replica, 2, 9, leader=1)
    assert replica.view == ("Unattached", 10, -1), "in 9 we may have voted, on a disk that is lost"
    assert replica.core.voted_key is None
    replica = prospective()
    answer(replica, 2, 5 + ANSWER_STEPS, leader=1)
    assert replica.view == ("Prospective", 5, -1)
    assert refused(replica) == [(2, 6 + ANSWER_STEPS, 5)]


@pytest.mark.parametrize("claimed", [EPOCH_MAX, EPOCH_MAX + 1])
def test_there_is_nothing_above_the_last_epoch(claimed: int) -> None:
    replica = prospective(EPOCH_MAX - 1)
    answer(replica, 2, claimed, leader=1)
    assert replica.core.epoch == EPOCH_MAX - 1


def test_candidacies_that_others_provoke_get_rare() -> None:
    """A forged EndQuorumEpoch makes a candidate at once: hundreds of epochs a second."""
    replica = Replica.candidate(epoch=6, log=LOG)
    roles = []
    for _ in range(OWN_STEPS):
        answer(replica, 2, replica.core.epoch + 1, leader=2)
        replica.answer_fetch()
        replica.end(2, replica.core.epoch, (1,))
        roles.append(replica.role)
    assert roles == ["Candidate"] * (OWN_STEPS - 1) + ["Prospective"], "then it asks for pre-votes"
    epoch = replica.core.epoch
    for _ in range(3):
        replica.answer_votes(granted=True)
        assert replica.view[:2] == ("Prospective", epoch), "and waits"
        waited_ms = replica.pass_until_role("Candidate")
        assert 0 < waited_ms <= OWN_STEP_MS + CONFIG.election_timeout_ms
        epoch += 1
        assert replica.core.epoch == epoch
        replica.answer_votes(granted=False)
        replica.pass_until_role("Prospective")


def test_nobody_stands_for_an_epoch_above_the_last_one() -> None:
    """It could not be written down."""
    replica = Replica.prospective(epoch=EPOCH_MAX - 1, log=LOG)
    replica.answer_votes(granted=True)
    assert replica.view[:2] == ("Candidate", EPOCH_MAX)
    replica.answer_votes(granted=False)
    replica.pass_until_role("Prospective")
    replica.answer_votes(granted=True)
    replica.pass_time(20 * CONFIG.election_timeout_ms)
    assert replica.view[:2] == ("Prospective", EPOCH_MAX)
    resigned = Replica.resigned(epoch=EPOCH_MAX, log=LOG)
    resigned.pass_time(20 * CONFIG.election_timeout_ms)
    assert resigned.view[:2] == ("Resigned", EPOCH_MAX)


def test_a_test_without_voters_has_none() -> None:
    """The kit of these tests: no voters are not the usual ones."""
    assert Replica(voter_keys=NO_VOTERS).core.voters.ids == ()
    assert Replica().core.voters.ids == (1, 2, 3)
