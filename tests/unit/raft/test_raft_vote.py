"""Vote and pre-vote requests: Kafka's validation order, then who grants what; and the nominee's side of the answers."""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, key, voter_set
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import FetchRequest, VoteRequest
from raftlake.raft.types import EPOCH_MAX, DirectoryId

ROLES = ["Unattached", "Follower", "Prospective", "Candidate", "Leader", "Resigned"]
#: Records 0..4 of epoch 1, 5..8 of epoch 3: the log ends at 9@3.
LOG = (((1, 0), (3, 5)), 9)


# --- validation, in its order ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("last", "pre_vote"),
    [((-5, 0), False), ((5, -1), False), ((5, 8), False), ((5, 9), False), ((-5, 0), True), ((5, 9), True)],
)
def test_an_impossible_log_end_is_refused_before_the_epoch_bump(role: str, last: tuple[int, int], pre_vote: bool) -> None:
    """testInvalidVoteRequest, testInvalidPreVoteRequest: a candidate's epoch is above all its records."""
    replica = Replica.in_role(role, epoch=6)
    before = replica.view
    response = replica.vote(3, 8, last, pre_vote=pre_vote)
    assert (response.error, response.vote_granted) == (ErrorCode.INVALID_REQUEST, False)
    assert replica.view == before


def test_a_prospective_may_have_records_of_its_epoch() -> None:
    assert Replica.unattached(epoch=6).pre_vote(3, 6, (5, 6)).vote_granted


def test_an_impossible_log_end_is_noticed_before_the_old_epoch() -> None:
    assert Replica.unattached(epoch=6).vote(3, 4, (-1, 0)).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("pre_vote", [False, True])
def test_an_old_epoch_is_fenced(role: str, pre_vote: bool) -> None:
    """testHandleInvalidVoteRequestWithOlderEpoch."""
    replica = Replica.in_role(role, epoch=6)
    before = replica.view
    response = replica.vote(3, 5, (0, 0), pre_vote=pre_vote)
    assert (response.error, response.vote_granted) == (ErrorCode.FENCED_LEADER_EPOCH, False)
    assert (response.leader_id, response.leader_epoch) == (replica.core.leader_id, 6)
    assert replica.view == before


@pytest.mark.parametrize("candidate", [-1, 1])
def test_a_candidate_needs_a_number_of_its_own(candidate: int) -> None:
    replica = Replica.unattached(epoch=6)
    assert replica.vote(candidate, 7).error is ErrorCode.INVALID_REQUEST
    assert replica.core.epoch == 6


def test_an_epoch_beyond_the_wire_is_refused() -> None:
    replica = Replica.unattached(epoch=6)
    assert replica.vote(3, EPOCH_MAX + 1).error is ErrorCode.INVALID_REQUEST
    assert replica.core.epoch == 6


def test_a_request_for_another_voter_is_refused_after_the_epoch_bump() -> None:
    """testInvalidVoterReplicaVoteRequest."""
    replica = Replica.unattached(epoch=6)
    response = replica.vote(3, 7, (9, 1), voter=2)
    assert (response.error, response.vote_granted, response.leader_epoch) == (ErrorCode.INVALID_VOTER_KEY, False, 7)
    assert replica.view == ("Unattached", 7, -1)
    assert replica.core.voted_key is None


def test_a_request_for_another_disk_of_ours_is_refused() -> None:
    """KAFKA-14077: a voter with a new disk does not vote as if it had the old one."""
    replica = Replica.unattached(epoch=6, directory=b"new")
    old = DirectoryId(b"old".ljust(16, b"\0"))
    assert replica.vote(3, 7, (9, 1), voter=1, directory=old).error is ErrorCode.INVALID_VOTER_KEY
    mine = DirectoryId(b"new".ljust(16, b"\0"))
    assert replica.vote(3, 7, (9, 1), voter=1, directory=mine).vote_granted


def test_a_candidate_without_a_vote_is_not_elected_but_heard() -> None:
    """KIP-595: "Check whether CandidateId is one of the expected voters. If not, then reject the vote. [...] the voter should
    accept the epoch bump"."""
    replica = Replica.follower(epoch=6)
    response = replica.vote(9, 7, (99, 6))
    assert (response.error, response.vote_granted) == (ErrorCode.NONE, False)
    assert replica.view == ("Unattached", 7, -1)


# --- who grants what ------------------------------------------------------------------------------------------------

UP_TO_DATE = [(9, 3), (10, 3), (1, 4)]
BEHIND = [(8, 3), (99, 2), (0, 0)]


