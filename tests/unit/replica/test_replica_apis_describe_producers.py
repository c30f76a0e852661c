"""DescribeProducers: who has written to a partition, and which transactions are open there."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest

from enginekit import WALL_MS_AT_START
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.apis import describe_producers
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.producer_state import SLICE_PRODUCERS
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch
from txnkit import PRODUCER, ByHand, begin, end, produce, records


@pytest.fixture
def cluster() -> Cluster:
    return ByHand()


def describe(cluster: Cluster, node: ReplicaNode, *partitions: tuple[str, int]) -> list[Any]:
    topics = tuple(TopicRequest(name=topic, partition_indexes=(index,)) for topic, index in partitions)
    answer = cluster.ask(node, ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest(topics=topics))
    return [part for topic in answer.topics for part in topic.partitions]


def test_producers_are_told_with_their_open_transactions_at_every_node(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("orders")
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", b"b", sequence=0))
    end(cluster, found, group, commit=True)
    begin(cluster, group)
    produce(cluster, group, records(b"c", sequence=2))
    cluster.produce(group, batch(b"x", producer_id=9, producer_epoch=4, base_sequence=0))
    cluster.run(2_000)
    for node in cluster.nodes.values():
        (part,) = describe(cluster, node, ("orders", 0))
        assert part.error_code == ErrorCode.NONE
        told = {
            each.producer_id: (each.producer_epoch, each.last_sequence, each.coordinator_epoch, each.current_txn_start_offset)
            for each in part.active_producers
        }
        assert told == {PRODUCER: (0, 2, 1, 4), 9: (4, 0, -1, -1)}
        assert all(each.last_timestamp > 0 for each in part.active_producers)


def test_partitions_that_are_not_here_are_named(cluster: Cluster) -> None:
    cluster.create_topic("orders")
    parts = describe(cluster, cluster.leader(), ("orders", 0), ("orders", 1), ("nowhere", 0))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [part.error_code for part in parts] == [ErrorCode.NONE, unknown, unknown]
    assert [part.partition_index for part in parts] == [0, 1, 0]


def fill(node: ReplicaNode, group: GroupId, count: int) -> None:
    producers = node.partitions[group].producers
    for producer_id in range(1_000, 1_000 + count):
        producers.record(producer_id, 0, 0, 1, producer_id, WALL_MS_AT_START + producer_id)


def test_of_many_producers_those_with_open_transactions_come_first(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_producers, "PRODUCERS_MAX", 4)
    (group,) = cluster.create_topic("orders")
    for producer_id in (1, 2):
        begin(cluster, group, producer_id=producer_id, transactional_id=str(producer_id))
        produce(cluster, group, records(b"a", sequence=0, producer_id=producer_id), transactional_id=str(producer_id))
    leader = cluster.leader(group)
    fill(leader, group, SLICE_PRODUCERS)
    (part, rest) = describe(cluster, leader, ("orders", 0), ("orders", 0))
    last = 1_000 + SLICE_PRODUCERS - 1
    assert [each.producer_id for each in part.active_producers] == [1, 2, last, last - 1]
    assert rest.active_producers == (), "the bound is of the request"


def test_many_producers_are_looked_through_a_slice_at_a_time(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("orders")
    leader = cluster.leader(group)
    fill(leader, group, 3 * SLICE_PRODUCERS)
    asked = DescribeProducersRequest(topics=(TopicRequest(name="orders", partition_indexes=(0,)),))
    answers = cluster.send(leader, ApiKey.DESCRIBE_PRODUCERS, asked)
    assert not answers
    cluster.run(100, until=lambda: bool(answers))
    assert len(answers[0].topics[0].partitions[0].active_producers) == describe_producers.PRODUCERS_MAX
