"""Who creates a topic finds its leaders right after, at the node that answered: see `first_leaders`."""

from __future__ import annotations

import datetime
import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NO_LEADER, NodeId
from raftlake.replica.hosting.first_leaders import FirstLeaders, leader_for_clients
from raftlake.replica.node import ReplicaNode
from raftlake.replica.reserved import Topic
from raftlake.replica.timers import TimerQueue
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster

TOPIC = Topic("t", bytes(range(16)), 3, {})
GROUPS = TOPIC.groups()
REPORT: Any = None


# --- through the messages that clients send ---


def creation(*names: str, partitions: int = 3, timeout_ms: int = 5_000, validate_only: bool = False) -> Any:
    schema = importlib.import_module("kio.schema.create_topics.v7.request")
    topics = tuple(
        schema.CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, assignments=(), configs=())
        for name in names
    )
    timeout = datetime.timedelta(milliseconds=timeout_ms)
    return schema.CreateTopicsRequest(topics=topics, timeout=timeout, validate_only=validate_only)


def leaders_told(cluster: Cluster, node: ReplicaNode, name: str) -> list[int]:
    """As Metadata says them now: no time passes."""
    schema: Any = importlib.import_module("kio.schema.metadata.v12.request")
    asked = (schema.MetadataRequestTopic(name=name, topic_id=None),)
    request = schema.MetadataRequest(topics=asked, include_topic_authorized_operations=False)
    (answer,) = cluster.send(node, ApiKey.METADATA, request, version=12)
    (topic,) = answer.topics
    assert topic.error_code == ErrorCode.NONE
    return [partition.leader_id for partition in topic.partitions]


@pytest.mark.parametrize("partitions", [1, 3, 40])
@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_metadata_names_the_leaders_as_soon_as_the_creation_is_answered(node_id: int, partitions: int) -> None:
    cluster = Cluster()
    cluster.run(1_000)
    node = cluster.nodes[NodeId(node_id)]
    (result,) = cluster.ask(node, ApiKey.CREATE_TOPICS, creation("t", partitions=partitions), version=7).topics
    assert (int(result.error_code), result.num_partitions) == (ErrorCode.NONE, partitions)
    leaders = leaders_told(cluster, node, "t")
    assert len(leaders) == partitions and set(leaders) <= {1, 2, 3}


def test_the_very_first_topic_waits_for_the_addresses_of_its_leaders() -> None:
    """A leader whose address is not known yet is none to clients."""
    cluster = Cluster()
    node = cluster.leader()
    assert len(node.membership.nodes()) == 1
    (result,) = cluster.ask(node, ApiKey.CREATE_TOPICS, creation("t"), version=7).topics
    assert int(result.error_code) == ErrorCode.NONE
    assert set(leaders_told(cluster, node, "t")) == {1, 2, 3}


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1])
def test_when_the_time_is_over_first_the_topic_is_there_and_the_answer_says_so(timeout_ms: int) -> None:
    cluster = Cluster()
    cluster.run(1_000)
    node = cluster.followers()[0]
    (result,) = cluster.ask(node, ApiKey.CREATE_TOPICS, creation("t", partitions=40, timeout_ms=timeout_ms), version=7).topics
    assert int(result.error_code) == ErrorCode.REQUEST_TIMED_OUT
    assert "exists" in result.error_message and f"{timeout_ms} ms" in result.error_message
    assert NO_LEADER in leaders_told(cluster, node, "t")
    cluster.run(2_000, until=lambda: NO_LEADER not in leaders_told(cluster, node, "t"))


def test_each_topic_of_a_request_waits_for_its_own_leaders() -> None:
    cluster = Cluster()
    cluster.run(1_000)
    node = cluster.followers()[0]
    results = cluster.ask(node, ApiKey.CREATE_TOPICS, creation("one", "not/one", "two"), version=7).topics
    expected = [("one", ErrorCode.NONE), ("not/one", ErrorCode.INVALID_TOPIC_EXCEPTION), ("two", ErrorCode.NONE)]
    assert [(result.name, int(result.error_code)) for result in results] == expected
    for name in ("one", "two"):
        assert NO_LEADER not in leaders_told(cluster, node, name)


