"""Topics and producer ids, through the messages that clients send."""

from __future__ import annotations

import importlib
import uuid
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.kv.commands import delete, encode, put
from raftlake.kv.keys import topic_key
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.hosting.queue import OPENED_AT_ONCE
from raftlake.replica.node import ReplicaNode
from raftlake.replica.reserved import Topic
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch
from reservedkit import commit


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


def _schema(name: str, version: int) -> Any:
    return importlib.import_module(f"kio.schema.{name}.v{version}.request")


def _send_creation(cluster: Cluster, node: object, name: str, partitions: int) -> list[Any]:
    """Without waiting for the answer."""
    schema = _schema("create_topics", 7)
    topic = schema.CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, assignments=(), configs=())
    request = schema.CreateTopicsRequest(topics=(topic,), validate_only=False)
    return cluster.send(node, ApiKey.CREATE_TOPICS, request, version=7)  # type: ignore[arg-type]


def _create(cluster: Cluster, node: object, name: str, *, partitions: int = 1, replication: int = -1, **fields: Any) -> Any:
    schema = _schema("create_topics", 7)
    topic = schema.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=(),
        configs=fields.pop("configs", ()),
    )
    request = schema.CreateTopicsRequest(topics=(topic,), validate_only=fields.pop("validate_only", False))
    return cluster.ask(node, ApiKey.CREATE_TOPICS, request, version=7).topics[0]  # type: ignore[arg-type]


def test_any_node_creates_a_topic_and_all_nodes_host_it(cluster: Cluster) -> None:
    for node in list(cluster.nodes.values()):
        name = f"made-at-{node.config.node_id}"
        result = _create(cluster, node, name, partitions=3)
        assert int(result.error_code) == ErrorCode.NONE
        assert result.num_partitions == 3
        cluster.run(1000)
        for other in cluster.nodes.values():
            topic = other.names.topic(name)
            assert topic is not None
            assert topic.topic_id == result.topic_id.bytes
            assert all(group in other.partitions for group in topic.groups())


