"""Kafka's own scenarios, by the names of its tests (4.3.1): pre-votes and candidacies.

Each docstring names Kafka's test, and says where ours differs; README.md beside this file lists them all.
"""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, key
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import FetchRequest, VoteRequest
from raftlake.raft.roles import Prospective

LOG = (((1, 0), (3, 5)), 9)

# --- C. pre-votes ---------------------------------------------------------------------------------------------------


def test_handle_pre_vote_request_as_follower() -> None:
    """KafkaRaftClientPreVoteTest.testHandlePreVoteRequestAsFollower"""
    replica = Replica.follower(epoch=6, leader=2)
    assert replica.pre_vote(3, 6).vote_granted
    assert replica.view == ("Follower", 6, 2)
    assert replica.pre_vote(3, 7).vote_granted
    assert replica.view == ("Unattached", 7, -1)
    assert replica.core.voted_key is None


def test_follower_grants_pre_vote_if_has_not_fetched_yet() -> None:
    """KafkaRaftClientPreVoteTest.testFollowerGrantsPreVoteIfHasNotFetchedYet"""
    replica = Replica.follower(epoch=6, leader=2)
    assert replica.pre_vote(3, 6).vote_granted
    replica.answer_fetch()
    assert not replica.pre_vote(3, 6).vote_granted


def test_leader_reject_pre_vote_request_on_same_epoch() -> None:
    """KafkaRaftClientPreVoteTest.testLeaderRejectPreVoteRequestOnSameEpoch"""
    replica = Replica.leader(epoch=6)
    assert not replica.pre_vote(3, 6, (99, 6)).vote_granted
    assert replica.role == "Leader"


def test_handle_pre_vote_request_as_candidate() -> None:
    """KafkaRaftClientPreVoteTest.testHandlePreVoteRequestAsCandidate"""
    replica = Replica.candidate(epoch=6, log=LOG)
    assert replica.pre_vote(3, 6, (9, 3)).vote_granted
    assert not replica.pre_vote(3, 6, (8, 3)).vote_granted
    assert replica.view == ("Candidate", 6, -1)


def test_handle_pre_vote_request_as_resigned() -> None:
    """KafkaRaftClientPreVoteTest.testHandlePreVoteRequestAsResigned"""
    replica = Replica.resigned(epoch=6)
    assert replica.pre_vote(3, 6, (1, 6)).vote_granted
    assert not replica.pre_vote(3, 6, (0, 0)).vote_granted
    assert replica.view == ("Resigned", 6, -1)


def test_handle_pre_vote_request_as_unattached_voted() -> None:
    """KafkaRaftClientPreVoteTest.testHandlePreVoteRequestAsUnattachedVoted"""
    replica = Replica.unattached(epoch=6, voted=2)
    assert replica.pre_vote(3, 6).vote_granted
    assert replica.core.voted_key == key(2)


def test_handle_pre_vote_request_as_unattached_with_leader() -> None:
    """KafkaRaftClientPreVoteTest.testHandlePreVoteRequestAsUnattachedWithLeader"""
    replica = Replica(epoch=6, leader=7)
    assert replica.pre_vote(3, 6).vote_granted
    assert replica.view == ("Unattached", 6, 7)


def test_reject_pre_vote_if_remote_log_is_not_up_to_date() -> None:
    """KafkaRaftClientPreVoteTest.testRejectPreVoteIfRemoteLogIsNotUpToDate"""
    replica = Replica.unattached(epoch=6, log=LOG)
    assert [replica.pre_vote(3, 6, last).vote_granted for last in ((8, 3), (99, 2), (9, 3))] == [False, False, True]


def test_invalid_pre_vote_request() -> None:
    """KafkaRaftClientPreVoteTest.testInvalidPreVoteRequest"""
    replica = Replica.unattached(epoch=6)
    assert replica.pre_vote(3, 6, (10, 7)).error is ErrorCode.INVALID_REQUEST
    assert replica.pre_vote(3, 6, (10, 6)).error is ErrorCode.NONE


def test_pre_vote_not_supported_by_remote() -> None:
    """KafkaRaftClientPreVoteTest.testPreVoteNotSupportedByRemote"""
    replica = Replica.prospective(epoch=6)
    replica.fail(3, replica.vote_in_flight(3), on.FailureReason.UNSUPPORTED_VERSION)
    assert replica.view == ("Candidate", 7, -1)


