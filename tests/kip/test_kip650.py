"""KIP-650 (pre-vote, ReadOffset), sentence by sentence, and KIP-996 where it says how pre-vote was really built."""

from __future__ import annotations

import pytest

from raftkit.cluster import Cluster
from raftkit.replica import CONFIG, Replica
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft.messages import VoteRequest

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


def test_two_partitions_do_not_pass_leadership_to_and_fro() -> None:
    """KIP-996, leadershipWillNotChangeDuringNetworkPartitionIfMajorityStillReachable: links 1-3, 2-4, 3-4, 3-5, 4-5 only;
    the leader keeps its majority and nobody's pre-vote unseats it.
    """
    links = {(1, 3), (2, 4), (3, 4), (3, 5), (4, 5)}
    for seed in range(20):
        cluster = Cluster((1, 2, 3, 4, 5), seed=seed)
        cluster.start()
        cluster.await_leader()
        cluster.run(500)
        leader = cluster.leader()
        assert leader is not None
        if leader.local.id not in (3, 4):
            continue
        epoch = leader.epoch
        cluster.cut = {(a, b) for a in cluster.nodes for b in cluster.nodes if a != b and (min(a, b), max(a, b)) not in links}
        cluster.run(30_000)
        assert leader.is_leader
        assert leader.epoch == epoch
        return
    raise AssertionError("no seed elected 3 or 4")


# --- ReadOffset -----------------------------------------------------------------------------------------------------


def test_the_leader_answers_with_its_applied_offset() -> None:
    """“a separate RPC called ReadOffset shall be implemented for the non-leader node to query the current applied offset on
    the active leader's state machine for a linearizable query.” Ours also proves that it still leads (ARCHITECTURE, promise 2).
    """
    replica = Replica.leader(epoch=6)
    replica.append(4)
    replica.flush()
    replica.fetch(2, 5, 6)
    assert replica.read(1, sequence=0) is None
    replica.fetch(2, 5, 6, follows=1)
    (answer,) = replica.took(do.AnswerRead)
    assert (answer.error, answer.offset) == (ErrorCode.NONE, 5)


def test_who_does_not_lead_refuses_and_names_the_leader() -> None:
    """“there is no way to guarantee linearizable result” from “secondary copy”: only the leader answers."""
    answer = Replica.follower(epoch=6, leader=2).read(1, sequence=0)
    assert answer is not None
    assert (answer.error, answer.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


@pytest.mark.parametrize("seed", range(5))
def test_a_deposed_leader_never_answers(seed: int) -> None:
    """“the second read request [...] may not receive this message yet, so the result will show that the game hasn't stopped
    yet, which is inconsistent and a violation of linearizability.” The final score is written at the new leader; the old
    one, which does not know of it, is asked.
    """
    cluster = Cluster((1, 2, 3), seed=seed)
    cluster.start()
    old = cluster.await_leader().local.id
    cluster.run(500)
    others = [node for node in cluster.nodes if node != old]
    cluster.partition([old], others)
    cluster.run_until(lambda: any(cluster[node].is_serving_leader for node in others))
    assert cluster[old].is_leader, "it has not noticed yet"
    new = next(node for node in others if cluster[node].is_serving_leader)
    cluster.append(new, "the game is over")
    cluster.run(100)
    read_id = cluster.read(old)
    cluster.heal()
    cluster.run(10_000)
    assert cluster.nodes[old].reads[read_id].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
