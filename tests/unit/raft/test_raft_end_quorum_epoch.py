"""EndQuorumEpoch: the order of the successors, and a resigned leader that says it until it is heard."""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, key
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import EndQuorumEpochRequest, EndQuorumEpochResponse, VoteRequest
from raftlake.raft.roles import Follower
from raftlake.raft.types import Epoch, NodeId

MAX_MS = CONFIG.retry_backoff_ms_max


def acknowledge(replica: Replica, voter: int, *, error: ErrorCode = ErrorCode.NONE, epoch: int = 6, leader: int = 1) -> None:
    request = replica.core.role.ends.in_flight[NodeId(voter)]  # type: ignore[union-attr]
    response = EndQuorumEpochResponse(error=error, leader_id=NodeId(leader), leader_epoch=Epoch(epoch))
    replica.respond(voter, request, response)


def test_the_first_successor_campaigns_at_once() -> None:
    """KIP-595: "If the node's priority is highest, it will become candidate immediately"."""
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch()
    response = replica.end(2, 6, [1, 3])
    assert response.error is ErrorCode.NONE
    assert replica.view == ("Candidate", 7, -1)
    votes = replica.sent(VoteRequest)
    assert set(votes) == {2, 3}
    assert not any(vote.pre_vote for vote in votes.values()), "nobody has to be asked whether the leader is still there"


def test_a_first_successor_that_has_just_started_asks_for_pre_votes() -> None:
    """Named for what it had fetched before it stopped, it took an epoch that it could not win, and who could have won waited
    for an election timeout: 1.9 s without a leader."""
    replica = Replica.follower(epoch=6, leader=2)
    replica.end(2, 6, [1, 3])
    assert replica.view == ("Prospective", 6, 2)
    assert all(vote.pre_vote for vote in replica.sent(VoteRequest).values())