@pytest.mark.parametrize("how", ["rejected", "timed out"])
def test_prospective_transitions_to_unattached_on_election_failure(how: str) -> None:
    """KafkaRaftClientPreVoteTest.testProspectiveTransitionsToUnattachedOnElectionFailure"""
    replica = Replica.prospective(epoch=6)
    if how == "rejected":
        replica.answer_votes(granted=False)
    else:
        replica.pass_until_role("Unattached")
    assert replica.view == ("Unattached", 6, -1)
    assert len(replica.sent(FetchRequest)) == 1, "it looks for a leader"
    waited_ms = replica.pass_until_role("Prospective")
    if how == "rejected":
        assert waited_ms >= CONFIG.election_timeout_ms
    else:
        # The round has taken an election timeout already; QuorumState.transitionToUnattached leaves what remains of it: 0.
        assert waited_ms <= CONFIG.election_jitter_ms_max


@pytest.mark.parametrize("how", ["rejected", "timed out"])
def test_prospective_with_leader_transitions_to_follower(how: str) -> None:
    """KafkaRaftClientPreVoteTest.testProspectiveWithLeaderTransitionsToFollower"""
    replica = Replica.prospective(epoch=6, leader=2)
    if how == "rejected":
        replica.answer_votes(granted=False)
    else:
        replica.pass_until_role("Follower")
    assert replica.view == ("Follower", 6, 2)


def test_prospective_loses_election_has_leader_but_missing_endpoint() -> None:
    """KafkaRaftClientPreVoteTest.testProspectiveLosesElectionHasLeaderButMissingEndpoint"""
    replica = Replica(epoch=6, leader=7)
    replica.pass_until_role("Prospective")
    replica.answer_votes(granted=False)
    assert replica.view == ("Unattached", 6, 7)


def test_prospective_receives_begin_quorum_request() -> None:
    """KafkaRaftClientPreVoteTest.testProspectiveReceivesBeginQuorumRequest"""
    replica = Replica.prospective(epoch=6)
    replica.begin(2, 6)
    assert replica.view == ("Follower", 6, 2)


def test_pre_vote_response_ignored_after_becoming_follower() -> None:
    """KafkaRaftClientPreVoteTest.testPreVoteResponseIgnoredAfterBecomingFollower"""
    replica = Replica.prospective(epoch=6)
    request = replica.vote_in_flight(3)
    replica.begin(2, 6)
    replica.answer_vote(3, granted=True, request=request, leader=2)
    assert replica.view == ("Follower", 6, 2)


def test_handle_pre_vote_request_as_follower_with_voted_candidate() -> None:
    """KafkaRaftClientPreVoteTest.testHandlePreVoteRequestAsFollowerWithVotedCandidate"""
    replica = Replica.unattached(epoch=6, voted=3)
    replica.begin(3, 6)
    assert replica.pre_vote(2, 6, (1, 6)).vote_granted
    replica.answer_fetch(source=3)
    assert not replica.pre_vote(2, 6, (1, 6)).vote_granted
    assert replica.core.voted_key == key(3)


@pytest.mark.parametrize("has_fetched", [False, True])
def test_handle_pre_vote_request_as_follower_observer(has_fetched: bool) -> None:
    """KafkaRaftClientPreVoteTest.testHandlePreVoteRequestAsFollowerObserver"""
    replica = Replica.follower(local=9, epoch=6, leader=2)
    if has_fetched:
        replica.answer_fetch()
    response = replica.pre_vote(3, 6, (1, 6))
    assert (response.vote_granted, response.leader_id) == (not has_fetched, 2)
    assert replica.view == ("Follower", 6, 2)


@pytest.mark.parametrize("role", ["Candidate", "Resigned", "Leader", "Follower", "Unattached"])
def test_a_pre_vote_of_a_later_epoch_detaches(role: str) -> None:
    """KafkaRaftClientPreVoteTest.testHandlePreVoteRequestAsCandidate, testHandlePreVoteRequestAsResigned,
    testHandlePreVoteRequestAsFollower: the last part of each. No vote is cast by it.
    """
    replica = Replica.in_role(role, epoch=6)
    response = replica.pre_vote(3, 7, (99, 7))
    assert (response.vote_granted, response.leader_epoch, response.leader_id) == (True, 7, -1)
    assert replica.view == ("Unattached", 7, -1)
    assert replica.core.voted_key is None


