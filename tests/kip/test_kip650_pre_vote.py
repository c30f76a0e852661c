"""KIP-650, sentence by sentence: pre-vote, with KIP-996 where it says how that was really built.

Each docstring quotes the sentence of KIP-650.
"""

from __future__ import annotations

import importlib

import pytest

from raftkit.cluster import Cluster
from raftkit.node import Node
from raftkit.replica import CONFIG, Replica
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft.messages import Request, Response, VoteRequest
from raftlake.raft.types import EPOCH_MAX

# --- pre-vote -------------------------------------------------------------------------------------------------------


def test_a_candidate_first_asks_all_known_voters() -> None:
    """“the candidate will try to send out a request to all the known voters and ask whether they would vote for it.”"""
    replica = Replica.prospective(epoch=6, voters=(1, 2, 3, 4, 5))
    votes = replica.sent(VoteRequest)
    assert set(votes) == {2, 3, 4, 5}
    assert all(vote.pre_vote for vote in votes.values())


def test_a_rejected_candidate_retries_without_bumping_the_epoch() -> None:
    """“If rejected, the candidate will keep retrying to send out pre-vote requests without bumping the epoch, or disturbing
    the quorum.”
    """
    replica = Replica.prospective(epoch=6)
    for _ in range(5):
        replica.answer_votes(granted=False)
        assert replica.took(do.SaveElectionState) == []
        replica.pass_until_role("Prospective")
    assert replica.core.epoch == 6


def test_pre_votes_are_answered_like_votes() -> None:
    """“the Raft node will respond with either an approval or reject to the pre-vote request in the same way as responding
    to the normal vote request.” KIP-996: but an approval is no vote.
    """
    replica = Replica.unattached(epoch=6, log=(((1, 0), (3, 5)), 9))
    assert replica.pre_vote(3, 6, (9, 3)).vote_granted
    assert not replica.pre_vote(3, 6, (8, 3)).vote_granted
    assert replica.core.voted_key is None


def test_a_majority_of_pre_votes_starts_the_actual_vote() -> None:
    """“When it gets the majority of pre-votes approved, the candidate will proceed to the actual vote.”"""
    replica = Replica.prospective(epoch=6, voters=(1, 2, 3, 4, 5))
    replica.answer_vote(4, granted=True)
    assert replica.role == "Prospective"
    replica.answer_vote(2, granted=True)
    assert replica.view == ("Candidate", 7, -1)
    assert not any(vote.pre_vote for vote in replica.sent(VoteRequest).values())


def test_a_failed_pre_vote_times_out_to_another_round() -> None:
    """“If pre-vote fails, the active candidate will not continue to attempt to do the actual vote, instead it will timeout
    again to start another round of pre-vote candidate, which will not disrupt the live quorum.”
    """
    replica = Replica.prospective(epoch=6)
    replica.answer_votes(granted=False)
    waited = replica.pass_until_role("Prospective")
    assert CONFIG.election_timeout_ms <= waited < 2 * CONFIG.election_timeout_ms
    assert all(vote.pre_vote for vote in replica.sent(VoteRequest).values())
    assert replica.core.epoch == 6


@pytest.mark.parametrize("seed", range(5))
def test_a_zombie_that_reconnects_does_not_disrupt_the_quorum(seed: int) -> None:
    """“Until it eventually reconnects to the quorum, the zombie leader will repeatedly bump its epoch due to election
    timeout. The consequence is that the zombie leader will gain a much higher epoch than other voters inside the quorum
    and disrupt the quorum” - a follower that was cut off comes back without costing the leader its epoch.
    """
    cluster = Cluster((1, 2, 3), seed=seed)
    cluster.start()
    leader = cluster.await_leader()
    cluster.run(500)
    epoch, zombie = leader.epoch, leader.other_voters[0]
    cluster.partition([zombie], [node for node in cluster.nodes if node != zombie])
    cluster.run(30_000)
    assert cluster[zombie].epoch == epoch
    cluster.heal()
    cluster.run(10_000)
    assert [cluster[node].epoch for node in cluster.nodes] == [epoch] * 3
    assert leader.is_leader


def test_a_removed_voter_does_not_disrupt_the_quorum() -> None:
    """“During quorum reassignment, the removed voters could also try to start election to ask active leader to step down” -
    one that is no voter is refused by those who fetch, and here by everyone.
    """
    follower = Replica.follower(epoch=6, leader=2)
    follower.answer_fetch()
    assert not follower.pre_vote(9, 6, (99, 6)).vote_granted
    assert follower.view == ("Follower", 6, 2)
    leader = Replica.leader(epoch=6)
    assert not leader.pre_vote(9, 6, (99, 6)).vote_granted
    assert leader.core.is_leader