def test_nothing_waits_after_the_answer() -> None:
    cluster = Cluster()
    cluster.run(1_000)
    for number in range(3):
        for node in cluster.nodes.values():
            cluster.ask(node, ApiKey.CREATE_TOPICS, creation(f"t{number}-{node.config.node_id}"), version=7)
    assert all(not node.first_leaders._waiting for node in cluster.nodes.values())


# --- alone ---


class Scene:
    """A node that hosts what the test says, and one topic."""

    def __init__(self) -> None:
        self.timers = TimerQueue()
        self.engine: Any = SimpleNamespace(now_ms=0, timers=self.timers, partitions={})
        self.topics: dict[str, Topic] = {TOPIC.name: TOPIC}
        self.nodes: set[int] = {1, 2, 3}
        kv: Any = SimpleNamespace(state=SimpleNamespace(topics=self.topics))
        self.looks = 0
        self.leaders = FirstLeaders(self.engine, kv, self._present)
        self.told: list[bool] = []

    def _present(self) -> Any:
        self.looks += 1
        return self.nodes

    def lead(self, group: GroupId, leader_id: int) -> None:
        self.engine.partitions[group] = SimpleNamespace(core=SimpleNamespace(leader_id=leader_id))
        self.leaders.on_role(group, REPORT)

    def wait(self, deadline_ms: int = 100) -> None:
        self.leaders.wait(TOPIC, deadline_ms, self.told.append)

    def pass_to(self, now_ms: int) -> None:
        self.engine.now_ms = now_ms
        self.timers.run_due(now_ms)


def test_it_ends_with_the_last_leader_and_once() -> None:
    scene = Scene()
    scene.wait()
    for group in GROUPS:
        assert scene.told == []
        scene.lead(group, 2)
    assert scene.told == [True]
    scene.lead(GROUPS[0], 3)
    scene.pass_to(1_000)
    assert scene.told == [True]
    assert not scene.leaders._waiting


def test_a_leader_that_is_lost_meanwhile_is_waited_for_again() -> None:
    scene = Scene()
    for group in GROUPS[1:]:
        scene.lead(group, 2)
    scene.wait()
    scene.lead(GROUPS[2], NO_LEADER)
    scene.lead(GROUPS[0], 1)
    assert scene.told == []
    scene.lead(GROUPS[2], 3)
    assert scene.told == [True]


def test_leaders_that_are_there_already_are_not_waited_for() -> None:
    scene = Scene()
    for group in GROUPS:
        scene.lead(group, 1)
    scene.wait(deadline_ms=0)
    assert scene.told == [True]


def test_the_deadline_ends_it_and_nothing_later_is_said() -> None:
    scene = Scene()
    scene.wait(deadline_ms=100)
    scene.pass_to(99)
    assert scene.told == []
    scene.pass_to(100)
    assert scene.told == [False]
    for group in GROUPS:
        scene.lead(group, 1)
    assert scene.told == [False]


def test_a_leader_whose_address_comes_later_is_noticed_without_an_election() -> None:
    scene = Scene()
    scene.nodes = {1}
    scene.wait()
    for group in GROUPS:
        scene.lead(group, 2)
    scene.leaders.tick()
    assert scene.told == []
    scene.nodes.add(2)
    scene.leaders.tick()
    assert scene.told == [True]


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created anew"])
def test_a_topic_that_goes_meanwhile_was_created_all_the_same(again: bool) -> None:
    scene = Scene()
    scene.wait()
    del scene.topics[TOPIC.name]
    if again:
        scene.topics[TOPIC.name] = Topic(TOPIC.name, bytes(16), 1, {})
    scene.leaders.tick()
    assert scene.told == [True]


def test_two_who_wait_for_one_topic_are_both_told() -> None:
    scene = Scene()
    scene.wait(deadline_ms=50)
    scene.wait(deadline_ms=100)
    scene.pass_to(60)
    assert scene.told == [False]
    for group in GROUPS:
        scene.lead(group, 1)
    assert scene.told == [False, True]


def test_elections_elsewhere_cost_nothing() -> None:
    scene = Scene()
    scene.wait()
    before = scene.looks
    scene.lead(GroupId("other", 0, bytes(16)), 1)
    assert scene.looks == before


def test_the_leader_that_clients_are_told() -> None:
    led: Any = SimpleNamespace(core=SimpleNamespace(leader_id=2))
    assert [leader_for_clients(each, {2}) for each in (led, None)] == [2, NO_LEADER]
    assert leader_for_clients(led, {1, 3}) == NO_LEADER
