"""Kafka's own election scenarios, by the names of its tests (KafkaRaftClientTest, KafkaRaftClientPreVoteTest and the role
tests of 4.3.1): start-up, votes, pre-votes, candidacy.
"""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, key
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import EndQuorumEpochRequest, FetchRequest, VoteRequest

LOG = (((1, 0), (3, 5)), 9)


# --- A. start-up from quorum-state ----------------------------------------------------------------------------------


def test_initialize_as_resigned_leader_from_state_store() -> None:
    replica = Replica(epoch=6, leader=1)
    assert replica.view == ("Resigned", 6, -1)
    assert set(replica.sent(EndQuorumEpochRequest)) == {2, 3}
    assert replica.took(do.AppendLeaderChange) == []
    replica.pass_until_role("Prospective")
    assert [(report.role, report.epoch) for report in replica.took(do.ReportRole)] == [("Unattached", 7), ("Prospective", 7)]


def test_initialize_as_candidate_from_state_store() -> None:
    replica = Replica(epoch=6, voted=1)
    assert replica.view == ("Candidate", 6, -1)
    assert {vote.epoch for vote in replica.sent(VoteRequest).values()} == {6}


def test_initialize_as_follower() -> None:
    replica = Replica(epoch=6, leader=3)
    assert replica.view == ("Follower", 6, 3)
    assert set(replica.sent(FetchRequest)) == {3}


def test_initialize_as_unattached_when_missing_endpoints() -> None:
    assert Replica(epoch=6, leader=7).view == ("Unattached", 6, 7)


def test_initialize_as_voted_no_leader() -> None:
    replica = Replica(epoch=6, voted=2)
    assert replica.view == ("Unattached", 6, -1)
    assert not replica.vote(3, 6, (99, 5)).vote_granted


@pytest.mark.parametrize("voted", [2, 3])
def test_initialize_voted_and_leader_are_same_or_different(voted: int) -> None:
    replica = Replica(epoch=6, leader=2, voted=voted)
    assert replica.view == ("Follower", 6, 2)
    assert replica.core.voted_key == key(voted)


def test_initialize_with_corrupted_store() -> None:
    replica = Replica(epoch=2, leader=2, voted=3, log=LOG)
    assert replica.view == ("Unattached", 3, -1)
    assert replica.core.voted_key is None


def test_initialize_single_member_quorum() -> None:
    replica = Replica(voters=(1,))
    assert replica.view == ("Leader", 1, 1)


@pytest.mark.parametrize("leader", [1, None])
def test_initialize_as_leader_from_state_store_single_member_quorum(leader: int | None) -> None:
    assert Replica(voters=(1,), epoch=6, leader=leader).view == ("Leader", 7, 1)


def test_initialize_primordial_epoch() -> None:
    assert Replica().view == ("Unattached", 0, -1)


# --- B. votes -------------------------------------------------------------------------------------------------------


def test_handle_valid_vote_request_as_follower() -> None:
    replica = Replica.unattached(epoch=6)
    assert replica.vote(3, 7).vote_granted
    assert replica.view == ("Unattached", 7, -1)
    assert replica.saved is not None
    assert replica.saved.voted_key == key(3)


def test_handle_vote_request_as_follower_with_elected_leader() -> None:
    response = Replica.follower(epoch=6, leader=3).vote(2, 6)
    assert (response.error, response.vote_granted, response.leader_id) == (ErrorCode.NONE, False, 3)


def test_handle_vote_request_as_follower_with_voted_candidate() -> None:
    replica = Replica.unattached(epoch=6, voted=2)
    assert (replica.vote(2, 6).vote_granted, replica.vote(3, 6).vote_granted) == (True, False)


def test_handle_invalid_vote_request_with_older_epoch() -> None:
    replica = Replica.unattached(epoch=6)
    assert replica.vote(3, 5).error is ErrorCode.FENCED_LEADER_EPOCH
    assert replica.view == ("Unattached", 6, -1)


@pytest.mark.parametrize("last", [(-5, 0), (0, -1), (10, 8), (10, 9)])
def test_invalid_vote_request(last: tuple[int, int]) -> None:
    replica = Replica.unattached(epoch=6)
    assert replica.vote(3, 8, last).error is ErrorCode.INVALID_REQUEST
    assert replica.core.epoch == 6, "no epoch bump"


@pytest.mark.parametrize("role", ["Candidate", "Leader"])
def test_candidate_and_leader_ignore_vote_request_on_same_epoch(role: str) -> None:
    response = Replica.in_role(role, epoch=6).vote(3, 6, (99, 5))
    assert (response.error, response.vote_granted) == (ErrorCode.NONE, False)


