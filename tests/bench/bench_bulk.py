"""Bulk produce through librdkafka, side by side with Kafka, both with the same producer settings and the same promise."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from kafka_nodes import KafkaQuorum
from measure import Peer, Result, Rounds
from our_nodes import create_topic, our_quorum, pids_of
from processes import resident_mib
from raftlake.client import Client

VALUE = os.urandom(1024)
PARTITIONS = 4
BULK_BYTES = 400 << 20
ROUNDS = 3
PRODUCER = {
    "acks": "all",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 256_000,
}


def produce(servers: str, topic: str, size: int) -> float:
    """MB/s from the first record until the last acknowledgement."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": servers, **PRODUCER})

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    began = time.perf_counter()
    for number in range(size // len(VALUE)):
        while True:
            try:
                producer.produce(topic, VALUE, partition=number % PARTITIONS, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0, "records without an answer"
    seconds = time.perf_counter() - began
    assert not failed, failed[:3]
    return size / 1e6 / seconds


def measure(directory: Path) -> Iterator[Result]:
    began = time.perf_counter()
    with KafkaQuorum(directory / "kafka") as kafka, our_quorum(directory / "raftlake") as quorum:
        kafka_start_s = time.perf_counter() - began
        with Client(quorum.bootstrap_servers) as client:
            yield compare(kafka, quorum.bootstrap_servers, lambda name: create_topic(quorum, name, PARTITIONS), client)
        ours, theirs = max(map(resident_mib, pids_of(quorum))), max(map(resident_mib, kafka.pids))
        yield Result(
            name="memory per node after the bulk",
            value=ours,
            unit="MiB",
            method=f"resident, the largest of three nodes; Kafka has a heap of 1 GiB and took {kafka_start_s:.1f} s to start",
            peer=Peer(name="Kafka", value=theirs, ratio=ours / theirs),
        )


def compare(kafka: KafkaQuorum, servers: str, create: object, client: Client) -> Result:
    assert callable(create)
    number = 0

    def ours(size: int = BULK_BYTES) -> float:
        nonlocal number
        name = f"bench-bulk-{(number := number + 1)}"
        create(name)
        rate = produce(servers, name, size)
        client.delete_topic(name)
        return rate

    def theirs(size: int = BULK_BYTES) -> float:
        nonlocal number
        name = f"bench-bulk-{(number := number + 1)}"
        kafka.create_topic(name, PARTITIONS)
        rate = produce(kafka.bootstrap_servers, name, size)
        kafka.delete_topic(name)
        return rate

    ours(BULK_BYTES // 10)  # warm: the JVM's compiler above all
    theirs(BULK_BYTES // 4)
    return (
        Rounds()
        .alternate(ROUNDS, ours, theirs)
        .result(
            name="bulk produce",
            unit="MB/s",
            method=f"librdkafka, acks=all, 1 KiB random values, {BULK_BYTES >> 20} MiB over {PARTITIONS} partitions, linger 20"
            " ms, no compression; Kafka with flush.messages=1, min.insync.replicas=2",
            peer="Kafka",
            ratio_at_least=1.5,
        )
    )