# --- why ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_without_followers_finds_out_how_things_stand(seed: int) -> None:
    """“We implemented the progress timeout in KIP-595, so that when a majority of voters are not fetching from the leader, the
    current leader will start election to reach out to other followers to re-establish the leadership or learn about the new
    leader.” Everybody is cut off from everybody; afterwards there is one leader, and it is known.
    """
    cluster = Cluster((1, 2, 3), seed=seed)
    cluster.start()
    old = cluster.await_leader()
    epoch = old.epoch
    cluster.partition(*([node] for node in cluster.nodes))
    cluster.run(30_000)
    assert cluster.leader() is None
    assert max(cluster[node].epoch for node in cluster.nodes) == epoch + 1
    cluster.heal()
    leader = cluster.await_leader(limit_ms=5_000)
    cluster.run(2_000)
    assert {cluster[node].leader_id for node in cluster.nodes} == {leader.local.id}


def test_epochs_do_not_run_out() -> None:
    """“Furthermore, the rapid bumping of the epoch increases the chance of epoch overflow, which is very dangerous in the Kafka
    Raft as we have been using uint32 for epoch due to historical message formats, compared with using uint64.” An hour of
    failing costs no epoch; and an epoch that could not be bumped any more is refused.
    """
    replica = Replica.prospective(epoch=6)
    until_ms = replica.now_ms + 3_600_000
    while replica.now_ms < until_ms:
        for voter, request in replica.sent(VoteRequest).items():
            replica.fail(voter, request)
        replica.pass_until_role("Unattached")
        replica.pass_until_role("Prospective")
    assert replica.core.epoch == 6
    voter = Replica.unattached(epoch=6)
    assert voter.vote(3, EPOCH_MAX + 1, (99, 6)).error is ErrorCode.INVALID_REQUEST
    assert voter.begin(3, EPOCH_MAX + 1).error is ErrorCode.INVALID_REQUEST
    assert voter.core.epoch == 6


@pytest.mark.parametrize("seed", range(3))
def test_a_zombie_costs_no_availability(seed: int) -> None:
    """“Overall this reduces the availability drop caused by a zombie node election.” While a cut-off voter comes back, appends
    commit as fast as ever.
    """
    cluster = Cluster((1, 2, 3), seed=seed)
    cluster.start()
    leader = cluster.await_leader()
    cluster.run(500)
    zombie = leader.other_voters[0]
    cluster.partition([zombie], [node for node in cluster.nodes if node != zombie])
    cluster.run(20_000)
    cluster.heal()
    for value in range(300):
        end = cluster.append(leader.local.id, value)
        assert cluster.run_until(lambda end=end: leader.high_watermark >= end) <= 5  # type: ignore[misc]
        cluster.run(10)
    assert cluster[zombie].high_watermark == leader.high_watermark


def test_the_vote_request_says_whether_it_is_a_pre_vote() -> None:
    """“Suggest whether given request is a pre-vote” Kafka: from version 2; version 1 became directory ids."""
    for version, known in [(0, False), (1, False), (2, True)]:
        schema = importlib.import_module(f"kio.schema.vote.v{version}.request")
        assert ("pre_vote" in schema.PartitionData.__slots__) == known
    pre_vote, vote = Replica.prospective(epoch=6), Replica.candidate(epoch=6)
    assert {pre_vote.vote_in_flight(2).pre_vote, vote.vote_in_flight(2).pre_vote} == {True, False}


@pytest.mark.parametrize("seed", range(4))
def test_no_vote_without_a_pre_vote(seed: int) -> None:
    """“Each candidate node will first attempt to send pre-votes to the known quorum members.”"""

    class Watched(Cluster):
        pre_voted: set[tuple[int, int]]

        def on_delivery(self, source: Node, destination: Node, message: Request | Response) -> None:
            if isinstance(message, VoteRequest):
                if message.pre_vote:
                    self.pre_voted.add((source.id, message.epoch))
                else:
                    assert (source.id, message.epoch - 1) in self.pre_voted
                    self.votes += 1

        votes = 0

    cluster = Watched((1, 2, 3), seed=seed)
    cluster.pre_voted = set()
    cluster.start()
    for _ in range(5):
        leader = cluster.await_leader().local.id
        cluster.crash(leader, noticed=False)
        cluster.run(100)
        cluster.start(leader)
        cluster.run(6_000)
    assert cluster.votes >= 5


def test_failed_elections_are_not_counted() -> None:
    """“We may implement a config to constrain number of failed elections for a candidate before self shutting
    down” [...]: There is none: after a hundred failures the next attempt is like the first.
    """
    replica = Replica.prospective(epoch=6)
    for _ in range(100):
        replica.answer_votes(granted=False)
        assert replica.pass_until_role("Prospective") < 2 * CONFIG.election_timeout_ms
    replica.answer_vote(3, granted=True)
    assert replica.view == ("Candidate", 7, -1)