def test_leader_accept_vote_from_observer() -> None:
    leader = Replica.leader(epoch=6)
    assert leader.vote(9, 5).error is ErrorCode.FENCED_LEADER_EPOCH
    response = leader.vote(9, 6)
    assert (response.error, response.vote_granted) == (ErrorCode.NONE, False)


def test_handle_vote_request_as_observer() -> None:
    assert Replica(local=9, epoch=6).vote(3, 7).vote_granted


def test_invalid_voter_replica_vote_request() -> None:
    replica = Replica.unattached(epoch=6)
    response = replica.vote(3, 7, voter=2)
    assert (response.error, response.vote_granted, response.leader_epoch) == (ErrorCode.INVALID_VOTER_KEY, False, 7)


def test_grant_votes_from_higher_epoch_after_resigning_leadership() -> None:
    replica = Replica.resigned(epoch=6)
    assert replica.vote(3, 7, (1, 6)).vote_granted
    assert replica.view == ("Unattached", 7, -1)


def test_grant_votes_from_higher_epoch_after_resigning_candidacy() -> None:
    replica = Replica.candidate(epoch=6)
    replica.step(on.ResignRequested())
    assert replica.vote(3, 7).vote_granted


def test_reject_votes_from_same_epoch_after_resigning_leadership() -> None:
    assert not Replica.resigned(epoch=6).vote(3, 6, (99, 5)).vote_granted


def test_reject_votes_from_same_epoch_after_resigning_candidacy() -> None:
    replica = Replica.candidate(epoch=6)
    replica.step(on.ResignRequested())
    assert not replica.vote(3, 6, (99, 5)).vote_granted


def test_grant_votes_when_shutting_down() -> None:
    replica = Replica.leader(epoch=6)
    replica.step(on.ResignRequested())
    assert replica.vote(2, 7, (1, 6)).vote_granted


def test_vote_response_ignored_after_becoming_follower() -> None:
    replica = Replica.candidate(epoch=6)
    request = replica.vote_in_flight(3)
    replica.begin(2, 6)
    replica.answer_vote(3, granted=True, request=request, leader=2)
    assert replica.view == ("Follower", 6, 2)


def test_vote_request_timeout() -> None:
    replica = Replica.candidate(epoch=6)
    request = replica.vote_in_flight(2)
    replica.fail(2, request, on.FailureReason.TIMED_OUT)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(VoteRequest)) == {2}
    replica.answer_vote(2, granted=True)
    assert replica.role == "Leader"


# --- C. pre-votes ---------------------------------------------------------------------------------------------------


def test_handle_pre_vote_request_as_follower() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    assert replica.pre_vote(3, 6).vote_granted
    assert replica.view == ("Follower", 6, 2)
    assert replica.pre_vote(3, 7).vote_granted
    assert replica.view == ("Unattached", 7, -1)
    assert replica.core.voted_key is None


def test_follower_grants_pre_vote_if_has_not_fetched_yet() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    assert replica.pre_vote(3, 6).vote_granted
    replica.answer_fetch()
    assert not replica.pre_vote(3, 6).vote_granted


def test_leader_reject_pre_vote_request_on_same_epoch() -> None:
    replica = Replica.leader(epoch=6)
    assert not replica.pre_vote(3, 6, (99, 6)).vote_granted
    assert replica.role == "Leader"


def test_handle_pre_vote_request_as_candidate() -> None:
    replica = Replica.candidate(epoch=6, log=LOG)
    assert replica.pre_vote(3, 6, (9, 3)).vote_granted
    assert not replica.pre_vote(3, 6, (8, 3)).vote_granted
    assert replica.view == ("Candidate", 6, -1)


def test_handle_pre_vote_request_as_resigned() -> None:
    replica = Replica.resigned(epoch=6)
    assert replica.pre_vote(3, 6, (1, 6)).vote_granted
    assert not replica.pre_vote(3, 6, (0, 0)).vote_granted
    assert replica.view == ("Resigned", 6, -1)


def test_handle_pre_vote_request_as_unattached_voted() -> None:
    replica = Replica.unattached(epoch=6, voted=2)
    assert replica.pre_vote(3, 6).vote_granted
    assert replica.core.voted_key == key(2)


def test_handle_pre_vote_request_as_unattached_with_leader() -> None:
    replica = Replica(epoch=6, leader=7)
    assert replica.pre_vote(3, 6).vote_granted
    assert replica.view == ("Unattached", 6, 7)


def test_reject_pre_vote_if_remote_log_is_not_up_to_date() -> None:
    replica = Replica.unattached(epoch=6, log=LOG)
    assert [replica.pre_vote(3, 6, last).vote_granted for last in ((8, 3), (99, 2), (9, 3))] == [False, False, True]


