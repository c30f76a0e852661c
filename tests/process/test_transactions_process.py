"""Transactions of librdkafka on real nodes with a remote tier. `test_wire_clients_killed.py` kills nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import waitkit
from raftlake import Client, LocalQuorum
from raftlake.tier.reader import TopicHistory
from raftlake.tier.verify import verify_table

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=60)
CALL_SECONDS = 30
EARLIEST_LOCAL = -4


def new_producer(quorum: LocalQuorum, name: str, timeout_ms: int = 30_000) -> Producer:
    """A producer that has its transactional id."""
    settings = {"bootstrap.servers": quorum.bootstrap_servers, "transactional.id": name, "transaction.timeout.ms": timeout_ms}
    producer = Producer(
        settings | {"linger.ms": 0, "socket.timeout.ms": min(10_000, timeout_ms), "message.timeout.ms": timeout_ms}
    )
    producer.init_transactions(CALL_SECONDS)
    return producer


def again(call: Callable[[], None]) -> None:
    """librdkafka leaves it to its user to repeat what may be repeated."""

    def done() -> bool:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return False
        return True

    waitkit.attempt(done, "the call is through")


def send(producer: Producer, topic: str, values: dict[int, list[bytes]]) -> None:
    """One open transaction; `values` by partition."""
    producer.begin_transaction()
    for partition, each in values.items():
        for value in each:
            producer.produce(topic, value, partition=partition)
    producer.flush(CALL_SECONDS)


def read_all(quorum: LocalQuorum, topic: str, partitions: int, isolation: str = "read_committed") -> dict[int, list[bytes]]:
    """The values in front of the end as it is now, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": quorum.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

        def all_read() -> bool:
            message = consumer.poll(1.0)
            if message is None:
                return False
            error = message.error()
            if error is None:
                found[message.partition()].append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            return len(ended) == partitions

        wait_until(all_read, "all partitions are read")
    finally:
        consumer.close()
    return found


def test_history_keeps_apart_what_was_aborted(tmp_path: Path) -> None:
    """The table of a topic counts each record, by its kind; consumers of old offsets are given the committed ones."""
    tables = tmp_path / "tables"
    settings = {
        "tier.uri": str(tables),
        "tier.target.lag.ms": "1000",
        "tier.flush.bytes": "65536",
        "log.segment.bytes": "65536",
        "local.retention.bytes": "100000",
    }
    with LocalQuorum(nodes=3, data_dir=tmp_path / "nodes", settings=settings) as quorum:
        with Client(quorum.bootstrap_servers) as client:
            client.create_topic("t")
            producer = new_producer(quorum, "one")
            for number in range(12):
                commits = number % 3 != 2
                send(producer, "t", {0: [b"%d-%d-" % (number, n) + bytes(3_000) for n in range(20)]})
                again(partial(producer.commit_transaction if commits else producer.abort_transaction, CALL_SECONDS))
            # A directory is no table before the first commit.
            commit, *_ = wait_until(lambda: list(tables.glob("t-*/_delta_log/*.json")), "there is a table")
            table = commit.parent.parent

            def kinds() -> dict[int, int]:
                found = pl.scan_delta(str(table)).group_by("kind").len().collect()
                return dict(found.iter_rows())

            def is_whole() -> bool:
                found = kinds()
                return (found.get(0), found.get(2)) == (160, 80)

            wait_until(is_whole, "the table holds all transactions")
            wait_until(lambda: client.list_offsets("t", {0: EARLIEST_LOCAL})[0] > 0, "local logs are trimmed")
            report = verify_table(TopicHistory(str(table)))
            assert report.findings == () and [part.aborted for part in report.partitions] == [80]
        committed = [b"%d-%d-" % (number, n) for number in range(12) for n in range(20) if number % 3 != 2]
        assert [value[: value.rindex(b"-") + 1] for value in read_all(quorum, "t", 1)[0]] == committed
        assert len(read_all(quorum, "t", 1, "read_uncommitted")[0]) == 240
