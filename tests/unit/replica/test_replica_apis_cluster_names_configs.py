"""What Kafka's clients and tools are told of names that no topic can have, and of configs that they look for."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.raft.types import NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.wire.api import ApiKey
from raftlake.wire.ids import id_to_kio
from replica_cluster import Cluster

BROKER, TOPIC, LOGGER = 4, 2, 8
#: Kafka's Topic.validate refuses them.
INVALID = ["", ".", "..", "x" * 250, "a b", "a/b", "a\n", "gr\u00fc\u00dfe", "a,b", "a:b", "\u0663"]
VALID = ["...", "x" * 249, "-", "_", ".a", "A.z_0-9"]


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """Three nodes that have told each other where clients reach them."""
    cluster = Cluster()
    cluster.run(1_000, until=lambda: all(len(node.membership.nodes()) == 3 for node in cluster.nodes.values()))
    return cluster


def schema(name: str, version: int) -> Any:
    return importlib.import_module(f"kio.schema.{name}.v{version}.request")


def metadata_errors(cluster: Cluster, node: ReplicaNode, *names: str | None, topic_id: bytes = bytes(16)) -> list[int]:
    metadata = schema("metadata", 12)
    asked = tuple(metadata.MetadataRequestTopic(name=name, topic_id=id_to_kio(topic_id)) for name in names)
    request = metadata.MetadataRequest(topics=asked, include_topic_authorized_operations=False)
    answer = cluster.ask(node, ApiKey.METADATA, request, version=12)
    assert [topic.name for topic in answer.topics] == list(names)
    assert all(not topic.partitions for topic in answer.topics)
    return [int(topic.error_code) for topic in answer.topics]


def described(cluster: Cluster, node: ReplicaNode, kind: int, name: str) -> tuple[int, dict[str, Any]]:
    configs = schema("describe_configs", 4)
    resource = configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = configs.DescribeConfigsRequest(resources=(resource,))
    (told,) = cluster.ask(node, ApiKey.DESCRIBE_CONFIGS, request, version=4).results
    assert bool(told.error_message) == (int(told.error_code) != ErrorCode.NONE)
    return int(told.error_code), {config.name: config for config in told.configs}


@pytest.mark.parametrize("name", INVALID)
def test_metadata_says_at_once_that_no_topic_can_have_a_name(cluster: Cluster, name: str) -> None:
    for node in cluster.nodes.values():
        assert metadata_errors(cluster, node, name) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_name_that_a_topic_can_have_is_unknown(cluster: Cluster) -> None:
    errors = metadata_errors(cluster, cluster.leader(), *VALID)
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(VALID)


def test_one_bad_name_says_nothing_of_the_others(cluster: Cluster) -> None:
    errors = metadata_errors(cluster, cluster.leader(), "no", "a b", "nor-this")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == [unknown, ErrorCode.INVALID_TOPIC_EXCEPTION, unknown]


def test_a_topic_that_is_asked_for_by_its_id_needs_no_name(cluster: Cluster) -> None:
    assert metadata_errors(cluster, cluster.leader(), None, topic_id=b"i" * 16) == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_bad_name_needs_no_leader_to_be_refused() -> None:
    """Told LEADER_NOT_AVAILABLE, a client asks for ever."""
    cluster = Cluster()
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    alone = cluster.start(NodeId(1))
    cluster.run(1_000)
    assert alone.topics.may_miss_some
    assert metadata_errors(cluster, alone, "a b", "no") == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.LEADER_NOT_AVAILABLE,
    ]
    assert described(cluster, alone, TOPIC, "a b")[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert described(cluster, alone, TOPIC, "no")[0] == ErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize(("size", "majority"), [(1, "1"), (2, "2"), (3, "2"), (4, "3"), (5, "3")])
def test_min_insync_replicas_is_the_majority_of_the_voters(size: int, majority: str) -> None:
    """kafka-topics --under-min-isr-partitions ends in a NullPointerException where a topic has no such config."""
    cluster = Cluster(size)
    cluster.create_topic("t")
    for node in cluster.nodes.values():
        cluster.run(1_000, until=lambda: node.names.topic("t") is not None)  # noqa: B023
        for kind, name, source in ((TOPIC, "t", 5), (BROKER, str(node.config.node_id), 4)):
            error, configs = described(cluster, node, kind, name)
            told = configs["min.insync.replicas"]
            assert (error, told.value, told.read_only, told.config_source) == (0, majority, kind == BROKER, source)


def test_the_default_broker_has_no_configs(cluster: Cluster) -> None:
    """Kafka lists the dynamic defaults of all brokers there. Ours would be those of whichever node was asked."""
    for node in cluster.nodes.values():
        assert described(cluster, node, BROKER, "") == (ErrorCode.NONE, {})
        assert described(cluster, node, BROKER, str(node.config.node_id))[1]["node.id"].value == str(node.config.node_id)


def test_other_resources_have_no_configs(cluster: Cluster) -> None:
    assert described(cluster, cluster.leader(), LOGGER, "1")[0] == ErrorCode.INVALID_REQUEST
