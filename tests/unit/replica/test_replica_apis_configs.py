"""DescribeConfigs: values, sources, synonyms, types and documentation of topics."""

from __future__ import annotations

import pytest

from configkit import BROKER, alter, created, described, schema
from raftlake.replica.apis import configs
from raftlake.replica.config import METADATA_TOPIC
from raftlake.wire.api import ApiKey, RequestHeader, encode_response
from replica_cluster import Cluster

DYNAMIC, STATIC, DEFAULT = 1, 4, 5


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    cluster = Cluster(retention_ms=50_000)
    created(cluster, "t", retention_ms="7", segment_bytes="20000")
    created(cluster, "plain")
    return cluster


def test_the_source_of_a_value_is_told(cluster: Cluster) -> None:
    told = described(cluster, "t")
    assert {name: (config.value, int(config.config_source)) for name, config in told.items()} == {
        "cleanup.policy": ("delete", DEFAULT),
        "delete.retention.ms": ("86400000", DEFAULT),
        "min.cleanable.dirty.ratio": ("0.5", DEFAULT),
        "min.compaction.lag.ms": ("0", DEFAULT),
        "compression.type": ("producer", DEFAULT),
        "local.retention.bytes": ("-2", DEFAULT),
        "local.retention.ms": ("-2", DEFAULT),
        "max.message.bytes": ("8388608", DEFAULT),
        "message.timestamp.type": ("CreateTime", DEFAULT),
        "min.insync.replicas": ("2", DEFAULT),
        "retention.bytes": ("-1", DEFAULT),
        "retention.ms": ("7", DYNAMIC),
        "segment.bytes": ("20000", DYNAMIC),
        "segment.ms": ("9223372036854775807", DEFAULT),
    }
    assert not any(config.read_only or config.is_sensitive for config in told.values())
    assert int(described(cluster, "plain")["retention.ms"].config_source) == STATIC


def test_synonyms_and_documentation_are_told_when_they_are_asked_for(cluster: Cluster) -> None:
    quiet = described(cluster, "t")["retention.ms"]
    assert quiet.synonyms == () and quiet.documentation is None
    told = described(cluster, "t", include_synonyms=True, include_documentation=True)
    assert [(each.name, each.value, int(each.source)) for each in told["retention.ms"].synonyms] == [
        ("retention.ms", "7", DYNAMIC),
        ("retention.ms", "50000", STATIC),
        ("retention.ms", "-1", DEFAULT),
    ]
    assert [(each.name, int(each.source)) for each in told["segment.bytes"].synonyms] == [
        ("segment.bytes", DYNAMIC),
        ("log.segment.bytes", DEFAULT),
    ]
    assert "changes nothing" in told["min.insync.replicas"].documentation
    assert all(config.documentation for config in told.values())
    assert [int(told[name].config_type) for name in ("cleanup.policy", "segment.bytes", "retention.ms")] == [7, 3, 5]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("detailed", [True, False])
def test_every_version_is_answered(cluster: Cluster, version: int, detailed: bool) -> None:
    made = schema("describe_configs", version)
    resources = tuple(
        made.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, "t"), (BROKER, "1"), (2, "none"), (9, "x"))
    )
    details = {"include_synonyms": detailed} | ({"include_documentation": detailed} if version >= 3 else {})
    answer = cluster.ask(
        cluster.nodes[1],  # type: ignore[index]
        ApiKey.DESCRIBE_CONFIGS,
        made.DescribeConfigsRequest(resources=resources, **details),
        version=version,
    )
    assert encode_response(RequestHeader(ApiKey.DESCRIBE_CONFIGS, version, 1, "c"), answer)
    assert [int(each.error_code) for each in answer.results] == [0, 0, 3, 42]


def test_what_is_deleted_follows_the_node_again(cluster: Cluster) -> None:
    created(cluster, "again", retention_ms="9")
    alter(cluster, "again", "retention.ms")
    config = described(cluster, "again")["retention.ms"]
    assert (config.value, int(config.config_source)) == ("50000", STATIC)


def test_a_node_tells_its_own_settings(cluster: Cluster) -> None:
    node = cluster.leader()
    told = described(cluster, str(node.config.node_id), node, kind=BROKER)
    assert told["auto.create.topics.enable"].value == "false" and told["log.segment.bytes"].value == "134217728"
    assert all(config.read_only for config in told.values())


def test_one_answer_tells_of_so_many_topics(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of ten thousand would keep the node for seconds."""
    monkeypatch.setattr(configs, "TOPICS_TOLD_MAX", 1)
    made = schema("describe_configs", 4)
    resources = tuple(
        made.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, "none"), (2, "t"), (2, "plain"), (BROKER, "1"), (2, "none-either"))
    )
    request = made.DescribeConfigsRequest(resources=resources)
    results = cluster.ask(cluster.leader(), ApiKey.DESCRIBE_CONFIGS, request, version=4).results
    assert [int(each.error_code) for each in results] == [3, 0, 42, 0, 3]
    assert results[2].configs == () and "in another one" in results[2].error_message


def test_nobody_sets_configs_of_the_quorums_own_log(cluster: Cluster) -> None:
    assert all(config.read_only for config in described(cluster, METADATA_TOPIC).values())


def test_another_topics_configs_are_not_told(cluster: Cluster) -> None:
    assert described(cluster, "plain")["segment.bytes"].value == "134217728"