def test_pre_votes_after_the_first_refusal_are_ignored() -> None:
    """KafkaRaftClientPreVoteTest.testPreVoteNotSupportedByRemote: the other answers to the pre-vote come too late."""
    replica = Replica.prospective(epoch=6)
    other = replica.vote_in_flight(2)
    replica.fail(3, replica.vote_in_flight(3), on.FailureReason.UNSUPPORTED_VERSION)
    replica.answer_vote(2, granted=True, request=other, epoch=6)
    assert replica.view == ("Candidate", 7, -1)
    replica.pass_until_role("Prospective")
    replica.answer_vote(2, granted=True)
    assert replica.view == ("Candidate", 8, -1)


def test_prospective_without_leader_transitions_to_follower() -> None:
    """KafkaRaftClientPreVoteTest.testProspectiveWithoutLeaderTransitionsToFollower, and the end of
    testProspectiveWithLeaderTransitionsToFollower: an answer that names a leader ends the round.
    """
    replica = Replica.prospective(epoch=6)
    replica.answer_vote(2, granted=True, leader=3)
    assert replica.view == ("Follower", 6, 3)
    replica.pass_until_role("Prospective")
    replica.answer_vote(2, granted=False, error=ErrorCode.FENCED_LEADER_EPOCH, leader=2, epoch=7)
    assert replica.view == ("Follower", 7, 2)


def test_can_change_pre_vote() -> None:
    """ProspectiveStateTest.testCanChangePreVote: in Kafka a later answer replaces an earlier one. Ours asks each voter until it
    has answered and counts that; a changed mind counts in the next round.
    """
    replica = Replica.prospective(epoch=6, voters=(1, 2, 3, 4, 5))
    request = replica.vote_in_flight(2)
    replica.answer_vote(2, granted=False)
    replica.answer_vote(2, granted=True, request=request)
    assert isinstance(replica.core.role, Prospective)
    assert replica.core.role.tally.granting == (1,)
    replica.pass_until_role("Unattached")
    replica.pass_until_role("Prospective")
    replica.answer_vote(2, granted=True)
    assert isinstance(replica.core.role, Prospective)
    assert replica.core.role.tally.granting == (1, 2)


# --- D. candidacy ---------------------------------------------------------------------------------------------------


def test_initialize_as_unattached_and_become_leader() -> None:
    """KafkaRaftClientTest.testInitializeAsUnattachedAndBecomeLeader"""
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
    """KafkaRaftClientTest.testCandidateWaitsRestOfElectionTimeoutAfterElectionLoss. Here it waits for a random jitter
    only, as KIP-595 has it; but it stays Candidate and asks nobody, as in Kafka.
    """
    replica = Replica.candidate(epoch=6)
    replica.answer_votes(granted=False)
    assert replica.view == ("Candidate", 6, -1)
    assert replica.sent(VoteRequest) == {}
    replica.pass_until_role("Prospective")
    assert replica.core.epoch == 6


def test_candidate_election_timeout() -> None:
    """KafkaRaftClientTest.testCandidateElectionTimeout"""
    replica = Replica.candidate(epoch=6)
    replica.pass_until_role("Prospective")
    assert replica.core.epoch == 6
    replica.answer_vote(3, granted=True)
    assert replica.view == ("Candidate", 7, -1)


@pytest.mark.parametrize("first", [True, False])
def test_cannot_change_vote_granted_to_rejected(first: bool) -> None:
    """CandidateStateTest.testCannotChangeVoteGrantedToRejected,
    CandidateStateTest.testCannotChangeVoteRejectedToGranted. Kafka throws, ours counts the first.
    """
    replica = Replica.candidate(epoch=6, voters=(1, 2, 3, 4, 5))
    request = replica.vote_in_flight(2)
    replica.answer_vote(2, granted=first)
    replica.answer_vote(2, granted=not first, request=request)
    assert replica.core.role.tally.granting == ((1, 2) if first else (1,))  # type: ignore[union-attr]


def test_cannot_grant_or_reject_non_voters() -> None:
    """CandidateStateTest.testCannotGrantOrRejectNonVoters. Kafka throws, ours does not count it."""
    replica = Replica.candidate(epoch=6)
    replica.answer_vote(9, granted=True, request=replica.vote_in_flight(2))
    assert replica.role == "Candidate"
    assert replica.core.role.tally.granting == (1,)  # type: ignore[union-attr]


def test_two_node_quorum_vote_rejected() -> None:
    """CandidateStateTest.testTwoNodeQuorumVoteRejected"""
    replica = Replica.candidate(epoch=6, voters=(1, 2))
    replica.answer_vote(2, granted=False)
    assert replica.core.role.tally.is_lost  # type: ignore[union-attr]
