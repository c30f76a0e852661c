"""Start from every state on disk, stop, campaign on request, and fast failover."""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, key, voter_set
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import EndQuorumEpochRequest, FetchRequest, VoteRequest
from raftlake.raft.types import NodeId

LOG = (((1, 0), (3, 5)), 9)


# --- start ----------------------------------------------------------------------------------------------------------


def test_no_file_and_no_log() -> None:
    """testInitializePrimordialEpoch."""
    replica = Replica()
    assert replica.view == ("Unattached", 0, -1)
    assert [type(action) for action in replica.actions] == [do.ReportRole, do.SendRequest]


def test_a_former_leader_is_resigned() -> None:
    """KAFKA-10527, testInitializeAsResignedLeaderFromStateStore: unsynced offsets may have been lost, and must not be
    given out twice in the epoch."""
    replica = Replica(epoch=6, leader=1, log=LOG)
    assert replica.view == ("Resigned", 6, -1)
    ends = replica.sent(EndQuorumEpochRequest)
    assert set(ends) == {2, 3}
    assert {end.preferred_candidates for end in ends.values()} == {()}
    assert not replica.vote(3, 6, (99, 5)).vote_granted
    assert replica.took(do.AppendLeaderChange) == []


def test_a_former_candidate_asks_for_the_same_votes() -> None:
    """testInitializeAsCandidateFromStateStore: no new bump."""
    replica = Replica(epoch=6, voted=1, log=LOG)
    assert replica.view == ("Candidate", 6, -1)
    votes = replica.sent(VoteRequest)
    assert {voter: (vote.epoch, vote.pre_vote) for voter, vote in votes.items()} == {2: (6, False), 3: (6, False)}
    assert replica.took(do.SaveElectionState) == []
    replica.answer_vote(2, granted=True)
    assert replica.view == ("Leader", 6, 1)


def test_a_vote_of_another_disk_is_not_ours() -> None:
    replica = Replica(epoch=6, voted=key(1, b"old"), directory=b"new")
    assert replica.role == "Unattached"
    assert not replica.vote(3, 6).vote_granted


def test_a_former_follower_follows() -> None:
    """testInitializeAsFollower; a vote beside the leader is kept (testInitializeVotedAndLeaderAreDifferent)."""
    replica = Replica(epoch=6, leader=2, voted=3, log=LOG)
    assert replica.view == ("Follower", 6, 2)
    assert replica.core.voted_key == key(3)
    assert set(replica.sent(FetchRequest)) == {2}


def test_a_leader_that_is_no_voter_cannot_be_followed() -> None:
    """testInitializeAsUnattachedWhenMissingEndpoints: but it is known, so nobody else gets a vote in its epoch."""
    replica = Replica(epoch=6, leader=9, log=LOG)
    assert replica.view == ("Unattached", 6, 9)
    assert not replica.vote(3, 6, (99, 5)).vote_granted


def test_a_voter_that_voted_keeps_its_vote() -> None:
    """testInitializeAsVotedNoLeader."""
    replica = Replica(epoch=6, voted=3, log=LOG)
    assert replica.view == ("Unattached", 6, -1)
    assert not replica.vote(2, 6, (99, 5)).vote_granted
    assert replica.vote(3, 6).vote_granted


@pytest.mark.parametrize(("leader", "voted"), [(1, 1), (2, None), (None, 1), (None, 3), (None, None)])
def test_a_log_that_is_ahead_of_the_file_wins(leader: int | None, voted: int | None) -> None:
    """testInitializeWithCorruptedStore: leader and vote of an older epoch mean nothing."""
    replica = Replica(epoch=2, leader=leader, voted=voted, log=LOG)
    assert replica.view == ("Unattached", 3, -1)
    assert replica.core.voted_key is None
    assert replica.saved is not None
    assert (replica.saved.epoch, replica.saved.leader_id, replica.saved.voted_key) == (3, None, None)
    assert isinstance(replica.actions[0], do.SaveElectionState)


def test_a_log_without_a_file_is_taken_at_its_word() -> None:
    assert Replica(log=LOG).view == ("Unattached", 3, -1)


