"""Names that a request repeats: what is answered once, and that a short request gets no answer a thousand times its size."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.replica.node import ReplicaNode
from raftlake.wire.api import ApiKey
from raftlake.wire.find_quorum import FindQuorumRequest
from raftlake.wire.ids import id_to_kio
from raftlake.wire.topic_lists import TopicPartitions
from replica_cluster import Cluster

OWN = "__cluster_metadata"


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.run(1_000, until=lambda: all(len(node.membership.nodes()) == 3 for node in cluster.nodes.values()))
    cluster.create_topic("a", 3)
    cluster.create_topic("b", 2)
    return cluster


def schema(name: str, version: int) -> Any:
    return importlib.import_module(f"kio.schema.{name}.v{version}.request")


def topic_id(cluster: Cluster, name: str) -> Any:
    topic = cluster.leader().names.topic(name)
    assert topic is not None
    return id_to_kio(topic.topic_id)


def metadata(cluster: Cluster, *asked: tuple[str | None, Any]) -> list[tuple[str, int, int]]:
    """(name, error, partitions) of what is answered to names and ids."""
    made = schema("metadata", 12)
    topics = tuple(made.MetadataRequestTopic(name=name, topic_id=topic_id) for name, topic_id in asked)
    request = made.MetadataRequest(topics=topics, include_topic_authorized_operations=False)
    answer = cluster.ask(cluster.leader(), ApiKey.METADATA, request, version=12)
    return [(topic.name, int(topic.error_code), len(topic.partitions)) for topic in answer.topics]


def test_metadata_answers_a_name_once_where_it_was_named_first(cluster: Cluster) -> None:
    names = ["b", "a", "none", "b", "none", "a", "a"]
    assert metadata(cluster, *[(name, None) for name in names]) == [("b", 0, 2), ("a", 0, 3), ("none", 3, 0)]
    assert len(metadata(cluster, *[("a", None)] * 5_000)) == 1


def test_metadata_answers_an_id_once_whatever_names_stand_beside_it(cluster: Cluster) -> None:
    id_of_a, id_of_b = topic_id(cluster, "a"), topic_id(cluster, "b")
    asked = [(None, id_of_a), ("x", id_of_b), ("y", id_of_b), ("a", id_of_a), (None, id_of_b)]
    assert metadata(cluster, *asked) == [("a", 0, 3), ("b", 0, 2)]


def describe_quorum(
    cluster: Cluster, node: ReplicaNode, *asked: tuple[str, list[int]]
) -> list[tuple[str, list[tuple[int, int]]]]:
    """(partition, error) by topic."""
    made = schema("describe_quorum", 2)
    topics = tuple(
        made.TopicData(topic_name=name, partitions=tuple(made.PartitionData(partition_index=index) for index in indexes))
        for name, indexes in asked
    )
    answer = cluster.ask(node, ApiKey.DESCRIBE_QUORUM, made.DescribeQuorumRequest(topics=topics), version=2)
    return [
        (topic.topic_name, [(part.partition_index, int(part.error_code)) for part in topic.partitions])
        for topic in answer.topics
    ]


def test_describe_quorum_answers_a_partition_once(cluster: Cluster) -> None:
    leader = cluster.leader()
    asked = [(OWN, [0, 0]), ("none", [2, 1, 2]), (OWN, [0, 7]), (OWN, [])]
    assert describe_quorum(cluster, leader, *asked) == [(OWN, [(0, 0), (7, 3)]), ("none", [(2, 3), (1, 3)])]


def test_a_repeated_question_is_passed_on_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = cluster.followers()[0]
    passed_on: list[Any] = []
    send = follower.engine.network.send

    def noted(peer: Any, rpc: Any, done: Any) -> None:
        if hasattr(rpc, "request"):
            passed_on.append(rpc.request)
        send(peer, rpc, done)

    monkeypatch.setattr(follower.engine.network, "send", noted)
    assert describe_quorum(cluster, follower, (OWN, []), *[(OWN, [0] * 10)] * 10) == [(OWN, [(0, 0)])]
    (request,) = passed_on
    assert [len(topic.partitions) for topic in request.topics] == [1]
    assert describe_quorum(cluster, follower, ("none", [])) == [("none", [])]


def test_find_quorum_answers_a_partition_once(cluster: Cluster) -> None:
    request = FindQuorumRequest(
        None, [TopicPartitions(OWN, [0, 0, 5]), TopicPartitions("none", [1]), TopicPartitions(OWN, [0])]
    )
    topics = cluster.ask(cluster.leader(), ApiKey.FIND_QUORUM, request).topics
    assert [(topic.name, [part.index for part in topic.partitions]) for topic in topics] == [(OWN, [0, 5]), ("none", [1])]


def test_a_coordinator_is_named_once_for_each_key(cluster: Cluster) -> None:
    request = schema("find_coordinator", 4).FindCoordinatorRequest(key_type=0, coordinator_keys=("y", "x", "y", "", "x", ""))
    answer = cluster.ask(cluster.leader(), ApiKey.FIND_COORDINATOR, request, version=4)
    assert [each.key for each in answer.coordinators] == ["y", "x", ""]


def described(cluster: Cluster, *asked: tuple[int, str, tuple[str, ...] | None]) -> list[tuple[str, set[str] | int]]:
    """What is told of each resource: the names, or how many where there are many."""
    made = schema("describe_configs", 4)
    resources = tuple(
        made.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in asked
    )
    node = cluster.leader()
    answer = cluster.ask(node, ApiKey.DESCRIBE_CONFIGS, made.DescribeConfigsRequest(resources=resources), version=4)
    told = [(each.resource_name, {config.name for config in each.configs}) for each in answer.results]
    return [(name, names if len(names) < 4 else len(names)) for name, names in told]


def test_configs_are_told_once_with_all_that_is_asked_of_them(cluster: Cluster) -> None:
    some = [(2, "a", ("retention.ms",)), (2, "b", ()), (2, "a", ("retention.bytes", "none"))]
    assert described(cluster, *some) == [("a", {"retention.ms", "retention.bytes"}), ("b", set())]
    assert described(cluster, *some, (2, "a", None)) == [("a", 14), ("b", set())]
    assert described(cluster, (2, "a", None), *some) == [("a", 14), ("b", set())]
    assert len(described(cluster, *[(4, "", None)] * 1_000)) == 1


def delete(cluster: Cluster, version: int, *asked: tuple[str | None, Any]) -> list[tuple[str | None, int]]:
    """(name, error) of what is answered."""
    made = schema("delete_topics", version)
    if version < 6:
        names = {"topic_names": tuple(name for name, _ in asked)}
    else:
        names = {"topics": tuple(made.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in asked)}
    request = made.DeleteTopicsRequest(**names, timeout=timedelta(seconds=1))
    answer = cluster.ask(cluster.leader(), ApiKey.DELETE_TOPICS, request, version=version)
    return [(each.name, int(each.error_code)) for each in answer.responses]


@pytest.mark.parametrize("version", [5, 6])
def test_a_topic_that_is_to_be_deleted_twice_is_refused_as_by_kafka(cluster: Cluster, version: int) -> None:
    cluster.create_topic("d", 1)
    end = cluster.leader().partitions[cluster.leader().config.quorum_group].log.end_offset
    refused = [("d", int(ErrorCode.INVALID_REQUEST)), ("none", int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))]
    assert delete(cluster, version, ("d", None), ("none", None), ("d", None)) == refused
    # A hole among the answers crashes librdkafka.
    spread = delete(cluster, version, ("d", None), ("d", None), ("none", None))
    assert spread == [refused[0], refused[0], refused[1]]
    assert cluster.leader().names.topic("d") is not None
    assert cluster.leader().partitions[cluster.leader().config.quorum_group].log.end_offset == end, "nothing was proposed"
    assert delete(cluster, version, ("d", None)) == [("d", 0)]


def test_a_topic_that_is_to_be_deleted_by_name_and_by_id_is_deleted_once(cluster: Cluster) -> None:
    cluster.create_topic("e", 1)
    asked = [("e", None), (None, topic_id(cluster, "e"))]
    assert delete(cluster, 6, *asked) == [("e", 0), ("e", int(ErrorCode.INVALID_REQUEST))]
    cluster.create_topic("e", 1)
    asked = [("x", topic_id(cluster, "e")), ("y", topic_id(cluster, "e"))]
    assert {error for _, error in delete(cluster, 6, *asked)} == {int(ErrorCode.INVALID_REQUEST)}
