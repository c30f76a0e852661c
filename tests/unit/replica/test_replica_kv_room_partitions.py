"""The limit of partitions for all topics together: what is being created counts, however it came, until its fate is told."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Txn, encode, put
from raftlake.kv.keys import topic_key
from raftlake.ports.driver import ListenerUse, PeerConnection
from raftlake.ports.peer_rpcs import ProposeReply, ProposeRpc
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode
from raftlake.replica.reserved import Topic
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch
from replica_cluster import Cluster

#: Of which the quorum's own log takes one.
LIMIT = 20
#: Two of them find room, and a third does not.
WIDE = 9


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(partitions_max=LIMIT)
    cluster.leader()
    cluster.run(1_000)
    return cluster


def create(cluster: Cluster, *asked: tuple[ReplicaNode, str, int]) -> list[ErrorCode]:
    """Ask for all of these topics in one turn."""
    answers: dict[int, ErrorCode] = {}

    def put_at(index: int) -> Callable[[Topic | None, ErrorCode, str], None]:
        def note(_topic: Topic | None, error: ErrorCode, message: str) -> None:
            assert error is ErrorCode.NONE or message
            assert index not in answers
            answers[index] = error

        return note

    for index, (node, name, partitions) in enumerate(asked):
        node.topics.create(name, partitions, {}, put_at(index))
    cluster.run(20_000, until=lambda: len(answers) == len(asked))
    cluster.run(100)
    return [answers[index] for index in range(len(asked))]


def framed(txn: Txn) -> bytes:
    return bytes(build_batch([Record(value=encode(txn))], timestamp_ms=1))


def forward(cluster: Cluster, leader: ReplicaNode, *topics: tuple[str, int]) -> list[ErrorCode]:
    """Let another node forward the creation of all of these in one turn."""
    replies: list[ErrorCode] = []
    source = next(node.config.node_id for node in cluster.nodes.values() if node is not leader)
    for name, partitions in topics:
        topic = Topic(name, name.ljust(16, "-").encode(), partitions)
        rpc = ProposeRpc(batch=framed(put(topic_key(name), topic.encode(), 0)), source=source)
        leader.receive(PeerConnection(listener=ListenerUse.SHARED), rpc, lambda reply: replies.append(_error(reply)))
    cluster.run(20_000, until=lambda: len(replies) == len(topics))
    return replies


def _error(reply: object) -> ErrorCode:
    assert isinstance(reply, ProposeReply)
    return reply.error


def partitions_of(node: ReplicaNode) -> list[int]:
    return [topic.partitions for topic in node.names.all()]


def test_two_creations_of_one_turn_do_not_both_take_the_last_room(cluster: Cluster) -> None:
    leader = cluster.leader()
    answers = create(cluster, (leader, "a", 12), (leader, "b", 12))
    assert answers == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]
    cluster.run(1_000)
    for node in cluster.nodes.values():
        assert partitions_of(node) == [12] and len(node.partitions) == 13
    assert leader.kv.room.partitions_under_way == 0
    assert create(cluster, (leader, "c", 7), (leader, "d", 1)) == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]


def test_one_request_of_many_topics_creates_those_for_which_there_is_room(cluster: Cluster) -> None:
    leader = cluster.leader()
    schema = importlib.import_module("kio.schema.create_topics.v7.request")
    topics = tuple(
        schema.CreatableTopic(name=f"t{index}", num_partitions=WIDE, replication_factor=-1, assignments=(), configs=())
        for index in range(60)
    )
    answer: Any = cluster.ask(leader, ApiKey.CREATE_TOPICS, schema.CreateTopicsRequest(topics=topics), version=7)
    codes = [int(topic.error_code) for topic in answer.topics]
    assert codes == [ErrorCode.NONE] * 2 + [ErrorCode.INVALID_PARTITIONS] * 58
    assert all(f"limit of {LIMIT - 1} for all topics" in topic.error_message for topic in answer.topics[2:])
    cluster.run(1_000)
    assert all(partitions_of(node) == [WIDE, WIDE] for node in cluster.nodes.values())


def test_topics_that_other_nodes_forward_count_with_the_leaders_own(cluster: Cluster) -> None:
    leader, others = cluster.leader(), cluster.followers()
    answers = create(cluster, *((node, f"t{node.config.node_id}", WIDE) for node in (leader, *others)))
    assert sorted(answers) == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]
    assert all(partitions_of(node) == [WIDE, WIDE] for node in cluster.nodes.values())


def test_two_topics_that_are_forwarded_in_one_turn_do_not_both_take_the_last_room(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert sorted(forward(cluster, leader, ("a", 12), ("b", 12))) == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]
    assert leader.kv.room.partitions_under_way == 0
    assert forward(cluster, leader, ("c", 8)) == [ErrorCode.INVALID_PARTITIONS]
    assert forward(cluster, leader, ("c", 7)) == [ErrorCode.NONE]


def test_a_creation_whose_name_was_taken_meanwhile_holds_no_room_afterwards(cluster: Cluster) -> None:
    leader, follower = cluster.leader(), cluster.followers()[0]
    answers = create(cluster, (leader, "same", WIDE), (leader, "same", WIDE), (follower, "same", WIDE))
    assert sorted(answers)[0] is ErrorCode.NONE
    assert set(answers) <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS}
    assert leader.kv.room.partitions_under_way == 0
    assert create(cluster, (leader, "other", LIMIT - 1 - WIDE)) == [ErrorCode.NONE]


def test_a_topic_that_finds_no_room_for_its_key_holds_none_for_its_partitions(cluster: Cluster) -> None:
    leader = cluster.leader()
    quota = leader.kv.room._quota
    quota.bytes_max, bytes_max = -quota._own_room, quota.bytes_max
    assert create(cluster, (leader, "a", WIDE)) == [ErrorCode.POLICY_VIOLATION]
    assert leader.kv.room.partitions_under_way == 0
    quota.bytes_max = bytes_max
    assert create(cluster, (leader, "a", LIMIT - 1)) == [ErrorCode.NONE]


def test_a_deletion_makes_room(cluster: Cluster) -> None:
    leader = cluster.leader()
    answers: list[ErrorCode] = []
    for number, name in enumerate(("first", "second"), start=1):
        assert create(cluster, (leader, name, LIMIT - 1)) == [ErrorCode.NONE]
        topic = leader.names.topic(name)
        assert topic is not None
        leader.topics.delete(topic, lambda _topic, error, _message: answers.append(error))
        assert create(cluster, (leader, "other", LIMIT - 1)) == [ErrorCode.INVALID_PARTITIONS], "not before it is applied"
        assert answers == [ErrorCode.NONE] * number


def test_a_topic_with_an_unknown_outcome_counts_until_this_leader_has_applied_it() -> None:
    cluster = Cluster(partitions_max=LIMIT, propose_timeout_ms=300)
    leader = cluster.leader()
    cluster.run(1_000)
    me = leader.config.node_id
    cluster.cut(me)
    assert forward(cluster, leader, ("a", 12)) == [ErrorCode.REQUEST_TIMED_OUT]
    assert leader.partitions[METADATA_GROUP].core.is_leader
    assert forward(cluster, leader, ("b", 12)) == [ErrorCode.INVALID_PARTITIONS]
    assert leader.kv.room.partitions_under_way == 12
    cluster.heal()
    cluster.run(5_000)
    leader = cluster.leader()
    assert partitions_of(leader) in ([12], [])
    room = LIMIT - 1 - sum(partitions_of(leader))
    assert create(cluster, (leader, "c", room)) == [ErrorCode.NONE]
    assert leader.kv.room.partitions_under_way == 0


def test_a_leader_that_lost_its_office_holds_no_room_when_it_leads_again() -> None:
    cluster = Cluster(partitions_max=LIMIT, propose_timeout_ms=300)
    leader = cluster.leader()
    cluster.run(1_000)
    me = leader.config.node_id
    cluster.cut(me)
    # The rounds that are held are answered all the same.
    cluster.run(700)
    assert forward(cluster, leader, ("lost", 12)) == [ErrorCode.REQUEST_TIMED_OUT]
    cluster.run(
        20_000,
        until=lambda: any(node.partitions[METADATA_GROUP].is_serving for node in cluster.nodes.values() if node is not leader),
    )
    cluster.heal()
    cluster.run(1_000)
    assert cluster.leader() is not leader
    for _ in range(20):
        if cluster.leader() is leader:
            break
        stopped = cluster.leader().config.node_id
        cluster.stop(stopped)
        cluster.leader()
        cluster.start(stopped)
        cluster.run(1_000)
    assert cluster.leader() is leader and partitions_of(leader) == []
    assert create(cluster, (leader, "kept", LIMIT - 1)) == [ErrorCode.NONE]
    assert leader.kv.room.partitions_under_way == 0


def test_a_leader_creates_nothing_before_it_has_applied_what_its_predecessor_left() -> None:
    """Else the topics of two leaders would take the same room."""
    cluster = Cluster(partitions_max=LIMIT)
    leader, heir = cluster.leader(), cluster.followers()[0]
    cluster.run(1_000)
    replies: list[object] = []
    first = Topic("first", b"1" * 16, 12)
    rpc = ProposeRpc(batch=framed(put(topic_key("first"), first.encode(), 0)), source=heir.config.node_id)
    end = heir.partitions[METADATA_GROUP].core.log_end
    leader.receive(PeerConnection(listener=ListenerUse.SHARED), rpc, replies.append)
    cluster.run(1_000, until=lambda: any(node.partitions[METADATA_GROUP].core.log_end > end for node in cluster.followers()))
    cluster.stop(leader.config.node_id)
    assert not replies, "it is in a log, and nobody knows whether it is committed"
    cluster.run(5_000, until=lambda: any(node.partitions[METADATA_GROUP].core.is_leader for node in cluster.nodes.values()))
    heir = next(node for node in cluster.nodes.values() if node.partitions[METADATA_GROUP].core.is_leader)
    assert not heir.partitions[METADATA_GROUP].is_serving and partitions_of(heir) == []
    assert forward(cluster, heir, ("second", 12)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    # A node that asks by itself tries again, and hears of the limit.
    answers: list[ErrorCode] = []
    heir.topics.create("second", 12, {}, lambda _topic, error, _message: answers.append(error))
    cluster.run(5_000, until=lambda: bool(answers))
    assert partitions_of(heir) == [12] and answers == [ErrorCode.INVALID_PARTITIONS]


def test_the_count_follows_restarts_and_snapshots() -> None:
    cluster = Cluster(partitions_max=LIMIT, snapshot_bytes_between=20_000, segment_bytes=20_000)
    leader = cluster.leader()
    assert create(cluster, (leader, "a", WIDE), (leader, "b", 3)) == [ErrorCode.NONE] * 2
    for index in range(40):
        leader.kv.propose(put(f"k{index}", bytes(2_000)), lambda _outcome: None)
        cluster.run(50)
    cluster.run(5_000)
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in cluster.voters:
        cluster.start(node_id)
    leader = cluster.leader()
    cluster.run(2_000)
    assert [node.kv.state.partition_count for node in cluster.nodes.values()] == [1 + WIDE + 3] * 3
    left = LIMIT - 1 - WIDE - 3
    assert create(cluster, (leader, "c", left + 1)) == [ErrorCode.INVALID_PARTITIONS]
    assert create(cluster, (leader, "c", left)) == [ErrorCode.NONE]
