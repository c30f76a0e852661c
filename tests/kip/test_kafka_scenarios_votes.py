"""Kafka's own scenarios, by the names of its tests (4.3.1): start-up and votes.

Each docstring names Kafka's test, and says where ours differs; README.md beside this file lists them all.
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
    """KafkaRaftClientTest.testInitializeAsResignedLeaderFromStateStore. A resigned replica of Kafka still names itself
    as leader, ours nobody.
    """
    replica = Replica(epoch=6, leader=1)
    assert replica.view == ("Resigned", 6, -1)
    assert set(replica.sent(EndQuorumEpochRequest)) == {2, 3}
    assert replica.took(do.AppendLeaderChange) == []
    replica.pass_until_role("Prospective")
    assert [(report.role, report.epoch) for report in replica.took(do.ReportRole)] == [("Unattached", 7), ("Prospective", 7)]


def test_initialize_as_candidate_from_state_store() -> None:
    """KafkaRaftClientTest.testInitializeAsCandidateFromStateStore"""
    replica = Replica(epoch=6, voted=1)
    assert replica.view == ("Candidate", 6, -1)
    assert {vote.epoch for vote in replica.sent(VoteRequest).values()} == {6}


def test_initialize_as_follower() -> None:
    """QuorumStateTest.testInitializeAsFollower"""
    replica = Replica(epoch=6, leader=3)
    assert replica.view == ("Follower", 6, 3)
    assert set(replica.sent(FetchRequest)) == {3}


def test_initialize_as_unattached_when_missing_endpoints() -> None:
    """QuorumStateTest.testInitializeAsUnattachedWhenMissingEndpoints"""
    assert Replica(epoch=6, leader=7).view == ("Unattached", 6, 7)


def test_initialize_as_voted_no_leader() -> None:
    """QuorumStateTest.testInitializeAsVotedNoLeader"""
    replica = Replica(epoch=6, voted=2)
    assert replica.view == ("Unattached", 6, -1)
    assert not replica.vote(3, 6, (99, 5)).vote_granted


@pytest.mark.parametrize("voted", [2, 3])
def test_initialize_voted_and_leader_are_same_or_different(voted: int) -> None:
    """QuorumStateTest.testInitializeVotedAndLeaderAreSame, QuorumStateTest.testInitializeVotedAndLeaderAreDifferent"""
    replica = Replica(epoch=6, leader=2, voted=voted)
    assert replica.view == ("Follower", 6, 2)
    assert replica.core.voted_key == key(voted)


def test_initialize_with_corrupted_store() -> None:
    """QuorumStateTest.testInitializeWithCorruptedStore: the log's epoch counts where the file's is older. A file that
    cannot be read is the storage's to judge; Kafka begins as one that never voted.
    """
    replica = Replica(epoch=2, leader=2, voted=3, log=LOG)
    assert replica.view == ("Unattached", 3, -1)
    assert replica.core.voted_key is None


def test_initialize_single_member_quorum() -> None:
    """KafkaRaftClientTest.testInitializeAsOnlyVoterWithEmptyElectionState"""
    replica = Replica(voters=(1,))
    assert replica.view == ("Leader", 1, 1)


@pytest.mark.parametrize("leader", [1, None])
def test_initialize_as_leader_from_state_store_single_member_quorum(leader: int | None) -> None:
    """KafkaRaftClientTest.testInitializeAsLeaderFromStateStoreSingleMemberQuorum"""
    assert Replica(voters=(1,), epoch=6, leader=leader).view == ("Leader", 7, 1)


def test_initialize_primordial_epoch() -> None:
    """QuorumStateTest.testInitializePrimordialEpoch"""
    assert Replica().view == ("Unattached", 0, -1)


def test_initialize_as_follower_keeps_what_was_saved() -> None:
    """QuorumStateTest.testInitializeVotedAndLeaderAreSame: the file stays as it is."""
    replica = Replica(epoch=5, leader=2, voted=2)
    assert replica.took(do.SaveElectionState) == []
    assert replica.core.next_deadline_ms() == replica.now_ms + CONFIG.fetch_timeout_ms


# --- B. votes -------------------------------------------------------------------------------------------------------


def test_handle_valid_vote_request_as_follower() -> None:
    """KafkaRaftClientTest.testHandleValidVoteRequestAsFollower"""
    replica = Replica.unattached(epoch=6)
    assert replica.vote(3, 7).vote_granted
    assert replica.view == ("Unattached", 7, -1)
    assert replica.saved is not None
    assert replica.saved.voted_key == key(3)


def test_handle_vote_request_as_follower_with_elected_leader() -> None:
    """KafkaRaftClientTest.testHandleVoteRequestAsFollowerWithElectedLeader"""
    response = Replica.follower(epoch=6, leader=3).vote(2, 6)
    assert (response.error, response.vote_granted, response.leader_id) == (ErrorCode.NONE, False, 3)


def test_handle_vote_request_as_follower_with_voted_candidate() -> None:
    """KafkaRaftClientTest.testHandleVoteRequestAsFollowerWithVotedCandidate"""
    replica = Replica.unattached(epoch=6, voted=2)
    assert (replica.vote(2, 6).vote_granted, replica.vote(3, 6).vote_granted) == (True, False)


def test_handle_invalid_vote_request_with_older_epoch() -> None:
    """KafkaRaftClientTest.testHandleInvalidVoteRequestWithOlderEpoch"""
    replica = Replica.unattached(epoch=6)
    assert replica.vote(3, 5).error is ErrorCode.FENCED_LEADER_EPOCH
    assert replica.view == ("Unattached", 6, -1)


@pytest.mark.parametrize("last", [(-5, 0), (0, -1), (10, 8), (10, 9)])
def test_invalid_vote_request(last: tuple[int, int]) -> None:
    """KafkaRaftClientTest.testInvalidVoteRequest"""
    replica = Replica.unattached(epoch=6)
    assert replica.vote(3, 8, last).error is ErrorCode.INVALID_REQUEST
    assert replica.core.epoch == 6, "no epoch bump"


@pytest.mark.parametrize("role", ["Candidate", "Leader"])
def test_candidate_and_leader_ignore_vote_request_on_same_epoch(role: str) -> None:
    """KafkaRaftClientTest.testCandidateIgnoreVoteRequestOnSameEpoch,
    KafkaRaftClientTest.testLeaderIgnoreVoteRequestOnSameEpoch
    """
    response = Replica.in_role(role, epoch=6).vote(3, 6, (99, 5))
    assert (response.error, response.vote_granted) == (ErrorCode.NONE, False)


def test_leader_accept_vote_from_observer() -> None:
    """KafkaRaftClientTest.testLeaderAcceptVoteFromObserver"""
    leader = Replica.leader(epoch=6)
    assert leader.vote(9, 5).error is ErrorCode.FENCED_LEADER_EPOCH
    response = leader.vote(9, 6)
    assert (response.error, response.vote_granted) == (ErrorCode.NONE, False)


def test_handle_vote_request_as_observer() -> None:
    """KafkaRaftClientTest.testHandleVoteRequestAsObserver"""
    assert Replica(local=9, epoch=6).vote(3, 7).vote_granted


def test_invalid_voter_replica_vote_request() -> None:
    """KafkaRaftClientTest.testInvalidVoterReplicaVoteRequest"""
    replica = Replica.unattached(epoch=6)
    response = replica.vote(3, 7, voter=2)
    assert (response.error, response.vote_granted, response.leader_epoch) == (ErrorCode.INVALID_VOTER_KEY, False, 7)


def test_grant_votes_from_higher_epoch_after_resigning_leadership() -> None:
    """KafkaRaftClientTest.testGrantVotesFromHigherEpochAfterResigningLeadership"""
    replica = Replica.resigned(epoch=6)
    assert replica.vote(3, 7, (1, 6)).vote_granted
    assert replica.view == ("Unattached", 7, -1)


def test_grant_votes_from_higher_epoch_after_resigning_candidacy() -> None:
    """KafkaRaftClientTest.testGrantVotesFromHigherEpochAfterResigningCandidacy"""
    replica = Replica.candidate(epoch=6)
    replica.step(on.ResignRequested())
    assert replica.vote(3, 7).vote_granted


def test_reject_votes_from_same_epoch_after_resigning_leadership() -> None:
    """KafkaRaftClientTest.testRejectVotesFromSameEpochAfterResigningLeadership"""
    assert not Replica.resigned(epoch=6).vote(3, 6, (99, 5)).vote_granted


def test_reject_votes_from_same_epoch_after_resigning_candidacy() -> None:
    """KafkaRaftClientTest.testRejectVotesFromSameEpochAfterResigningCandidacy"""
    replica = Replica.candidate(epoch=6)
    replica.step(on.ResignRequested())
    assert not replica.vote(3, 6, (99, 5)).vote_granted


def test_grant_votes_when_shutting_down() -> None:
    """KafkaRaftClientTest.testGrantVotesWhenShuttingDown"""
    replica = Replica.leader(epoch=6)
    replica.step(on.ResignRequested())
    assert replica.vote(2, 7, (1, 6)).vote_granted


def test_vote_response_ignored_after_becoming_follower() -> None:
    """KafkaRaftClientTest.testVoteResponseIgnoredAfterBecomingFollower"""
    replica = Replica.candidate(epoch=6)
    request = replica.vote_in_flight(3)
    replica.begin(2, 6)
    replica.answer_vote(3, granted=True, request=request, leader=2)
    assert replica.view == ("Follower", 6, 2)


def test_vote_request_timeout() -> None:
    """KafkaRaftClientTest.testVoteRequestTimeout: "We will ignore the timed out response if it arrives late"."""
    replica = Replica.candidate(epoch=6)
    request = replica.vote_in_flight(2)
    replica.fail(2, request, on.FailureReason.TIMED_OUT)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(VoteRequest)) == {2}
    replica.answer_vote(2, granted=True, request=request)
    assert replica.view == ("Candidate", 6, -1)
    replica.answer_vote(2, granted=True)
    assert replica.role == "Leader"


@pytest.mark.parametrize("epoch", [6, 7])
def test_handle_valid_vote_request_of_the_own_and_a_later_epoch(epoch: int) -> None:
    """KafkaRaftClientTest.testHandleValidVoteRequestAsFollower, testHandleValidVoteRequestAsFollowerUnattached"""
    replica = Replica.unattached(epoch=6)
    assert replica.vote(3, epoch, (1, 5)).vote_granted
    assert replica.view == ("Unattached", epoch, -1)
    assert replica.core.voted_key == key(3)


@pytest.mark.parametrize(("voter", "directory"), [(10, b"mine"), (1, b"another")])
def test_invalid_voter_replica_vote_request_at_a_leader(voter: int, directory: bytes) -> None:
    """KafkaRaftClientTest.testInvalidVoterReplicaVoteRequest: a wrong id, and the right id with a wrong directory. The epoch
    is taken over all the same.
    """
    replica = Replica.leader(epoch=6, directory=b"mine")
    response = replica.vote(2, 7, (100, 6), voter=voter, directory=key(1, directory).directory_id)
    assert (response.error, response.leader_epoch, response.leader_id) == (ErrorCode.INVALID_VOTER_KEY, 7, -1)
    assert not response.vote_granted
    assert replica.role == "Unattached"


def test_invalid_vote_request_leaves_the_leader_in_office() -> None:
    """KafkaRaftClientTest.testInvalidVoteRequest: the answer still names the leader that is followed."""
    replica = Replica.follower(epoch=5, leader=2)
    for last in [(-5, 0), (0, -1), (0, 6)]:
        response = replica.vote(3, 6, last)
        assert (response.error, response.leader_id, response.leader_epoch) == (ErrorCode.INVALID_REQUEST, 2, 5)
        assert replica.view == ("Follower", 5, 2)
