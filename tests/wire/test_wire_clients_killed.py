"""Transactions of real clients while the nodes that coordinate and lead are killed (promise 9): librdkafka, aiokafka, Kafka's own.

What a client was told to be committed is in all partitions once, for each client that reads. What it was told to be aborted is
in none. What it was told nothing about is in all or in none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from conftest import KAFKA_JARS
from leaderkit import leader_of
from outcomekit import PARTITIONS, Ledger, findings, require_whole, running, through_kills, wait_until
from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
TOPIC = "t"

Read = Callable[[], dict[int, list[int]]]


@pytest.fixture
def own_quorum(tmp_path: Path) -> Iterator[LocalQuorum]:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
        yield quorum


@pytest.fixture(scope="module")
def aiokafka() -> Path:
    """Where it is installed, once for all runs."""
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run([ROOT / "tools" / "fetch-kafka-python"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ROOT / ".cache" / f"aiokafka-0.14.0-{sys.implementation.cache_tag}"


def python(name: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / name)]


def java(name: str) -> list[str]:
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{KAFKA_JARS}/*", str(PROGRAMS / name)]


def with_path(path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(path)}


def read_by_librdkafka(quorum: LocalQuorum) -> dict[int, list[int]]:
    """What is committed in front of the ends as they are now, by partition."""
    settings = {"bootstrap.servers": quorum.bootstrap_servers, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer(settings | {"isolation.level": "read_committed", "enable.partition.eof": True})
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    ended: set[int] = set()

    def all_read() -> bool:
        message = consumer.poll(1.0)
        if message is None:
            return False
        if message.error() is None:
            found[message.partition()].append(int(message.value()))
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        return len(ended) == PARTITIONS

    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        wait_until(all_read, "all partitions are read")
    finally:
        consumer.close()
    return found


def read_by(command: list[str], environment: Mapping[str, str] | None = None) -> dict[int, list[int]]:
    """What a program prints as `PARTITION VALUE`."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for line in done.stdout.splitlines():
        partition, value = map(int, line.split())
        found[partition].append(value)
    return found


def require_kills(quorum: LocalQuorum, ledger: Ledger) -> None:
    """Each partition was led in several epochs, and transactions of both kinds ended."""
    with Client(quorum.bootstrap_servers) as client:
        epochs = [part.leader_epoch for part in client.describe_topic(TOPIC).partitions]
        assert min(epochs) > 1, epochs
        assert client.describe_quorum().leader_epoch > 2
    assert len(ledger.committed) >= 18 and len(ledger.aborted) >= 9


def test_transactions_of_librdkafka(own_quorum: LocalQuorum) -> None:
    servers = own_quorum.bootstrap_servers
    with running([*python("transact_confluent.py"), servers, TOPIC, "worker"]) as program:
        ledger = through_kills(own_quorum, program, TOPIC)
    require_whole(ledger, lambda: read_by_librdkafka(own_quorum))
    require_kills(own_quorum, ledger)


def test_transactions_of_aiokafka(own_quorum: LocalQuorum, aiokafka: Path) -> None:
    servers, environment = own_quorum.bootstrap_servers, with_path(aiokafka)
    command = python("transact_aiokafka.py")
    with running([*command, servers, TOPIC, "worker"], environment) as program:
        ledger = through_kills(own_quorum, program, TOPIC)
    seen = require_whole(ledger, lambda: read_by_librdkafka(own_quorum))
    assert read_by([*command, "read", servers, TOPIC], environment) == seen
    require_kills(own_quorum, ledger)


def test_an_idempotent_producer_of_aiokafka(own_quorum: LocalQuorum, aiokafka: Path) -> None:
    servers, environment = own_quorum.bootstrap_servers, with_path(aiokafka)
    command = python("transact_aiokafka.py")
    with running([*command, "plain", servers, TOPIC], environment, aborts=False) as program:
        ledger = through_kills(own_quorum, program, TOPIC)
    seen = read_by([*command, "read", servers, TOPIC], environment)
    # No transaction holds the partitions together.
    for partition, numbers in seen.items():
        assert not (found := findings(ledger, {partition: numbers})), found
    assert read_by_librdkafka(own_quorum) == seen


@pytest.mark.java
def test_transactions_of_kafkas_own_producer(own_quorum: LocalQuorum) -> None:
    servers, command = own_quorum.bootstrap_servers, java("Transact.java")
    with running([*command, servers, TOPIC, "worker"]) as program:
        ledger = through_kills(own_quorum, program, TOPIC)
    seen = require_whole(ledger, lambda: read_by_librdkafka(own_quorum))
    assert read_by([*command, "read", servers, TOPIC]) == seen
    require_kills(own_quorum, ledger)


def new_producer(quorum: LocalQuorum, name: str, timeout_ms: int = 30_000) -> Producer:
    settings = {"bootstrap.servers": quorum.bootstrap_servers, "transactional.id": name, "linger.ms": 0}
    producer = Producer(settings | {"transaction.timeout.ms": timeout_ms, "message.timeout.ms": timeout_ms})
    producer.init_transactions(60)
    return producer


def open_transaction(producer: Producer, number: int) -> None:
    """Its records are in all partitions."""
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, b"%d" % number, partition=partition)
    assert producer.flush(60) == 0


def kill_and_start(quorum: LocalQuorum, find: Callable[[Client], int]) -> None:
    with Client(quorum.bootstrap_servers) as client:
        node_id = find(client)
        quorum.kill(node_id)
        # Whoever follows is there before the killed node is back.
        wait_until(lambda: find(client) not in (node_id, -1), "another node takes its place")
    quorum.start(node_id)


def coordinator(client: Client) -> int:
    return client.describe_quorum().leader_id


@pytest.mark.parametrize("victim", [coordinator, lambda client: leader_of(client, TOPIC)], ids=["coordinator", "leader"])
def test_a_zombie_is_fenced_though_nodes_were_killed(own_quorum: LocalQuorum, victim: Callable[[Client], int]) -> None:
    """The next coordinator and the next leaders know who may write, and abort what the zombie left open."""
    zombie = new_producer(own_quorum, "worker")
    open_transaction(zombie, 1)
    kill_and_start(own_quorum, victim)
    heir = new_producer(own_quorum, "worker")
    open_transaction(heir, 2)
    kill_and_start(own_quorum, victim)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(60)
    assert fenced.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
    heir.commit_transaction(60)
    require_whole(Ledger(begun=[1, 2], committed=[2], aborted=[1]), lambda: read_by_librdkafka(own_quorum))


@pytest.mark.parametrize("victim", [coordinator, lambda client: leader_of(client, TOPIC)], ids=["coordinator", "leader"])
def test_a_transaction_whose_time_is_over_is_aborted_though_nodes_were_killed(
    own_quorum: LocalQuorum, victim: Callable[[Client], int]
) -> None:
    slow = new_producer(own_quorum, "slow", timeout_ms=4_000)
    open_transaction(slow, 1)
    kill_and_start(own_quorum, victim)
    quick = new_producer(own_quorum, "quick")
    open_transaction(quick, 2)
    quick.commit_transaction(60)
    # Committed records behind an open transaction are shown once it is aborted.
    require_whole(Ledger(begun=[1, 2], committed=[2], aborted=[1]), lambda: read_by_librdkafka(own_quorum))
    with pytest.raises(KafkaException):
        slow.commit_transaction(60)
