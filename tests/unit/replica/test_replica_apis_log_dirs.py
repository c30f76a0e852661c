"""DescribeLogDirs: what a node tells of its directory, its disk, and the logs in it."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.driver import Room
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.apis import cluster as cluster_api
from raftlake.replica.apis.log_dirs import partitions_described
from raftlake.replica.config import METADATA_TOPIC
from raftlake.replica.node import ReplicaNode
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch


def request(*asked: tuple[str, tuple[int, ...]], version: int = 4, everything: bool = False) -> Any:
    schema: Any = importlib.import_module(f"kio.schema.describe_log_dirs.v{version}.request")
    topics = tuple(schema.DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in asked)
    return schema.DescribeLogDirsRequest(topics=None if everything else topics)


def describe(cluster: Cluster, node: ReplicaNode, message: Any, version: int = 4) -> Any:
    answer = cluster.ask(node, ApiKey.DESCRIBE_LOG_DIRS, message, version=version)
    (result,) = answer.results
    return result


def told(result: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """(size, lag) by partition."""
    assert not any(part.is_future_key for topic in result.topics for part in topic.partitions)
    return {
        (topic.name, int(part.partition_index)): (int(part.partition_size), int(part.offset_lag))
        for topic in result.topics
        for part in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_node_tells_its_directory_and_the_size_of_each_log(version: int) -> None:
    cluster = Cluster(3, log_dir="/data/raftlake")
    groups = cluster.create_topic("t", 2)
    cluster.produce(groups[0], batch(bytes(500)))
    cluster.run(500)
    for node in cluster.nodes.values():
        result = describe(cluster, node, request(version=version, everything=True), version)
        assert (int(result.error_code), result.log_dir) == (0, "/data/raftlake")
        sizes = {(each.topic, each.partition): sum(s.size for s in node.partitions[each].log.segments()) for each in groups}
        assert told(result) == {place: (size, 0) for place, size in sizes.items()}
        assert sizes["t", 0] > 500 > sizes["t", 1] > 0
        if version == 4:
            assert 0 < result.usable_bytes <= result.total_bytes


def test_those_that_are_asked_for_are_told_once_and_unknown_ones_left_out() -> None:
    cluster = Cluster(1)
    cluster.create_topic("t", 3)
    cluster.create_topic("u", 1)
    asked = request(("t", (2, 0, 2, 7)), ("none", (0,)), ("t", (0,)), (METADATA_TOPIC, (0,)))
    assert list(told(describe(cluster, cluster.leader(), asked))) == [("t", 2), ("t", 0), (METADATA_TOPIC, 0)]
    assert told(describe(cluster, cluster.leader(), request())) == {}
    everything = told(describe(cluster, cluster.leader(), request(everything=True)))
    assert sorted(everything) == [("t", 0), ("t", 1), ("t", 2), ("u", 0)]


def test_a_replica_that_lags_tells_by_how_much() -> None:
    cluster = Cluster(3)
    (group,) = cluster.create_topic("t")
    cluster.produce(group, batch(b"a", b"b"))
    cluster.run(500)
    leader, late = cluster.leader(group), cluster.followers(group)[0]
    asked = request(("t", (0,)))
    partition = late.partitions[group]
    partition.note_leader_end(partition.core.epoch, Offset(partition.core.log_end + 5))
    assert told(describe(cluster, late, asked))["t", 0][1] == 5
    partition.note_leader_end(partition.core.epoch, Offset(-1))
    assert partition.lag == 5, "nothing was said"
    partition.note_leader_end(Epoch(partition.core.epoch - 1), Offset(99))
    assert partition.lag == 0, "of another leader nothing follows"
    partition.note_leader_end(partition.core.epoch, Offset(1))
    assert partition.lag == 0
    own = leader.partitions[group]
    own.note_leader_end(own.core.epoch, Offset(99))
    assert told(describe(cluster, leader, asked))["t", 0][1] == 0


def test_a_follower_hears_the_leaders_end_with_its_answers() -> None:
    cluster = Cluster(3, replica_fetch_bytes_max=1)
    (group,) = cluster.create_topic("t")
    late = cluster.followers(group)[0].config.node_id
    cluster.stop(late)
    for _ in range(20):
        cluster.produce(group, batch(bytes(100)))
    node = cluster.start(late)
    lags: set[int] = set()
    while group not in node.partitions or node.partitions[group].log.end_offset < 21:
        cluster.run(1)
        if group in node.partitions:
            lags.add(node.partitions[group].lag)
    assert max(lags) > 10
    cluster.run(500)
    assert node.partitions[group].lag == 0


def test_a_directory_that_is_gone_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(1, log_dir="/data")
    cluster.create_topic("t")
    node = cluster.leader()
    monkeypatch.setattr(node.engine.logs, "look_for_room", lambda done: done(None))
    result = describe(cluster, node, request(everything=True))
    assert ErrorCode(int(result.error_code)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (result.log_dir, result.topics, result.total_bytes, result.usable_bytes) == ("/data", (), -1, -1)


def test_questions_that_come_together_wait_for_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(1)
    node = cluster.leader()
    looks: list[Any] = []
    monkeypatch.setattr(node.engine.logs, "look_for_room", looks.append)
    answers = [cluster.send(node, ApiKey.DESCRIBE_LOG_DIRS, request(everything=True), version=4) for _ in range(3)]
    cluster.run(10)
    assert len(looks) == 1 and answers == [[], [], []]
    looks[0](Room(free_bytes=5, total_bytes=9))
    assert [len(each) for each in answers] == [1, 1, 1]
    cluster.send(node, ApiKey.DESCRIBE_LOG_DIRS, request(everything=True), version=4)
    assert len(looks) == 2, "the next question is a look of its own"


def test_what_an_answer_costs_is_known_before_it_is_made() -> None:
    cluster = Cluster(1)
    cluster.create_topic("t", 30)
    services = cluster.leader().services
    for told_by in (partitions_described, cluster_api.partitions_told):
        assert told_by(services, request(everything=True)) == 31
        assert told_by(services, request(("t", (0, 1, 1)), ("u", (4,)))) == 4
