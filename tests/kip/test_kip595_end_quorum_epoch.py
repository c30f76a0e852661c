"""KIP-595, sentence by sentence: EndQuorumEpoch. Each docstring quotes the sentence.

Where Kafka itself moved on from the text, the docstring says "Kafka:" and the test shows Kafka's behaviour.
"""

from __future__ import annotations

from dataclasses import fields

import pytest

from raftkit.cluster import Cluster
from raftkit.replica import CONFIG, Replica
from raftkit.voters import commit, remove
from raftkit.voters import leader as leader_of_logged_voters
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import ControlRpc, GroupId, PeerRpc
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import EndQuorumEpochRequest, EndQuorumEpochResponse, VoteRequest
from raftlake.raft.types import Epoch, NodeId
from replica_cluster import Cluster as NodeCluster


def test_a_leader_that_stops_tells_all_voters_its_successors_in_order() -> None:
    """“The EndQuorumEpochRequest will be sent to all voters in the quorum. Inside each request, leader will define the list
    of preferred successors sorted by each voter's current replicated offset in descending order.”
    """
    replica = Replica.leader(epoch=6, voters=(1, 2, 3, 4))
    replica.fetch(4, 1, 6)
    replica.fetch(3, 0, 0)
    replica.step(on.ResignRequested())
    ends = replica.sent(EndQuorumEpochRequest)
    assert set(ends) == {2, 3, 4}
    assert {tuple(successor.id for successor in end.preferred_candidates) for end in ends.values()} == {(4, 3, 2)}


def test_a_candidate_that_stops_sends_nothing() -> None:
    """“If the shutting down voter is either an active current leader or a candidate if there is an election in progress,
    then this request will be sent.” Kafka: leaders only; a candidate just never takes office.
    """
    replica = Replica.candidate(epoch=6)
    replica.step(on.ResignRequested())
    assert replica.actions == []


def test_the_first_successor_starts_at_once() -> None:
    """“If the node's priority is highest, it will become candidate immediately instead of waiting for next poll.” (Kafka:
    prospective, with a pre-vote first.)
    """
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch()
    replica.end(2, 6, [1, 3])
    assert replica.view == ("Candidate", 7, -1)


def test_later_successors_wait_exponentially_by_rank() -> None:
    """“For a successor with priority N > 0, the next election timeout will be computed as: [...] MIN(retryBackOffMaxMs,
    retryBackoffMs * 2^(N - 1)) where the retryBackOffMaxMs is currently hard coded as one second.” Kafka: the base is
    max >> (successors - 1).
    """
    waits = []
    for rank in (1, 2, 3):
        successors = [2, 3, 4]
        successors.insert(rank, 1)
        replica = Replica.follower(epoch=6, leader=5, voters=(1, 2, 3, 4, 5))
        replica.end(5, 6, successors)
        waits.append(replica.pass_until_role("Prospective"))
    base = CONFIG.retry_backoff_ms_max >> 3
    assert waits == [base, 2 * base, 4 * base]


def test_an_older_end_is_rejected() -> None:
    """“the voter checks if the epoch from the request is greater than or equal to its last known epoch. If the epoch is
    smaller than the last known epoch, or the leader id is not known for this epoch, the request is rejected.” Kafka: an
    unknown leader is learned.
    """
    assert Replica.follower(epoch=6).end(2, 5).error is ErrorCode.FENCED_LEADER_EPOCH
    replica = Replica.unattached(epoch=6)
    assert replica.end(2, 6, [3, 1]).error is ErrorCode.NONE
    assert replica.view == ("Follower", 6, 2)


def test_who_is_not_among_the_successors_waits_longest() -> None:
    """“Then the voter will check whether it is inside the given preferred successors. If not, return
    INCONSISTENT_VOTER_SET.” Kafka: no code path returns that error; it waits for the whole backoff.
    """
    replica = Replica.follower(epoch=6, leader=2)
    assert replica.end(2, 6, [3]).error is ErrorCode.NONE
    assert replica.pass_until_role("Prospective") == CONFIG.retry_backoff_ms_max


def test_a_resigned_leader_hears_of_a_newer_one() -> None:
    """“if the error code indicates there's already higher epoch leader already [...] then updating its quorum-state file
    while transiting to follower state.”
    """
    replica = Replica.resigned(epoch=6)
    request = replica.sent(EndQuorumEpochRequest)[2]
    fenced = EndQuorumEpochResponse(error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=NodeId(3), leader_epoch=Epoch(7))
    replica.respond(2, request, fenced)
    assert replica.view == ("Follower", 7, 3)
    assert replica.saved is not None
    assert replica.saved.leader_id == 3


