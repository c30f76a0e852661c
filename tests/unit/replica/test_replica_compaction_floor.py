"""Below which offset tombstones may go: as the leader knows it, and as a follower learns it."""

from __future__ import annotations

import pytest

from configkit import created
from raftlake.ports.peer_rpcs import GroupId, LocalStartRpc, PeerRpc
from raftlake.raft.types import NodeId, Offset
from raftlake.replica.compaction import floor
from raftlake.replica.compaction.floor import REPLICATED_END
from raftlake.replica.node import ReplicaNode
from replica_cluster import Cluster, batch

EXPIRATION_MS = 60_000


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3, node_expiration_ms=EXPIRATION_MS)


def learn(cluster: Cluster, node: ReplicaNode, group: GroupId) -> list[Offset]:
    """What a node is told, once."""
    told: list[Offset] = []
    node.engine.begin_input()
    floor.ask(node.engine, node.partitions[group], node.membership.nodes, told.append)
    cluster.run(5_000, until=lambda: bool(told))
    return told


def end(cluster: Cluster, group: GroupId) -> Offset:
    return cluster.leader(group).partitions[group].log.end_offset


def test_all_replicas_learn_how_far_all_are(cluster: Cluster) -> None:
    for group in created(cluster, "t", 2):
        cluster.produce(group, batch(b"a", b"b", b"c"))
        cluster.run(1_000)
        for node in cluster.nodes.values():
            assert learn(cluster, node, group) == [end(cluster, group)]


def test_a_voter_that_is_away_holds_it_back_however_long(cluster: Cluster) -> None:
    (group,) = created(cluster, "t")
    cluster.produce(group, batch(b"a", b"b"))
    cluster.run(1_000)
    before = end(cluster, group)
    leader, away = cluster.leader(group), cluster.followers(group)[0].config.node_id
    cluster.stop(away)
    cluster.produce(group, batch(b"c", b"d", b"e"))
    cluster.run(10 * EXPIRATION_MS)
    (other,) = cluster.followers(group)
    assert learn(cluster, leader, group) == learn(cluster, other, group) == [before]
    cluster.start(away)
    cluster.run(5_000)
    for node in cluster.nodes.values():
        assert learn(cluster, node, group) == [end(cluster, group)]


def test_a_new_leader_knows_nothing_before_all_have_fetched_from_it(cluster: Cluster) -> None:
    (group,) = created(cluster, "t")
    cluster.produce(group, batch(b"a", b"b"))
    first = cluster.leader(group).config.node_id
    cluster.stop(first)
    second = cluster.leader(group)
    cluster.produce(group, batch(b"c"))
    cluster.run(5_000)
    assert learn(cluster, second, group) == [0]
    cluster.start(first)
    cluster.run(5_000)
    assert learn(cluster, second, group) == [end(cluster, group)]


def test_without_a_leader_nothing_may_go(cluster: Cluster) -> None:
    (group,) = created(cluster, "t")
    cluster.produce(group, batch(b"a"))
    survivor, *others = list(cluster.nodes)
    for node_id in others:
        cluster.stop(node_id)
    cluster.run(20_000)
    assert learn(cluster, cluster.nodes[survivor], group) == [0]


def test_a_question_that_is_not_answered_ends_too(cluster: Cluster) -> None:
    (group,) = created(cluster, "t")
    follower = cluster.followers(group)[0]
    told: list[Offset] = []
    follower.engine.begin_input()
    floor.ask(follower.engine, follower.partitions[group], follower.membership.nodes, told.append)
    cluster.cut(follower.config.node_id)
    cluster.run(20_000, until=lambda: bool(told))
    assert told == [0]


def test_a_replica_that_is_deposed_is_not_asked_in_vain(cluster: Cluster) -> None:
    """Who believes in another epoch than the one asked is refused."""
    (group,) = created(cluster, "t")
    cluster.produce(group, batch(b"a"))
    cluster.run(1_000)
    follower, leader = cluster.followers(group)[0], cluster.leader(group)
    replies: list[object] = []
    rpc = LocalStartRpc(
        group=group,
        replica_id=follower.config.node_id,
        leader_epoch=type(leader.partitions[group].core.epoch)(leader.partitions[group].core.epoch - 1),
        timestamp=REPLICATED_END,
    )
    follower.engine.network.send(leader.config.node_id, rpc, replies.append)
    cluster.run(1_000)
    (reply,) = replies
    assert reply.error.name == "FENCED_LEADER_EPOCH"  # type: ignore[attr-defined]