def test_invalid_pre_vote_request() -> None:
    replica = Replica.unattached(epoch=6)
    assert replica.pre_vote(3, 6, (10, 7)).error is ErrorCode.INVALID_REQUEST
    assert replica.pre_vote(3, 6, (10, 6)).error is ErrorCode.NONE


def test_pre_vote_not_supported_by_remote() -> None:
    replica = Replica.prospective(epoch=6)
    replica.fail(3, replica.vote_in_flight(3), on.FailureReason.UNSUPPORTED_VERSION)
    assert replica.view == ("Candidate", 7, -1)


@pytest.mark.parametrize("how", ["rejected", "timed out"])
def test_prospective_transitions_to_unattached_on_election_failure(how: str) -> None:
    replica = Replica.prospective(epoch=6)
    if how == "rejected":
        replica.answer_votes(granted=False)
    else:
        replica.pass_until_role("Unattached")
    assert replica.view == ("Unattached", 6, -1)
    assert replica.pass_until_role("Prospective") >= CONFIG.election_timeout_ms


@pytest.mark.parametrize("how", ["rejected", "timed out"])
def test_prospective_with_leader_transitions_to_follower(how: str) -> None:
    replica = Replica.prospective(epoch=6, leader=2)
    if how == "rejected":
        replica.answer_votes(granted=False)
    else:
        replica.pass_until_role("Follower")
    assert replica.view == ("Follower", 6, 2)


def test_prospective_loses_election_has_leader_but_missing_endpoint() -> None:
    replica = Replica(epoch=6, leader=7)
    replica.pass_until_role("Prospective")
    replica.answer_votes(granted=False)
    assert replica.view == ("Unattached", 6, 7)


def test_prospective_receives_begin_quorum_request() -> None:
    replica = Replica.prospective(epoch=6)
    replica.begin(2, 6)
    assert replica.view == ("Follower", 6, 2)


def test_pre_vote_response_ignored_after_becoming_follower() -> None:
    replica = Replica.prospective(epoch=6)
    request = replica.vote_in_flight(3)
    replica.begin(2, 6)
    replica.answer_vote(3, granted=True, request=request, leader=2)
    assert replica.view == ("Follower", 6, 2)


# --- D. candidacy ---------------------------------------------------------------------------------------------------


def test_initialize_as_unattached_and_become_leader() -> None:
    replica = Replica.prospective(epoch=5)
    assert replica.view == ("Prospective", 5, -1)
    replica.answer_vote(2, granted=True)
    assert replica.view == ("Candidate", 6, -1)
    assert replica.saved is not None
    assert replica.saved.voted_key == key(1)
    replica.answer_vote(2, granted=True)
    assert replica.view == ("Leader", 6, 1)
    kinds = [type(action) for action in replica.actions]
    assert kinds == [do.SaveElectionState, do.ReportRole, do.AppendLeaderChange]
    replica.flush()
    assert len(replica.took(do.SendRequest)) == 2


def test_candidate_waits_rest_of_election_timeout_after_election_loss() -> None:
    """Here it waits for a random jitter only, as KIP-595 has it; but it stays Candidate and asks nobody, as in Kafka."""
    replica = Replica.candidate(epoch=6)
    replica.answer_votes(granted=False)
    assert replica.view == ("Candidate", 6, -1)
    assert replica.sent(VoteRequest) == {}
    replica.pass_until_role("Prospective")
    assert replica.core.epoch == 6


def test_candidate_election_timeout() -> None:
    replica = Replica.candidate(epoch=6)
    replica.pass_until_role("Prospective")
    assert replica.core.epoch == 6
    replica.answer_vote(3, granted=True)
    assert replica.view == ("Candidate", 7, -1)


@pytest.mark.parametrize("first", [True, False])
def test_cannot_change_vote_granted_to_rejected(first: bool) -> None:
    replica = Replica.candidate(epoch=6, voters=(1, 2, 3, 4, 5))
    request = replica.vote_in_flight(2)
    replica.answer_vote(2, granted=first)
    replica.answer_vote(2, granted=not first, request=request)
    assert replica.core.role.tally.granting == ((1, 2) if first else (1,))  # type: ignore[union-attr]


def test_cannot_grant_or_reject_non_voters() -> None:
    replica = Replica.candidate(epoch=6)
    replica.answer_vote(9, granted=True, request=replica.vote_in_flight(2))
    assert replica.role == "Candidate"
    assert replica.core.role.tally.granting == (1,)  # type: ignore[union-attr]


def test_two_node_quorum_vote_rejected() -> None:
    replica = Replica.candidate(epoch=6, voters=(1, 2))
    replica.answer_vote(2, granted=False)
    assert replica.core.role.tally.is_lost  # type: ignore[union-attr]
