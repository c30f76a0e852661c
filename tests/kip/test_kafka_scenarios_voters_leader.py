"""Kafka's own scenarios of counting by changing voters (KIP-853): majorities, directories, and replicas that are no voters.

From LeaderStateTest, KafkaRaftClientTest, KafkaRaftClientReconfigTest and KafkaRaftClientAutoJoinTest of Kafka 4.3.1.
"""

from __future__ import annotations

from raftkit.cluster import Cluster
from raftkit.replica import CONFIG, Replica, key
from raftkit.voters import EPOCH, add, batch_with_voters, commit, disk_key, fetch, known_voters, leader, remove
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.types import NO_VOTERS, NodeId
from raftlake.raft.voters import VoterHistory

# --- counting by the new set (LeaderStateTest)


def test_high_watermark_does_increase_from_new_voter() -> None:
    """LeaderStateTest.testHighWatermarkDoesIncreaseFromNewVoter."""
    replica = leader(1, 2)
    fetch(replica, 3)
    replica.change_voters(add(3))
    replica.flush()
    fetch(replica, 3)
    assert replica.core.high_watermark == 4, "1 and 3 are a majority"


def test_high_watermark_does_not_decrease_from_new_voter() -> None:
    """LeaderStateTest.testHighWatermarkDoesNotDecreaseFromNewVoter: the new voter is not asked before it caught up, but a
    record may come in between."""
    replica = leader(1, 2)
    fetch(replica, 3)
    replica.append(10)
    commit(replica, 2)
    assert replica.core.high_watermark == 13
    replica.change_voters(add(3))
    fetch(replica, 3, 3)
    assert replica.core.high_watermark == 13


def test_update_high_watermark_removing_follower_from_voter_states() -> None:
    """LeaderStateTest.testUpdateHighWatermarkRemovingFollowerFromVoterStates."""
    replica = leader(1, 2, 3, 4, 5)
    replica.append(1)
    replica.flush()
    fetch(replica, 2)
    assert replica.core.high_watermark == 3, "1 and 2 of five"
    replica.change_voters(remove(5))
    replica.flush()
    fetch(replica, 2)
    fetch(replica, 3, 4)
    assert replica.core.high_watermark == 4, "1, 2 and 3 of four have the record, the removal only 1 and 2"


def test_update_high_watermark_quorum_removing_leader_from_voter_states() -> None:
    """LeaderStateTest.testUpdateHighWatermarkQuorumRemovingLeaderFromVoterStates."""
    replica = leader(1, 2, 3)
    replica.append(1)
    replica.flush()
    replica.change_voters(remove(1))
    replica.flush()
    fetch(replica, 2)
    assert replica.core.high_watermark == 3
    fetch(replica, 3, 4)
    assert replica.core.high_watermark == 4


def test_check_quorum_after_voter_set_changes() -> None:
    """LeaderStateTest.testCheckQuorumAfterVoterSetChanges: a voter that came counts at once, one that went no longer."""
    replica = leader(1, 2, 3)
    fetch(replica, 3)
    replica.change_voters(remove(2))
    commit(replica, 3)
    for _ in range(5):
        replica.now_ms += CONFIG.check_quorum_timeout_ms // 4
        fetch(replica, 2)
        replica.step(on.DeadlineReached())
    assert replica.role == "Resigned", "only 2 has fetched, which is no voter any more"


def test_check_quorum_of_a_lone_leader_that_gets_company() -> None:
    """Ours: from then on it needs the other one."""
    replica = Replica(epoch=EPOCH - 1, directory=disk_key(1).directory_id, voter_keys=known_voters((1,)))
    replica.flush()
    fetch(replica, 2)
    replica.change_voters(add(2))
    replica.pass_time(CONFIG.check_quorum_timeout_ms + 1)
    assert replica.role == "Resigned"


def test_reads_of_a_leader_that_removed_itself_need_the_new_majority() -> None:
    """Ours: its own word is no proof any more (promise 2)."""
    replica = leader(1, 2, 3)
    replica.change_voters(remove(1))
    assert replica.read(1, sequence=5) is None
    replica.fetch(disk_key(2), 3, EPOCH, follows=6)
    assert replica.took(do.AnswerRead) == []
    replica.fetch(disk_key(3), 3, EPOCH, follows=6)
    assert [answer.error for answer in replica.took(do.AnswerRead)] == [ErrorCode.NONE]


# --- directories


def test_a_voters_number_on_another_disk_is_an_observer() -> None:
    """KAFKA-14077: what it fetches counts for nothing, nor does it keep the leader in office."""
    replica = leader(1, 2, 3)
    fetch(replica, 3)
    replica.append(1)
    replica.flush()
    replica.fetch(key(2, b"new disk"), 4, EPOCH)
    assert replica.core.high_watermark == 3
    statuses = {(status.key.directory_id, status.is_voter) for status in replica.core.replica_progress() if status.key.id == 2}
    assert statuses == {(disk_key(2).directory_id, True), (key(2, b"new disk").directory_id, False)}
    replica.step(on.ReplicaConfirmed(replica_id=NodeId(2), at_ms=replica.now_ms, follows=1, leader_epoch=replica.core.epoch))
    new = next(status for status in replica.core.replica_progress() if status.key == key(2, b"new disk"))
    assert new.last_fetch_ms == replica.now_ms


