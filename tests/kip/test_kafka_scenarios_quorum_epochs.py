"""Kafka's own scenarios, by the names of its tests (4.3.1): quorum epochs and leaders' liveness.

Each docstring names Kafka's test, and says where ours differs; README.md beside this file lists them all.
"""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, EndQuorumEpochResponse, FetchRequest
from raftlake.raft.types import Epoch, NodeId

#: Records 0..2 of epoch 1, 3..5 of epoch 3, 6..8 of epoch 5.
LOG = (((1, 0), (3, 3), (5, 6)), 9)

# --- E. quorum epochs -----------------------------------------------------------------------------------------------


def test_handle_begin_quorum_request() -> None:
    """KafkaRaftClientTest.testHandleBeginQuorumRequest. A second leader of an epoch stops a replica of Kafka; ours
    refuses it.
    """
    replica = Replica.unattached(epoch=6)
    assert replica.begin(3, 6).error is ErrorCode.NONE
    assert replica.view == ("Follower", 6, 3)
    assert set(replica.sent(FetchRequest)) == {3}
    assert replica.begin(3, 5).error is ErrorCode.FENCED_LEADER_EPOCH


def test_begin_quorum_epoch_heartbeat() -> None:
    """KafkaRaftClientTest.testBeginQuorumEpochHeartbeat"""
    replica = Replica.leader(epoch=6)
    for _ in range(3):
        for voter in (2, 3):
            replica.fetch(voter, 1, 6)
        replica.pass_time(CONFIG.fetch_timeout_ms // 2 - 1)
        assert replica.sent(BeginQuorumEpochRequest) == {}
    for voter in (2, 3):
        request = replica.core.role.begins.in_flight.pop(NodeId(voter))  # type: ignore[union-attr]
        assert isinstance(request, BeginQuorumEpochRequest)
    replica.fetch(3, 1, 6)
    replica.pass_time(1)
    assert set(replica.sent(BeginQuorumEpochRequest)) == {2}


def test_begin_quorum_should_not_send_after_fetch_request() -> None:
    """KafkaRaftClientTest.testBeginQuorumShouldNotSendAfterFetchRequest"""
    replica = Replica.leader(epoch=6, flushed=False)
    for voter in (2, 3):
        replica.fetch(voter, 0, 0)
    replica.flush()
    assert replica.sent(BeginQuorumEpochRequest) == {}


def test_fetch_should_be_treated_as_leader_acknowledgement() -> None:
    """KafkaRaftClientTest.testFetchShouldBeTreatedAsLeaderAcknowledgement"""
    replica = Replica.leader(epoch=6)
    request = replica.core.role.begins.in_flight[NodeId(2)]  # type: ignore[union-attr]
    replica.fetch(2, 0, 0)
    replica.fail(2, request)
    replica.pass_time(500)
    assert replica.sent(BeginQuorumEpochRequest) == {}


def test_invalid_voter_replica_begin_quorum_epoch_request() -> None:
    """KafkaRaftClientTest.testInvalidVoterReplicaBeginQuorumEpochRequest"""
    replica = Replica.unattached(epoch=6)
    assert replica.begin(3, 7, voter=2).error is ErrorCode.INVALID_VOTER_KEY
    assert replica.view == ("Follower", 7, 3)


def test_handle_end_quorum_request() -> None:
    """KafkaRaftClientTest.testHandleEndQuorumRequest. Kafka: prospective; here a candidate at once, as KIP-595 has it."""
    replica = Replica.follower(epoch=6, leader=3)
    replica.answer_fetch()
    assert replica.end(3, 6, [1, 2]).error is ErrorCode.NONE
    assert replica.view == ("Candidate", 7, -1)


def test_handle_end_quorum_request_with_lower_priority_to_become_leader() -> None:
    """KafkaRaftClientTest.testHandleEndQuorumRequestWithLowerPriorityToBecomeLeader"""
    replica = Replica.follower(epoch=6, leader=3)
    replica.end(3, 6, [2, 1])
    assert replica.role == "Follower"
    assert replica.pass_until_role("Prospective") <= CONFIG.retry_backoff_ms_max


def test_end_quorum_starts_new_election_immediately_if_follower_unattached() -> None:
    """KafkaRaftClientTest.testEndQuorumStartsNewElectionImmediatelyIfFollowerUnattached"""
    replica = Replica.unattached(epoch=6)
    replica.end(3, 6, [1, 2])
    assert replica.view == ("Prospective", 6, 3)


@pytest.mark.parametrize("role", ["Leader", "Candidate"])
def test_end_quorum_ignored_if_older_epoch(role: str) -> None:
    """KafkaRaftClientTest.testEndQuorumIgnoredAsLeaderIfOlderEpoch,
    KafkaRaftClientTest.testEndQuorumIgnoredAsCandidateIfOlderEpoch
    """
    replica = Replica.in_role(role, epoch=6)
    assert replica.end(2, 5, [1]).error is ErrorCode.FENCED_LEADER_EPOCH
    assert replica.role == role


def test_end_quorum_epoch_sent_based_on_fetch_offset() -> None:
    """KafkaRaftClientTest.testEndQuorumEpochSentBasedOnFetchOffset"""
    replica = Replica.leader(epoch=6, log=LOG)
    replica.fetch(3, 10, 6)
    replica.fetch(2, 9, 5)
    replica.step(on.ResignRequested())
    (first, *_) = replica.sent(EndQuorumEpochRequest).values()
    assert [successor.id for successor in first.preferred_candidates] == [3, 2]


def test_end_quorum_epoch_retries_while_resigned() -> None:
    """KafkaRaftClientTest.testEndQuorumEpochRetriesWhileResigned"""
    replica = Replica.resigned(epoch=6)
    replica.fail(2, replica.sent(EndQuorumEpochRequest)[2])
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(EndQuorumEpochRequest)) == {2}


