"""What the tests of librdkafka (confluent-kafka) share: records sent and read, and where they lie in the log."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from leaderkit import FIRST, record_offsets
from raftlake import Client
from waitkit import attempt

if TYPE_CHECKING:
    from raftlake import LocalQuorum


#: What an administrator is told where the leader has just changed, or is busy. The request may have been carried out.
PASSING = frozenset(
    {
        KafkaError.NOT_CONTROLLER,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    }
)


def create_topic(admin: AdminClient, name: str, partitions: int) -> None:
    """A topic that is not there yet. librdkafka leaves it to its user to ask again."""
    tries = itertools.count()

    def created() -> bool:
        is_retry = next(tries) > 0
        (future,) = admin.create_topics([NewTopic(name, num_partitions=partitions)], operation_timeout=20).values()
        try:
            future.result(timeout=20)
        except KafkaException as refused:
            code = refused.args[0].code()
            if code in PASSING:
                return False
            if code == KafkaError.TOPIC_ALREADY_EXISTS and is_retry:
                return True
            raise
        return True

    attempt(created, f"topic {name} is created")


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


def offsets_in_log(quorum: LocalQuorum, topic: str) -> list[int]:
    """Of all records of partition 0. They are in a row, but for the control records of leaders."""
    with Client(quorum.bootstrap_servers) as client:
        offsets = record_offsets(client, topic)
    assert offsets[0] >= FIRST
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
