"""Transactions per second of one producer, ours and Kafka's, and what `read_committed` costs a consumer.

The client is librdkafka for both: 1,000 records of 100 B a transaction, one partition. Kafka syncs what it acknowledges, also
in the log of its transactions, as ours does.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException, Producer

from kafka_nodes import KafkaQuorum
from measure import Result, Rounds
from our_nodes import create_topic, our_quorum
from processes import wait_until
from raftlake.client import Client, IsolationLevel

RECORDS, RECORD_BYTES = 1_000, 100
SECONDS = 8.0
WARM = 5
CALL_SECONDS = 30
#: For the fetches: transactions that stand in the log, and how often a round reads it. Once takes some 50 ms.
READ_TRANSACTIONS, READS = 300, 10
TOPIC = "transactions"


def measure(directory: Path) -> Iterator[Result]:
    with our_quorum(directory / "ours") as ours, KafkaQuorum(directory / "kafka") as kafka:
        create_topic(ours, TOPIC, 1)
        kafka.create_topic(TOPIC, 1)
        producers = {server: new_producer(server) for server in (ours.bootstrap_servers, kafka.bootstrap_servers)}
        for producer in producers.values():
            for _ in range(WARM):
                transact(producer)
        yield (
            Rounds()
            .alternate(
                3,
                lambda: per_second(producers[ours.bootstrap_servers]),
                lambda: per_second(producers[kafka.bootstrap_servers]),
            )
            .result(
                name="transactional produce",
                unit="transactions/s",
                method=f"librdkafka, one producer, {RECORDS:,} records of {RECORD_BYTES} B a transaction, one partition",
                peer="Kafka (flush.messages=1)",
                ratio_at_least=2.0,
            )
        )
    with our_quorum(directory / "read") as quorum:
        create_topic(quorum, TOPIC, 1)
        yield read_committed(quorum.bootstrap_servers)


def new_producer(bootstrap_servers: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": "bench",
            "linger.ms": 0,
            "batch.num.messages": RECORDS,
            "queue.buffering.max.messages": 10 * RECORDS,
        }
    )

    def has_begun() -> bool:
        # The coordinator of a new Kafka cluster makes its topic first.
        try:
            producer.init_transactions(CALL_SECONDS)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return False
        return True

    wait_until(has_begun, "the producer's id", poll_s=0.5)
    return producer


def transact(producer: Producer) -> None:
    value = bytes(RECORD_BYTES)
    producer.begin_transaction()
    for _ in range(RECORDS):
        producer.produce(TOPIC, value, partition=0)
    producer.commit_transaction(CALL_SECONDS)


def per_second(producer: Producer) -> float:
    began = time.perf_counter()
    for count in itertools.count(1):
        transact(producer)
        elapsed = time.perf_counter() - began
        if elapsed >= SECONDS:
            return count / elapsed
    raise AssertionError


def read_committed(bootstrap_servers: str) -> Result:
    """The same log, read by consumers that see committed transactions only, and by others. The client does not look into the
    records."""
    producer = new_producer(bootstrap_servers)
    for number in range(READ_TRANSACTIONS):
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.produce(TOPIC, bytes(RECORD_BYTES), partition=0)
        producer.flush(CALL_SECONDS)
        (producer.abort_transaction if number % 10 == 9 else producer.commit_transaction)(CALL_SECONDS)
    with Client(bootstrap_servers) as client:
        read = partial(read_per_second, client, client.read_offset(TOPIC, [0])[0])
        return (
            Rounds()
            .alternate(
                7,
                lambda: read(isolation=IsolationLevel.READ_COMMITTED),
                lambda: read(isolation=IsolationLevel.READ_UNCOMMITTED),
            )
            .result(
                name="read_committed fetch",
                unit="records/s",
                method=f"{READ_TRANSACTIONS} transactions of {RECORDS:,} records of {RECORD_BYTES} B, each tenth aborted, in "
                "Fetches of 1 MiB one by one, ten times a round; aborted ones are counted",
                peer="read_uncommitted",
                ratio_at_least=0.9,
            )
        )


def read_per_second(client: Client, end: int, *, isolation: IsolationLevel) -> float:
    """Offsets a second from the beginning to the end, and so again."""
    began = time.perf_counter()
    for _ in range(READS):
        following = 0
        while following < end:
            following = client.fetch_raw(TOPIC, 0, following, bytes_max=1 << 20, wait_ms=500, isolation=isolation).next_offset
    return READS * end / (time.perf_counter() - began)
