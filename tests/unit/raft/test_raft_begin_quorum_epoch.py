"""BeginQuorumEpoch: who is followed, in which order it is refused, and how long a leader repeats itself."""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft.messages import BeginQuorumEpochRequest, BeginQuorumEpochResponse, FetchRequest
from raftlake.raft.types import EPOCH_MAX, Epoch, NodeId

ROLES = ["Unattached", "Follower", "Prospective", "Candidate", "Leader", "Resigned"]


@pytest.mark.parametrize("role", ROLES)
def test_a_newer_leader_is_followed_durably_and_fetched_from(role: str) -> None:
    """testHandleBeginQuorumRequest, testHandleBeginQuorumEpochAfterUserInitiatedResign."""
    replica = Replica.in_role(role, epoch=6)
    response = replica.begin(3, 7, voter=1)
    assert (response.error, response.leader_id, response.leader_epoch) == (ErrorCode.NONE, 3, 7)
    assert replica.view == ("Follower", 7, 3)
    assert replica.saved is not None
    assert (replica.saved.epoch, replica.saved.leader_id, replica.saved.voted_key) == (7, 3, None)
    if role in ("Leader", "Resigned") and replica.core.flushed_end != replica.core.log_end:
        replica.flush()
    assert set(replica.sent(FetchRequest)) == {3}


@pytest.mark.parametrize("role", ["Unattached", "Prospective", "Candidate"])
def test_the_leader_of_the_same_epoch_is_followed_when_none_was_known(role: str) -> None:
    """testProspectiveReceivesBeginQuorumRequest."""
    replica = Replica.in_role(role, epoch=6)
    vote = replica.core.voted_key
    assert replica.begin(3, 6).error is ErrorCode.NONE
    assert replica.view == ("Follower", 6, 3)
    assert replica.core.voted_key == vote


@pytest.mark.parametrize("role", ROLES)
def test_an_old_leader_is_fenced(role: str) -> None:
    replica = Replica.in_role(role, epoch=6)
    before = replica.view
    response = replica.begin(3, 5)
    assert (response.error, response.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 6)
    assert replica.view == before


@pytest.mark.parametrize("leader", [-1, 1])
@pytest.mark.parametrize("epoch", [6, 7])
def test_a_leader_needs_a_number_of_its_own(leader: int, epoch: int) -> None:
    replica = Replica.unattached(epoch=6)
    assert replica.begin(leader, epoch).error is ErrorCode.INVALID_REQUEST
    assert replica.view == ("Unattached", 6, -1)


def test_an_epoch_beyond_the_wire_is_refused() -> None:
    replica = Replica.unattached(epoch=6)
    assert replica.begin(3, EPOCH_MAX + 1).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("role", ["Follower", "Leader", "Resigned"])
def test_a_second_leader_of_an_epoch_is_refused(role: str) -> None:
    """KIP-595: "if the leaderId for epoch 5 was known to be A, then a voter will reject a BeginQuorumEpoch request from a
    separate voter B from the same epoch". Kafka stops the process; a claim of somebody else is no bug of ours."""
    replica = Replica.in_role(role, epoch=6)
    before = replica.view
    response = replica.begin(3, 6)
    assert response.error is ErrorCode.INVALID_REQUEST
    assert replica.view == before


def test_a_repetition_changes_nothing() -> None:
    replica = Replica.follower(epoch=6, leader=3)
    assert replica.begin(3, 6).error is ErrorCode.NONE
    assert [type(action) for action in replica.actions] == [do.Respond]


def test_the_leader_that_was_given_up_is_followed_again() -> None:
    replica = Replica.prospective(epoch=6, leader=3)
    assert replica.begin(3, 6).error is ErrorCode.NONE
    assert replica.view == ("Follower", 6, 3)


def test_a_wrong_voter_key_is_noticed_after_the_transition() -> None:
    """testInvalidVoterReplicaBeginQuorumEpochRequest."""
    replica = Replica.unattached(epoch=6)
    assert replica.begin(3, 7, voter=2).error is ErrorCode.INVALID_VOTER_KEY
    assert replica.view == ("Follower", 7, 3)


def test_a_stranger_as_leader_is_refused_and_raises_no_epoch() -> None:
    """A voter set that stays static has no other leaders."""
    replica = Replica.follower(epoch=6)
    for epoch in (7, 8, EPOCH_MAX):
        assert replica.begin(9, epoch).error is ErrorCode.INVALID_REQUEST
        assert replica.end(9, epoch).error is ErrorCode.INVALID_REQUEST
    assert replica.view == ("Follower", 6, 2)
    assert replica.begin(3, 7).error is ErrorCode.NONE
    assert replica.view == ("Follower", 7, 3)


