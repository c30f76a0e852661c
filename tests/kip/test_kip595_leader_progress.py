"""KIP-595, sentence by sentence: the leader progress timeout. Each docstring quotes the sentence.

Where Kafka itself moved on from the text, the docstring says "Kafka:" and the test shows Kafka's behaviour.
"""

from __future__ import annotations

import pytest

from raftkit.cluster import Cluster
from raftkit.replica import CONFIG, Replica
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft.messages import VoteRequest


def test_a_zombie_leader_steps_down() -> None:
    """“if the leader did not receive Fetch requests from a majority of the quorum for that amount of time, it would begin a
    new election and start sending VoteRequest to voter nodes in the cluster to understand the latest quorum.” Kafka: after
    1.5 x quorum.fetch.timeout.ms it resigns without a new epoch, then asks by pre-votes.
    """
    replica = Replica.leader(epoch=6)
    replica.pass_time(CONFIG.check_quorum_timeout_ms)
    assert replica.role == "Resigned"
    replica.pass_until_role("Prospective")
    assert set(replica.sent(VoteRequest)) == {2, 3}


def test_a_zombie_leader_follows_the_newer_one() -> None:
    """“And if the returned response includes a newer epoch leader, this zombie leader would step down and becomes a
    follower.”
    """
    replica = Replica.leader(epoch=6)
    replica.pass_until_role("Prospective")
    replica.answer_vote(2, granted=False, error=ErrorCode.FENCED_LEADER_EPOCH, leader=3, epoch=8)
    assert replica.view == ("Follower", 8, 3)


def test_a_leader_without_any_voter_does_not_bump_its_epoch_for_ever() -> None:
    """“If it couldn't connect to any known voter, the old leader shall keep starting new elections and bump the epoch.” Kafka:
    it keeps asking for pre-votes; the epoch rises once, to leave the one that it led.
    """
    replica = Replica.leader(epoch=6)
    rounds = 0
    for _ in range(10):
        replica.pass_until_role("Prospective")
        rounds += 1
        for peer, asked in replica.sent(VoteRequest).items():
            replica.fail(peer, asked)
        replica.pass_until_role("Unattached")
    assert (rounds, replica.core.epoch) == (10, 7)


@pytest.mark.parametrize("seed", range(3))
def test_a_zombie_asks_until_it_is_answered(seed: int) -> None:
    """“Note that the node will remain a candidate until it finds that it has been supplanted by another voter, or win the
    election eventually.” Kafka: in rounds of pre-votes.
    """
    cluster = Cluster((1, 2, 3), seed=seed)
    cluster.start()
    old = cluster.await_leader().local.id
    others = [node for node in cluster.nodes if node != old]
    cluster.partition([old], others)
    cluster.run(60_000)
    assert cluster[old].role_name in ("Prospective", "Unattached")
    cluster.heal()
    cluster.run(5_000)
    leader = cluster.leader()
    assert leader is not None
    assert cluster[old].leader_id == leader.local.id


def test_a_zombie_leader_does_not_keep_bumping_its_epoch() -> None:
    """“The partitioned leader will keep increasing its epoch, and when it eventually reconnects to the quorum, it could win
    the election with a very large epoch number” - the flaw that pre-vote removes: one bump, to leave its own epoch.
    """
    cluster = Cluster((1, 2, 3), seed=4)
    cluster.start()
    old = cluster.await_leader().local.id
    cluster.run(500)
    epoch = cluster[old].epoch
    cluster.partition([old], [node for node in cluster.nodes if node != old])
    cluster.run(60_000)
    assert cluster[old].epoch == epoch + 1
    cluster.heal()
    cluster.run(10_000)
    assert len({cluster[node].epoch for node in cluster.nodes}) == 1


def test_a_zombie_leader_serves_nothing_stale() -> None:
    """“This could lead to stale information being served to the observers and clients inside the cluster.” Cut off, it answers
    no read, and soon no fetch either.
    """
    replica = Replica.leader(epoch=6)
    replica.commit_epoch_start()
    assert replica.read(1, sequence=5) is None
    replica.pass_time(CONFIG.check_quorum_timeout_ms)
    assert [answer.error for answer in replica.took(do.AnswerRead)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    answer = replica.fetch(9, 1, 6)
    assert answer is not None
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
