"""Who tells that a topic was created or deleted, and how often."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest

from enginekit import Ground
from raftlake.errors import ErrorCode
from raftlake.raft.types import NodeId
from raftlake.replica.config import ClientContext
from raftlake.replica.hosting.topic_news import TopicChanges, TopicNews
from raftlake.replica.node import ReplicaNode
from raftlake.replica.reserved import Topic
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster

TOPIC = Topic("orders", b"o" * 16, 3)
CLIENT, OTHER = ClientContext("c", "h"), ClientContext("other", "h")


class Told:
    """What each node of a cluster tells, from now on."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.lines: list[tuple[NodeId, str, str, ClientContext | None]] = []
        for node in cluster.nodes.values():
            self.listen(node)

    def listen(self, node: ReplicaNode) -> None:
        def tell(news: TopicNews) -> None:
            what = "created" if news.is_created else "deleted"
            self.lines.append((node.config.node_id, what, news.topic.name, news.client))

        node.topics.changes.listeners.append(tell)

    def ask(self, node: ReplicaNode, what: str, name: str) -> int:
        """A client's request; then all nodes have applied it."""
        kind = importlib.import_module(f"kio.schema.{what}_topics.v6.request")
        if what == "create":
            topic = kind.CreatableTopic(name=name, num_partitions=2, replication_factor=-1, assignments=(), configs=())
            answer: Any = self.cluster.ask(node, ApiKey.CREATE_TOPICS, kind.CreateTopicsRequest(topics=(topic,)), version=6)
            error = int(answer.topics[0].error_code)
        else:
            request = kind.DeleteTopicsRequest(
                topics=(kind.DeleteTopicState(name=name, topic_id=None),), timeout=timedelta(seconds=5)
            )
            error = int(self.cluster.ask(node, ApiKey.DELETE_TOPICS, request, version=6).responses[0].error_code)
        self.cluster.run(1_000)
        return error


@pytest.mark.parametrize("at_leader", [True, False])
def test_the_leader_tells_a_change_once_and_the_node_that_was_asked_tells_by_whom(at_leader: bool) -> None:
    cluster = Cluster()
    leader = cluster.leader()
    asked = leader if at_leader else cluster.followers()[0]
    told = Told(cluster)
    for what in ("create", "delete"):
        told.lines.clear()
        assert told.ask(asked, what, "t") == ErrorCode.NONE
        expected = {(asked.config.node_id, f"{what}d", "t", cluster.client)}
        if not at_leader:
            expected.add((leader.config.node_id, f"{what}d", "t", None))
        assert len(told.lines) == len(expected) and set(told.lines) == expected


def test_what_was_refused_is_no_news() -> None:
    cluster = Cluster()
    told = Told(cluster)
    assert told.ask(cluster.leader(), "create", "t") == ErrorCode.NONE
    told.lines.clear()
    for node in cluster.nodes.values():
        assert told.ask(node, "create", "t") == ErrorCode.TOPIC_ALREADY_EXISTS
        assert told.ask(node, "delete", "other") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert told.ask(node, "create", "a b") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert told.lines == []
    assert all(not node.topics.changes._asked for node in cluster.nodes.values())


def test_what_nodes_learn_at_their_start_and_new_leaders_at_their_election_is_no_news() -> None:
    cluster = Cluster()
    cluster.create_topic("old")
    nodes = list(cluster.nodes)
    for node_id in nodes:
        cluster.stop(node_id)
    for node_id in nodes:
        cluster.start(node_id)
    told = Told(cluster)
    cluster.run(20_000, until=lambda: all(node.names.topic("old") for node in cluster.nodes.values()))
    first = cluster.leader()
    assert all(node.names.topic("old") for node in cluster.nodes.values())
    cluster.stop(first.config.node_id)
    second = cluster.leader()
    assert second is not first and told.lines == []
    assert told.ask(second, "create", "new") == ErrorCode.NONE
    assert told.lines == [(second.config.node_id, "created", "new", cluster.client)]


def test_a_leader_that_has_just_started_tells_what_was_created_since() -> None:
    """The first keys that it applies may hold old topics, and one that a client made at once."""
    cluster = Cluster(1)
    cluster.create_topic("old")
    (node_id,) = cluster.nodes
    cluster.stop(node_id)
    cluster.start(node_id)
    told = Told(cluster)
    cluster.leader()
    assert told.ask(cluster.leader(), "create", "new") == ErrorCode.NONE
    assert [line[1:] for line in told.lines] == [("created", "new", cluster.client)]


class World:
    def __init__(self, *, leads: bool) -> None:
        self.ground = Ground(1 if leads else 3)
        self.partition = self.ground.lead() if leads else self.ground.host()
        self.changes = TopicChanges(self.ground.engine)
        self.told: list[tuple[bool, ClientContext | None]] = []
        self.changes.listeners.append(lambda news: self.told.append((news.is_created, news.client)))


@pytest.mark.parametrize("is_created", [True, False])
def test_one_line_where_the_leader_was_asked(is_created: bool) -> None:
    world = World(leads=True)
    world.changes.proposed(TOPIC, CLIENT, is_created=is_created)
    world.changes.applied(TOPIC, 5, is_created=is_created, is_current=True)
    world.changes.over(TOPIC, is_created=is_created, is_done=True)
    assert world.told == [(is_created, CLIENT)] and not world.changes._asked


def test_another_node_tells_only_what_it_was_asked_for() -> None:
    world = World(leads=False)
    world.changes.applied(TOPIC, 5, is_created=True, is_current=True)
    assert world.told == []
    world.changes.proposed(TOPIC, CLIENT, is_created=True)
    world.changes.over(TOPIC, is_created=True, is_done=True)
    assert world.told == [(True, CLIENT)]


def test_what_was_not_carried_out_is_told_by_nobody() -> None:
    world = World(leads=True)
    world.changes.proposed(TOPIC, CLIENT, is_created=True)
    world.changes.over(TOPIC, is_created=True, is_done=False)
    assert world.told == [] and not world.changes._asked
    world.changes.applied(TOPIC, 5, is_created=True, is_current=True)
    assert world.told == [(True, None)], "it was carried out later"


def test_the_first_of_two_clients_is_named_and_no_client_is_none() -> None:
    world = World(leads=True)
    for client in (CLIENT, OTHER, None):
        world.changes.proposed(TOPIC, client, is_created=False)
    world.changes.applied(TOPIC, 5, is_created=False, is_current=True)
    world.changes.over(TOPIC, is_created=False, is_done=True)
    world.changes.over(TOPIC, is_created=False, is_done=False)
    assert world.told == [(False, CLIENT)]


def test_a_node_that_catches_up_tells_what_is_of_its_own_epoch() -> None:
    world = World(leads=True)
    begins = world.partition.core.epoch_start_offset
    for version in (begins - 1, begins, begins + 1):
        world.changes.applied(TOPIC, version, is_created=True, is_current=False)
    assert len(world.told) == 1


def test_a_node_without_the_metadata_log_tells_nothing() -> None:
    world = World(leads=True)
    world.ground.engine.partitions.clear()
    world.changes.applied(TOPIC, 5, is_created=True, is_current=True)
    assert world.told == []
