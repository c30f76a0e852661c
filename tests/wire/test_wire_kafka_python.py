"""kafka-python against real nodes: a second, independent implementation of the client side, with group-less consumers."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import (
    InvalidRequestError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

import waitkit
from leaderkit import FIRST, record_offsets, while_one_leads
from raftlake.client import LATEST, Client

if TYPE_CHECKING:
    from raftlake import LocalQuorum

pytestmark = pytest.mark.process

NewTopicName = Callable[..., str]
wait_until = partial(waitkit.wait_until, seconds=60)


def offsets_in_log(quorum: LocalQuorum, topic: str, partition: int = 0) -> list[int]:
    """Of all records of a partition. They are in a row, but for the control records of leaders."""
    with Client(quorum.bootstrap_servers) as client:
        offsets = record_offsets(client, topic, partition)
    assert not offsets or offsets[0] >= FIRST
    return offsets


def require_ends(quorum: LocalQuorum, topic: str, consumer: KafkaConsumer, partitions: list[TopicPartition]) -> None:
    """The consumer is told the log's own ends. A new leader's control record may come behind the last record at any time."""

    def told() -> bool:
        ends = client.list_offsets(topic, {each.partition: LATEST for each in partitions})
        return consumer.end_offsets(partitions) == {each: ends[each.partition] for each in partitions}

    with Client(quorum.bootstrap_servers) as client:
        wait_until(told, "the ends of all partitions")


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
    offsets = offsets_in_log(quorum, topic)
    assert [future.get(timeout=30).offset for future in sent] == offsets and len(offsets) == 1000
    producer.close(timeout=10)

    consumer = KafkaConsumer(bootstrap_servers=quorum.bootstrap_servers.split(","), enable_auto_commit=False, group_id=None)
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        whole = list(zip(offsets, values, strict=True))
        assert read_all(consumer, 1000) == whole
        consumer.seek(partition, offsets[990])
        assert read_all(consumer, 10) == whole[990:]
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
        offset = offsets_in_log(quorum, topic)[30]
        assert (found.offset, found.timestamp) == (offset, 1_700_000_030_000)
        consumer.seek(partition, found.offset)
        assert read_all(consumer, 20)[0] == (offset, b"30")
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        require_ends(quorum, topic, consumer, [partition])
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
        require_ends(quorum, topic, consumer, partitions)
        assert sum(len(offsets_in_log(quorum, topic, each.partition)) for each in partitions) == 4000
        assert sorted(int(value) for _offset, value in read_all(consumer, 4000)) == list(range(4000))
    finally:
        consumer.close()


def test_topics_are_created_listed_and_deleted(quorum: LocalQuorum) -> None:
    admin = KafkaAdminClient(bootstrap_servers=quorum.bootstrap_servers.split(","))
    try:
        admin.create_topics({"made-by-kafka-python": {"num_partitions": 2}}, timeout_ms=20_000)
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics({"made-by-kafka-python": {"num_partitions": 2}}, timeout_ms=20_000)
        # A node may learn of either a moment later.
        wait_until(lambda: "made-by-kafka-python" in admin.list_topics(), "the topic is listed")
        admin.delete_topics(["made-by-kafka-python"], timeout_ms=20_000)
        wait_until(lambda: "made-by-kafka-python" not in admin.list_topics(), "the topic is gone")
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics(["made-by-kafka-python"], timeout_ms=20_000)
    finally:
        admin.close()


def test_the_quorum_is_described_by_every_node(quorum: LocalQuorum) -> None:
    """KIP-595 DescribeQuorum through a client library. The leader alone knows; the others pass the question on to it."""
    for server in quorum.bootstrap_servers.split(","):
        admin = KafkaAdminClient(bootstrap_servers=[server])
        try:
            with Client(quorum.bootstrap_servers) as client:
                answer, leader = while_one_leads(client, lambda: (admin.describe_metadata_quorum(), quorum.leader()))  # noqa: B023
        finally:
            admin.close()
        [topic] = answer["topics"]
        [partition] = topic["partitions"]
        assert (topic["topic_name"], partition["partition_index"], partition["error"]) == ("__cluster_metadata", 0, None)
        assert partition["leader_id"] == leader
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
    assert told == offsets_in_log(quorum, topic) and len(told) == 5


def test_a_consumer_that_subscribes_is_told_that_there_are_no_groups(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    servers = quorum.bootstrap_servers.split(",")
    consumer = KafkaConsumer(new_topic(), bootstrap_servers=servers, group_id="billing")
    try:
        with pytest.raises(InvalidRequestError):
            wait_until(lambda: consumer.poll(timeout_ms=500), "a refusal, or a record that cannot be")
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
        assert read_all(consumer, 1) == [(*offsets_in_log(quorum, topic), b"a")]
        with pytest.raises(InvalidRequestError):
            consumer.commit()
    finally:
        consumer.close(autocommit=False)


def test_a_transactional_producer_commits_and_aborts(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    topic = new_topic()
    producer = KafkaProducer(bootstrap_servers=quorum.bootstrap_servers.split(","), transactional_id=topic)
    try:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number, partition=0).get(timeout=30)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        producer.close(timeout=10)
    with Client(quorum.bootstrap_servers) as client:
        end = client.read_stable_offset(topic, [0])[0]
        values: list[bytes | None] = []
        offset = 0
        while offset < end:
            records = client.read(topic, 0, offset)
            values += [record.value for record in records]
            offset = records[-1].offset + 1 if records else end
    assert values == [b"0", b"2"]
