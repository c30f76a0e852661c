"""librdkafka (confluent-kafka) against real nodes: the client that most other languages wrap.

The first record of a new topic has offset 3: the first leader of the partition has written who leads and who votes in front of
it (LeaderChange, KRaftVersion and KRaftVoters, as in Kafka's own Raft logs).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from raftlake.client import LATEST, Client

if TYPE_CHECKING:
    from raftlake import LocalQuorum

pytestmark = pytest.mark.process

NewTopicName = Callable[..., str]
FIRST = 3


def produce(bootstrap: str, topic: str, values: list[bytes], **settings: object) -> list[int]:
    """Send `values` to partition 0 and return their offsets; fails on the first delivery error."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5} | settings)
    offsets: list[int] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            offsets.append(message.offset())

    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value, key=str(number).encode(), partition=0, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not errors, errors[:3]
    return offsets


def consume(bootstrap: str, assignments: list[TopicPartition], count: int, **settings: object) -> list[Message]:
    """Read `count` records by assignment (no group coordination)."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error"}
        | settings
    )
    consumer.assign(assignments)
    messages: list[Message] = []
    deadline = time.monotonic() + 60
    try:
        while len(messages) < count:
            assert time.monotonic() < deadline, f"{len(messages)} of {count} records came"
            for message in consumer.consume(num_messages=count - len(messages), timeout=1.0):
                if message.error() is not None:
                    raise KafkaException(message.error())
                messages.append(message)
    finally:
        consumer.close()
    return messages


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
    assert (first.key(), first.value(), first.offset()) == (b"k0", b"v0", FIRST)
    assert first.timestamp()[1] == 1_700_000_000_123
    assert first.headers() == [("h", b"\x00\xff"), ("n", None)]
    assert (second.key(), second.value()) == (b"tombstone", None)
    assert (third.key(), third.value().decode()) == (None, "grüße")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_pass_through(quorum: LocalQuorum, new_topic: NewTopicName, codec: str) -> None:
    topic = new_topic()
    values = [f"{number:06d}-".encode() * 20 for number in range(2000)]
    offsets = produce(quorum.bootstrap_servers, topic, values, **{"compression.codec": codec})
    assert offsets == list(range(FIRST, FIRST + 2000))
    messages = consume(quorum.bootstrap_servers, [TopicPartition(topic, 0, 0)], 2000)
    assert [message.value() for message in messages] == values


def test_an_idempotent_producer_leaves_neither_gap_nor_double(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    topic = new_topic()
    values = [b"%d" % number for number in range(20_000)]
    settings = {"enable.idempotence": True, "batch.num.messages": 50, "linger.ms": 1}
    assert produce(quorum.bootstrap_servers, topic, values, **settings) == list(range(FIRST, FIRST + 20_000))
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
    assert produce(quorum.bootstrap_servers, topic, [b"small"]) == [FIRST]


def test_offsets_by_time(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    """ListOffsets with a timestamp answers the first record at or after it; behind the last record, the end."""
    topic = new_topic()
    producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "acks": "all", "linger.ms": 0})
    for number in range(100):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + 1000 * number)
        if number % 10 == 9:
            assert producer.flush(30) == 0

    consumer = Consumer({"bootstrap.servers": quorum.bootstrap_servers, "group.id": "none"})
    try:
        asked = {1_700_000_000_000: 0, 1_700_000_041_500: 42, 1_700_000_042_000: 42, 1_600_000_000_000: 0}
        for timestamp_ms, number in asked.items():
            [answer] = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=20)
            assert answer.offset == FIRST + number, timestamp_ms
        [behind] = consumer.offsets_for_times([TopicPartition(topic, 0, 1_800_000_000_000)], timeout=20)
        assert behind.offset in (-1, FIRST + 100)  # librdkafka writes "end" as -1
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20) == (0, FIRST + 100)
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
    admin.create_topics([NewTopic("made-by-librdkafka", num_partitions=3)], operation_timeout=20)["made-by-librdkafka"].result(
        30
    )
    with pytest.raises(KafkaException) as twice:
        admin.create_topics([NewTopic("made-by-librdkafka", num_partitions=3)])["made-by-librdkafka"].result(30)
    assert twice.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as invalid:
        admin.create_topics([NewTopic("not/a/topic", num_partitions=1)])["not/a/topic"].result(30)
    assert invalid.value.args[0].code() == KafkaError.TOPIC_EXCEPTION

    deadline = time.monotonic() + 20
    while True:  # every partition elects a leader of its own
        topic = admin.list_topics(timeout=20).topics["made-by-librdkafka"]
        assert sorted(topic.partitions) == [0, 1, 2]
        if all(partition.leader in (1, 2, 3) for partition in topic.partitions.values()):
            break
        assert time.monotonic() < deadline
    assert all(sorted(partition.replicas) == [1, 2, 3] for partition in topic.partitions.values())
    [configs] = [
        future.result(30)
        for future in admin.describe_configs([ConfigResource(ResourceType.TOPIC, "made-by-librdkafka")]).values()
    ]
    assert isinstance(configs, dict)

    admin.delete_topics(["made-by-librdkafka"], operation_timeout=20)["made-by-librdkafka"].result(30)
    # A node that has not applied the deletion yet may still list the topic for a moment.
    deadline = time.monotonic() + 20
    while "made-by-librdkafka" in admin.list_topics(timeout=20).topics:
        assert time.monotonic() < deadline
    with pytest.raises(KafkaException) as gone:
        admin.delete_topics(["made-by-librdkafka"])["made-by-librdkafka"].result(30)
    assert gone.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_cluster_is_described_by_every_node(quorum: LocalQuorum) -> None:
    answers = []
    for server in quorum.bootstrap_servers.split(","):
        admin = AdminClient({"bootstrap.servers": server})  # must outlive its future
        answer = admin.describe_cluster().result(30)
        answers.append((answer.cluster_id, sorted((node.id, node.host, node.port) for node in answer.nodes)))
    assert answers[0] == answers[1] == answers[2]
    assert [node_id for node_id, _host, _port in answers[0][1]] == [1, 2, 3]


def test_an_unknown_topic_is_an_error_not_a_new_topic(quorum: LocalQuorum) -> None:
    settings = {
        "bootstrap.servers": quorum.bootstrap_servers,
        "topic.metadata.propagation.max.ms": 500,
        "message.timeout.ms": 10_000,
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
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "error_cb": self.errors.append}
        )

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
    with Client(quorum.bootstrap_servers) as client:
        assert client.list_offsets(topic, {0: LATEST}) == {0: FIRST + len(values)}


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
    with Client(quorum.bootstrap_servers) as client:
        end = client.list_offsets(topic, {0: LATEST})[0]
    found = [int(m.value() or b"") for m in consume(quorum.bootstrap_servers, [TopicPartition(topic, 0, FIRST)], end - FIRST)]
    assert found == list(range(count - len(found), count))
    assert len(found) >= 100


def test_a_consumer_that_subscribes_is_told_that_there_are_no_groups(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    topic = new_topic()
    consumer = Consumer({"bootstrap.servers": quorum.bootstrap_servers, "group.id": "billing"})
    consumer.subscribe([topic])
    deadline = time.monotonic() + 10
    told: list[tuple[int, bool]] = []
    try:
        # A node that has not heard of the new topic yet says so first.
        while not told or told[-1][0] == KafkaError.UNKNOWN_TOPIC_OR_PART:
            assert time.monotonic() < deadline, told
            message = consumer.poll(0.5)
            error = message.error() if message is not None else None
            if error is not None:
                told.append((error.code(), error.retriable()))
    finally:
        consumer.close()
    assert told[-1] == (KafkaError.INVALID_REQUEST, False)


def test_a_consumer_that_assigns_hears_nothing_of_groups(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    """librdkafka wants a group id, and looks for its coordinator, whatever is done with it."""
    topic = new_topic()
    produce(quorum.bootstrap_servers, topic, [b"a"])
    consumer = Consumer({"bootstrap.servers": quorum.bootstrap_servers, "group.id": "billing"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        heard = [message for message in (consumer.poll(0.5) for _ in range(6)) if message is not None]
        assert [(message.error(), message.value()) for message in heard] == [(None, b"a")]
        with pytest.raises(KafkaException, match="INVALID_REQUEST"):
            consumer.commit(asynchronous=False)
        with pytest.raises(KafkaException, match="INVALID_REQUEST"):
            raise KafkaException(consumer.committed([TopicPartition(topic, 0)], timeout=10)[0].error)
    finally:
        consumer.close()


def test_a_transactional_producer_fails_at_once_and_is_told_why(quorum: LocalQuorum) -> None:
    producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "transactional.id": "billing"})
    with pytest.raises(KafkaException, match="no consumer groups and no transactions: assign partitions") as refused:
        producer.init_transactions(30)
    assert refused.value.args[0].fatal()


@pytest.mark.parametrize("others", [[], ["single"]])
def test_a_topic_that_is_named_twice_is_refused_and_not_created(
    quorum: LocalQuorum, topic_names: Iterator[str], others: list[str]
) -> None:
    doubled = next(topic_names)
    admin = AdminClient({"bootstrap.servers": quorum.bootstrap_servers})
    asked = [NewTopic(name, num_partitions=1) for name in [*(f"{doubled}-{other}" for other in others), doubled, doubled]]
    made = admin.create_topics(asked, operation_timeout=20)
    with pytest.raises(KafkaException) as caught:
        made[doubled].result(timeout=20)
    assert caught.value.args[0].code() == KafkaError.INVALID_REQUEST
    for other in others:
        assert made[f"{doubled}-{other}"].result(timeout=20) is None
