"""CreatePartitions through the messages that clients send: what is answered, and that every node hosts what was added."""

from __future__ import annotations

import importlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Compare, Put, Txn
from raftlake.kv.keys import topic_key
from raftlake.ports.driver import Origin
from raftlake.raft.types import DirectoryId, NodeId, ReplicaKey, VoterEndpoint, VoterSet
from raftlake.replica.config import METADATA_TOPIC
from raftlake.replica.node import ReplicaNode
from raftlake.replica.reserved import Topic, decode_topic
from raftlake.replica.reserved_rules import PARTITIONS_MAX, ReservedRules
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch

#: At a limit of 20, of which the quorum's own log takes one.
TOO_MANY = (
    "{} more partitions would exceed the limit of 19 for all topics together, those that are just being created included: ask "
    "for fewer, or delete topics"
)


def request(*asked: tuple[str, int], version: int = 3, timeout_ms: int = 5_000, **fields: Any) -> Any:
    schema: Any = importlib.import_module(f"kio.schema.create_partitions.v{version}.request")
    assignments = fields.pop("assignments", None)
    topics = tuple(schema.CreatePartitionsTopic(name=name, count=count, assignments=assignments) for name, count in asked)
    timeout = timedelta(milliseconds=timeout_ms)
    return schema.CreatePartitionsRequest(topics=topics, timeout=timeout, validate_only=fields.pop("validate_only", False))


def told(answer: Any) -> list[tuple[str, ErrorCode, str | None]]:
    return [(each.name, ErrorCode(int(each.error_code)), each.error_message) for each in answer.results]


def ask(cluster: Cluster, node: ReplicaNode, *asked: tuple[str, int], **fields: Any) -> list[tuple[str, ErrorCode, str | None]]:
    version = fields.pop("version", 3)
    return told(cluster.ask(node, ApiKey.CREATE_PARTITIONS, request(*asked, version=version, **fields), version=version))


def counts(cluster: Cluster, name: str) -> set[int]:
    """How many partitions each node knows, and hosts."""
    found = set()
    for node in cluster.nodes.values():
        topic = node.names.topic(name)
        assert topic is not None
        found |= {topic.partitions, sum(group.topic == name for group in node.partitions)}
    return found


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("at_leader", [True, False])
def test_a_topic_gets_more_partitions_and_keeps_its_records(version: int, at_leader: bool) -> None:
    cluster = Cluster(3)
    (first,) = cluster.create_topic("t")
    cluster.produce(first, batch(b"old"))
    node = cluster.leader() if at_leader else cluster.followers()[0]
    assert ask(cluster, node, ("t", 3), version=version) == [("t", ErrorCode.NONE, None)]
    cluster.run(3_000, until=lambda: counts(cluster, "t") == {3})
    for index in (1, 2):
        group = first._replace(partition=index)
        cluster.leader(group)
        assert cluster.produce(group, batch(b"new")).error is ErrorCode.NONE
    assert cluster.fetch(cluster.leader(first), first, 1).error is ErrorCode.NONE
    assert all(node.kv.state.partition_count == 4 for node in cluster.nodes.values())


def test_added_partitions_are_there_after_a_restart_of_all_nodes() -> None:
    cluster = Cluster(3)
    cluster.create_topic("t")
    ask(cluster, cluster.leader(), ("t", 4))
    cluster.run(3_000)
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in cluster.machines:
        cluster.start(node_id)
    cluster.run(10_000, until=lambda: all(node.names.topic("t") for node in cluster.nodes.values()))
    cluster.run(10_000, until=lambda: counts(cluster, "t") == {4})


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (3, "Topic already has 3 partition(s)."),
        (2, "The topic t currently has 3 partition(s); 2 would not be an increase."),
        (0, "The topic t currently has 3 partition(s); 0 would not be an increase."),
        (-1, "The topic t currently has 3 partition(s); -1 would not be an increase."),
        (20, TOO_MANY.format(17)),
        (PARTITIONS_MAX + 1, TOO_MANY.format(PARTITIONS_MAX - 2)),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_counts_that_cannot_be_had_are_refused(count: int, words: str, validate_only: bool) -> None:
    cluster = Cluster(1, partitions_max=20)
    cluster.create_topic("t", 3)
    answer = ask(cluster, cluster.leader(), ("t", count), validate_only=validate_only)
    assert answer == [("t", ErrorCode.INVALID_PARTITIONS, words)]
    assert counts(cluster, "t") == {3}


def test_the_limit_itself_can_be_had_since_what_stands_counts_once() -> None:
    cluster = Cluster(3, partitions_max=20)
    cluster.create_topic("t", 15)
    for node, count in ((cluster.followers()[0], 18), (cluster.leader(), 19)):
        assert ask(cluster, node, ("t", count)) == [("t", ErrorCode.NONE, None)]
    assert cluster.leader().kv.room.partitions_under_way == 0


def test_validate_only_changes_nothing() -> None:
    cluster = Cluster(1)
    cluster.create_topic("t")
    assert ask(cluster, cluster.leader(), ("t", 5), validate_only=True) == [("t", ErrorCode.NONE, None)]
    cluster.run(1_000)
    assert counts(cluster, "t") == {1}