def test_first_leaders_of_a_topic_are_spread_over_the_voters(cluster: Cluster) -> None:
    groups = cluster.create_topic("spread", 6)
    leaders = [cluster.leader(group).config.node_id for group in groups]
    assert set(leaders) == set(cluster.voters)


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a/b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__cluster_metadata", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("zero", {"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ("many", {"partitions": 1_000_000}, ErrorCode.INVALID_PARTITIONS),
        ("wide", {"replication": 7}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_what_cannot_be_created_is_refused_with_a_reason(
    cluster: Cluster, name: str, fields: dict[str, int], expected: ErrorCode
) -> None:
    result = _create(cluster, cluster.leader(), name, **fields)
    assert int(result.error_code) == expected
    assert result.error_message


def test_a_topic_is_created_once(cluster: Cluster) -> None:
    assert int(_create(cluster, cluster.leader(), "once").error_code) == ErrorCode.NONE
    assert int(_create(cluster, cluster.followers()[0], "once").error_code) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_validate_only_changes_nothing(cluster: Cluster) -> None:
    assert int(_create(cluster, cluster.leader(), "only-validated", validate_only=True).error_code) == ErrorCode.NONE
    assert cluster.leader().names.topic("only-validated") is None


@pytest.mark.parametrize("validate_only", [False, True])
def test_too_many_partitions_are_refused_also_where_a_creation_is_only_tried(validate_only: bool) -> None:
    cluster = Cluster(1, partitions_max=20)
    for partitions, error in ((20, ErrorCode.INVALID_PARTITIONS), (19, ErrorCode.NONE)):
        answer = _create(cluster, cluster.leader(), "wide", partitions=partitions, validate_only=validate_only)
        assert int(answer.error_code) == error
        told = "20 more partitions would exceed the limit of 19 for all topics"
        assert error is ErrorCode.NONE or told in answer.error_message


def test_a_topic_of_many_partitions_is_opened_in_parts_and_its_leaders_are_spread() -> None:
    cluster = Cluster()
    partitions = 3 * OPENED_AT_ONCE
    answers = _send_creation(cluster, cluster.nodes[NodeId(1)], "wide", partitions)
    seen: list[int] = []

    def are_all_led() -> bool:
        seen.append(len(cluster.nodes[NodeId(2)].partitions))
        groups = [node.partitions for node in cluster.nodes.values()]
        return all(len(each) == partitions + 1 and all(part.core.leader_id > 0 for part in each.values()) for each in groups)

    cluster.run(5000, until=are_all_led)
    assert are_all_led()
    cluster.run(1000, until=lambda: bool(answers))
    assert int(answers[0].topics[0].error_code) == ErrorCode.NONE
    assert {1 + OPENED_AT_ONCE, 1 + 2 * OPENED_AT_ONCE} <= set(seen)
    leaders = [part.core.leader_id for part in cluster.nodes[NodeId(1)].partitions.values()]
    assert min(leaders.count(node) for node in cluster.voters) >= OPENED_AT_ONCE


def test_a_topic_that_is_deleted_while_it_is_opened_leaves_nothing() -> None:
    cluster = Cluster()
    first, second = cluster.nodes[NodeId(1)], cluster.nodes[NodeId(2)]
    partitions = 10 * OPENED_AT_ONCE
    answers = _send_creation(cluster, first, "wide", partitions)
    cluster.run(1000, until=lambda: len(second.partitions) > 1 and first.names.topic("wide") is not None)
    assert 1 < len(second.partitions) < partitions and answers == []
    assert _delete(cluster, first, "wide") == ErrorCode.NONE
    cluster.run(1000, until=lambda: bool(answers))
    assert int(answers[0].topics[0].error_code) == ErrorCode.NONE, "it was created"
    cluster.run(1000)
    assert all(len(node.partitions) == 1 for node in cluster.nodes.values())
    assert all(len(disk.logs) == 1 for disk in cluster.disks.values())


def _delete(cluster: Cluster, node: object, name: str) -> int:
    schema = _schema("delete_topics", 6)
    request = schema.DeleteTopicsRequest(topics=(schema.DeleteTopicState(name=name, topic_id=None),), timeout=_timeout())
    return int(cluster.ask(node, ApiKey.DELETE_TOPICS, request, version=6).responses[0].error_code)  # type: ignore[arg-type]


def _timeout() -> Any:
    import datetime

    return datetime.timedelta(seconds=5)


def test_a_deleted_topic_leaves_no_data_and_its_name_starts_anew(cluster: Cluster) -> None:
    (old,) = cluster.create_topic("again")
    cluster.produce(old, batch(b"old"))
    assert _delete(cluster, cluster.followers()[0], "again") == ErrorCode.NONE
    cluster.run(1000)
    assert all(old not in disk.logs for disk in cluster.disks.values())
    (new,) = cluster.create_topic("again")
    assert new.topic_id != old.topic_id
    assert cluster.produce(new, batch(b"new")).base_offset == 1
    assert _delete(cluster, cluster.leader(), "never-there") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_node_that_was_down_while_a_topic_was_replaced_ends_with_the_new_one() -> None:
    cluster = Cluster()
    (old,) = cluster.create_topic("t")
    cluster.produce(old, batch(b"old"))
    down = cluster.followers()[0].config.node_id
    cluster.stop(down)
    assert _delete(cluster, cluster.leader(), "t") == ErrorCode.NONE
    cluster.run(500)
    results: list[Any] = []
    cluster.leader().topics.create("t", 1, {}, lambda *result: results.append(result))
    cluster.run(2000, until=lambda: bool(results))
    (new,) = results[0][0].groups()
    cluster.start(down)
    cluster.run(3000)
    node = cluster.nodes[down]
    assert old not in node.partitions
    assert new in node.partitions
    assert cluster.produce(new, batch(b"new")).error is ErrorCode.NONE
    cluster.run(100)
    assert node.partitions[new].high_watermark == 2


def test_a_restart_does_not_touch_the_data_of_a_topic_that_replaced_another() -> None:
    cluster = Cluster()
    cluster.create_topic("t")
    assert _delete(cluster, cluster.leader(), "t") == ErrorCode.NONE
    cluster.run(500)
    (new,) = cluster.create_topic("t")
    cluster.produce(new, batch(b"kept"))
    cluster.run(100)
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in cluster.voters:
        cluster.start(node_id)
    leader = cluster.leader(new)
    cluster.run(2000)
    assert all(node.partitions[new].high_watermark >= 2 for node in cluster.nodes.values())
    assert leader.partitions[new].log.end_offset >= 2


# --- producer ids ---


def _producer_id(cluster: Cluster, node: object, version: int = 4, **fields: Any) -> Any:
    schema = _schema("init_producer_id", version)
    request = schema.InitProducerIdRequest(
        transactional_id=fields.pop("transactional_id", None), transaction_timeout=_timeout(), **fields
    )
    return cluster.ask(node, ApiKey.INIT_PRODUCER_ID, request, version=version)  # type: ignore[arg-type]


def test_producer_ids_are_unique_over_nodes_and_restarts() -> None:
    cluster = Cluster()
    taken = [_producer_id(cluster, node).producer_id for _ in range(3) for node in cluster.nodes.values()]
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in cluster.voters:
        cluster.start(node_id)
    cluster.leader()
    cluster.run(1000)
    taken += [_producer_id(cluster, node).producer_id for node in cluster.nodes.values()]
    assert len(set(taken)) == len(taken) == 12


def _written(cluster: Cluster, topic: str, epoch: int, partitions: int = 1) -> int:
    """A producer that has written in `epoch`, to the last partition of a topic; its id."""
    producer_id = int(_producer_id(cluster, cluster.leader()).producer_id)
    group = cluster.create_topic(topic, partitions)[-1]
    data = batch(b"x", producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
    assert cluster.produce(group, data).error is ErrorCode.NONE
    cluster.run(1_000)
    return producer_id


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("named", [0, 2, 3, 4, 32_767])
def test_who_names_a_producer_gets_a_new_one(version: int, named: int) -> None:
    """As Kafka answers idempotent producers: asking about the id of another changes nothing for it."""
    cluster = Cluster(1)
    node = cluster.leader()
    producer_id = _written(cluster, "t", 3)
    taken = []
    for asked in (producer_id, producer_id, 5_000):
        answer = _producer_id(cluster, node, version, producer_id=asked, producer_epoch=named)
        assert (int(answer.error_code), int(answer.producer_epoch)) == (ErrorCode.NONE, 0)
        taken.append(int(answer.producer_id))
    assert len({producer_id, 5_000, *taken}) == 5
    following = batch(b"y", producer_id=producer_id, producer_epoch=3, base_sequence=1)
    assert cluster.produce(cluster.leader().names.resolve_group("t", 0), following).error is ErrorCode.NONE


def test_asking_for_an_id_looks_at_no_partition() -> None:
    """5,000 partitions were looked at for each request."""
    cluster = Cluster(1)
    node = cluster.leader()
    producer_id = _written(cluster, "t", 3, partitions=4)
    for partition in node.partitions.values():
        partition._facts = None  # type: ignore[assignment]
    schema = _schema("init_producer_id", 4)
    request = schema.InitProducerIdRequest(
        transactional_id=None, transaction_timeout=_timeout(), producer_id=producer_id, producer_epoch=3
    )
    answers = cluster.send(node, ApiKey.INIT_PRODUCER_ID, request, version=4)
    assert int(answers[0].producer_id) != producer_id


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (["single", "doubled", "doubled"], ["single", "doubled"]),
        (["doubled", "doubled"], ["doubled"]),
        (["doubled", "doubled", "single"], ["doubled", "doubled", "single"]),
    ],
)
def test_a_name_that_stands_twice_in_one_request_is_not_created(asked: list[str], answered: list[str]) -> None:
    """It is answered once, as in Kafka, unless librdkafka would then have a hole among its results."""
    cluster = Cluster(1)
    schema = _schema("create_topics", 7)
    topics = tuple(
        schema.CreatableTopic(name=name, num_partitions=1, replication_factor=-1, assignments=(), configs=()) for name in asked
    )
    request = schema.CreateTopicsRequest(topics=topics, validate_only=False)
    answer = cluster.ask(cluster.leader(), ApiKey.CREATE_TOPICS, request, version=7)
    assert [str(topic.name) for topic in answer.topics] == answered
    for topic in answer.topics:
        expected = ErrorCode.NONE if topic.name == "single" else ErrorCode.INVALID_REQUEST
        assert int(topic.error_code) == expected
    cluster.run(1000)
    assert cluster.leader().names.topic("doubled") is None
    assert (cluster.leader().names.topic("single") is not None) == ("single" in asked)


