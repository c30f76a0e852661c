"""kafka-python against real nodes: a second, independent implementation of the client side, with group-less consumers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import (
    InvalidRequestError,
    TopicAlreadyExistsError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from raftlake.client import Client

if TYPE_CHECKING:
    from raftlake import LocalQuorum

pytestmark = pytest.mark.process

NewTopicName = Callable[..., str]
#: A new topic begins with the control records of its first leader: who leads, and who votes.
FIRST = 3


def read_all(consumer: KafkaConsumer, count: int) -> list[tuple[int, bytes]]:
    """The next `count` records of the assigned partitions as (offset, value)."""
    records: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + 60
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
        for batch in consumer.poll(timeout_ms=500).values():
            records += [(record.offset, record.value) for record in batch]
    return records


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_what_is_produced_is_consumed(quorum: LocalQuorum, new_topic: NewTopicName, codec: str | None) -> None:
    topic = new_topic()
    values = [b"value %d" % number for number in range(1000)]
    producer = KafkaProducer(bootstrap_servers=quorum.bootstrap_servers.split(","), acks="all", compression_type=codec)
    sent = [producer.send(topic, value, key=b"key", partition=0, headers=[("h", b"x")]) for value in values]
    producer.flush(timeout=60)
    assert [future.get(timeout=30).offset for future in sent] == list(range(FIRST, FIRST + 1000))
    producer.close(timeout=10)

    consumer = KafkaConsumer(bootstrap_servers=quorum.bootstrap_servers.split(","), enable_auto_commit=False, group_id=None)
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        assert read_all(consumer, 1000) == list(enumerate(values, FIRST))
        consumer.seek(partition, FIRST + 990)
        assert read_all(consumer, 10) == list(enumerate(values, FIRST))[990:]
    finally:
        consumer.close()


def test_seek_by_timestamp(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    topic = new_topic()
    producer = KafkaProducer(bootstrap_servers=quorum.bootstrap_servers.split(","), acks="all", linger_ms=0)
    for number in range(50):
        producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1_700_000_000_000 + 1000 * number)
        if number % 7 == 0:
            producer.flush(timeout=30)
    producer.flush(timeout=30)
    producer.close(timeout=10)

    consumer = KafkaConsumer(bootstrap_servers=quorum.bootstrap_servers.split(","), group_id=None)
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        found = consumer.offsets_for_times({partition: 1_700_000_029_001})[partition]
        assert found is not None
        assert (found.offset, found.timestamp) == (FIRST + 30, 1_700_000_030_000)
        consumer.seek(partition, found.offset)
        assert read_all(consumer, 20)[0] == (FIRST + 30, b"30")
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: FIRST + 50}
        assert consumer.offsets_for_times({partition: 1_900_000_000_000})[partition] is None
    finally:
        consumer.close()


def test_several_partitions_share_their_records(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    topic = new_topic(4)
    producer = KafkaProducer(bootstrap_servers=quorum.bootstrap_servers.split(","), acks="all", enable_idempotence=True)
    for number in range(4000):
        producer.send(topic, b"%d" % number, key=b"%d" % (number % 97))
    producer.flush(timeout=60)
    producer.close(timeout=10)

    consumer = KafkaConsumer(bootstrap_servers=quorum.bootstrap_servers.split(","), group_id=None)
    try:
        partitions = [TopicPartition(topic, index) for index in range(4)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        assert sum(consumer.end_offsets(partitions).values()) == 4 * FIRST + 4000
        assert sorted(int(value) for _offset, value in read_all(consumer, 4000)) == list(range(4000))
    finally:
        consumer.close()


def test_topics_are_created_listed_and_deleted(quorum: LocalQuorum) -> None:
    admin = KafkaAdminClient(bootstrap_servers=quorum.bootstrap_servers.split(","))
    try:
        admin.create_topics({"made-by-kafka-python": {"num_partitions": 2}}, timeout_ms=20_000)
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics({"made-by-kafka-python": {"num_partitions": 2}}, timeout_ms=20_000)
        assert "made-by-kafka-python" in admin.list_topics()
        admin.delete_topics(["made-by-kafka-python"], timeout_ms=20_000)
        deadline = time.monotonic() + 20  # a node may learn of the deletion a moment later
        while "made-by-kafka-python" in admin.list_topics():
            assert time.monotonic() < deadline
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics(["made-by-kafka-python"], timeout_ms=20_000)
    finally:
        admin.close()


def test_the_quorum_is_described_by_every_node(quorum: LocalQuorum) -> None:
    """KIP-595 DescribeQuorum through a client library. The leader alone knows; the others pass the question on to it."""
    for server in quorum.bootstrap_servers.split(","):
        admin = KafkaAdminClient(bootstrap_servers=[server])
        try:
            answer = admin.describe_metadata_quorum()
        finally:
            admin.close()
        [topic] = answer["topics"]
        [partition] = topic["partitions"]
        assert (topic["topic_name"], partition["partition_index"], partition["error"]) == ("__cluster_metadata", 0, None)
        assert partition["leader_id"] == quorum.leader()
        assert partition["leader_epoch"] >= 1
        assert partition["high_watermark"] >= 1
        assert sorted(voter["replica_id"] for voter in partition["current_voters"]) == [1, 2, 3]
        assert partition["observers"] == []


def test_an_idempotent_producer_goes_on_in_a_topic_that_was_created_again(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    """Its first batch there is sent back once, since the new topic does not know what came before it."""
    topic = new_topic()
    producer = KafkaProducer(bootstrap_servers=quorum.bootstrap_servers.split(","), acks="all", enable_idempotence=True)
    try:
        for number in range(5):
            producer.send(topic, b"before %d" % number, partition=0).get(timeout=20)
        with Client(quorum.bootstrap_servers) as client:
            client.delete_topic(topic)
            client.create_topic(topic)
        told = [producer.send(topic, b"%d" % number, partition=0).get(timeout=20).offset for number in range(5)]
    finally:
        producer.close(timeout=10)
    assert told == list(range(FIRST, FIRST + 5))


def test_a_consumer_that_subscribes_is_told_that_there_are_no_groups(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    servers = quorum.bootstrap_servers.split(",")
    consumer = KafkaConsumer(new_topic(), bootstrap_servers=servers, group_id="billing")
    try:
        with pytest.raises(InvalidRequestError):
            consumer.poll(timeout_ms=10_000)
    finally:
        consumer.close(autocommit=False)


def test_a_consumer_with_a_group_id_that_assigns_reads_and_keeps_no_offsets(
    quorum: LocalQuorum, new_topic: NewTopicName
) -> None:
    topic = new_topic()
    servers = quorum.bootstrap_servers.split(",")
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    producer.send(topic, b"a", partition=0)
    producer.flush(timeout=60)
    producer.close(timeout=10)
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id="billing")
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        assert read_all(consumer, 1) == [(FIRST, b"a")]
        with pytest.raises(InvalidRequestError):
            consumer.commit()
    finally:
        consumer.close(autocommit=False)


def test_a_transactional_producer_fails_at_once(quorum: LocalQuorum) -> None:
    producer = KafkaProducer(bootstrap_servers=quorum.bootstrap_servers.split(","), transactional_id="billing")
    try:
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
    finally:
        producer.close(timeout=10)