def test_what_kafka_refuses_is_refused() -> None:
    cluster = Cluster(1)
    cluster.create_topic("t")
    leader = cluster.leader()
    asked = ("t", 3), ("t", 4), ("none", 2), (METADATA_TOPIC, 2)
    assert [(name, error) for name, error, _ in ask(cluster, leader, *asked)] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (METADATA_TOPIC, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    schema: Any = importlib.import_module("kio.schema.create_partitions.v3.request")
    for assignments in ((), (schema.CreatePartitionsAssignment(broker_ids=(1,)),)):
        (answer,) = ask(cluster, leader, ("t", 2), assignments=assignments)
        assert answer[1] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert ask(cluster, leader) == []
    assert counts(cluster, "t") == {1}


def test_two_who_let_a_topic_grow_at_once_both_hear_the_truth() -> None:
    """The second one finds the topic changed, and looks again."""
    cluster = Cluster(3)
    cluster.create_topic("t")
    nodes = cluster.leader(), cluster.followers()[0], cluster.followers()[1]
    answers = [
        cluster.send(node, ApiKey.CREATE_PARTITIONS, request(("t", count)), version=3)
        for node, count in zip(nodes, (3, 5, 5), strict=True)
    ]
    cluster.run(5_000, until=lambda: all(answers))
    three, *fives = [told(each[0])[0][1] for each in answers]
    assert sorted(fives) == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]
    assert three in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)
    cluster.run(3_000, until=lambda: counts(cluster, "t") == {5})


def test_without_a_quorum_the_time_of_the_request_ends_it() -> None:
    cluster = Cluster(3)
    cluster.create_topic("t")
    leader = cluster.leader()
    for node in cluster.followers():
        cluster.pause(node.config.node_id)
    answers = cluster.send(leader, ApiKey.CREATE_PARTITIONS, request(("t", 3), timeout_ms=300), version=3)
    cluster.run(299)
    assert answers == []
    cluster.run(5)
    assert told(answers[0])[0][1] is ErrorCode.REQUEST_TIMED_OUT


# --- who votes in what was added ---

OLD, NEW = (
    VoterSet({}).with_voter(ReplicaKey(NodeId(each), DirectoryId(bytes([each] * 16))), (VoterEndpoint("C", "h", 9093),))
    for each in (1, 2)
)
TOPIC = Topic("t", bytes(range(1, 17)), 2, {}, OLD)


def test_added_partitions_begin_with_those_who_vote_then() -> None:
    grown = TOPIC.with_partitions(4, NEW).with_partitions(5, NEW).with_partitions(7, OLD)
    assert [grown.voters_of(index) for index in range(7)] == [OLD, OLD, NEW, NEW, NEW, OLD, OLD]
    assert grown.grown == ((2, NEW), (5, OLD))
    assert decode_topic("t", grown.encode(), PARTITIONS_MAX) == grown
    assert TOPIC.with_partitions(4, OLD).grown == TOPIC.with_partitions(4, None).grown == ()
    assert replace(TOPIC, voters=None).with_partitions(4, NEW).voters_of(1) is None


@pytest.mark.parametrize("first", [0, 7, 5, 2])
def test_what_was_added_begins_within_the_topic_and_in_order(first: int) -> None:
    topic = replace(TOPIC, partitions=7, grown=((2, NEW), (first, OLD)))
    found = decode_topic("t", topic.encode(), PARTITIONS_MAX)
    assert (found == topic) is (first == 5)


def test_a_group_that_was_added_is_led_by_those_who_vote_now() -> None:
    """The voters were others when the topic was created. Those may be gone, and would never elect a leader."""
    cluster = Cluster(3, directories=True)
    cluster.create_topic("t")
    committed = cluster.leader().quorum.committed
    assert committed is not None
    ask(cluster, cluster.leader(), ("t", 2))
    topic = cluster.leader().kv.state.topics["t"]
    assert topic.voters_of(1) == committed


@pytest.mark.parametrize(
    ("changed", "is_taken"),
    [
        (TOPIC.with_partitions(4, NEW).with_partitions(5, NEW), True),
        (replace(TOPIC, partitions=5), False),
        (replace(TOPIC, partitions=5, grown=((2, OLD),)), False),
        (replace(TOPIC, partitions=5, grown=((2, NEW), (3, OLD))), False),
        (replace(TOPIC, partitions=5, grown=((2, NEW), (4, OLD))), True),
    ],
)
def test_partitions_keep_the_voters_that_they_began_with(changed: Topic, is_taken: bool) -> None:
    rules, standing = ReservedRules(), TOPIC.with_partitions(4, NEW)
    assert rules.take(topic_key("t"), standing.encode(), 1, None) is None
    assert (rules.take(topic_key("t"), changed.encode(), 2, None) is None) is is_taken
    assert rules.topics["t"] == (changed if is_taken else standing)
    assert rules.partitions == rules.topics["t"].partitions


def test_another_node_may_let_a_topic_grow_or_change_its_configs_and_nothing_else() -> None:
    cluster = Cluster(1)
    cluster.create_topic("t", 2)
    leader = cluster.leader()
    topic, entry = leader.kv.state.topics["t"], leader.kv.machine.get(topic_key("t"))
    assert entry is not None

    def refusal(changed: Topic, version: int = entry.version) -> str | None:
        put = Put(topic_key("t"), changed.encode())
        return leader.kv.gate.refusal(Txn((Compare(put.key, version),), (put,)), Origin.PEER, NodeId(2))

    assert refusal(topic.with_partitions(3, NEW)) is None
    assert refusal(topic, entry.version + 1) is None, "its condition refuses it"
    for bad in (
        topic,
        replace(topic, partitions=1),
        replace(topic, partitions=3, topic_id=bytes(range(1, 17))),
        replace(topic, partitions=3, configs={"a": "b"}),
        replace(topic, partitions=3, voters=NEW),
    ):
        assert refusal(bad) is not None
    assert refusal(replace(topic, configs={"a": "b"})) is None, "its configs may change, the topic staying what it is"