def joined(cluster: Cluster, node_id: int, group: GroupId) -> ReplicaNode:
    """A new node without a vote, once it hosts the group and all know its address."""
    observer = NodeId(node_id)
    cluster.wipe(observer)
    cluster.start(observer)
    cluster.run(5_000, until=lambda: all(observer in node.membership.nodes() for node in cluster.nodes.values()))
    cluster.run(5_000, until=lambda: group in cluster.nodes[observer].partitions)
    return cluster.nodes[observer]


def test_an_observer_counts_until_its_address_is_deleted(cluster: Cluster) -> None:
    (group,) = created(cluster, "t")
    leader, observer = cluster.leader(group), joined(cluster, 7, group)
    cluster.produce(group, batch(b"a"))
    cluster.run(2_000)
    before = end(cluster, group)
    assert learn(cluster, leader, group) == learn(cluster, observer, group) == [before]
    cluster.stop(7)
    cluster.produce(group, batch(b"b"))
    cluster.run(EXPIRATION_MS // 2)
    assert learn(cluster, leader, group) == [before]
    cluster.run(2 * EXPIRATION_MS)
    assert learn(cluster, leader, group) == [end(cluster, group)]


def test_an_observer_that_a_new_leader_has_not_heard_of_holds_all_back(cluster: Cluster) -> None:
    """It is away, and the leader that knew how far it was is gone."""
    (group,) = created(cluster, "t")
    joined(cluster, 7, group)
    cluster.stop(7)
    cluster.produce(group, batch(b"a", b"b"))
    first = cluster.leader(group).config.node_id
    cluster.stop(first)
    second = cluster.leader(group)
    cluster.start(first)
    cluster.run(5_000)
    assert [learn(cluster, node, group) for node in (second, cluster.nodes[first])] == [[0], [0]]
    cluster.start(7)
    cluster.run(5_000)
    assert learn(cluster, second, group) == [end(cluster, group)]
    cluster.stop(7)
    cluster.stop(second.config.node_id)
    cluster.leader(group)
    cluster.start(second.config.node_id)
    cluster.run(4 * EXPIRATION_MS)
    assert learn(cluster, cluster.leader(group), group) == [end(cluster, group)], "nothing waits for ever"


def test_a_registered_observer_counts_though_it_was_not_heard_of_lately(cluster: Cluster) -> None:
    """It fetches the quorum's log, and not this one."""
    (group,) = created(cluster, "t")
    observer = joined(cluster, 7, group)
    cluster.run(2_000)
    before = end(cluster, group)
    observer.hosting.close([group])
    cluster.produce(group, batch(b"b"))
    cluster.run(3 * EXPIRATION_MS)
    assert learn(cluster, cluster.leader(group), group) == [before]


def test_a_leader_that_does_not_know_the_topic_yet_does_not_know_the_nodes_either(cluster: Cluster) -> None:
    (group,) = created(cluster, "t")
    cluster.produce(group, batch(b"a"))
    cluster.run(1_000)
    leader = cluster.leader(group)
    leader.partitions[group].in_force = None
    assert learn(cluster, leader, group) == [0]


def test_only_one_question_is_asked(cluster: Cluster) -> None:
    (group,) = created(cluster, "t")
    cluster.run(1_000)
    heard: list[PeerRpc] = []
    cluster.overhear(lambda _source, _destination, rpc: heard.append(rpc))
    learn(cluster, cluster.followers(group)[0], group)
    learn(cluster, cluster.leader(group), group)
    assert [rpc for rpc in heard if isinstance(rpc, LocalStartRpc)] == [
        LocalStartRpc(
            group=group,
            replica_id=cluster.followers(group)[0].config.node_id,
            leader_epoch=cluster.leader(group).partitions[group].core.epoch,
            timestamp=REPLICATED_END,
        )
    ]
