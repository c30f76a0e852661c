"""Transactions of librdkafka (confluent-kafka) over several partitions: committed, aborted, fenced, too long, and read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import waitkit
from raftlake import Client
from raftlake.client import EndTxn, KvConflict, Put
from raftlake.replica.transaction_entry import transaction_key

if TYPE_CHECKING:
    from raftlake import LocalQuorum

pytestmark = pytest.mark.process

NewTopicName = Callable[..., str]
wait_until = partial(waitkit.wait_until, seconds=60)


def transactional(quorum: LocalQuorum, name: str, **settings: object) -> Producer:
    producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "transactional.id": name, **settings})
    producer.init_transactions(30)
    return producer


def transact(producer: Producer, topic: str, value: bytes, partitions: Sequence[int], *, commit: bool = True) -> None:
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, value, partition=partition)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.flush(30)
        producer.abort_transaction(30)


def read(quorum: LocalQuorum, topic: str, count: int, partitions: int, isolation: str = "read_committed") -> list[bytes]:
    """So many records, and no more for a second."""
    consumer = Consumer({"bootstrap.servers": quorum.bootstrap_servers, "group.id": "unused", "isolation.level": isolation})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    values: list[bytes] = []

    def has_all() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(message.value())
        return len(values) >= count

    try:
        wait_until(has_all, f"{count} records")
        end_at = time.monotonic() + 1
        while time.monotonic() < end_at:
            message = consumer.poll(0.2)
            assert message is None or message.error() is not None, message.value()
    finally:
        consumer.close()
    return sorted(values)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    topic = new_topic(partitions=3)
    one, two = transactional(quorum, f"{topic}-1"), transactional(quorum, f"{topic}-2")
    for number in range(5):
        transact(one, topic, b"1-%d" % number, range(3), commit=number % 2 == 0)
        transact(two, topic, b"2-%d" % number, (number % 3,), commit=number % 2 == 1)
    committed = [b"1-0"] * 3 + [b"1-2"] * 3 + [b"1-4"] * 3 + [b"2-1", b"2-3"]
    assert read(quorum, topic, len(committed), 3) == committed
    assert len(read(quorum, topic, 20, 3, "read_uncommitted")) == 20


def test_a_producer_whose_transaction_a_command_ended_is_fenced_and_the_next_one_goes_on(
    quorum: LocalQuorum, new_topic: NewTopicName
) -> None:
    """The command, sent once more, does not end the transaction of the next one."""
    topic = new_topic()
    with Client(quorum.bootstrap_servers) as client:
        first = transactional(quorum, topic)
        first.begin_transaction()
        first.produce(topic, b"first", partition=0)
        first.flush(30)
        entry = client.kv.get(transaction_key(topic))
        assert entry is not None and entry.value is not None
        known = json.loads(entry.value)
        command = [Put(f"{topic}-progress", b"1"), EndTxn(known["producer_id"], known["epoch"], True)]
        version = client.kv.txn({f"{topic}-progress": 0}, command)
        # librdkafka knows nothing of it, and asks for the same.
        first.commit_transaction(30)
        assert client.kv.txn({}, command) > version
        first.begin_transaction()
        first.produce(topic, b"zombie", partition=0)
        with pytest.raises(KafkaException) as refused:
            first.commit_transaction(30)
        assert refused.value.args[0].fatal(), refused.value

        second = transactional(quorum, topic)
        second.begin_transaction()
        second.produce(topic, b"second", partition=0)
        second.flush(30)
        with pytest.raises(KvConflict, match="has the epoch") as late:
            client.kv.txn({}, [Put(f"{topic}-progress", b"0"), command[1]])
        assert list(late.value.refused) == [known["producer_id"]]
        entry = client.kv.get(f"{topic}-progress")
        assert entry is not None and entry.value == b"1"
        second.commit_transaction(30)
    assert read(quorum, topic, 2, 1) == [b"first", b"second"]


@pytest.mark.parametrize(("goes_on", "code"), [("commits", KafkaError.INVALID_TXN_STATE), ("appends", KafkaError._FENCED)])
def test_after_an_abort_by_an_operator_the_producer_ends_and_the_next_one_of_its_id_goes_on(
    quorum: LocalQuorum, new_topic: NewTopicName, goes_on: str, code: int
) -> None:
    """As `docs/protocol/transactions.md` tells it to applications. `raftlake transactions abort` sends the same command."""
    topic = new_topic()
    with Client(quorum.bootstrap_servers) as client:
        first = transactional(quorum, topic, error_cb=lambda _: None)
        first.begin_transaction()
        first.produce(topic, b"lost", partition=0)
        first.flush(30)
        client.kv.txn({}, [client.describe_transaction(topic).end(commit=False)])
        if goes_on == "appends":
            # To librdkafka this abort is its own, and the next transaction is fenced.
            first.abort_transaction(30)
            first.begin_transaction()
            first.produce(topic, b"late", partition=0)
        for _ in range(2):
            with pytest.raises(KafkaException) as ended:
                first.commit_transaction(30)
            assert ended.value.args[0].fatal() and ended.value.args[0].code() == code
        transact(transactional(quorum, topic), topic, b"kept", (0,))
    assert read(quorum, topic, 1, 1) == [b"kept"]


def test_the_second_producer_of_an_id_fences_the_first(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    topic = new_topic(partitions=2)
    old = transactional(quorum, topic)
    transact(old, topic, b"kept", range(2))
    old.begin_transaction()
    old.produce(topic, b"lost", partition=0)
    old.flush(30)
    new = transactional(quorum, topic)
    old.produce(topic, b"late", partition=0)
    with pytest.raises(KafkaException) as fenced:
        old.commit_transaction(30)
    assert fenced.value.args[0].fatal()
    assert fenced.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
    transact(new, topic, b"next", range(2))
    assert read(quorum, topic, 4, 2) == [b"kept", b"kept", b"next", b"next"]


def test_a_transaction_that_takes_too_long_is_aborted(quorum: LocalQuorum, new_topic: NewTopicName) -> None:
    topic = new_topic()
    slow = transactional(quorum, topic, **{"transaction.timeout.ms": 1_000})
    slow.begin_transaction()
    slow.produce(topic, b"lost", partition=0)
    slow.flush(30)
    quick = transactional(quorum, f"{topic}-2")
    transact(quick, topic, b"kept", (0,))
    assert read(quorum, topic, 1, 1) == [b"kept"]
    with pytest.raises(KafkaException):
        slow.commit_transaction(30)
