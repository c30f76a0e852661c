"""Kafka's own transactional producer and tools (4.3.1, Java) against our nodes, and what librdkafka wrote, read by Java."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from raftlake import LocalQuorum
from waitkit import wait_until

pytestmark = pytest.mark.java

NewTopicName = Callable[..., str]
Tool = Callable[..., subprocess.CompletedProcess[str]]

PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DUMP = "org.apache.kafka.tools.DumpLogSegments"


def consume(tool: Tool, quorum: LocalQuorum, topic: str, count: int, isolation: str) -> list[str]:
    at = ("--bootstrap-server", quorum.bootstrap_servers, "--topic", topic, "--partition", "0", "--offset", "earliest")
    more = ("--max-messages", str(count), "--timeout-ms", "20000", "--isolation-level", isolation)
    return tool(CONSOLE_CONSUMER, *at, *more).stdout.split()


def test_java_writes_transactions_and_reads_them(quorum: LocalQuorum, kafka_tool: Tool, new_topic: NewTopicName) -> None:
    topic = new_topic()
    at = ("--bootstrap-server", quorum.bootstrap_servers)
    work = ("--topic", topic, "--num-records", "1000", "--record-size", "100", "--throughput", "2000")
    done = kafka_tool(PERFORMANCE, *at, *work, "--transactional-id", "java", "--transaction-duration-ms", "50")
    assert "1000 records sent" in done.stdout
    assert len(consume(kafka_tool, quorum, topic, 1000, "read_committed")) == 1000
    listed = kafka_tool(TRANSACTIONS, *at, "list").stdout
    assert re.search(r"^java\s+\d+\s+\d+\s+(CompleteCommit|PrepareCommit|Empty)", listed, flags=re.MULTILINE), listed


def test_java_consumers_skip_what_was_aborted(quorum: LocalQuorum, kafka_tool: Tool, new_topic: NewTopicName) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "transactional.id": f"of-{topic}", "linger.ms": 0})
    producer.init_transactions(30)
    for value, commits in ((b"a", True), (b"x", False), (b"b", True), (b"y", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    assert consume(kafka_tool, quorum, topic, 3, "read_committed") == ["a", "b", "c"]
    assert consume(kafka_tool, quorum, topic, 5, "read_uncommitted") == ["a", "x", "b", "y", "c"]


def open_at(tool: Tool, quorum: LocalQuorum, topic: str) -> list[str]:
    """Where the open transactions of partition 0 begin."""
    at = ("--bootstrap-server", quorum.bootstrap_servers)
    output = tool(TRANSACTIONS, *at, "describe-producers", "--topic", topic, "--partition", "0").stdout
    last = [line.split()[-1] for line in output.splitlines() if re.match(r"\d", line)]
    assert last, output
    return [offset for offset in last if offset.isdigit()]


def test_kafka_transactions_describes_and_ends_what_is_open(
    quorum: LocalQuorum, kafka_tool: Tool, new_topic: NewTopicName
) -> None:
    topic = new_topic()
    at = ("--bootstrap-server", quorum.bootstrap_servers)
    name = f"open-{topic}"
    producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    described = kafka_tool(TRANSACTIONS, *at, "describe", "--transactional-id", name).stdout
    assert "Ongoing" in described and f"{topic}-0" in described, described
    (start,) = open_at(kafka_tool, quorum, topic)
    # It does not hang: its coordinator knows it, and ends it as a whole.
    refused = kafka_tool(TRANSACTIONS, *at, "abort", "--topic", topic, "--partition", "0", "--start-offset", start, check=False)
    assert refused.returncode != 0 and open_at(kafka_tool, quorum, topic) == [start]
    kafka_tool(TRANSACTIONS, *at, "forceTerminateTransaction", "--transactionalId", name)
    wait_until(lambda: not open_at(kafka_tool, quorum, topic), "the transaction is aborted", seconds=60)
