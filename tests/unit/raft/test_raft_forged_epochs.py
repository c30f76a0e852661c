"""Replicas whose epochs somebody without credentials raises, or whose epochs lie far apart, elect leaders all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from raftkit.cluster import Cluster
from raftlake.raft import events as on
from raftlake.raft.credit import ANSWER_STEP_MS, ANSWER_STEPS, REQUEST_STEP_MS, REQUEST_STEPS
from raftlake.raft.leaps import highest_of_requests
from raftlake.raft.messages import BeginQuorumEpochRequest, VoteRequest
from raftlake.raft.types import ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey, VoterSet

FAR = 5 * ANSWER_STEPS


def forge(cluster: Cluster, node_id: int, *, begin_of: int | None = None) -> int:
    """Send a node the highest epoch that it takes from a request; that epoch."""
    node = cluster.nodes[NodeId(node_id)]
    epoch = highest_of_requests(node.alive, cluster.now_ms)
    request: VoteRequest | BeginQuorumEpochRequest
    if begin_of is None:
        other = ReplicaKey(NodeId(1 + node_id % 3))
        request = VoteRequest(candidate=other, epoch=epoch, log_end=OffsetAndEpoch(Offset(0), Epoch(0)), pre_vote=True)
    else:
        request = BeginQuorumEpochRequest(leader_id=NodeId(begin_of), leader_epoch=epoch)
    node.responders[-1] = lambda response: None
    node.step(on.RequestReceived(request_id=-1, request=request))
    assert node.alive.epoch == epoch
    return epoch


def started(*ids: int, voters: int | None = None, **epochs: int) -> Cluster:
    """`n2=7`: node 2 is in epoch 7 already."""
    cluster = Cluster(ids or (1, 2, 3), voters=voters)
    for name, epoch in epochs.items():
        cluster.nodes[NodeId(int(name[1:]))].disk.election = ElectionState(epoch=Epoch(epoch))
    return cluster


def commit_everywhere(cluster: Cluster, nodes: Iterable[int], limit_ms: int) -> None:
    """All of these nodes get a new record from their leader within the time."""
    left_ms = limit_ms - cluster.run_until(lambda: cluster.leader() is not None, limit_ms)
    leader = cluster.leader()
    assert leader is not None
    end = cluster.append(leader.local.id, f"at {cluster.now_ms}")

    def has_it(node_id: int) -> bool:
        return cluster[node_id].high_watermark >= end and cluster[node_id].log_end >= end

    cluster.run_until(lambda: all(has_it(node_id) for node_id in nodes), left_ms)


def behead(cluster: Cluster) -> int:
    """The leader dies; its number."""
    leader = cluster.await_leader()
    cluster.crash(leader.local.id)
    return leader.local.id


@pytest.mark.parametrize("begin_of", [None, 1, 2, 3])
def test_who_spends_all_steps_of_all_nodes_keeps_nobody_from_being_elected(begin_of: int | None) -> None:
    cluster = started()
    cluster.start()
    commit_everywhere(cluster, (1, 2, 3), 5_000)
    for _ in range(3):
        for node_id in (1, 2, 3):
            if node_id != begin_of:
                forge(cluster, node_id, begin_of=begin_of)
        commit_everywhere(cluster, (1, 2, 3), 8_000)
        dead = behead(cluster)
        commit_everywhere(cluster, {1, 2, 3} - {dead}, 8_000)
        cluster.start(dead)
        commit_everywhere(cluster, (1, 2, 3), 8_000)


def test_a_leader_that_died_in_the_moment_of_the_attack_is_replaced_within_seconds() -> None:
    cluster = started()
    cluster.start()
    commit_everywhere(cluster, (1, 2, 3), 5_000)
    dead = behead(cluster)
    living = {1, 2, 3} - {dead}
    for node_id in living:
        forge(cluster, node_id)
    commit_everywhere(cluster, living, 4_000)


def test_an_attack_that_goes_on_leaves_times_of_service_and_ends_with_it() -> None:
    cluster = started()
    cluster.start()
    commit_everywhere(cluster, (1, 2, 3), 5_000)
    served = 0
    for _ in range(60):
        for node_id in (1, 2, 3):
            forge(cluster, node_id)
        cluster.run(REQUEST_STEP_MS)
        served += cluster.leader() is not None
    assert served > 6
    assert max(cluster[node_id].epoch for node_id in (1, 2, 3)) < 3 * REQUEST_STEPS + 3 * 60 + 1_000
    commit_everywhere(cluster, (1, 2, 3), 8_000)


@pytest.mark.parametrize("votes", [True, False])
def test_one_node_that_was_moved_alone_comes_back(votes: bool) -> None:
    """A leader hears of it from a voter that it asks, and an observer tells it."""
    cluster = started(1, 2, 3, 4, voters=3)
    cluster.start()
    leader = cluster.await_leader()
    moved = leader.local.id % 3 + 1 if votes else 4
    cluster.run(1_000)
    for _ in range(3):
        forge(cluster, moved)
        commit_everywhere(cluster, (1, 2, 3, 4), 15_000)


@pytest.mark.parametrize("role", ["voter", "observer"])
def test_who_was_away_while_the_others_went_far_ahead_comes_back_at_once(role: str) -> None:
    away = 3 if role == "voter" else 4
    cluster = started(1, 2, 3, 4, voters=3)
    cluster.start()
    commit_everywhere(cluster, (1, 2, 3, 4), 5_000)
    cluster.crash(away)
    others = [node_id for node_id in (1, 2, 3, 4) if node_id != away]
    for node_id in others:
        cluster.crash(node_id)
        cluster.nodes[NodeId(node_id)].disk.election = ElectionState(epoch=Epoch(FAR + node_id))
    cluster.start(*others)
    commit_everywhere(cluster, others, 8_000)
    cluster.start(away)
    commit_everywhere(cluster, (1, 2, 3, 4), 8_000)
    assert cluster[away].epoch >= FAR


@pytest.mark.parametrize("back_as", ["leader of before", "follower of who led before", "candidate"])
def test_it_comes_back_in_whatever_role_it_went(back_as: str) -> None:
    me = NodeId(3)
    states: dict[str, Callable[[], ElectionState]] = {
        "leader of before": lambda: ElectionState(epoch=Epoch(7), leader_id=me, voted_key=ReplicaKey(me)),
        "follower of who led before": lambda: ElectionState(epoch=Epoch(7), leader_id=NodeId(1)),
        "candidate": lambda: ElectionState(epoch=Epoch(7), voted_key=ReplicaKey(me)),
    }
    cluster = started(n1=FAR, n2=FAR)
    cluster.nodes[me].disk.election = states[back_as]()
    cluster.start(1, 2)
    commit_everywhere(cluster, (1, 2), 5_000)
    cluster.start(3)
    commit_everywhere(cluster, (1, 2, 3), 10_000)


def test_a_leader_that_slept_meanwhile_is_overtaken() -> None:
    cluster = started()
    cluster.start()
    old = cluster.await_leader().local.id
    others = sorted({1, 2, 3} - {old})
    cluster.partition([old], others)
    for node_id in others:
        cluster.crash(node_id)
        cluster.nodes[NodeId(node_id)].disk.election = ElectionState(epoch=Epoch(FAR))
    cluster.start(*others)
    cluster.run_until(lambda: (leader := cluster.leader()) is not None and leader.epoch > FAR)
    cluster.heal()
    commit_everywhere(cluster, (1, 2, 3), 10_000)


def test_two_of_three_that_lie_far_apart_find_together_in_the_end() -> None:
    """The third is lost: no majority can tell, and the one that is behind waits until it believes the other."""
    seconds = 20
    above = seconds * 1_000 // ANSWER_STEP_MS
    cluster = started(n1=5, n2=5 + ANSWER_STEPS + above)
    cluster.start(1, 2)
    cluster.run(seconds * 900)
    assert cluster[1].epoch < 100 and cluster.leader() is None
    commit_everywhere(cluster, (1, 2), 10_000)


def test_a_voter_far_above_all_others_disturbs_nobody_until_it_is_believed() -> None:
    seconds = 20
    cluster = started(n3=5 + ANSWER_STEPS + seconds * 1_000 // ANSWER_STEP_MS)
    cluster.start()
    leader = cluster.await_leader()
    before = leader.epoch
    cluster.run(seconds * 900)
    assert cluster.leader() is leader and leader.epoch == before
    commit_everywhere(cluster, (1, 2), 1_000)
    cluster.run(seconds * 1_000)
    commit_everywhere(cluster, (1, 2, 3), 10_000)


def test_a_lone_survivor_of_a_recovery_does_not_listen_to_an_old_node() -> None:
    """`raftlake recover` begins a new line of epochs: node 2 is no voter any more, and still in an epoch near the end."""
    cluster = started(1, 2, n2=2**31 - 3)
    cluster.voters = VoterSet({NodeId(1): ReplicaKey(NodeId(1))})
    cluster.nodes[NodeId(1)].boot()
    cluster.voters = VoterSet({NodeId(i): ReplicaKey(NodeId(i)) for i in (1, 2)})
    cluster.nodes[NodeId(2)].boot()
    before = cluster.await_leader(5_000).epoch
    cluster.run(60_000)
    assert cluster[1].is_leader and cluster[1].epoch == before