# --- a topic that is changed while it is deleted ---


def _changed_unseen(cluster: Cluster, value: bytes | None, *, is_deleted: bool = False) -> ReplicaNode:
    """The key of the topic is written anew, with what it holds or with `value`, and a node has not applied that."""
    leader, follower = cluster.leader(), cluster.followers()[0]
    key = topic_key("t")
    entry = leader.kv.machine.get(key)
    assert entry is not None
    commands = [*([delete(key)] if is_deleted else []), put(key, entry.value if value is None else value)]
    leader.engine.begin_input()
    leader.kv._collected += [(encode(command), lambda outcome: None) for command in commands]
    leader.engine.mark_appending(leader.partitions[METADATA_GROUP])
    cluster.run(1000, until=lambda: leader.kv.machine.get(key).version > entry.version)  # type: ignore[union-attr]
    behind = follower.kv.machine.get(key)
    assert behind is not None and behind.version == entry.version
    return follower


def test_a_topic_that_is_changed_while_it_is_deleted_is_deleted() -> None:
    """The client was told that there is no such topic, and it stayed with all its data."""
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    assert _delete(cluster, _changed_unseen(cluster, None), "t") == ErrorCode.NONE
    cluster.run(1000)
    assert all(group not in disk.logs for disk in cluster.disks.values())
    assert all(node.names.topic("t") is None for node in cluster.nodes.values())


