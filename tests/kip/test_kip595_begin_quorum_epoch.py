"""KIP-595, sentence by sentence: BeginQuorumEpoch. Each docstring quotes the sentence.

Where Kafka itself moved on from the text, the docstring says "Kafka:" and the test shows Kafka's behaviour.
"""

from __future__ import annotations

import pytest

from raftkit.cluster import Cluster
from raftkit.replica import CONFIG, Replica
from raftlake.errors import ErrorCode
from raftlake.raft.messages import BeginQuorumEpochRequest, BeginQuorumEpochResponse, FetchRequest
from raftlake.raft.types import Epoch, NodeId


def test_all_voters_and_only_voters_hear_of_the_new_leader() -> None:
    """“it will send the BeginQuorumEpoch request to all voters in the quorum. [...] Note that only voters receive the
    BeginQuorumEpoch request”
    """
    replica = Replica.leader(epoch=6, flushed=False)
    replica.fetch(9, 0, 0)
    replica.flush()
    assert set(replica.sent(BeginQuorumEpochRequest)) == {2, 3}


def test_the_old_leader_names_the_new_one_in_its_fetch_answers() -> None:
    """“the old leader would return an error code in FetchQuorumRecords response indicating that it is no longer the leader
    and it will also encode the current known leader id / epoch as well, then the observers can start fetching from the
    new leader.”
    """
    old = Replica.leader(epoch=6)
    old.begin(3, 7)
    answer = old.fetch(9, 1, 6, epoch=6)
    assert answer is not None
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 3, 7)
    observer = Replica.follower(local=9, epoch=6, leader=1)
    observer.answer_fetch(error=answer.error, leader=answer.leader_id, epoch=answer.leader_epoch)
    assert observer.view == ("Follower", 7, 3)
    assert set(observer.sent(FetchRequest)) == {3}


@pytest.mark.parametrize("epoch", [6, 8])
def test_a_leader_of_the_same_or_a_later_epoch_is_accepted(epoch: int) -> None:
    """“A voter will accept a BeginQuorumEpoch if its leader epoch is greater than or equal to the current known epoch so
    long as it doesn't conflict with previous knowledge.”
    """
    replica = Replica.unattached(epoch=6)
    assert replica.begin(3, epoch).error is ErrorCode.NONE
    assert replica.view == ("Follower", epoch, 3)


def test_a_second_leader_of_an_epoch_is_rejected() -> None:
    """“if the leaderId for epoch 5 was known to be A, then a voter will reject a BeginQuorumEpoch request from a separate
    voter B from the same epoch.”
    """
    replica = Replica.follower(epoch=5, leader=2)
    assert replica.begin(3, 5).error is not ErrorCode.NONE
    assert replica.view == ("Follower", 5, 2)


def test_an_older_leader_is_rejected() -> None:
    """“If the epoch is less than the known epoch, the request is rejected.”"""
    assert Replica.follower(epoch=5).begin(3, 4).error is ErrorCode.FENCED_LEADER_EPOCH


def test_who_accepts_a_leader_follows_and_fetches() -> None:
    """“As soon as a broker accepts a BeginQuorumEpoch request, it will transition to a follower state and begin sending
    FetchQuorumRecords requests to the new leader.”
    """
    replica = Replica.candidate(epoch=6)
    replica.begin(3, 6)
    assert replica.role == "Follower"
    assert set(replica.sent(FetchRequest)) == {3}


def test_an_endorsed_leader_stops_announcing_itself() -> None:
    """“If the response contains no errors, then the leader will record the follower in memory as having endorsed the
    election. The leader will continue sending BeginQuorumEpoch to each known voter until it has received its
    endorsement.”
    """
    replica = Replica.leader(epoch=6)
    first = replica.sent(BeginQuorumEpochRequest)
    replica.fail(3, first[3])
    ok = BeginQuorumEpochResponse(error=ErrorCode.NONE, leader_id=NodeId(1), leader_epoch=Epoch(6))
    replica.respond(2, first[2], ok)
    replica.pass_time(200)
    assert set(replica.sent(BeginQuorumEpochRequest)) == {3}