def test_a_stranger_may_lead_where_the_log_says_who_votes() -> None:
    """KIP-853: our copy of the log may be older than the voter that leads now."""
    replica = Replica.follower(epoch=6, directory=b"mine")
    assert replica.begin(9, 7).error is ErrorCode.NONE
    assert replica.view == ("Follower", 7, 9)


# --- the leader's side ----------------------------------------------------------------------------------------------


def endorse(replica: Replica, voter: int, *, error: ErrorCode = ErrorCode.NONE, epoch: int = 6, leader: int = 1) -> None:
    request = replica.core.role.begins.in_flight[NodeId(voter)]  # type: ignore[union-attr]
    response = BeginQuorumEpochResponse(error=error, leader_id=NodeId(leader), leader_epoch=Epoch(epoch))
    replica.respond(voter, request, response)


def test_it_is_sent_only_once_the_leader_change_is_synced() -> None:
    """testInitializeAsUnattachedAndBecomeLeader: appended and flushed first."""
    replica = Replica.leader(epoch=6, flushed=False)
    assert replica.sent(BeginQuorumEpochRequest) == {}
    replica.flush()
    begins = replica.sent(BeginQuorumEpochRequest)
    assert {voter: (begin.leader_id, begin.leader_epoch, begin.voter_id) for voter, begin in begins.items()} == {
        2: (1, 6, 2),
        3: (1, 6, 3),
    }


def test_a_sync_of_older_records_does_not_announce_the_leader() -> None:
    replica = Replica.leader(epoch=6, flushed=False, log=(((1, 0),), 5))
    replica.append(3)
    replica.core.flushed_end = 4  # type: ignore[assignment]
    replica.flush(5)
    assert replica.sent(BeginQuorumEpochRequest) == {}
    replica.flush(6)
    assert set(replica.sent(BeginQuorumEpochRequest)) == {2, 3}


def test_it_is_repeated_with_a_growing_backoff_until_it_is_endorsed() -> None:
    """KIP-595: "continue sending BeginQuorumEpoch to each known voter until it has received its endorsement"."""
    replica = Replica.leader(epoch=6)
    endorse(replica, 3)
    waits = []
    for _ in range(5):
        request = replica.core.role.begins.in_flight[NodeId(2)]  # type: ignore[union-attr]
        replica.fail(2, request)
        sent_at = replica.now_ms
        while not replica.sent(BeginQuorumEpochRequest):
            replica.pass_time(1)
        assert set(replica.sent(BeginQuorumEpochRequest)) == {2}
        waits.append(replica.now_ms - sent_at)
    assert waits == [20, 40, 80, 160, 320]


def test_a_fetch_is_an_endorsement() -> None:
    """KIP-595: "may also be inferred through a received FetchQuorumRecords request".

    Kafka: testFetchShouldBeTreatedAsLeaderAcknowledgement.
    """
    replica = Replica.leader(epoch=6)
    request = replica.core.role.begins.in_flight[NodeId(2)]  # type: ignore[union-attr]
    replica.fetch(2, 0, 0)
    replica.fail(2, request)
    replica.pass_time(CONFIG.retry_backoff_ms * 2)
    assert replica.sent(BeginQuorumEpochRequest) == {}


def test_a_silent_voter_is_reminded_every_half_fetch_timeout_and_a_fetching_one_is_not() -> None:
    """testBeginQuorumEpochHeartbeat, testBeginQuorumShouldNotSendAfterFetchRequest."""
    replica = Replica.leader(epoch=6)
    endorse(replica, 2)
    endorse(replica, 3)
    replica.pass_time(CONFIG.fetch_timeout_ms // 2 - 1)
    assert replica.sent(BeginQuorumEpochRequest) == {}
    replica.fetch(2, 1, 6)
    replica.pass_time(1)
    assert set(replica.sent(BeginQuorumEpochRequest)) == {3}
    endorse(replica, 3)
    replica.pass_time(CONFIG.fetch_timeout_ms // 2)
    assert set(replica.sent(BeginQuorumEpochRequest)) == {2, 3}


def test_an_answer_from_a_later_epoch_ends_leadership() -> None:
    """KIP-595: "If the error code indicates that voter's known leader epoch is larger"."""
    replica = Replica.leader(epoch=6)
    endorse(replica, 2, error=ErrorCode.FENCED_LEADER_EPOCH, epoch=8, leader=3)
    assert replica.view == ("Follower", 8, 3)


def test_an_error_is_no_endorsement() -> None:
    replica = Replica.leader(epoch=6)
    endorse(replica, 2, error=ErrorCode.INVALID_VOTER_KEY)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(BeginQuorumEpochRequest)) == {2}
