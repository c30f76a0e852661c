"""WriteTxnMarkers of clients: a hanging transaction is ended, any other one is left alone."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.replica.apis.write_txn_markers import MARKERS_MAX
from raftlake.replica.config import METADATA_TOPIC
from raftlake.replica.node import ReplicaNode
from raftlake.replica.transaction_entry import Transaction
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster
from txnkit import PRODUCER, ByHand, begin, decide, fenced, produce, put, records, transaction


@pytest.fixture
def cluster() -> Cluster:
    return ByHand()


@pytest.fixture
def group(cluster: Cluster) -> GroupId:
    (group,) = cluster.create_topic("orders")
    return group


def request(
    *partitions: tuple[str, int], version: int = 2, commit: bool = False, epoch: int = 0, coordinator_epoch: int = 0
) -> Any:
    schema: Any = importlib.import_module(f"kio.schema.write_txn_markers.v{version}.request")
    topics = tuple(schema.WritableTxnMarkerTopic(name=topic, partition_indexes=(index,)) for topic, index in partitions)
    marker = schema.WritableTxnMarker(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=topics,
        coordinator_epoch=coordinator_epoch,
    )
    return schema.WriteTxnMarkersRequest(markers=(marker,))


def ask(cluster: Cluster, node: ReplicaNode, message: Any, version: int = 2) -> list[ErrorCode]:
    answer = cluster.ask(node, ApiKey.WRITE_TXN_MARKERS, message, version=version, wait_ms=10_000)
    (marker,) = answer.markers
    assert marker.producer_id == PRODUCER
    return [ErrorCode(part.error_code) for topic in marker.topics for part in topic.partitions]


def write(cluster: Cluster, group: GroupId, **fields: Any) -> ErrorCode:
    version = fields.get("version", 2)
    (error,) = ask(cluster, cluster.leader(group), request((group.topic, group.partition), **fields), version)
    return error


def hang(cluster: Cluster, group: GroupId) -> Transaction:
    """The key says that all has ended, and the partition got no marker."""
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    decided, _ = decide(cluster, found, commit=True)
    put(cluster, decided.completed())
    return decided.completed()


@pytest.mark.parametrize("version", [1, 2])
def test_a_hanging_transaction_is_aborted(cluster: Cluster, group: GroupId, version: int) -> None:
    hang(cluster, group)
    partition = cluster.leader(group).partitions[group]
    assert partition.last_stable_offset == 1
    assert write(cluster, group, version=version) is ErrorCode.NONE
    assert partition.last_stable_offset == partition.high_watermark == 3
    assert [each.first_offset for each in partition.aborted(Offset(0), Offset(3))] == [1]
    assert write(cluster, group, version=version) is ErrorCode.NONE, "again"
    assert partition.log.end_offset == 3


def test_a_transaction_that_is_open_keeps_its_outcome_in_all_partitions(cluster: Cluster) -> None:
    """To abort it in one of them would tear it."""
    one, other = cluster.create_topic("orders", 2)
    found = begin(cluster, one, other)
    for group in (one, other):
        produce(cluster, group, records(b"a", sequence=0))
    assert write(cluster, one) is ErrorCode.INVALID_TXN_STATE
    decide(cluster, found, commit=True)
    assert write(cluster, one) is ErrorCode.INVALID_TXN_STATE
    assert cluster.leader(one).partitions[one].producers.open_transaction(PRODUCER) == 1
    assert write(cluster, one, commit=True) is ErrorCode.NONE, "as it is decided"
    assert cluster.leader(one).partitions[one].producers.open_transaction(PRODUCER) is None


def test_the_keys_are_looked_up_as_of_now(cluster: Cluster) -> None:
    groups = cluster.create_topic("spread", 3)
    group = next(group for group in groups if cluster.leader(group) is not cluster.leader())
    hang(cluster, group)
    leader = cluster.leader(group)
    cluster.cut(leader.config.node_id, cluster.leader().config.node_id)
    put(cluster, transaction(group), everywhere=False)
    answers = cluster.send(leader, ApiKey.WRITE_TXN_MARKERS, request((group.topic, group.partition)), version=2)
    cluster.run(50)
    assert not answers
    cluster.heal()
    cluster.run(5_000, until=lambda: bool(answers))
    assert answers[0].markers[0].topics[0].partitions[0].error_code == ErrorCode.INVALID_TXN_STATE


def test_older_epochs_are_refused_as_kafka_refuses_them(cluster: Cluster, group: GroupId) -> None:
    found = begin(cluster, group, epoch=3)
    produce(cluster, group, records(b"a", sequence=0, epoch=3))
    put(cluster, fenced(found))
    put(cluster, fenced(found).completed())
    assert write(cluster, group, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(cluster, group, epoch=3, coordinator_epoch=5) is ErrorCode.NONE
    assert write(cluster, group, epoch=4, coordinator_epoch=4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_partitions_are_answered_one_by_one(cluster: Cluster, group: GroupId) -> None:
    hang(cluster, group)
    asked = request(("orders", 0), ("orders", 7), ("nowhere", 0), (METADATA_TOPIC, 0))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(cluster, cluster.leader(group), asked) == [ErrorCode.NONE, unknown, unknown, unknown]
    assert ask(cluster, cluster.followers(group)[0], asked)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_request_without_partitions_is_answered(cluster: Cluster, group: GroupId) -> None:
    assert ask(cluster, cluster.leader(group), request()) == []


def test_one_request_writes_so_many_markers_at_most(cluster: Cluster, group: GroupId) -> None:
    hang(cluster, group)
    asked = request(*[("orders", 0)] * (MARKERS_MAX + 1))
    assert set(ask(cluster, cluster.leader(group), asked)) == {ErrorCode.INVALID_REQUEST}
    assert cluster.leader(group).partitions[group].last_stable_offset == 1


def test_the_log_of_the_node_tells_why(cluster: Cluster, group: GroupId) -> None:
    begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    told: list[str] = []
    cluster.leader(group).refused_for_good.listeners.append(lambda refusal: told.append(refusal.why))
    write(cluster, group)
    assert len(told) == 1 and "its coordinator ends it" in told[0]