def test_a_fetch_endorses_too() -> None:
    """“An endorsement from an existing voter may also be inferred through a received FetchQuorumRecords request with the
    new leader's epoch even if the BeginQuorumEpoch request was never received.”
    """
    replica = Replica.leader(epoch=6, flushed=False)
    replica.fetch(2, 0, 0)
    replica.flush()
    assert set(replica.sent(BeginQuorumEpochRequest)) == {3}


def test_a_fenced_leader_follows_the_newer_one() -> None:
    """“If the error code indicates that voter's known leader epoch is larger (i.e. if the error is FENCED_LEADER_EPOCH),
    then the voter will update quorum-state and become a follower of that leader and begin sending FetchQuorumRecords
    requests.”
    """
    replica = Replica.leader(epoch=6)
    request = replica.sent(BeginQuorumEpochRequest)[2]
    fenced = BeginQuorumEpochResponse(error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=NodeId(3), leader_epoch=Epoch(7))
    replica.respond(2, request, fenced)
    assert replica.view == ("Follower", 7, 3)
    assert replica.saved is not None
    assert (replica.saved.epoch, replica.saved.leader_id) == (7, 3)
    assert set(replica.sent(FetchRequest)) == {3}


@pytest.mark.parametrize("seed", range(4))
def test_election_results_are_known_within_a_round_trip(seed: int) -> None:
    """“As a pull-based protocol, we need a separate BeginQuorumEpoch API to do the same in order to ensure election results
    are discovered quickly.” Once the first record is synced, everybody follows within a message's way.
    """
    cluster = Cluster((1, 2, 3, 4, 5), seed=seed)
    cluster.start()
    cluster.run_until(lambda: any(node.alive.is_leader for node in cluster.nodes.values()))
    new = next(node for node in cluster.nodes.values() if node.alive.is_leader)
    took = cluster.run_until(lambda: all(node.alive.leader_id == new.id for node in cluster.nodes.values()))
    sync_ms, way_ms = cluster.timing.flush[1], cluster.timing.latency[1]
    assert took <= sync_ms + way_ms


def test_observers_find_the_leader_by_fetching() -> None:
    """“observers will discover the new leader through either the FindQuorum or FetchQuorumRecords APIs.” Kafka: through Fetch;
    FindQuorum is here for clients and tools.
    """
    observer = Replica(local=9, epoch=6)
    ((asked, request),) = observer.sent(FetchRequest).items()
    observer.answer_fetch(error=ErrorCode.FENCED_LEADER_EPOCH, leader=3, epoch=7, source=asked, request=request)
    assert observer.view == ("Follower", 7, 3)
    assert set(observer.sent(FetchRequest)) == {3}


def test_observers_ask_others_where_the_old_leader_knows_nobody() -> None:
    """“In case the old leader does not know who's the new leader, observers can still fallback to FindQuorum request to
    discover the new leader.” Kafka: to a Fetch at another voter.
    """
    observer = Replica.follower(local=9, epoch=6, leader=1)
    observer.answer_fetch(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=-1)
    asked = []
    for _ in range(4):
        observer.pass_time(CONFIG.retry_backoff_ms)
        (peer,) = observer.sent(FetchRequest)
        asked.append(peer)
        observer.answer_fetch(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=-1, source=peer)
    assert set(asked) == {1, 2, 3}


@pytest.mark.parametrize("seed", range(3))
def test_a_voter_that_comes_back_hears_of_the_leader_soon(seed: int) -> None:
    """“This ensures that a voter that is partitioned from the network will be able to discover the leader quickly after the
    partition is restored.”
    """
    cluster = Cluster((1, 2, 3, 4, 5), seed=seed)
    cluster.start()
    old = cluster.await_leader().local.id
    away = next(node for node in cluster.nodes if node != old)
    cluster.partition([away], [node for node in cluster.nodes if node != away])
    cluster.crash(old)
    new = cluster.await_leader().local.id
    cluster.run(10_000)
    cluster.heal()
    assert cluster.run_until(lambda: cluster[away].leader_id == new) <= CONFIG.retry_backoff_ms_max + 1
