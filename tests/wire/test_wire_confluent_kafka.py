"""librdkafka (confluent-kafka) against real nodes: the client that most other languages wrap.

The first record of a new topic has offset 3: the first leader of the partition has written who leads and who votes in front of
it (LeaderChange, KRaftVersion and KRaftVoters, as in Kafka's own Raft logs).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType, TopicMetadata

import waitkit
from leaderkit import FIRST
from librdkit import consume, create_topic, offsets_in_log, produce
from raftlake.client import LATEST, Client

if TYPE_CHECKING:
    from raftlake import LocalQuorum

pytestmark = pytest.mark.process

NewTopicName = Callable[..., str]
wait_until = partial(waitkit.wait_until, seconds=60)


def test_what_is_produced_is_consumed(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    """Keys, values, nulls, headers and timestamps come back as they were sent, in order."""
    topic = new_topic()
    producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "acks": "all"})
    producer.produce(
        topic, b"v0", key=b"k0", partition=0, timestamp=1_700_000_000_123, headers=[("h", b"\x00\xff"), ("n", None)]
    )
    producer.produce(topic, None, key=b"tombstone", partition=0, timestamp=1_700_000_000_124)
    producer.produce(topic, "grüße".encode(), partition=0, timestamp=1_700_000_000_125)
    assert producer.flush(30) == 0

    first, second, third = consume(quorum.bootstrap_servers, [TopicPartition(topic, 0, 0)], 3)
    assert [message.offset() for message in (first, second, third)] == offsets_in_log(quorum, topic)
    assert (first.key(), first.value()) == (b"k0", b"v0")
    assert first.timestamp()[1] == 1_700_000_000_123
    assert first.headers() == [("h", b"\x00\xff"), ("n", None)]
    assert (second.key(), second.value()) == (b"tombstone", None)
    assert (third.key(), third.value().decode()) == (None, "grüße")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_pass_through(quorum: LocalQuorum, new_topic: NewTopicName, codec: str) -> None:
    topic = new_topic()
    values = [f"{number:06d}-".encode() * 20 for number in range(2000)]
    offsets = produce(quorum.bootstrap_servers, topic, values, **{"compression.codec": codec})
    assert offsets == offsets_in_log(quorum, topic) and len(offsets) == 2000
    messages = consume(quorum.bootstrap_servers, [TopicPartition(topic, 0, 0)], 2000)
    assert [message.value() for message in messages] == values


def test_an_idempotent_producer_leaves_neither_gap_nor_double(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    topic = new_topic()
    values = [b"%d" % number for number in range(20_000)]
    settings = {"enable.idempotence": True, "batch.num.messages": 50, "linger.ms": 1}
    offsets = produce(quorum.bootstrap_servers, topic, values, **settings)
    assert offsets == offsets_in_log(quorum, topic) and len(offsets) == 20_000
    messages = consume(quorum.bootstrap_servers, [TopicPartition(topic, 0, 0)], 20_000)
    assert [message.value() for message in messages] == values


def test_large_records(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    topic = new_topic()
    values = [bytes([number]) * 900_000 for number in range(8)]
    produce(quorum.bootstrap_servers, topic, values)
    settings = {"fetch.message.max.bytes": 100_000, "receive.message.max.bytes": 4_000_000, "fetch.max.bytes": 1_200_000}
    messages = consume(quorum.bootstrap_servers, [TopicPartition(topic, 0, 0)], 8, **settings)
    assert [message.value() for message in messages] == values


def test_a_record_above_the_limit_is_refused(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    """MESSAGE_TOO_LARGE or a refusal of the client itself: never a hang, and the node goes on serving."""
    topic = new_topic()
    producer = Producer(
        {"bootstrap.servers": quorum.bootstrap_servers, "message.max.bytes": 300_000_000, "message.timeout.ms": 20_000}
    )
    errors: list[KafkaError | None] = []
    producer.produce(topic, bytes(150_000_000), partition=0, on_delivery=lambda error, _message: errors.append(error))
    producer.flush(30)
    assert len(errors) == 1
    assert errors[0] is not None
    assert produce(quorum.bootstrap_servers, topic, [b"small"]) == offsets_in_log(quorum, topic)


def test_offsets_by_time(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    """ListOffsets with a timestamp answers the first record at or after it; behind the last record, the end."""
    topic = new_topic()
    producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "acks": "all", "linger.ms": 0})
    for number in range(100):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + 1000 * number)
        if number % 10 == 9:
            assert producer.flush(30) == 0

    offsets = offsets_in_log(quorum, topic)
    consumer = Consumer({"bootstrap.servers": quorum.bootstrap_servers, "group.id": "none"})
    try:
        asked = {1_700_000_000_000: 0, 1_700_000_041_500: 42, 1_700_000_042_000: 42, 1_600_000_000_000: 0}
        for timestamp_ms, number in asked.items():
            [answer] = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=20)
            assert answer.offset == offsets[number], timestamp_ms
        [behind] = consumer.offsets_for_times([TopicPartition(topic, 0, 1_800_000_000_000)], timeout=20)
        assert behind.offset == -1 or behind.offset > offsets[99]  # librdkafka writes "end" as -1

        def shows_the_end() -> bool:
            """A new leader's control record may come behind the last record at any time."""
            end = client.list_offsets(topic, {0: LATEST})[0]
            return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20) == (0, end)

        with Client(quorum.bootstrap_servers) as client:
            wait_until(shows_the_end, "both ends of the log")
    finally:
        consumer.close()


