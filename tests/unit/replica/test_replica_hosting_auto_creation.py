"""Topics that come about because somebody asks for them, where the node's settings say so, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from configkit import own, schema
from raftlake.errors import ErrorCode
from raftlake.replica.config import ClientContext
from raftlake.replica.hosting import auto_creation
from raftlake.replica.hosting.auto_creation import AutoCreation
from raftlake.replica.hosting.topic_news import TopicNews
from raftlake.replica.node import ReplicaNode
from raftlake.replica.refused_for_good import CREATE, Refusal
from raftlake.wire.api import ApiKey
from raftlake.wire.ids import id_to_kio
from replica_cluster import Cluster

CLIENT = ClientContext("asker", "10.0.0.9")
UNKNOWN, AGAIN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE


def metadata(cluster: Cluster, *names: str, node: ReplicaNode | None = None, version: int = 12, **fields: Any) -> list[int]:
    """The errors for the topics that are asked for."""
    made = schema("metadata", version)
    ids = {"topic_id": id_to_kio(bytes(16))} if version >= 10 else {}
    asked = tuple(made.MetadataRequestTopic(name=name, **ids) for name in names)
    authorized = {"include_topic_authorized_operations": False} if version >= 8 else {}
    clusters = {"include_cluster_authorized_operations": False} if 8 <= version <= 10 else {}
    request = made.MetadataRequest(topics=asked, **authorized, **clusters, **fields)
    answer = cluster.ask(node or cluster.leader(), ApiKey.METADATA, request, version=version)
    return [int(topic.error_code) for topic in answer.topics]


def test_a_topic_comes_about_with_the_nodes_defaults() -> None:
    cluster = Cluster(auto_create_topics=True)
    follower = cluster.followers()[0]
    assert metadata(cluster, "new", node=follower, allow_auto_topic_creation=True) == [AGAIN]
    cluster.run(5_000, until=lambda: metadata(cluster, "new", allow_auto_topic_creation=True) == [ErrorCode.NONE])
    topic = cluster.leader().names.topic("new")
    assert topic is not None and (topic.partitions, dict(topic.configs)) == (1, {})
    assert own(cluster, "new") == {}


@pytest.mark.parametrize(("on", "allowed"), [(False, True), (True, False), (False, False)])
def test_nothing_comes_about_unless_node_and_client_want_it(on: bool, allowed: bool) -> None:
    cluster = Cluster(auto_create_topics=on)
    cluster.leader()
    assert metadata(cluster, "new", allow_auto_topic_creation=allowed) == [UNKNOWN]
    cluster.run(3_000)
    assert cluster.leader().names.all() == []


def test_it_is_off_by_default() -> None:
    cluster = Cluster()
    cluster.leader()
    assert metadata(cluster, "new", allow_auto_topic_creation=True) == [UNKNOWN]


def test_clients_of_old_versions_cannot_forbid_it() -> None:
    cluster = Cluster(auto_create_topics=True)
    cluster.leader()
    assert metadata(cluster, "new", version=3) == [AGAIN]


@pytest.mark.parametrize("name", ["__consumer_offsets", "__cluster_metadata_", "a b", "x" * 250])
def test_some_names_never_come_about(name: str) -> None:
    cluster = Cluster(auto_create_topics=True)
    cluster.leader()
    (error,) = metadata(cluster, name, allow_auto_topic_creation=True)
    assert error in (UNKNOWN, ErrorCode.INVALID_TOPIC_EXCEPTION)
    cluster.run(2_000)
    assert cluster.leader().names.all() == []


def test_a_topic_that_is_asked_for_by_id_does_not() -> None:
    cluster = Cluster(auto_create_topics=True)
    cluster.leader()
    made = schema("metadata", 12)
    asked = (made.MetadataRequestTopic(name=None, topic_id=id_to_kio(b"i" * 16)),)
    request = made.MetadataRequest(topics=asked, allow_auto_topic_creation=True, include_topic_authorized_operations=False)
    (topic,) = cluster.ask(cluster.leader(), ApiKey.METADATA, request, version=12).topics
    assert int(topic.error_code) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_beyond_the_limit_is_unknown_and_not_asked_for_again() -> None:
    cluster = Cluster(auto_create_topics=True, partitions_max=1)
    cluster.leader()
    told: list[Refusal] = []
    cluster.leader().refused_for_good.listeners.append(told.append)
    for _ in range(2):
        assert metadata(cluster, "new", allow_auto_topic_creation=True) == [UNKNOWN]
    (refusal,) = told
    assert (refusal.kind, refusal.subject, refusal.client) == (CREATE, "new", cluster.client)
    assert "the limit of 0 for all topics" in refusal.why


def test_the_line_of_a_topic_that_came_about_says_who_asked_for_it() -> None:
    cluster = Cluster(auto_create_topics=True)
    leader, follower = cluster.leader(), cluster.followers()[0]
    for number, node in enumerate((leader, follower)):
        told: list[TopicNews] = []
        node.topics.changes.listeners.append(told.append)
        assert metadata(cluster, f"new-{number}", node=node, allow_auto_topic_creation=True) == [AGAIN]
        cluster.run(2_000)
        assert [(news.topic.name, news.is_created, news.client) for news in told] == [(f"new-{number}", True, cluster.client)]


class Registry:
    """Notes what is to be created, and answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, dict[str, str]]] = []
        self.answers: list[Any] = []

    def create(self, name: str, partitions: int, configs: dict[str, str], done: Any, client: ClientContext) -> None:
        assert client is CLIENT
        self.asked.append((name, partitions, configs))
        self.answers.append(done)


def test_a_creation_is_under_way_once_and_is_tried_again_when_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_creation, "AT_ONCE_MAX", 2)
    cluster, registry = Cluster(1, auto_create_topics=True), Registry()
    node = cluster.leader()
    creation = AutoCreation(node.engine, registry, node.refused_for_good)  # type: ignore[arg-type]
    assert all(creation.want(name, CLIENT) for name in ("a", "a", "b", "c", "a"))
    assert registry.asked == [("a", 1, {}), ("b", 1, {})]
    registry.answers[0](None, ErrorCode.REQUEST_TIMED_OUT, "")
    assert creation.want("c", CLIENT) and creation.want("a", CLIENT)
    assert [name for name, _, _ in registry.asked] == ["a", "b", "c"]
    registry.answers[1](None, ErrorCode.NONE, "")
    assert creation.want("a", CLIENT) and [name for name, _, _ in registry.asked] == ["a", "b", "c", "a"]