@pytest.mark.parametrize("seed", range(4))
def test_a_leader_that_steps_down_is_replaced_at_once(seed: int) -> None:
    """“The EndQuorumEpoch API is used by a leader to gracefully step down so that an election can be held immediately without
    waiting for the election timeout.”
    """
    cluster = Cluster((1, 2, 3), seed=seed)
    cluster.start()
    old = cluster.await_leader().local.id
    cluster.run(500)
    cluster.nodes[old].step(on.ResignRequested())
    took = cluster.run_until(lambda: (leader := cluster.leader()) is not None and leader.local.id != old)
    assert took <= 20 < CONFIG.election_timeout_ms


def test_a_graceful_shutdown_ends_the_epochs_that_are_led() -> None:
    """“The primary use case for this is to enable graceful shutdown.”"""
    cluster = NodeCluster()
    cluster.create_topic("many", 6)
    cluster.run(1_000)
    stopping = cluster.leader()
    led = [group for group, partition in stopping.partitions.items() if partition.core.is_leader]
    ended: list[GroupId] = []

    def spy(source: NodeId, peer: NodeId, rpc: PeerRpc) -> None:
        if isinstance(rpc, ControlRpc):
            ended.extend(part.group for part in rpc.messages if isinstance(part.body, EndQuorumEpochRequest))

    cluster.overhear(spy)
    stopping.resign()
    cluster.run(300, until=stopping.handover.is_drained)
    assert set(ended) == set(led) != set()


@pytest.mark.parametrize("seed", range(6))
def test_the_most_caught_up_voter_succeeds(seed: int) -> None:
    """“Based on the priority of the preferred successors, each voter will choose the corresponding delayed election time so
    that the most up-to-date voter has a higher chance to be elected.”
    """
    cluster = Cluster((1, 2, 3), seed=seed)
    cluster.start()
    old = cluster.await_leader()
    cluster.run(500)
    near, far = old.other_voters if seed % 2 else reversed(old.other_voters)
    cluster.partition([old.local.id, near], [far])
    cluster.append(old.local.id, "a", "b")
    cluster.run(50)
    cluster.heal()
    cluster.nodes[old.local.id].step(on.ResignRequested())
    cluster.run_until(lambda: cluster[near].is_leader)
    assert cluster[far].log_end < cluster[near].log_end


def test_the_sender_is_the_leader() -> None:
    """“Note that LeaderId and ReplicaId will be the same if the leader has been voted. If the replica is a candidate in a
    current election, then LeaderId will be -1.” Kafka: there is no ReplicaId, and candidates send none.
    """
    replica = Replica.leader(epoch=6)
    replica.step(on.ResignRequested())
    assert {end.leader_id for end in replica.sent(EndQuorumEpochRequest).values()} == {1}
    assert "replica_id" not in {field.name for field in fields(EndQuorumEpochRequest)}
    assert Replica.follower(epoch=6).end(-1, 6, [1]).error is ErrorCode.INVALID_REQUEST


def test_only_a_valid_end_starts_a_campaign() -> None:
    """“If both validation pass, the voter can transit to candidate state immediately if it is first at the list.” (Kafka: to
    prospective.)
    """
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch()
    for leader, epoch in [(2, 5), (3, 6), (1, 6)]:
        assert replica.end(leader, epoch, [1, 3]).error is not ErrorCode.NONE
        assert replica.view == ("Follower", 6, 2)
    assert replica.end(2, 6, [1, 3]).error is ErrorCode.NONE
    assert replica.view == ("Candidate", 7, -1)


def test_a_successor_that_comes_sooner_ends_the_wait() -> None:
    """“Otherwise it will wait for a computed back-off timeout to start election as stated in previous section.”"""
    replica = Replica.follower(epoch=6, leader=2)
    replica.end(2, 6, [3, 1])
    replica.pass_time((CONFIG.retry_backoff_ms_max >> 1) - 1)
    assert replica.role == "Follower"
    replica.begin(3, 7)
    replica.pass_time(1)
    assert replica.view == ("Follower", 7, 3)