def test_invalid_voter_replica_vote_request() -> None:
    """KafkaRaftClientTest.testInvalidVoterReplicaVoteRequest: Scenario 18 with directories: a vote that was meant for the disk
    before ours."""
    replica = Replica.unattached(epoch=5, directory=disk_key(1).directory_id, voter_keys=known_voters((1, 2, 3)))
    answer = replica.vote(disk_key(2), 6, (9, 5), voter=1, directory=key(1, b"old disk").directory_id)
    assert (answer.error, answer.vote_granted, replica.core.epoch) == (ErrorCode.INVALID_VOTER_KEY, False, 6)
    answer = replica.vote(disk_key(2), 6, (9, 5), voter=1, directory=disk_key(1).directory_id)
    assert answer.vote_granted and replica.core.voted_key == disk_key(2)
    assert not replica.vote(key(2, b"new disk"), 6, (9, 5)).vote_granted, "another disk is another candidate"


def test_a_vote_may_go_to_a_voter_that_our_log_does_not_know() -> None:
    """KIP-853: our copy of the log may be older than the candidate's. Static voters have nobody to expect."""
    replica = Replica.unattached(epoch=5, directory=disk_key(1).directory_id, voter_keys=known_voters((1, 2, 3)))
    assert replica.vote(disk_key(9), 6, (9, 5)).vote_granted
    assert not Replica.unattached(epoch=5).vote(disk_key(9), 6, (9, 5)).vote_granted


# --- who is no voter


def test_observer_discovers_leader_with_unknown_voters() -> None:
    """KafkaRaftClientReconfigTest.testObserverDiscoversLeaderWithUnknownVoters: a node that knows nobody asks the addresses
    that it was given, and then the leader that these name."""
    nobody = VoterHistory(NO_VOTERS)
    replica = Replica(local=9, directory=disk_key(9).directory_id, voter_keys=nobody, bootstrap=(-2, -3))
    assert replica.core.fetch_peer == -2 and replica.role == "Unattached"
    replica.answer_fetch(error=ErrorCode.FENCED_LEADER_EPOCH, leader=3, epoch=5)
    assert replica.view == ("Follower", 5, 3) and replica.core.fetch_peer == 3
    replica.answer_fetch(batch_with_voters(0, 3, (1, 2, 3)), source=3, leader=3, epoch=5)
    assert replica.core.other_voters == (1, 2, 3)
    replica.pass_time(20_000)
    assert replica.role == "Follower", "an observer never stands"


def test_observer_asks_the_next_address_when_one_is_silent() -> None:
    """Ours: an address that does not answer keeps it from nothing."""
    nobody = VoterHistory(NO_VOTERS)
    replica = Replica(local=9, directory=disk_key(9).directory_id, voter_keys=nobody, bootstrap=(-2, -3))
    in_flight = replica.core.fetch_in_flight
    assert in_flight is not None
    replica.fail(-2, in_flight)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert replica.core.fetch_peer == -3


def test_a_removed_voter_still_finds_later_leaders() -> None:
    """KAFKA-17030: it goes on fetching, from leaders too that its log does not know, and disturbs nobody."""
    cluster = Cluster((1, 2, 3, 4), voters=3, directories=True)
    cluster.start()
    first = cluster.await_leader().local.id
    cluster.run(3_000)
    removed = next(node_id for node_id in (1, 2, 3) if node_id != first)
    request = cluster.remove_voter(first, removed)
    cluster.run(3_000)
    assert cluster.nodes[first].changes[request].error is ErrorCode.NONE
    request = cluster.add_voter(first, 4)
    cluster.run(3_000)
    assert cluster.nodes[first].changes[request].error is ErrorCode.NONE
    epoch = cluster[first].epoch
    cluster.run(20_000)
    assert cluster[first].epoch == epoch, "nobody was disturbed"
    cluster.crash(first)
    second = cluster.await_leader().local.id
    end = cluster.append(second, "after")
    cluster.run(3_000)
    assert cluster[removed].high_watermark == end and cluster[removed].role_name == "Follower"


def test_observer_removes_old_voter_and_auto_joins() -> None:
    """KafkaRaftClientAutoJoinTest.testObserverRemovesOldVoterAndAutoJoins: KafkaRaftClientAutoJoinTest: a wiped node is
    another replica; the old one goes, the new one comes."""
    cluster = Cluster((1, 2, 3), directories=True)
    cluster.start()
    leading = cluster.await_leader().local.id
    cluster.run(3_000)
    wiped = next(node_id for node_id in (1, 2, 3) if node_id != leading)
    cluster.crash(wiped)
    cluster.wipe(wiped)
    cluster.start(wiped)
    cluster.run(3_000)
    assert not cluster[wiped].is_voter and cluster[wiped].log_end == cluster[leading].log_end
    requests = [cluster.remove_voter(leading, wiped)]
    cluster.run(1_000)
    requests.append(cluster.add_voter(leading, wiped))
    cluster.run(1_000)
    assert [cluster.nodes[leading].changes[request].error for request in requests] == [ErrorCode.NONE] * 2
    assert cluster[wiped].is_voter and cluster[wiped].voters.ids == (1, 2, 3)


def test_a_leader_of_two_that_removes_itself_and_crashes_comes_back_to_finish() -> None:
    """Ours: only it has the removal, so the one that stays can neither win without it nor be told by anybody else (a lone
    follower's log is behind); it may stand until it sees the removal committed. Kafka's quorum would wait for ever."""
    cluster = Cluster((1, 2), directories=True)
    cluster.start()
    leading = int(cluster.await_leader().local.id)
    other = 3 - leading
    cluster.run(3_000)
    cluster.partition([1], [2])
    cluster.remove_voter(leading, leading)
    cluster.run(5)
    assert cluster.nodes[NodeId(leading)].disk.batches[-1].voters is not None, "it is on its disk"
    cluster.crash(leading)
    cluster.heal()
    cluster.start(leading)
    cluster.run_until(lambda: cluster[other].is_serving_leader, 20_000)
    assert cluster[other].voters.ids == (other,)
    cluster.run(5_000)
    assert cluster[leading].role_name == "Follower" and cluster[leading].log_end == cluster[other].log_end