@pytest.mark.parametrize(
    ("successors", "wait_ms"),
    [
        ([3, 1], MAX_MS // 2),
        ([3, 1, 4], MAX_MS // 4),
        ([3, 4, 1], MAX_MS // 2),
        ([3, 4, 5, 1], MAX_MS // 2),
        ([3], MAX_MS),
        ([3, 4], MAX_MS),
    ],
)
def test_later_successors_wait_by_rank_and_strangers_to_the_list_longest(successors: list[int], wait_ms: int) -> None:
    """Kafka's min(max, (max >> (n - 1)) << (rank - 1)), and never INCONSISTENT_VOTER_SET."""
    replica = Replica.follower(epoch=6, leader=2, voters=(1, 2, 3, 4, 5))
    assert replica.end(2, 6, successors).error is ErrorCode.NONE
    assert replica.role == "Follower"
    assert replica.pass_until_role("Prospective") == wait_ms
    reports = replica.took(do.ReportRole)
    assert reports[-1].reason == "leader resigned"


def test_an_answer_that_the_leader_gave_before_it_resigned_does_not_put_the_campaign_off() -> None:
    """It was held back for records to travel with, and its leader resigned before it left: the follower waited for a whole
    fetch timeout instead of its turn, and refused pre-votes meanwhile."""
    replica = Replica.follower(epoch=6, leader=2, voters=(1, 2, 3, 4, 5))
    assert replica.end(2, 6, [3, 1]).error is ErrorCode.NONE
    replica.answer_fetch()
    replica.step(on.LeaderConfirmed(leader_id=NodeId(2), at_ms=replica.now_ms + 1))
    role = replica.core.role
    assert isinstance(role, Follower) and not role.has_fetched
    assert replica.pass_until_role("Prospective") == MAX_MS // 2


def test_another_disk_in_the_list_is_not_us() -> None:
    replica = Replica.follower(epoch=6, leader=2, directory=b"new")
    request = EndQuorumEpochRequest(leader_id=NodeId(2), leader_epoch=Epoch(6), preferred_candidates=(key(1, b"old"), key(3)))
    replica.step(on.RequestReceived(request_id=1, request=request))
    assert replica.role == "Follower"


def test_a_leader_that_restarted_names_nobody_and_jitter_parts_the_voters() -> None:
    waits = set()
    for seed in range(10):
        replica = Replica.follower(epoch=6, leader=2, seed=seed)
        replica.end(2, 6)
        waits.add(replica.pass_until_role("Prospective"))
    assert max(waits) <= CONFIG.election_jitter_ms_max
    assert len(waits) > 3


def test_the_flag_of_a_successful_fetch_is_cleared() -> None:
    """KAFKA-20895: else every graceful stop of five voters loses a round of pre-votes."""
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch()
    assert not replica.pre_vote(3, 6).vote_granted
    replica.end(2, 6, [3, 1])
    assert replica.pre_vote(3, 6).vote_granted


def test_an_unattached_voter_learns_the_leader_and_campaigns_against_it() -> None:
    """testEndQuorumStartsNewElectionImmediatelyIfFollowerUnattached."""
    replica = Replica.unattached(epoch=6)
    assert replica.end(2, 6, [1, 3]).error is ErrorCode.NONE
    assert replica.view == ("Prospective", 6, 2)


def test_another_leader_than_ours_ends_nothing() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    assert replica.end(3, 6, [1, 2]).error is ErrorCode.INVALID_REQUEST
    assert replica.view == ("Follower", 6, 2)


@pytest.mark.parametrize("role", ["Unattached", "Follower", "Prospective", "Candidate", "Leader", "Resigned"])
def test_an_old_epoch_is_fenced(role: str) -> None:
    """testEndQuorumIgnoredAsLeaderIfOlderEpoch and its siblings."""
    replica = Replica.in_role(role, epoch=6)
    before = replica.view
    assert replica.end(2, 5, [1]).error is ErrorCode.FENCED_LEADER_EPOCH
    assert replica.view == before


@pytest.mark.parametrize("leader", [-1, 1])
def test_a_leader_needs_a_number_of_its_own(leader: int) -> None:
    assert Replica.unattached(epoch=6).end(leader, 6, [1]).error is ErrorCode.INVALID_REQUEST


def test_an_observer_waits_for_the_next_leader() -> None:
    observer = Replica.follower(local=9, epoch=6, leader=2)
    observer.end(2, 6, [1, 3])
    assert observer.role == "Follower"


def test_a_stopping_follower_does_not_campaign() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    replica.step(on.ResignRequested())
    replica.end(2, 6, [1, 3])
    assert replica.role == "Follower"


# --- the leader's side ----------------------------------------------------------------------------------------------


def test_successors_are_sorted_by_fetch_offset() -> None:
    """testEndQuorumEpochSentBasedOnFetchOffset."""
    replica = Replica.leader(epoch=6, voters=(1, 2, 3, 4))
    replica.append(5)
    replica.fetch(3, 6, 6)
    replica.fetch(4, 1, 6)
    replica.step(on.ResignRequested())
    assert replica.role == "Resigned"
    ends = replica.sent(EndQuorumEpochRequest)
    assert set(ends) == {2, 3, 4}
    assert {tuple(candidate.id for candidate in end.preferred_candidates) for end in ends.values()} == {(3, 4, 2)}
    assert {(end.leader_id, end.leader_epoch) for end in ends.values()} == {(1, 6)}


def test_it_is_sent_until_it_is_acknowledged() -> None:
    """testEndQuorumEpochRetriesWhileResigned."""
    replica = Replica.leader(epoch=6)
    replica.step(on.ResignRequested())
    acknowledge(replica, 3)
    request = replica.core.role.ends.in_flight[NodeId(2)]  # type: ignore[union-attr]
    replica.fail(2, request)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(EndQuorumEpochRequest)) == {2}
    acknowledge(replica, 2)
    replica.pass_time(10_000)
    assert replica.sent(EndQuorumEpochRequest) == {}


def test_a_refusal_is_no_acknowledgement() -> None:
    replica = Replica.leader(epoch=6)
    replica.step(on.ResignRequested())
    acknowledge(replica, 2, error=ErrorCode.BROKER_NOT_AVAILABLE)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(EndQuorumEpochRequest)) == {2}


def test_a_newer_leader_in_the_answer_is_followed() -> None:
    """KIP-595: "there's already higher epoch leader"."""
    replica = Replica.resigned(epoch=6)
    acknowledge(replica, 2, error=ErrorCode.FENCED_LEADER_EPOCH, epoch=7, leader=3)
    assert replica.view == ("Follower", 7, 3)


def test_a_voter_that_still_names_us_as_leader_has_acknowledged() -> None:
    replica = Replica.resigned(epoch=6)
    acknowledge(replica, 2, leader=1)
    assert replica.view == ("Resigned", 6, -1)
    assert list(replica.core.role.acknowledged) == [2]  # type: ignore[union-attr]
