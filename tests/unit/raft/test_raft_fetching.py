"""Whom a replica without an answer asks next, how it finds a leader, and what counts as a sign of the leader's life."""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, batch, position
from raftkit.voters import known_voters
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.fetching import send_fetch
from raftlake.raft.messages import FetchRequest
from raftlake.raft.types import NodeId

LOG = (((1, 0), (3, 3), (5, 6)), 9)


def follower(**kwargs: object) -> Replica:
    """Node 1, log end 9@5, fetching from node 2 in epoch 6."""
    return Replica.follower(epoch=6, log=LOG, **kwargs)


def in_flight(replica: Replica) -> FetchRequest:
    request = replica.core.fetch_in_flight
    assert request is not None
    return request


@pytest.mark.parametrize("role", ["Prospective", "Candidate", "Leader", "Resigned"])
def test_only_who_follows_or_seeks_fetches(role: str) -> None:
    replica = Replica.in_role(role, epoch=6, log=LOG)
    replica.core.actions = []
    send_fetch(replica.core, replica.now_ms)
    assert replica.core.actions == []


def test_a_failing_leader_is_asked_in_turn_with_the_other_voters() -> None:
    """testFollowerLeaderRediscoveryAfterRequestTimeout."""
    replica = follower()
    asked = []
    for _ in range(6):
        (destination,) = replica.sent(FetchRequest)
        asked.append(destination)
        replica.fail(destination, in_flight(replica))
        replica.pass_time(CONFIG.retry_backoff_ms)
    assert asked == [2, 2, 3, 2, 3, 2]


def test_who_knows_of_no_voters_asks_its_leader_again() -> None:
    """Simulator, seed 524441841: an observer cut its log to nothing, lost its leader twice, and never fetched again."""
    replica = Replica(local=9, voter_keys=known_voters([1, 2, 3], offset=0), log=LOG, epoch=6, leader=2)
    replica.answer_fetch(diverging=position(0, 0))
    assert (replica.view, replica.core.log_end, replica.core.other_voters) == (("Follower", 6, 2), 0, ())
    asked = []
    for _ in range(5):
        (destination,) = replica.sent(FetchRequest)
        asked.append(destination)
        replica.fail(destination, in_flight(replica))
        replica.pass_time(CONFIG.retry_backoff_ms)
    assert asked == [2, 2, 2, 2, 2]


def test_the_failure_of_another_request_is_ignored() -> None:
    replica = follower()
    stale = in_flight(replica)
    replica.answer_fetch(high_watermark=3)
    replica.fail(2, stale)
    assert replica.core.fetch_in_flight is not None
    assert replica.core.fetch_retry_at_ms is None


# --- finding the leader ---------------------------------------------------------------------------------------------


def test_a_voter_without_a_leader_finds_it_by_fetching() -> None:
    """KAFKA-17030: unattached voters fetch too, else they would disturb the quorum."""
    replica = Replica.unattached(epoch=6, log=LOG)
    (destination,) = replica.sent(FetchRequest)
    assert in_flight(replica).high_watermark == -1
    replica.answer_fetch(batch(9, 11, 6), leader=destination, high_watermark=10)
    assert replica.view == ("Follower", 6, destination)
    assert replica.core.log_end == 11, "discovered and appended with one answer"
    assert [type(action) for action in replica.actions] == [
        do.SaveElectionState,
        do.ReportRole,
        do.AppendFetched,
        do.AdvanceHighWatermark,
    ]


def test_an_observer_asks_the_voters_in_turn() -> None:
    """testObserverDiscoversLeader and its siblings."""
    observer = Replica.unattached(local=9, epoch=0)
    asked = []
    for _ in range(4):
        (destination,) = observer.sent(FetchRequest)
        asked.append(destination)
        observer.answer_fetch(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=-1)
        observer.pass_time(CONFIG.retry_backoff_ms)
    assert asked == [1, 2, 3, 1]
    observer.answer_fetch(error=ErrorCode.FENCED_LEADER_EPOCH, leader=3, epoch=6)
    assert observer.view == ("Follower", 6, 3)
    assert set(observer.sent(FetchRequest)) == {3}


# --- signs of life --------------------------------------------------------------------------------------------------


def test_a_round_without_news_keeps_the_leader() -> None:
    replica = follower()
    replica.now_ms += 1_500
    replica.step(on.LeaderConfirmed(leader_id=NodeId(2), at_ms=replica.now_ms - 100))
    assert replica.core.role.fetch_deadline_ms == replica.now_ms - 100 + CONFIG.fetch_timeout_ms  # type: ignore[union-attr]
    assert not replica.pre_vote(3, 6, (9, 5)).vote_granted


def test_a_round_of_another_leader_says_nothing() -> None:
    replica = follower()
    deadline = replica.core.role.fetch_deadline_ms  # type: ignore[union-attr]
    replica.now_ms += 100
    replica.step(on.LeaderConfirmed(leader_id=NodeId(3), at_ms=replica.now_ms))
    assert replica.core.role.fetch_deadline_ms == deadline  # type: ignore[union-attr]
    unattached = Replica.unattached(epoch=6)
    unattached.step(on.LeaderConfirmed(leader_id=NodeId(3), at_ms=unattached.now_ms))
    assert unattached.role == "Unattached"


def test_a_round_from_before_the_connection_was_lost_says_nothing() -> None:
    replica = follower()
    replica.now_ms += 100
    replica.step(on.PeerUnreachable(peer=NodeId(2)))
    replica.step(on.LeaderConfirmed(leader_id=NodeId(2), at_ms=replica.now_ms - 1))
    assert replica.pass_until_role("Prospective") <= CONFIG.election_jitter_ms_max