@pytest.mark.parametrize(("leader", "voted"), [(None, None), (1, None), (1, 1), (None, 1), (2, None), (None, 2)])
def test_a_lone_voter_leads_the_next_epoch_at_once(leader: int | None, voted: int | None) -> None:
    """testInitializeAsOnlyVoter: whatever the file says."""
    replica = Replica(voters=(1,), epoch=6, leader=leader, voted=voted, log=LOG)
    assert replica.view == ("Leader", 7, 1)
    roles = [report.role for report in replica.took(do.ReportRole)]
    assert roles == ["Unattached", "Prospective", "Candidate", "Leader"]
    assert replica.saved is not None
    assert (replica.saved.epoch, replica.saved.leader_id) == (7, 1)


def test_a_lone_voter_that_is_to_wait_leads_when_the_wait_is_over() -> None:
    """Its disk was full when it began its epoch, and would be at once. Simulator seed 809001978 led 62 epochs in one turn."""
    replica = Replica(voters=(1,), epoch=6, log=LOG, start=False)
    replica.step(on.Started(election_delay_ms=700))
    assert replica.view == ("Unattached", 6, -1)
    assert replica.core.next_deadline_ms() == replica.now_ms + 700
    replica.pass_time(699)
    assert replica.view == ("Unattached", 6, -1)
    replica.pass_time(1)
    assert replica.view == ("Leader", 7, 1)


def test_an_observer_of_a_lone_voter_does_not_lead() -> None:
    observer = Replica(local=9, voters=(1,))
    assert observer.role == "Unattached"
    assert set(observer.sent(FetchRequest)) == {1}


def test_a_former_leader_without_a_vote_looks_for_its_successor() -> None:
    observer = Replica(local=9, epoch=6, leader=9)
    assert observer.view == ("Unattached", 6, -1)
    assert len(observer.sent(FetchRequest)) == 1


def test_a_former_candidate_without_a_vote_does_not_campaign() -> None:
    assert Replica(local=9, epoch=6, voted=9).role == "Unattached"


def test_a_voter_with_a_new_disk_is_an_observer() -> None:
    """KAFKA-14077: where the voter set names the disk, an empty one does not vote as if it had the old one."""
    voters = type(voter_set(()))({**voter_set((1, 2, 3)).voters, NodeId(1): key(1, b"old")})
    assert not Replica(voter_keys=voters, directory=b"new").core.is_voter
    assert Replica(voter_keys=voters, directory=b"old").core.is_voter


def test_the_log_found_at_start_counts_as_synced() -> None:
    replica = Replica.follower(epoch=6, log=LOG)
    assert (replica.core.flushed_end, replica.core.high_watermark) == (9, 0)
    replica = Replica(log=(((3, 4),), 9), log_start=4)
    assert (replica.core.log_start, replica.core.high_watermark) == (4, 4), "what was deleted was committed"


# --- fast failover --------------------------------------------------------------------------------------------------


def lose_leader(replica: Replica, leader: int = 2) -> None:
    replica.step(on.PeerUnreachable(peer=NodeId(leader)))


def test_a_lost_connection_to_the_leader_starts_a_pre_vote_soon() -> None:
    """Promise 4 of ARCHITECTURE.md."""
    waits = set()
    for seed in range(30):
        replica = Replica.follower(epoch=6, leader=2, seed=seed)
        replica.answer_fetch()
        lose_leader(replica)
        assert replica.role == "Follower"
        waits.add(replica.pass_until_role("Prospective"))
        assert replica.view == ("Prospective", 6, 2)
        assert replica.took(do.ReportRole)[-1].reason == "leader unreachable"
    assert min(waits) >= 1
    assert max(waits) <= CONFIG.election_jitter_ms_max
    assert len(waits) > 10


def test_pre_votes_are_granted_meanwhile() -> None:
    """Else the first to ask would be refused and wait a whole timeout."""
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch()
    assert not replica.pre_vote(3, 6).vote_granted
    lose_leader(replica)
    assert replica.pre_vote(3, 6).vote_granted


def test_a_fetch_that_succeeds_cancels_it() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch()
    lose_leader(replica)
    replica.answer_fetch()
    assert not replica.pre_vote(3, 6).vote_granted
    replica.pass_time(CONFIG.fetch_timeout_ms - 1)
    assert replica.role == "Follower"


def test_a_flood_of_reports_does_not_put_it_off() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    lose_leader(replica)
    deadline = replica.core.next_deadline_ms()
    for _ in range(5):
        lose_leader(replica)
    assert replica.core.next_deadline_ms() == deadline


def test_other_peers_do_not_matter() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch()
    lose_leader(replica, leader=3)
    assert not replica.pre_vote(3, 6).vote_granted


