"""Who may stand for an election, and when."""

from __future__ import annotations

from raftkit.replica import CONFIG, Replica, key
from raftlake.raft import actions as do
from raftlake.raft import elections
from raftlake.raft import events as on
from raftlake.raft.messages import BeginQuorumEpochRequest, FetchRequest, VoteRequest


def test_a_voter_may_campaign_until_it_is_asked_to_stop() -> None:
    replica = Replica.follower(epoch=5, leader=2, log=([(5, 0)], 10))
    assert elections.may_campaign(replica.core)
    replica.step(on.ResignRequested())
    assert not elections.may_campaign(replica.core)


def test_an_observer_never_campaigns() -> None:
    replica = Replica(local=key(9))
    assert not elections.may_campaign(replica.core)
    assert not elections.campaign_is_due(replica.core, 1 << 40)


def test_a_follower_campaigns_when_its_leader_was_silent_for_a_fetch_timeout() -> None:
    replica = Replica.follower(epoch=5, leader=2, log=([(5, 0)], 10))
    deadline_ms = replica.core.next_deadline_ms()
    assert deadline_ms is not None
    assert not elections.campaign_is_due(replica.core, deadline_ms - 1)
    assert elections.campaign_is_due(replica.core, deadline_ms)
    replica.pass_until_role("Prospective")
    assert {request.pre_vote for request in replica.sent(VoteRequest).values()} == {True}


def test_a_leader_announces_itself_only_once_its_first_record_is_synced() -> None:
    """KIP-595 "Vote Response Handling" 3; also when its heartbeats are due before that, on a slow disk."""
    replica = Replica.leader(flushed=False)
    actions = replica.pass_time(CONFIG.fetch_timeout_ms)
    assert not any(isinstance(action, do.SendRequest) for action in actions)
    replica.flush()
    assert sorted(replica.sent(BeginQuorumEpochRequest)) == [2, 3]


def test_a_prospective_refused_by_its_leader_waits_for_the_others_only_shortly() -> None:
    """They may be paused; the leader lives, and may need this replica for its majority."""
    replica = Replica.prospective(epoch=6, leader=2)
    replica.answer_vote(2, granted=False, leader=2)
    assert replica.role == "Prospective", "a majority without the leader would say so now"
    replica.pass_time(CONFIG.election_jitter_ms_max)
    assert replica.view == ("Follower", 6, 2)
    assert 2 in replica.sent(FetchRequest)


def test_a_refusal_by_anybody_else_says_nothing_about_the_leader() -> None:
    replica = Replica.prospective(epoch=6, leader=2)
    replica.answer_vote(3, granted=False, leader=2)
    replica.pass_time(CONFIG.election_jitter_ms_max)
    assert replica.role == "Prospective"