@pytest.mark.parametrize("last", UP_TO_DATE + BEHIND)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("pre_vote", [False, True])
def test_a_grant_in_the_same_epoch(role: str, last: tuple[int, int], pre_vote: bool) -> None:
    """Kafka's canGrantVote, one line per role."""
    is_up_to_date = last in UP_TO_DATE
    # A leader's own LeaderChange record makes its log 10@6, which none of these reach once it resigned.
    expected = {
        "Unattached": is_up_to_date,
        "Prospective": is_up_to_date,
        "Follower": pre_vote and is_up_to_date,
        "Candidate": pre_vote and is_up_to_date,
        "Resigned": False,
        "Leader": False,
    }[role]
    replica = Replica.in_role(role, epoch=6, log=LOG)
    assert replica.vote(3, 6, last, pre_vote=pre_vote).vote_granted == expected


def test_a_resigned_leader_grants_pre_votes_to_a_log_like_its_own() -> None:
    replica = Replica.resigned(epoch=6, log=LOG)
    assert replica.pre_vote(3, 6, (10, 6)).vote_granted
    assert not replica.pre_vote(3, 6, (9, 3)).vote_granted
    assert not replica.vote(3, 6, (10, 5)).vote_granted


def test_a_vote_is_durable_before_it_is_answered() -> None:
    replica = Replica.unattached(epoch=6)
    assert replica.vote(3, 7).vote_granted
    kinds = [type(action) for action in replica.actions]
    assert kinds.index(do.Respond) > len(kinds) - 1 - kinds[::-1].index(do.SaveElectionState)
    assert replica.saved is not None
    assert (replica.saved.epoch, replica.saved.voted_key) == (7, key(3))


def test_a_pre_vote_is_never_stored() -> None:
    replica = Replica.unattached(epoch=6)
    assert replica.pre_vote(3, 7).vote_granted
    assert replica.saved is not None
    assert (replica.saved.epoch, replica.saved.voted_key) == (7, None)


def test_one_vote_an_epoch() -> None:
    """testHandleVoteRequestAsFollowerWithVotedCandidate."""
    replica = Replica.unattached(epoch=6)
    assert replica.vote(3, 7).vote_granted
    assert replica.vote(3, 7).vote_granted
    assert not replica.vote(2, 7, (99, 6)).vote_granted
    assert replica.pre_vote(2, 7, (99, 6)).vote_granted, "a pre-vote costs no vote"


def test_a_vote_for_a_disk_is_not_for_another_of_the_same_node() -> None:
    replica = Replica.unattached(epoch=6, voted=key(3, b"old"))
    assert not replica.vote(key(3, b"new"), 6, (99, 5)).vote_granted
    assert replica.vote(key(3, b"old"), 6, (99, 5)).vote_granted


def test_a_vote_without_a_disk_is_for_any() -> None:
    replica = Replica.unattached(epoch=6, voted=3)
    assert replica.vote(key(3, b"new"), 6).vote_granted


def test_no_vote_where_a_leader_is_known() -> None:
    """testHandleVoteRequestAsFollowerWithElectedLeader."""
    replica = Replica.follower(epoch=6, leader=2)
    response = replica.vote(3, 6, (99, 5))
    assert (response.error, response.vote_granted, response.leader_id) == (ErrorCode.NONE, False, 2)
    prospective = Replica.prospective(epoch=6, leader=2)
    assert not prospective.vote(3, 6, (99, 5)).vote_granted
    assert prospective.pre_vote(3, 6, (99, 5)).vote_granted


def test_a_follower_that_fetched_grants_no_pre_votes() -> None:
    """testFollowerGrantsPreVoteIfHasNotFetchedYet."""
    replica = Replica.follower(epoch=6, leader=2)
    assert replica.pre_vote(3, 6).vote_granted
    replica.answer_fetch()
    assert not replica.pre_vote(3, 6).vote_granted


def test_a_prospective_that_votes_waits_a_fresh_timeout() -> None:
    replica = Replica.prospective(epoch=6)
    replica.pass_time(500)
    assert replica.role == "Prospective"
    assert replica.vote(3, 6).vote_granted
    assert replica.core.role.election_deadline_ms >= replica.now_ms + CONFIG.election_timeout_ms  # type: ignore[union-attr]


@pytest.mark.parametrize("role", ROLES)
def test_a_higher_epoch_is_accepted_and_named_in_the_answer(role: str) -> None:
    """An answer with a lower epoch than the asker's would be thrown away and asked for again at once."""
    for pre_vote in (False, True):
        replica = Replica.in_role(role, epoch=6)
        response = replica.vote(3, 8, (99, 6), pre_vote=pre_vote)
        assert (response.vote_granted, response.leader_epoch, response.leader_id) == (True, 8, -1)
        assert replica.view == ("Unattached", 8, -1)


