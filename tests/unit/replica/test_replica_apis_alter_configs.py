"""AlterConfigs and IncrementalAlterConfigs through the messages that clients send, and configs of new topics."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from configkit import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    alteration,
    create,
    created,
    own,
    replacement,
    schema,
    send,
    settle,
)
from raftlake.errors import ErrorCode
from raftlake.replica.config import METADATA_TOPIC
from raftlake.replica.node import ReplicaNode
from raftlake.wire.api import ApiKey, RequestHeader, encode_response
from replica_cluster import Cluster

OK = (0, None)
TIMEOUT = timedelta(seconds=5)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


def fresh(cluster: Cluster, **configs: str) -> str:
    """The name of a new topic."""
    name = f"t{len(cluster.leader().names.all())}"
    created(cluster, name, **configs)
    return name


def nodes(cluster: Cluster) -> list[ReplicaNode]:
    return list(cluster.nodes.values())


# --- new topics -----------------------------------------------------------------------------------------------------------


def test_a_new_topic_has_what_was_asked_for_on_every_node(cluster: Cluster) -> None:
    name = fresh(cluster, retention_ms="+60000", segment_bytes="20000")
    settle(cluster)
    for node in nodes(cluster):
        assert own(cluster, name, node) == {"retention.ms": "60000", "segment.bytes": "20000"}


def test_the_answer_tells_the_configs_of_the_new_topic(cluster: Cluster) -> None:
    answer = create(cluster, "told", {"retention.ms": "7"})
    told = {config.name: (config.value, int(config.config_source)) for config in answer.configs}
    assert told["retention.ms"] == ("7", 1) and told["retention.bytes"] == ("-1", 5)


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6, 7])
def test_every_version_of_a_creation_is_answered(cluster: Cluster, version: int) -> None:
    made = schema("create_topics", version)
    config = made.CreatableTopicConfig(name="retention.ms", value="5")
    topic = made.CreatableTopic(name=f"v{version}", num_partitions=1, replication_factor=3, assignments=(), configs=(config,))
    answer = cluster.ask(
        cluster.leader(),
        ApiKey.CREATE_TOPICS,
        made.CreateTopicsRequest(topics=(topic,), timeout=TIMEOUT),
        version=version,
    )
    assert encode_response(RequestHeader(ApiKey.CREATE_TOPICS, version, 1, "c"), answer)
    assert own(cluster, f"v{version}") == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("configs", "why"),
    [
        ({"cleanup.policy": "keep"}, "accepted is delete, compact"),
        ({"retention.ms": "5", "color": "red"}, "color is not known here"),
        ({"retention.ms": "-7"}, "retention.ms=-7: accepted is"),
        ({"retention.ms": None}, "Null value not supported for : retention.ms"),
        ({"min.insync.replicas": "3"}, "from 1 to 2, the majority"),
        ({"local.retention.ms": "5"}, "no remote tier"),
    ],
)
@pytest.mark.parametrize("only", [True, False])
def test_a_creation_with_a_bad_config_creates_nothing(
    cluster: Cluster, configs: dict[str, str | None], why: str, only: bool
) -> None:
    answer = create(cluster, "bad", configs, validate_only=only)
    assert int(answer.error_code) == ErrorCode.INVALID_CONFIG and why in answer.error_message
    assert cluster.leader().names.topic("bad") is None


def test_a_creation_that_is_only_looked_at_creates_nothing(cluster: Cluster) -> None:
    assert int(create(cluster, "looked", {"retention.ms": "5"}, validate_only=True).error_code) == ErrorCode.NONE
    assert cluster.leader().names.topic("looked") is None


# --- changes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_a_change_at_any_node_is_known_to_all(cluster: Cluster, version: int) -> None:
    name = fresh(cluster, retention_ms="5")
    for number, node in enumerate(nodes(cluster)):
        changes = [("segment.bytes", SET, str(20_000 + number)), ("retention.ms", DELETE, None)]
        assert send(cluster, alteration((TOPIC, name, changes), version=version), node) == {name: OK}
        assert own(cluster, name, node) == {"segment.bytes": str(20_000 + number)}, "answered when it is applied"
        settle(cluster)
        assert all(own(cluster, name, other) == {"segment.bytes": str(20_000 + number)} for other in nodes(cluster))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_alter_configs_does_not_name_is_deleted(cluster: Cluster, version: int) -> None:
    name = fresh(cluster, retention_ms="5", segment_ms="6")
    assert send(cluster, replacement((TOPIC, name, [("segment.ms", "7")]), version=version)) == {name: OK}
    assert own(cluster, name) == {"segment.ms": "7"}
    assert send(cluster, replacement((TOPIC, name, []), version=version)) == {name: OK}
    assert own(cluster, name) == {}


def test_lists_are_changed_by_their_entries(cluster: Cluster) -> None:
    name = fresh(cluster)
    assert send(cluster, alteration((TOPIC, name, [("cleanup.policy", APPEND, "delete")]))) == {name: OK}
    assert own(cluster, name) == {"cleanup.policy": "delete"}
    (told,) = send(cluster, alteration((TOPIC, name, [("cleanup.policy", SUBTRACT, "delete")]))).values()
    assert told[0] == ErrorCode.INVALID_CONFIG and own(cluster, name) == {"cleanup.policy": "delete"}


def test_each_resource_is_answered_by_itself(cluster: Cluster) -> None:
    first, second = fresh(cluster), fresh(cluster)
    good, bad = [("retention.ms", SET, "5")], [("retention.ms", SET, "-5")]
    told = send(cluster, alteration((TOPIC, first, good), (TOPIC, second, bad), (TOPIC, "none", good), (BROKER, "1", good)))
    assert told[first] == OK
    assert {name: told[name][0] for name in (second, "none", "1")} == {
        second: ErrorCode.INVALID_CONFIG,
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "1": ErrorCode.INVALID_REQUEST,
    }
    assert (own(cluster, first), own(cluster, second)) == ({"retention.ms": "5"}, {})
    assert send(cluster, alteration()) == {}


def test_one_bad_config_leaves_the_topic_as_it_was(cluster: Cluster) -> None:
    name = fresh(cluster, retention_ms="5")
    (told,) = send(cluster, alteration((TOPIC, name, [("retention.ms", SET, "6"), ("color", SET, "red")]))).values()
    assert told[0] == ErrorCode.INVALID_CONFIG and "color" in (told[1] or "")
    assert own(cluster, name) == {"retention.ms": "5"}


@pytest.mark.parametrize("make", [alteration, replacement])
def test_a_resource_that_stands_twice_is_refused(cluster: Cluster, make: Any) -> None:
    name = fresh(cluster, retention_ms="5")
    given: list[Any] = [("retention.ms", SET, "6")] if make is alteration else [("retention.ms", "6")]
    told = send(cluster, make((TOPIC, name, given), (TOPIC, name, given)))
    assert told == {name: (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")}
    assert own(cluster, name) == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([("retention.ms", SET, "6"), ("retention.ms", DELETE, None)], "Error due to duplicate config keys: retention.ms"),
        ([("retention.ms", SET, None)], "Null value not supported for : retention.ms"),
        ([("cleanup.policy", APPEND, None)], "Null value not supported for : cleanup.policy"),
        ([("retention.ms", 4, "6")], "Unknown operation type 4"),
        ([("retention.ms", -1, "6")], "Unknown operation type -1"),
    ],
)
def test_changes_that_mean_nothing_are_refused(cluster: Cluster, changes: Any, why: str) -> None:
    name = fresh(cluster)
    assert send(cluster, alteration((TOPIC, name, changes))) == {name: (ErrorCode.INVALID_REQUEST, why)}


def test_a_change_that_is_only_looked_at_changes_nothing(cluster: Cluster) -> None:
    name = fresh(cluster, retention_ms="5")
    good, bad = [("retention.ms", SET, "6")], [("retention.ms", SET, "x")]
    assert send(cluster, alteration((TOPIC, name, good), only=True)) == {name: OK}
    assert send(cluster, alteration((TOPIC, name, bad), only=True))[name][0] == ErrorCode.INVALID_CONFIG
    assert send(cluster, replacement((TOPIC, name, [("segment.ms", "6")]), only=True)) == {name: OK}
    assert send(cluster, alteration((TOPIC, "none", good), only=True))["none"][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert own(cluster, name) == {"retention.ms": "5"}


def test_a_change_that_changes_nothing_writes_nothing(cluster: Cluster) -> None:
    name = fresh(cluster, retention_ms="5")
    settle(cluster)
    applied = cluster.leader().kv.machine.applied_offset
    assert send(cluster, alteration((TOPIC, name, [("retention.ms", SET, "5")]))) == {name: OK}
    assert cluster.leader().kv.machine.applied_offset == applied


@pytest.mark.parametrize(
    ("kind", "name", "code", "why"),
    [
        (BROKER, "1", ErrorCode.INVALID_REQUEST, "node.properties"),
        (BROKER, "", ErrorCode.INVALID_REQUEST, "node.properties"),
        (8, "1", ErrorCode.INVALID_REQUEST, "resource type 8 has no configs here"),
        (TOPIC, METADATA_TOPIC, ErrorCode.INVALID_TOPIC_EXCEPTION, "the quorum's own log"),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION, "must be 1 to 249"),
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'none' does not exist"),
    ],
)
@pytest.mark.parametrize("make", [alteration, replacement])
def test_what_has_no_configs_to_change(cluster: Cluster, make: Any, kind: int, name: str, code: ErrorCode, why: str) -> None:
    given: list[Any] = [("retention.ms", SET, "6")] if make is alteration else [("retention.ms", "6")]
    (told,) = send(cluster, make((kind, name, given))).values()
    assert told[0] == code and why in (told[1] or "")


def test_changes_at_the_same_time_both_count() -> None:
    """The loser of the compare-and-set looks again."""
    cluster = Cluster()
    created(cluster, "t")
    settle(cluster)
    answers = []
    for node, name in zip(cluster.nodes.values(), ("retention.ms", "segment.ms", "max.message.bytes"), strict=True):
        request = alteration((TOPIC, "t", [(name, SET, "500")]))
        answers.append(cluster.send(node, ApiKey.INCREMENTAL_ALTER_CONFIGS, request, version=1))
    cluster.run(5_000, until=lambda: all(answers))
    assert all(int(answer[0].responses[0].error_code) == 0 for answer in answers)
    settle(cluster)
    assert own(cluster, "t") == {"retention.ms": "500", "segment.ms": "500", "max.message.bytes": "500"}


def test_a_topic_that_grows_keeps_its_configs() -> None:
    cluster = Cluster()
    created(cluster, "t", retention_ms="5")
    made = schema("create_partitions", 3)
    topics = (made.CreatePartitionsTopic(name="t", count=3, assignments=None),)
    cluster.ask(
        cluster.leader(),
        ApiKey.CREATE_PARTITIONS,
        made.CreatePartitionsRequest(topics=topics, timeout=TIMEOUT, validate_only=False),
        version=3,
    )
    assert own(cluster, "t") == {"retention.ms": "5"}
    alter(cluster, "t", segment_ms="9")
    topic = cluster.leader().names.topic("t")
    assert topic is not None and topic.partitions == 3


def test_without_a_leader_nothing_is_changed_and_it_is_said() -> None:
    cluster = Cluster()
    created(cluster, "t", retention_ms="5")
    for node_id in (1, 2, 3):
        cluster.stop(node_id)
    alone = cluster.start(1)
    cluster.run(1_000)
    for only in (True, False):
        request = alteration((TOPIC, "t", [("retention.ms", SET, "6")]), only=only)
        answers = cluster.send(alone, ApiKey.INCREMENTAL_ALTER_CONFIGS, request, version=1)
        cluster.run(20_000, until=lambda: bool(answers))  # noqa: B023
        told = answers[0].responses[0]
        assert int(told.error_code) == ErrorCode.NOT_CONTROLLER and "nothing was changed" in told.error_message


def test_a_refusal_is_in_the_nodes_log_once() -> None:
    cluster = Cluster()
    created(cluster, "t")
    told: list[Any] = []
    node = cluster.leader()
    node.refused_for_good.listeners.append(told.append)
    for _ in range(3):
        send(cluster, alteration((TOPIC, "t", [("color", SET, "red")])), node)
    assert [(each.kind.what, each.subject) for each in told] == [("change the configs of a topic", "t")]
    assert "color" in told[0].why