@pytest.mark.parametrize("role", ["Unattached", "Prospective", "Candidate", "Leader", "Resigned"])
def test_other_roles_do_not_care(role: str) -> None:
    replica = Replica.in_role(role, epoch=6)
    before = (replica.view, replica.core.next_deadline_ms())
    lose_leader(replica)
    assert replica.actions == []
    assert (replica.view, replica.core.next_deadline_ms()) == before


def test_false_alarms_get_rarer() -> None:
    """Whoever alone cannot reach the leader asks less and less often; a fetch that succeeds forgives."""
    replica = Replica.follower(epoch=6, leader=2)
    waits = []
    for _ in range(10):
        lose_leader(replica)
        waits.append(replica.pass_until_role("Prospective"))
        replica.answer_votes(granted=False)
        assert replica.role == "Follower"
    assert max(waits) > 2 * CONFIG.election_jitter_ms_max
    replica.answer_fetch()
    lose_leader(replica)
    assert replica.pass_until_role("Prospective") <= CONFIG.election_jitter_ms_max


def test_an_observer_only_fetches_on() -> None:
    observer = Replica.follower(local=9, epoch=6, leader=2)
    lose_leader(observer)
    observer.pass_time(10_000)
    assert observer.role == "Follower"


# --- campaign and resign --------------------------------------------------------------------------------------------


def test_a_campaign_on_request() -> None:
    replica = Replica()
    replica.step(on.CampaignRequested())
    assert replica.view == ("Prospective", 0, -1)
    assert set(replica.sent(VoteRequest)) == {2, 3}


@pytest.mark.parametrize("role", ["Follower", "Prospective", "Candidate", "Leader", "Resigned"])
def test_no_campaign_where_it_makes_no_sense(role: str) -> None:
    replica = Replica.in_role(role, epoch=6)
    replica.step(on.CampaignRequested())
    assert replica.actions == []


def test_no_campaign_against_a_known_leader_or_without_a_vote_or_when_stopping() -> None:
    for replica in (Replica(epoch=6, leader=9), Replica(local=9)):
        replica.step(on.CampaignRequested())
        assert replica.actions == []
    stopping = Replica()
    stopping.step(on.ResignRequested())
    stopping.step(on.CampaignRequested())
    assert stopping.actions == []


@pytest.mark.parametrize("role", ["Unattached", "Follower", "Prospective", "Candidate"])
def test_who_was_asked_to_resign_never_campaigns_again(role: str) -> None:
    replica = Replica.in_role(role, epoch=6, **({} if role != "Prospective" else {"leader": 2}))
    replica.step(on.ResignRequested())
    if role == "Follower":
        lose_leader(replica)
    replica.pass_time(60_000)
    assert replica.core.epoch == 6
    assert replica.role == {"Prospective": "Follower"}.get(role, role)
    assert replica.begin(3, 7).leader_id == 3, "it still follows"


def test_a_stopping_candidate_does_not_take_office() -> None:
    replica = Replica.candidate(epoch=6)
    replica.step(on.ResignRequested())
    replica.answer_vote(2, granted=True)
    assert replica.role == "Candidate"


def test_a_stopping_lone_voter_leads_to_the_end() -> None:
    replica = Replica(voters=(1,), epoch=5)
    replica.step(on.ResignRequested())
    assert replica.role == "Leader"


# --- observers ------------------------------------------------------------------------------------------------------


def test_an_observer_whose_leader_is_unreachable_grants_pre_votes_and_stays_quiet() -> None:
    """It may be a voter and not have heard of it: refusing for ever could leave the group without a leader."""
    replica = Replica.follower(local=9, epoch=6, leader=2)
    replica.answer_fetch()
    assert not replica.pre_vote(3, 6).vote_granted
    replica.step(on.PeerUnreachable(peer=NodeId(2)))
    assert replica.pre_vote(3, 6).vote_granted
    assert replica.view == ("Follower", 6, 2)


def test_an_observer_whose_leader_is_silent_grants_pre_votes() -> None:
    replica = Replica.follower(local=9, epoch=6, leader=2)
    replica.answer_fetch()
    replica.pass_time(CONFIG.fetch_timeout_ms - 1)
    assert not replica.pre_vote(3, 6).vote_granted
    replica.pass_time(1)
    assert replica.pre_vote(3, 6).vote_granted
    assert replica.view == ("Follower", 6, 2)
    replica.step(on.LeaderConfirmed(leader_id=NodeId(2), at_ms=replica.now_ms))
    assert not replica.pre_vote(3, 6).vote_granted
