"""Transactions of librdkafka, aiokafka and Kafka's own producer while nodes that coordinate and lead are killed (promise 9).

What a client was told to be committed is in all partitions once, for each client that reads. What it was told to be aborted is
in none. What it was told nothing about is in all or in none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from killedkit import (
    PARTITIONS,
    TOPIC,
    coordinator_of,
    java,
    python,
    read_by,
    read_by_librdkafka,
    require_kills,
    require_whole,
    through_kills,
    with_path,
)
from leaderkit import leader_of
from outcomekit import Ledger, findings, running, wait_until
from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]


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


def test_transactions_of_librdkafka(own_quorum: LocalQuorum) -> None:
    servers = own_quorum.bootstrap_servers
    with running([*python("transact_confluent.py"), servers, TOPIC, "worker"]) as program:
        ledger = through_kills(own_quorum, program)
    require_whole(ledger, lambda: read_by_librdkafka(own_quorum))
    require_kills(own_quorum, ledger)


def test_transactions_of_aiokafka(own_quorum: LocalQuorum, aiokafka: Path) -> None:
    servers, environment = own_quorum.bootstrap_servers, with_path(aiokafka)
    command = python("transact_aiokafka.py")
    with running([*command, servers, TOPIC, "worker"], environment) as program:
        ledger = through_kills(own_quorum, program)
    seen = require_whole(ledger, lambda: read_by_librdkafka(own_quorum))
    assert read_by([*command, "read", servers, TOPIC], environment) == seen
    require_kills(own_quorum, ledger)


def test_an_idempotent_producer_of_aiokafka(own_quorum: LocalQuorum, aiokafka: Path) -> None:
    servers, environment = own_quorum.bootstrap_servers, with_path(aiokafka)
    command = python("transact_aiokafka.py")
    with running([*command, "plain", servers, TOPIC], environment, aborts=False) as program:
        ledger = through_kills(own_quorum, program)
    seen = read_by([*command, "read", servers, TOPIC], environment)
    # No transaction holds the partitions together.
    for partition, numbers in seen.items():
        assert not (found := findings(ledger, {partition: numbers})), found
    assert read_by_librdkafka(own_quorum) == seen


@pytest.mark.java
def test_transactions_of_kafkas_own_producer(own_quorum: LocalQuorum) -> None:
    servers, command = own_quorum.bootstrap_servers, java("Transact.java")
    with running([*command, servers, TOPIC, "worker"]) as program:
        ledger = through_kills(own_quorum, program)
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
        wait_until(lambda: find(client) != node_id, "another node takes its place")
    quorum.start(node_id)


@pytest.mark.parametrize("victim", [coordinator_of, lambda client: leader_of(client, TOPIC)], ids=["coordinator", "leader"])
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


@pytest.mark.parametrize("victim", [coordinator_of, lambda client: leader_of(client, TOPIC)], ids=["coordinator", "leader"])
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


@pytest.mark.java
def test_kafka_transactions_finds_and_ends_what_is_open_though_nodes_were_killed(
    own_quorum: LocalQuorum, kafka_tool: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The tool is told the same by the next coordinator and the next leader."""
    at = ("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", own_quorum.bootstrap_servers)

    def described() -> str:
        return kafka_tool(*at, "describe", "--transactional-id", "worker").stdout.splitlines()[1]

    def producers() -> list[str]:
        shown = kafka_tool(*at, "describe-producers", "--topic", TOPIC, "--partition", "0").stdout
        # Producer id, epoch and start of the open transaction. The tool also tells when the last record came.
        return [field for line in shown.splitlines()[1:] for field in (*line.split()[:2], line.split()[-1])]

    open_transaction(new_producer(own_quorum, "worker"), 1)
    before = described(), producers()
    assert "Ongoing" in before[0] and f"{TOPIC}-0" in before[0] and before[1][-1].isdigit(), before
    kill_and_start(own_quorum, coordinator_of)
    kill_and_start(own_quorum, lambda client: leader_of(client, TOPIC))
    after = described(), producers()
    # The coordinator stands first, and for how long the transaction has been open.
    assert after[0].split()[1:5] == before[0].split()[1:5] and after[1] == before[1], (before, after)
    kafka_tool(*at, "forceTerminateTransaction", "--transactionalId", "worker")
    wait_until(lambda: producers()[-1] == "None", "the transaction is aborted")
    heir = new_producer(own_quorum, "worker")
    open_transaction(heir, 2)
    heir.commit_transaction(60)
    require_whole(Ledger(begun=[1, 2], committed=[2], aborted=[1]), lambda: read_by_librdkafka(own_quorum))
