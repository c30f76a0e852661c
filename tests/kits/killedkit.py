"""A quorum whose nodes are killed while a client writes (see outcomekit), and what several clients read there afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

from leaderkit import leader_of
from outcomekit import Ledger, Program, findings, wait_until
from raftlake import Client, LocalQuorum

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "wire" / "programs"
KAFKA_JARS = ROOT / ".cache" / "kafka-4.3.1"
TOPIC = "t"
PARTITIONS = 6


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


def coordinator_of(client: Client) -> int:
    """The node that coordinates transactions, as soon as one does."""
    leader_id: int = wait_until(lambda: max(client.describe_quorum().leader_id, 0), "a leader of the metadata log")
    return leader_id


def through_kills(quorum: LocalQuorum, program: Program) -> Ledger:
    """The node that coordinates transactions and the leader of each partition are killed in turn, and started again."""
    with Client(quorum.bootstrap_servers) as client:
        victims: tuple[Callable[[], int], ...] = (
            lambda: coordinator_of(client),
            lambda: leader_of(client, TOPIC, 0),
            lambda: coordinator_of(client),
            lambda: leader_of(client, TOPIC, 1),
        )
        for victim in victims:
            program.ends_more(2)
            node_id = victim()
            quorum.kill(node_id)
            program.ends_more(2)
            quorum.start(node_id)
        program.ends_more(2)
    return program.stop()


def require_whole(ledger: Ledger, read: Callable[[], Mapping[int, Sequence[int]]]) -> dict[int, list[int]]:
    """What `read` gives, as soon as all that was committed is in it: markers follow their decision. AssertionError with each
    difference otherwise."""
    last: dict[int, list[int]] = {}

    def all_there() -> bool:
        last.update({partition: list(numbers) for partition, numbers in read().items()})
        return len(last) == PARTITIONS and all(set(ledger.committed) <= set(numbers) for numbers in last.values())

    try:
        wait_until(all_there, "what was committed is seen")
    finally:
        assert not (found := findings(ledger, last)), "\n".join(found)
    return last


def require_kills(quorum: LocalQuorum, ledger: Ledger) -> None:
    """The partitions whose leaders were killed had others, and transactions of both kinds ended."""
    with Client(quorum.bootstrap_servers) as client:
        epochs = [part.leader_epoch for part in client.describe_topic(TOPIC).partitions[:2]]
        assert min(epochs) > 1, epochs
        assert client.describe_quorum().leader_epoch > 2
    assert len(ledger.committed) >= 18 and len(ledger.aborted) >= 9
