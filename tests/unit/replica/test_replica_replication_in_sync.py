"""Which replicas a node calls in sync, and which nodes it leaves out, on simulated time: see `in_sync`."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.config import RaftConfig
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP, REPLICA_LAG_MS_MAX
from raftlake.replica.node import ReplicaNode
from raftlake.replica.replication.in_sync import LOOK_INTERVAL_MS, InSync
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch

LAG_MS = REPLICA_LAG_MS_MAX
#: Until every node has heard it: the next look of the leader, and a round.
SPREAD_MS = LOOK_INTERVAL_MS + 300
ALL = {1, 2, 3}
#: By then operators see the partitions that miss a killed node, with the default settings.
EXPECTED_MS = 8_000


def settled(topics: int = 1, partitions: int = 3, size: int = 3, **settings: Any) -> Cluster:
    """A cluster with the topics `t0`, `t1`..., whose nodes know each other. Each node leads one partition of three."""
    cluster = Cluster(size, **settings)
    for number in range(topics):
        cluster.create_topic(f"t{number}", partitions)
    cluster.run(2_000, until=lambda: all(len(node.membership.nodes()) == size for node in cluster.nodes.values()))
    return cluster


def metadata(cluster: Cluster, node: ReplicaNode, topic: str = "t0") -> Any:
    schema: Any = importlib.import_module("kio.schema.metadata.v12.request")
    asked = (schema.MetadataRequestTopic(name=topic, topic_id=None),)
    request = schema.MetadataRequest(topics=asked, include_topic_authorized_operations=False)
    (answer,) = cluster.send(node, ApiKey.METADATA, request, version=12)
    return _read(answer)


def _read(answer: Any) -> Any:
    """The message as a client reads it: its topics are written by hand."""
    from raftlake.wire.api import RequestHeader, decode_response, encode_response

    frame = b"".join(encode_response(RequestHeader(ApiKey.METADATA, 12, 1, "test"), answer))
    return decode_response(ApiKey.METADATA, 12, bytearray(frame[4:]))[1]


def brokers(cluster: Cluster, node: ReplicaNode) -> set[int]:
    return {broker.node_id for broker in metadata(cluster, node).brokers}


def in_sync(cluster: Cluster, node: ReplicaNode, topic: str = "t0") -> list[set[int]]:
    (told,) = metadata(cluster, node, topic).topics
    assert all(set(part.replica_nodes) == ALL for part in told.partitions)
    return [set(part.isr_nodes) for part in told.partitions]


def everywhere(cluster: Cluster, expected: set[int]) -> bool:
    """Whether every node tells of these brokers, and of these replicas in sync in all partitions."""
    return all(
        brokers(cluster, node) == expected and all(nodes == expected for nodes in in_sync(cluster, node))
        for node in cluster.nodes.values()
    )


def led_by(cluster: Cluster, node_id: int) -> GroupId:
    """The partition of `t0` that a node leads."""
    (found,) = (group for group in cluster.nodes[NodeId(node_id)].partitions if group.topic == "t0" and (
        cluster.nodes[NodeId(node_id)].partitions[group].core.is_leader))  # fmt: skip
    return found


@pytest.mark.parametrize("is_leader", [True, False], ids=["the leader of the metadata log", "a follower"])
def test_a_killed_node_leaves_the_in_sync_sets_and_the_brokers_of_every_node(is_leader: bool) -> None:
    cluster = settled()
    victim = (cluster.leader() if is_leader else cluster.followers()[0]).config.node_id
    cluster.stop(victim)
    cluster.run(LAG_MS - 500)
    assert all(brokers(cluster, node) == ALL for node in cluster.nodes.values()), "it may be back in a moment"
    # A group whose leader died counts from the election on.
    assert LAG_MS + 2 * SPREAD_MS < EXPECTED_MS
    cluster.run(500 + 2 * SPREAD_MS)
    assert everywhere(cluster, ALL - {victim})
    for node in cluster.nodes.values():
        (topic,) = metadata(cluster, node).topics
        assert [part.offline_replicas for part in topic.partitions] == [(victim,)] * 3
        assert all(part.leader_id != victim and int(part.error_code) == ErrorCode.NONE for part in topic.partitions)
    cluster.start(victim)
    cluster.run(SPREAD_MS + 500, until=lambda: everywhere(cluster, ALL))


def test_a_node_that_comes_back_is_told_of_at_once() -> None:
    cluster = settled()
    victim = cluster.followers()[0].config.node_id
    cluster.stop(victim)
    cluster.run(LAG_MS + 2 * SPREAD_MS)
    cluster.start(victim)
    cluster.run(600, until=lambda: all(brokers(cluster, node) == ALL for node in cluster.nodes.values()))


@pytest.mark.parametrize(
    ("lag_ms", "raft"),
    [(1_000, RaftConfig()), (LAG_MS, RaftConfig()), (1_000, RaftConfig(fetch_timeout_ms=30_000, request_timeout_ms=30_000))],
    ids=["the shortest time", "the default", "cores that hear of their replicas every 15 s"],
)
def test_idle_partitions_stay_in_sync_while_their_replicas_live(lag_ms: int, raft: RaftConfig) -> None:
    cluster = settled(replica_lag_ms_max=lag_ms, raft=raft)
    for _ in range(40):
        cluster.run(500)
        assert everywhere(cluster, ALL)
    assert all(node.in_sync.under_replicated == 0 for node in cluster.nodes.values())


def test_while_all_is_well_nothing_is_said_after_the_first_answer_of_a_session() -> None:
    cluster = settled()
    reports: list[object] = []
    for node in cluster.nodes.values():
        node.fetchers.on_sync_report = lambda peer, report: reports.append(report)
    for group in cluster.nodes[NodeId(1)].partitions:
        if group != METADATA_GROUP:
            cluster.produce(group, batch(b"x"))
    cluster.run(10_000)
    assert reports == []


def test_busy_partitions_lose_a_killed_replica_too() -> None:
    cluster = settled()
    victim = cluster.followers()[0].config.node_id
    cluster.stop(victim)
    groups = [group for group in next(iter(cluster.nodes.values())).partitions if group != METADATA_GROUP]
    for _ in range(8):
        cluster.run(LAG_MS // 4)
        for group in groups:
            cluster.produce(group, batch(b"x"))
    assert everywhere(cluster, ALL - {victim})


def test_a_replica_cut_off_from_one_leader_lags_there_alone_and_is_not_gone() -> None:
    cluster = settled()
    metadata_leader = cluster.leader().config.node_id
    leader, other = (node.config.node_id for node in cluster.followers())
    group = led_by(cluster, leader)
    cluster.cut(leader, other)
    cluster.run(LAG_MS + 2 * SPREAD_MS)
    # The replica that hears no leader may campaign, and its pre-votes are refused.
    assert cluster.leader(group).config.node_id == leader and cluster.leader().config.node_id == metadata_leader
    for node_id in (leader, metadata_leader):
        node = cluster.nodes[NodeId(node_id)]
        assert brokers(cluster, node) == ALL
        assert in_sync(cluster, node)[group.partition] == ALL - {other}
    assert cluster.nodes[leader].in_sync.under_replicated == 1
    cluster.heal()
    cluster.run(LAG_MS, until=lambda: everywhere(cluster, ALL))


def test_a_node_that_the_metadata_leader_alone_does_not_hear_is_told_by_those_who_do() -> None:
    """It may lead partitions, and clients need its address."""
    cluster = settled()
    metadata_leader = cluster.leader().config.node_id
    cut, other = (node.config.node_id for node in cluster.followers())
    cluster.cut(cut, metadata_leader)
    cluster.run(LAG_MS + 2 * SPREAD_MS)
    assert cluster.leader().config.node_id == metadata_leader and led_by(cluster, cut)
    assert brokers(cluster, cluster.nodes[metadata_leader]) == ALL - {cut}
    assert brokers(cluster, cluster.nodes[other]) == ALL
    assert cut in brokers(cluster, cluster.nodes[cut])


def test_a_replica_that_fetches_and_never_reaches_the_end_lags() -> None:
    """It is heard of all the time; only its log stands still."""
    cluster = settled(partitions=1)
    (group,) = (group for group in cluster.nodes[NodeId(1)].partitions if group.topic == "t0")
    leader = cluster.leader(group)
    slow = next(node for node in cluster.nodes.values() if node is not leader)
    session = leader.fetch_server.sessions
    core = leader.partitions[group].core
    progress = core.role.voters[slow.config.node_id]  # type: ignore[union-attr]
    cluster.run(1_000)
    assert session.heard_ms(slow.config.node_id) > leader.engine.now_ms - 1_000
    progress.end_offset = type(progress.end_offset)(progress.end_offset - 1)
    progress.caught_up_at_ms = leader.engine.now_ms
    cluster.run(LAG_MS - SPREAD_MS)
    assert in_sync(cluster, leader) == [ALL]
    cluster.run(2 * SPREAD_MS)
    assert in_sync(cluster, leader) == [ALL - {slow.config.node_id}]
    assert brokers(cluster, leader) == ALL


def test_a_new_leader_does_not_take_a_dead_replica_for_one_in_sync() -> None:
    cluster = settled(size=3)
    victim = cluster.followers()[0].config.node_id
    cluster.stop(victim)
    cluster.run(LAG_MS + 2 * SPREAD_MS)
    alive = ALL - {victim}
    old = cluster.leader()
    groups = [group for group in old.partitions if old.partitions[group].core.is_leader]
    old.handover.begin()
    for _ in range(1_500):
        cluster.run(1)
        assert all(victim not in nodes for node in cluster.nodes.values() for nodes in in_sync(cluster, node))
        assert all(victim not in brokers(cluster, node) for node in cluster.nodes.values())
    assert all(cluster.leader(group) is not old for group in groups)
    assert everywhere(cluster, alive)


def test_a_replica_that_lags_and_lives_is_not_forgotten_when_its_leader_hands_over() -> None:
    """It fetches everything but one partition, so no node is gone."""
    cluster = settled()
    old = cluster.leader(next(group for group in cluster.nodes[NodeId(1)].partitions if group.topic == "t0"))
    group = led_by(cluster, old.config.node_id)
    stuck = next(node for node in cluster.nodes.values() if node is not old)
    stuck_id, fetch = stuck.config.node_id, stuck.fetchers.fetch
    stuck.fetchers.fetch = lambda peer, of, request: None if of == group else fetch(peer, of, request)  # type: ignore[method-assign]
    stuck.fetchers.forget(group)
    cluster.produce(group, batch(b"it lacks this"))
    cluster.run(LAG_MS + 2 * SPREAD_MS)
    others = [node for node in cluster.nodes.values() if node is not stuck]
    old.handover.begin()
    for _ in range(1_500):
        cluster.run(1)
        assert all(in_sync(cluster, node)[group.partition] == ALL - {stuck_id} for node in others)
        assert all(brokers(cluster, node) == ALL for node in others)
    assert cluster.leader(group) not in (old, stuck)


def test_a_node_that_starts_learns_who_is_gone_from_the_first_answer() -> None:
    cluster = settled(size=5)
    gone, restarted = (node.config.node_id for node in cluster.followers()[:2])
    cluster.stop(gone)
    cluster.stop(restarted)
    cluster.run(LAG_MS + 2 * SPREAD_MS)
    node = cluster.start(restarted)
    cluster.run(2_000, until=lambda: node.topics.is_current and gone not in brokers(cluster, node))
    assert cluster.now_ms < LAG_MS * 4


def test_without_a_majority_metadata_is_answered_at_once() -> None:
    cluster = settled()
    survivor = cluster.leader().config.node_id
    for node_id in ALL - {survivor}:
        cluster.stop(node_id)
    for _ in range(20):
        cluster.run(500)
        assert survivor in brokers(cluster, cluster.nodes[survivor])
    assert in_sync(cluster, cluster.nodes[survivor]) == [{survivor}] * 3, "it can speak for itself alone"


def test_describe_cluster_leaves_out_nodes_that_are_gone() -> None:
    cluster = settled()
    victim = cluster.followers()[0].config.node_id
    cluster.stop(victim)
    cluster.run(LAG_MS + 2 * SPREAD_MS)
    schema: Any = importlib.import_module("kio.schema.describe_cluster.v1.request")
    request = schema.DescribeClusterRequest(include_cluster_authorized_operations=False)
    for node in cluster.nodes.values():
        (answer,) = cluster.send(node, ApiKey.DESCRIBE_CLUSTER, request, version=1)
        assert {broker.broker_id for broker in answer.brokers} == ALL - {victim}


def test_under_replicated_partitions_are_counted_by_their_leaders() -> None:
    cluster = settled(topics=2)
    victim = cluster.followers()[0].config.node_id
    cluster.stop(victim)
    cluster.run(LAG_MS + 2 * SPREAD_MS)
    # Six partitions and the metadata log.
    assert sum(node.in_sync.under_replicated for node in cluster.nodes.values()) == 7


def test_deleted_groups_are_forgotten() -> None:
    cluster = settled()
    victim = cluster.followers()[0].config.node_id
    cluster.stop(victim)
    cluster.run(LAG_MS + 2 * SPREAD_MS)
    results: list[Any] = []
    leader = cluster.leader()
    topic = leader.names.topic("t0")
    assert topic is not None
    leader.topics.delete(topic, lambda *result: results.append(result))
    cluster.run(SPREAD_MS + 1_000)
    assert sum(node.in_sync.under_replicated for node in cluster.nodes.values()) == 1


def test_many_groups_are_looked_at_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with ten thousand groups stood still for some ms in each second."""
    monkeypatch.setattr("raftlake.replica.replication.in_sync.LOOKED_AT_MAX", 3)
    cluster = settled(topics=2, partitions=5)
    looked: list[int] = []
    look_on = InSync._look_on

    def counted(self: InSync) -> bool:
        before = len(self._line)
        is_over = look_on(self)
        looked.append(before - len(self._line))
        return is_over

    monkeypatch.setattr(InSync, "_look_on", counted)
    cluster.stop(NodeId(3))
    cluster.run(EXPECTED_MS, until=lambda: everywhere(cluster, {1, 2}))
    assert everywhere(cluster, {1, 2})
    assert max(looked) == 3 and set(looked) > {3}


def test_an_idle_observer_that_lost_a_connection_hears_its_leaders_again_with_their_next_rounds() -> None:
    """Simulator, seed 1060000199: an observer stands for nothing, so no deadline asks for its leader. It called a replica
    lagging, and the quorum without a leader, until the next record came."""
    cluster = settled(topics=1, partitions=6)
    cluster.wipe(4)
    cluster.start(4)
    cluster.run(5_000, until=lambda: len(cluster.nodes[NodeId(4)].partitions) == 7)
    cluster.run(2_000)
    observer = cluster.nodes[NodeId(4)]
    assert all(partition.core.hears_leader for partition in observer.partitions.values())
    for peer in ALL:
        followed = [each for each in observer.partitions.values() if each.core.leader_id == peer]
        answered_ms = observer.fetchers.heard_ms(NodeId(peer))
        assert followed
        observer.peer_unreachable(NodeId(peer))
        cluster.run(1)
        assert not any(partition.core.hears_leader for partition in followed)
        cluster.run(1_000, until=lambda: observer.fetchers.heard_ms(NodeId(peer)) > answered_ms)  # noqa: B023 - of this round
        cluster.run(1)
        assert all(partition.core.hears_leader for partition in followed)