def test_the_state_is_saved_before_votes_are_collected() -> None:
    """“Before beginning to collect voters, the voter must update the quorum-state file.”"""
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch()
    replica.end(2, 6, [1, 3])
    assert not any(vote.pre_vote for vote in replica.sent(VoteRequest).values())
    kinds = [type(action) for action in replica.actions]
    assert kinds.index(do.SaveElectionState) < kinds.index(do.SendRequest)


def test_an_acknowledged_end_asks_for_nothing() -> None:
    """“If there's no error code, then do nothing.”"""
    replica = Replica.resigned(epoch=6)
    request = replica.sent(EndQuorumEpochRequest)[2]
    ok = EndQuorumEpochResponse(error=ErrorCode.NONE, leader_id=NodeId(1), leader_epoch=Epoch(6))
    assert replica.respond(2, request, ok) == []
    assert replica.view == ("Resigned", 6, -1)


def test_nobody_waits_for_voters_that_cannot_be_reached() -> None:
    """“The leader treats this as a best-effort graceful shutdown. If voters cannot be reached to send EndQuorumEpoch, the
    leader will shutdown without retrying.” Kafka: it asks again for as long as it is still there, ever more rarely.
    """
    replica = Replica.leader(epoch=6)
    replica.step(on.ResignRequested())
    sent = replica.sent(EndQuorumEpochRequest)
    waits = []
    for _ in range(8):
        replica.fail(2, sent[2])
        deadline = replica.core.next_deadline_ms()
        assert deadline is not None
        waits.append(deadline - replica.now_ms)
        replica.pass_time(waits[-1])
        sent = replica.sent(EndQuorumEpochRequest)
    assert waits == sorted(waits)
    assert waits[-1] == CONFIG.retry_backoff_ms_max
    assert replica.role == "Resigned"


@pytest.mark.parametrize("seed", range(3))
def test_without_any_end_request_the_timeout_does_it(seed: int) -> None:
    """“In the worst case, if none of the EndQuorumEpoch requests are received, the election timeout will eventually trigger a
    new election.”
    """
    cluster = Cluster((1, 2, 3), seed=seed)
    cluster.start()
    old = cluster.await_leader().local.id
    cluster.run(500)
    cluster.partition([old], [node for node in cluster.nodes if node != old])
    cluster.nodes[old].step(on.ResignRequested())
    cluster.crash(old, noticed=False)
    took = cluster.run_until(lambda: cluster.leader() is not None)
    assert took >= CONFIG.fetch_timeout_ms - CONFIG.fetch_timeout_ms // 2


def test_an_end_of_an_older_epoch_is_fenced() -> None:
    """“We shall reuse the same FENCED_LEADER_EPCOH error code to indicate that there is a larger leader epoch.”"""
    answer = Replica.follower(epoch=8, leader=3).end(2, 6, [1])
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 3, 8)


@pytest.mark.parametrize("is_stopping", [True, False])
def test_a_fenced_leader_follows_whether_it_stops_or_not(is_stopping: bool) -> None:
    """“Depending on whether the sender is shutting down or not, it would either ignore the response error or become a follower
    of the leader indicated in the response.” Kafka: it follows either way; one that stops just never campaigns again.
    """
    replica = Replica.leader(epoch=6)
    if is_stopping:
        replica.step(on.ResignRequested())
    else:
        replica.pass_time(CONFIG.check_quorum_timeout_ms)
    request = replica.sent(EndQuorumEpochRequest)[2]
    fenced = EndQuorumEpochResponse(error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=NodeId(3), leader_epoch=Epoch(8))
    replica.respond(2, request, fenced)
    assert replica.view == ("Follower", 8, 3)
    replica.pass_time(3 * CONFIG.fetch_timeout_ms)
    assert (replica.role == "Follower") == is_stopping


def test_a_removed_leader_ends_its_epoch() -> None:
    """“It is also used when the leader needs to be removed from the quorum following an AlterQuorum request.” Kafka: a
    RemoveRaftVoter (KIP-853), once it has committed.
    """
    replica = leader_of_logged_voters(1, 2, 3)
    assert replica.change_voters(remove(1)) is None
    assert replica.sent(EndQuorumEpochRequest) == {}
    commit(replica, 2, 3)
    replica.pass_time(1)
    assert replica.role == "Resigned"
    assert set(replica.sent(EndQuorumEpochRequest)) == {2, 3}