def test_election_timeout_after_user_initiated_resign() -> None:
    """KafkaRaftClientTest.testElectionTimeoutAfterUserInitiatedResign. Check quorum here, where Kafka's state machine
    asks for it: Fetch is refused, then Unattached(E+1), then Prospective.
    """
    replica = Replica.resigned(epoch=6)
    answer = replica.fetch(2, 1, 6)
    assert answer is not None
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    replica.pass_until_role("Prospective")
    assert replica.core.epoch == 7


def test_handle_begin_quorum_epoch_after_user_initiated_resign() -> None:
    """KafkaRaftClientTest.testHandleBeginQuorumEpochAfterUserInitiatedResign"""
    replica = Replica.resigned(epoch=6)
    assert replica.begin(3, 7).error is ErrorCode.NONE
    assert replica.view == ("Follower", 7, 3)


def test_begin_quorum_goes_to_those_who_did_not_fetch() -> None:
    """KafkaRaftClientTest.testBeginQuorumShouldNotSendAfterFetchRequest, step by step: who fetched within the interval
    gets none.
    """
    replica = Replica.leader(epoch=6)
    interval = CONFIG.fetch_timeout_ms // 2

    def silent_after(duration_ms: int) -> set[int]:
        replica.core.role.begins.in_flight.clear()  # type: ignore[union-attr]
        replica.pass_time(duration_ms)
        return set(replica.sent(BeginQuorumEpochRequest))

    assert silent_after(interval) == {2, 3}
    replica.pass_time(interval // 3)
    replica.fetch(2, 0, 0)
    assert silent_after(interval - interval // 3) == {3}
    replica.fetch(2, 0, 0)
    assert silent_after(interval) == {2, 3}


def test_handle_begin_quorum_request_more_endpoints() -> None:
    """KafkaRaftClientTest.testHandleBeginQuorumRequestMoreEndpoints: said again by the leader that is followed, it is accepted
    and changes nothing; addresses are the driver's.
    """
    replica = Replica.follower(epoch=6, leader=3)
    for _ in range(2):
        response = replica.begin(3, 6)
        assert (response.error, response.leader_id) == (ErrorCode.NONE, 3)
        assert replica.took(do.SaveElectionState) == replica.took(do.ReportRole) == []


def test_handle_begin_quorum_request_of_a_second_leader() -> None:
    """KafkaRaftClientTest.testHandleBeginQuorumRequest: where Kafka throws IllegalStateException, ours refuses the request."""
    replica = Replica.follower(epoch=6, leader=3)
    assert replica.begin(2, 6).error is ErrorCode.INVALID_REQUEST
    assert replica.view == ("Follower", 6, 3)


def test_end_quorum_epoch_is_not_resent_once_acknowledged() -> None:
    """KafkaRaftClientTest.testEndQuorumEpochRetriesWhileResigned, testElectionTimeoutAfterUserInitiatedResign"""
    replica = Replica.resigned(epoch=6)
    sent = replica.sent(EndQuorumEpochRequest)
    ok = EndQuorumEpochResponse(error=ErrorCode.NONE, leader_id=NodeId(1), leader_epoch=Epoch(6))
    replica.respond(2, sent[2], ok)
    replica.fail(3, sent[3], on.FailureReason.TIMED_OUT)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(EndQuorumEpochRequest)) == {3}


def test_end_quorum_leaves_who_is_not_listed_the_longest_wait() -> None:
    """KafkaRaftClientTest.testHandleEndQuorumRequestWithLowerPriorityToBecomeLeader; not in the list means the longest
    backoff and no error (KafkaRaftClient.endEpochElectionBackoff).
    """
    replica = Replica.follower(epoch=6, leader=3, voters=(1, 2, 3, 4))
    assert replica.end(3, 6, [2, 4]).error is ErrorCode.NONE
    assert replica.pass_until_role("Prospective") == CONFIG.retry_backoff_ms_max


# --- F. leader liveness ---------------------------------------------------------------------------------------------


def test_leader_should_resign_leadership_if_not_get_fetch_request_from_majority_voters() -> None:
    """KafkaRaftClientTest.testLeaderShouldResignLeadershipIfNotGetFetchRequestFromMajorityVoters"""
    replica = Replica.leader(epoch=6)
    replica.pass_time(CONFIG.check_quorum_timeout_ms // 2)
    replica.fetch(2, 1, 6)
    replica.pass_time(CONFIG.check_quorum_timeout_ms // 2)
    assert replica.role == "Leader"
    replica.fetch(9, 1, 6)
    replica.pass_time(CONFIG.check_quorum_timeout_ms // 2)
    assert replica.view == ("Resigned", 6, -1)


def test_leader_should_not_resign_leadership_if_only_one_voters() -> None:
    """KafkaRaftClientTest.testLeaderShouldNotResignLeadershipIfOnlyOneVoters"""
    replica = Replica(voters=(1,))
    replica.pass_time(100 * CONFIG.check_quorum_timeout_ms)
    assert replica.role == "Leader"