def test_an_observer_answers_and_may_grant() -> None:
    """testHandleVoteRequestAsObserver."""
    observer = Replica.unattached(local=9, epoch=6)
    assert observer.vote(3, 7).vote_granted
    assert observer.core.voted_key == key(3)


def test_a_stopping_node_still_votes() -> None:
    """testGrantVotesWhenShuttingDown."""
    replica = Replica.leader(epoch=6)
    replica.step(on.ResignRequested())
    assert not replica.vote(3, 6, (99, 5)).vote_granted
    assert replica.vote(3, 7, (99, 6)).vote_granted


# --- the nominee's side ---------------------------------------------------------------------------------------------


def test_a_pre_vote_carries_the_current_epoch_and_a_vote_the_next() -> None:
    replica = Replica.prospective(epoch=6, log=LOG)
    pre_votes = replica.sent(VoteRequest)
    assert set(pre_votes) == {2, 3}
    assert {(vote.epoch, vote.pre_vote, vote.log_end.offset, vote.log_end.epoch) for vote in pre_votes.values()} == {
        (6, True, 9, 3)
    }
    assert {voter: vote.voter_id for voter, vote in pre_votes.items()} == {2: 2, 3: 3}
    replica.answer_votes(granted=True)
    votes = replica.sent(VoteRequest)
    assert {(vote.epoch, vote.pre_vote) for vote in votes.values()} == {(7, False)}
    assert replica.saved is not None
    assert replica.saved.voted_key == key(1)


def test_the_directory_of_the_voter_is_named_when_known() -> None:
    voters = voter_set((1, 2, 3))
    with_directory = type(voters)({**voters.voters, voters.ids[1]: key(2, b"disk")})
    replica = Replica.prospective(epoch=6, voter_keys=with_directory)
    assert replica.vote_in_flight(2).voter_directory_id == key(2, b"disk").directory_id
    assert replica.vote_in_flight(3).voter_directory_id == bytes(16)


def test_a_voter_is_counted_once() -> None:
    replica = Replica.candidate(epoch=6, voters=(1, 2, 3, 4, 5))
    request = replica.vote_in_flight(2)
    replica.answer_vote(2, granted=True)
    replica.answer_vote(2, granted=True, request=request)
    assert replica.role == "Candidate"
    replica.answer_vote(3, granted=True)
    assert replica.role == "Leader"


def test_an_answer_to_another_round_is_not_counted() -> None:
    replica = Replica.prospective(epoch=6)
    pre_vote = replica.vote_in_flight(3)
    replica.answer_vote(2, granted=True)
    assert replica.role == "Candidate"
    replica.answer_vote(3, granted=True, request=pre_vote)
    assert replica.role == "Candidate"


def test_a_late_grant_after_following_another_leader_is_ignored() -> None:
    """testVoteResponseIgnoredAfterBecomingFollower."""
    replica = Replica.candidate(epoch=6)
    request = replica.vote_in_flight(2)
    replica.begin(3, 6)
    replica.answer_vote(2, granted=True, request=request, epoch=6, leader=3)
    assert replica.view == ("Follower", 6, 3)


@pytest.mark.parametrize("role", ["Prospective", "Candidate"])
def test_a_newer_epoch_in_an_answer_ends_the_round(role: str) -> None:
    replica = Replica.in_role(role, epoch=6)
    replica.answer_vote(2, granted=False, error=ErrorCode.FENCED_LEADER_EPOCH, epoch=9)
    assert replica.view == ("Unattached", 9, -1)
    replica = Replica.in_role(role, epoch=6)
    replica.answer_vote(2, granted=False, error=ErrorCode.FENCED_LEADER_EPOCH, epoch=9, leader=3)
    assert replica.view == ("Follower", 9, 3)


def test_a_stale_answer_is_asked_for_again_after_the_backoff_only() -> None:
    """Never at once: a Java peer was seen to do that hundreds of times a second."""
    replica = Replica.prospective(epoch=6)
    replica.answer_vote(2, granted=True, epoch=5)
    assert replica.sent(VoteRequest) == {}
    replica.pass_time(CONFIG.retry_backoff_ms - 1)
    assert replica.sent(VoteRequest) == {}
    replica.pass_time(1)
    assert set(replica.sent(VoteRequest)) == {2}


@pytest.mark.parametrize("error", [ErrorCode.INVALID_VOTER_KEY, ErrorCode.INVALID_REQUEST, ErrorCode.BROKER_NOT_AVAILABLE])
def test_an_error_is_no_answer(error: ErrorCode) -> None:
    replica = Replica.candidate(epoch=6)
    replica.answer_vote(2, granted=True, error=error)
    assert replica.role == "Candidate"
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(VoteRequest)) == {2}


