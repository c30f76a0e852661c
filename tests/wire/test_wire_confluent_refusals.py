"""What librdkafka (confluent-kafka) is refused: consumer groups, also in transactions, and a topic that is named twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import waitkit
from librdkit import produce

if TYPE_CHECKING:
    from raftlake import LocalQuorum

pytestmark = pytest.mark.process

NewTopicName = Callable[..., str]
wait_until = partial(waitkit.wait_until, seconds=60)


def test_a_consumer_that_subscribes_is_told_that_there_are_no_groups(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    topic = new_topic()
    consumer = Consumer({"bootstrap.servers": quorum.bootstrap_servers, "group.id": "billing"})
    consumer.subscribe([topic])
    told: list[tuple[int, bool]] = []

    def is_refused() -> bool:
        """What passes may be said first: a node has not heard of the new topic yet, or answers late."""
        message = consumer.poll(0.5)
        error = message.error() if message is not None else None
        if error is not None:
            told.append((error.code(), error.retriable()))
        return (KafkaError.INVALID_REQUEST, False) in told

    try:
        wait_until(is_refused, "a refusal that does not pass")
    finally:
        consumer.close()


def commit(consumer: Consumer) -> int | None:
    """The error of a commit."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as refused:
        return int(refused.args[0].code())
    return None


def committed(consumer: Consumer, topic: str) -> int | None:
    """The error of a question for what was committed."""
    try:
        error = consumer.committed([TopicPartition(topic, 0)], timeout=10)[0].error
    except KafkaException as refused:
        error = refused.args[0]
    return None if error is None else int(error.code())


def test_a_consumer_that_assigns_hears_nothing_of_groups(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    """librdkafka wants a group id, and looks for its coordinator, whatever is done with it."""
    topic = new_topic()
    produce(quorum.bootstrap_servers, topic, [b"a"])
    consumer = Consumer({"bootstrap.servers": quorum.bootstrap_servers, "group.id": "billing"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        heard: list[Message] = []

        def hears_the_record() -> bool:
            heard.extend(message for message in [consumer.poll(0.5)] if message is not None)
            return any(message.error() is None for message in heard)

        wait_until(hears_the_record, "the record")
        # Long enough for a coordinator to be looked for in vain, as the refusals below show.
        for refused in (partial(commit, consumer), partial(committed, consumer, topic)):
            wait_until(lambda: refused() == KafkaError.INVALID_REQUEST, "a refusal of what groups do")  # noqa: B023
            hears_the_record()
        assert [message.value() for message in heard if message.error() is None] == [b"a"]
        assert KafkaError.INVALID_REQUEST not in [message.error().code() for message in heard if message.error() is not None]
    finally:
        consumer.close()


def test_offsets_of_a_group_in_a_transaction_are_refused(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    topic = new_topic()
    consumer = Consumer({"bootstrap.servers": quorum.bootstrap_servers, "group.id": "billing"})
    producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "transactional.id": topic})
    try:
        producer.init_transactions(30)
        producer.begin_transaction()
        with pytest.raises(KafkaException) as refused:
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], consumer.consumer_group_metadata(), 30)
        assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST
        assert not refused.value.args[0].retriable()
    finally:
        consumer.close()


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


def test_a_producer_to_a_name_that_no_topic_can_have_fails_at_once(quorum: LocalQuorum) -> None:
    """It waited for message.timeout.ms as for a topic that may come yet."""
    producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "message.timeout.ms": 300_000})
    told: list[int] = []
    producer.produce("no such name", b"x", on_delivery=lambda error, _: told.append(error.code()))
    assert producer.flush(60) == 0
    assert told == [KafkaError.TOPIC_EXCEPTION]