def test_an_offset_out_of_range_is_said(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    topic = new_topic()
    produce(quorum.bootstrap_servers, topic, [b"only"])
    with pytest.raises(KafkaException) as caught:
        consume(quorum.bootstrap_servers, [TopicPartition(topic, 0, 17)], 1)
    assert caught.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


def test_topics_are_created_listed_described_and_deleted(quorum: LocalQuorum) -> None:
    admin = AdminClient({"bootstrap.servers": quorum.bootstrap_servers})
    create_topic(admin, "made-by-librdkafka", 3)
    with pytest.raises(KafkaException) as twice:
        admin.create_topics([NewTopic("made-by-librdkafka", num_partitions=3)])["made-by-librdkafka"].result(30)
    assert twice.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as invalid:
        admin.create_topics([NewTopic("not/a/topic", num_partitions=1)])["not/a/topic"].result(30)
    assert invalid.value.args[0].code() == KafkaError.TOPIC_EXCEPTION

    def led() -> TopicMetadata | None:
        """Every partition elects a leader of its own; and the node that answers may not have heard of the topic yet."""
        topic = admin.list_topics(timeout=20).topics.get("made-by-librdkafka")
        if topic is None:
            return None
        assert sorted(topic.partitions) == [0, 1, 2]
        return topic if all(partition.leader in (1, 2, 3) for partition in topic.partitions.values()) else None

    topic = wait_until(led, "a leader of each partition")
    assert all(sorted(partition.replicas) == [1, 2, 3] for partition in topic.partitions.values())
    [configs] = [
        future.result(30)
        for future in admin.describe_configs([ConfigResource(ResourceType.TOPIC, "made-by-librdkafka")]).values()
    ]
    assert isinstance(configs, dict)

    admin.delete_topics(["made-by-librdkafka"], operation_timeout=20)["made-by-librdkafka"].result(30)
    # A node that has not applied the deletion yet may still list the topic for a moment.
    wait_until(lambda: "made-by-librdkafka" not in admin.list_topics(timeout=20).topics, "the topic is gone")
    with pytest.raises(KafkaException) as gone:
        admin.delete_topics(["made-by-librdkafka"])["made-by-librdkafka"].result(30)
    assert gone.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_cluster_is_described_by_every_node(quorum: LocalQuorum) -> None:
    admins = [AdminClient({"bootstrap.servers": server}) for server in quorum.bootstrap_servers.split(",")]

    def told() -> list[tuple[str, list[tuple[int, str, int]]]]:
        answers = [admin.describe_cluster().result(30) for admin in admins]
        return [(each.cluster_id, sorted((node.id, node.host, node.port) for node in each.nodes)) for each in answers]

    with Client(quorum.bootstrap_servers) as client:
        cluster_id = client.describe_cluster().cluster_id
    known = (cluster_id, [(node.node_id, "127.0.0.1", node.port) for node in quorum.nodes.values()])
    # A node that has come lately may be unknown to others for a moment.
    wait_until(lambda: told() == [known] * 3, f"{known} from every node")


def test_an_unknown_topic_is_an_error_not_a_new_topic(quorum: LocalQuorum) -> None:
    settings = {
        "bootstrap.servers": quorum.bootstrap_servers,
        "topic.metadata.propagation.max.ms": 500,
    }
    producer = Producer(settings)
    errors: list[KafkaError | None] = []
    producer.produce("nobody-made-this", b"lost", on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(30) == 0
    assert len(errors) == 1
    assert errors[0] is not None
    assert errors[0].code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert "nobody-made-this" not in AdminClient({"bootstrap.servers": quorum.bootstrap_servers}).list_topics(timeout=20).topics


class Sent:
    """An idempotent producer, and what it was told: values at offsets, and errors."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.offsets: dict[bytes, int] = {}
        self.errors: list[KafkaError] = []
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "error_cb": self._told}
        )

    def _told(self, error: KafkaError) -> None:
        """A lost connection or a late answer, which passes, is no failure."""
        if error.fatal():
            self.errors.append(error)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert value is not None
        if error is not None:
            self.errors.append(error)
        else:
            self.offsets[value] = message.offset()

    def send(self, value: bytes) -> None:
        self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
        self._producer.poll(0.001)

    def flush(self) -> None:
        assert self._producer.flush(30) == 0
        assert not self.errors


def recreate(bootstrap: str, topic: str) -> None:
    with Client(bootstrap) as client:
        client.delete_topic(topic)
        client.create_topic(topic)


def test_an_idempotent_producer_goes_on_in_a_topic_that_was_created_again(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    """The new topic does not know what came before. That is no reason to end (OUT_OF_ORDER_SEQUENCE_NUMBER is one)."""
    topic = new_topic()
    sent = Sent(quorum.bootstrap_servers, topic)
    for number in range(9):
        sent.send(b"before %d" % number)
    sent.flush()
    recreate(quorum.bootstrap_servers, topic)
    values = [b"%d" % number for number in range(20)]
    for value in values:
        sent.send(value)
    sent.flush()
    found = {m.value(): m.offset() for m in consume(quorum.bootstrap_servers, [TopicPartition(topic, 0, FIRST)], len(values))}
    assert list(found) == values
    assert found == {value: sent.offsets[value] for value in values}
    assert list(found.values()) == offsets_in_log(quorum, topic)


def test_an_idempotent_producer_goes_on_while_its_topic_is_created_again(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    """With batches under way all the time, of which some are refused for want of the topic or of its leader: every one is
    acknowledged, and what the new topic holds is the end of what was sent, in order and once."""
    topic = new_topic()
    sent = Sent(quorum.bootstrap_servers, topic)
    values = iter(range(1_000_000))
    for _ in range(2):
        changing = threading.Thread(target=recreate, args=(quorum.bootstrap_servers, topic))
        for _ in range(100):
            sent.send(b"%d" % next(values))
        changing.start()
        while changing.is_alive():
            sent.send(b"%d" % next(values))
        changing.join()
    for _ in range(100):
        sent.send(b"%d" % next(values))
    sent.flush()
    count = next(values)
    assert len(sent.offsets) == count
    offsets = offsets_in_log(quorum, topic)
    messages = consume(quorum.bootstrap_servers, [TopicPartition(topic, 0, FIRST)], len(offsets))
    assert [message.offset() for message in messages] == offsets
    found = [int(message.value() or b"") for message in messages]
    assert found == list(range(count - len(found), count))
    assert len(found) >= 100