def test_a_failed_vote_request_is_sent_again_after_the_backoff() -> None:
    """testVoteRequestTimeout: and an answer to the first one that still comes is late, whatever it says."""
    for granted in (True, False):
        replica = Replica.candidate(epoch=6)
        first = replica.vote_in_flight(2)
        replica.fail(2, first)
        replica.pass_time(CONFIG.retry_backoff_ms)
        assert set(replica.sent(VoteRequest)) == {2}
        replica.answer_vote(2, granted=granted, request=first)
        assert replica.view == ("Candidate", 6, -1)
        replica.answer_vote(2, granted=True)
        assert replica.role == "Leader"
        replica.answer_vote(2, granted=False, request=first)
        assert replica.role == "Leader"


def test_a_voter_that_does_not_know_pre_votes_starts_the_election() -> None:
    """testPreVoteNotSupportedByRemote."""
    replica = Replica.prospective(epoch=6)
    replica.fail(2, replica.vote_in_flight(2), on.FailureReason.UNSUPPORTED_VERSION)
    assert replica.view == ("Candidate", 7, -1)


def test_a_lost_pre_vote_without_a_leader_waits_unattached() -> None:
    """testProspectiveTransitionsToUnattachedOnElectionFailure."""
    replica = Replica.prospective(epoch=6, voted=3)
    replica.answer_votes(granted=False)
    assert replica.view == ("Unattached", 6, -1)
    assert replica.core.voted_key == key(3)
    waited = replica.pass_until_role("Prospective")
    assert CONFIG.election_timeout_ms <= waited < 2 * CONFIG.election_timeout_ms


def test_a_lost_pre_vote_with_a_leader_follows_it_again() -> None:
    """testProspectiveWithLeaderTransitionsToFollower."""
    replica = Replica.prospective(epoch=6, leader=2)
    replica.answer_votes(granted=False)
    assert replica.view == ("Follower", 6, 2)
    assert set(replica.sent(FetchRequest)) == {2}


def test_a_pre_vote_without_answers_is_over_at_its_timeout() -> None:
    replica = Replica.prospective(epoch=6)
    waited = replica.pass_until_role("Unattached")
    assert CONFIG.election_timeout_ms <= waited < 2 * CONFIG.election_timeout_ms
    assert replica.core.epoch == 6


def test_a_candidate_without_answers_goes_back_to_pre_vote() -> None:
    """testCandidateElectionTimeout: the epoch moves only after the next pre-vote majority."""
    replica = Replica.candidate(epoch=6)
    waited = replica.pass_until_role("Prospective")
    assert CONFIG.election_timeout_ms <= waited < 2 * CONFIG.election_timeout_ms
    assert replica.core.epoch == 6
    replica.answer_votes(granted=True)
    assert replica.core.epoch == 7


def test_a_split_vote_is_tried_again_after_the_jitter() -> None:
    """KIP-595 "Gridlocked Elections", where Kafka waits for the election timeout (KAFKA-18345): stay Candidate, send nothing,
    then a pre-vote."""
    replica = Replica.candidate(epoch=6)
    replica.answer_votes(granted=False)
    assert replica.view == ("Candidate", 6, -1)
    assert replica.sent(VoteRequest) == {}
    waited = replica.pass_until_role("Prospective")
    assert 1 <= waited <= 2 * CONFIG.election_jitter_ms_max
    assert replica.core.epoch == 6


def test_a_split_vote_with_a_dead_voter_is_noticed_too() -> None:
    replica = Replica.candidate(epoch=6)
    replica.answer_vote(2, granted=False)
    replica.fail(3, replica.vote_in_flight(3))
    assert replica.pass_until_role("Prospective") <= 2 * CONFIG.election_jitter_ms_max


def test_without_a_refusal_the_dead_are_waited_for() -> None:
    replica = Replica.candidate(epoch=6)
    for voter in (2, 3):
        replica.fail(voter, replica.vote_in_flight(voter))
    assert replica.pass_until_role("Prospective") >= CONFIG.election_timeout_ms - 1


def test_losing_again_and_again_waits_longer() -> None:
    bounds = []
    for seed in range(30):
        replica = Replica.candidate(epoch=6, seed=seed)
        waits = []
        for _ in range(6):
            replica.answer_votes(granted=False)
            waits.append(replica.pass_until_role("Prospective"))
            replica.answer_votes(granted=True)
        bounds.append(waits)
    longest = [max(waits[attempt] for waits in bounds) for attempt in range(6)]
    assert longest[0] <= 2 * CONFIG.election_jitter_ms_max
    assert longest[-1] > 4 * CONFIG.election_jitter_ms_max
    assert max(longest) <= CONFIG.election_timeout_ms