def test_a_topic_that_is_replaced_while_it_is_deleted_is_left_alone() -> None:
    cluster = Cluster()
    cluster.create_topic("t")
    other = Topic("t", b"2" * 16, 1)
    node = _changed_unseen(cluster, other.encode(), is_deleted=True)
    assert _delete(cluster, node, "t") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.run(1000)
    assert [each.names.topic("t") for each in cluster.nodes.values()] == [other] * 3


def test_a_spoilt_key_that_is_spoilt_once_more_while_it_is_deleted_is_deleted() -> None:
    cluster = Cluster()
    commit(cluster, [encode(put(topic_key("t"), b"{}"))])
    assert all(node.topics.is_spoilt("t") for node in cluster.nodes.values())
    assert _delete(cluster, _changed_unseen(cluster, b"[]"), "t") == ErrorCode.NONE
    cluster.run(1000)
    assert not any(node.topics.is_spoilt("t") for node in cluster.nodes.values())


def test_a_topic_that_is_there_again_while_its_spoilt_key_is_deleted_is_left_alone() -> None:
    cluster = Cluster()
    commit(cluster, [encode(put(topic_key("t"), b"{}"))])
    assert all(node.topics.is_spoilt("t") for node in cluster.nodes.values())
    topic = Topic("t", b"2" * 16, 1)
    node = _changed_unseen(cluster, topic.encode())
    assert _delete(cluster, node, "t") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.run(1000)
    assert [each.names.topic("t") for each in cluster.nodes.values()] == [topic] * 3


# --- a topic that is deleted at a node that has not applied its creation ---


def _created_unseen(cluster: Cluster, name: str = "t") -> tuple[Topic, ReplicaNode]:
    """A topic that its leader has created, and a follower that does not know it yet."""
    leader, follower = cluster.leader(), cluster.followers()[0]
    leader.topics.create(name, 1, {}, lambda *_: None)
    cluster.run(1000, until=lambda: leader.names.topic(name) is not None)
    topic = leader.names.topic(name)
    assert topic is not None and follower.names.topic(name) is None
    return topic, follower


def _deletions(cluster: Cluster, node: ReplicaNode, *asked: str | bytes) -> list[int]:
    """What one request is answered that names topics by their names or their ids."""
    schema = _schema("delete_topics", 6)
    states = [
        schema.DeleteTopicState(name=each, topic_id=None)
        if isinstance(each, str)
        else schema.DeleteTopicState(name=None, topic_id=uuid.UUID(bytes=each))
        for each in asked
    ]
    request = schema.DeleteTopicsRequest(topics=tuple(states), timeout=_timeout())
    answer = cluster.ask(node, ApiKey.DELETE_TOPICS, request, version=6, wait_ms=20_000)
    return [int(result.error_code) for result in answer.responses]


@pytest.mark.parametrize("by_id", [True, False])
def test_a_node_that_lags_deletes_a_topic_that_it_does_not_know_yet(by_id: bool) -> None:
    """It said "unknown". A client whose first try was lost took that for its own work, and the topic stood."""
    cluster = Cluster()
    topic, follower = _created_unseen(cluster)
    asked = topic.topic_id if by_id else "t"
    assert _deletions(cluster, follower, asked) == [ErrorCode.NONE]
    cluster.run(1000)
    assert all(node.names.topic("t") is None for node in cluster.nodes.values())
    gone = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _deletions(cluster, follower, asked) == [gone]


def test_a_node_that_lags_tells_of_each_topic_of_a_request_in_its_place() -> None:
    cluster = Cluster()
    cluster.create_topic("known")
    topic, follower = _created_unseen(cluster)
    assert _deletions(cluster, follower, "never-there", topic.topic_id, "known", "t", bytes(15) + b"1") == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]


def test_a_node_that_lags_leaves_the_next_topic_of_a_name_alone() -> None:
    cluster = Cluster()
    (old,) = cluster.create_topic("t")
    assert _delete(cluster, cluster.leader(), "t") == ErrorCode.NONE
    cluster.run(1000)
    topic, follower = _created_unseen(cluster)
    assert _deletions(cluster, follower, old.topic_id) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert cluster.leader().names.topic("t") == topic


def test_a_node_that_cannot_ask_the_leader_does_not_say_that_a_topic_is_unknown() -> None:
    cluster = Cluster()
    topic, follower = _created_unseen(cluster)
    cluster.cut(follower.config.node_id, *(node for node in cluster.voters if node != follower.config.node_id))
    assert _deletions(cluster, follower, topic.topic_id, "t") == [ErrorCode.NOT_CONTROLLER] * 2
    cluster.heal()
    cluster.run(3000)
    assert follower.names.topic("t") == topic
