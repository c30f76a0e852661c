"""The jar's log client on a real quorum while leaders are killed, and its batches as other people's clients read them.

`LogsContractTest` runs on a quorum in `test_wire_jvm_files.py`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from killedkit import PARTITIONS, PROGRAMS, TOPIC, read_by, read_by_librdkafka, through_kills
from outcomekit import findings, running, wait_until
from raftlake import Client, LocalQuorum

pytestmark = [pytest.mark.java, pytest.mark.process]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def own_quorum(tmp_path: Path) -> Iterator[LocalQuorum]:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
        yield quorum


def program(*arguments: str) -> list[str]:
    """The command that runs AppendByLogs on the classes that `make test-java` compiles."""
    import pyspark

    classes = ROOT / "jvm_shim" / "build" / "classes" / "java" / "main"
    assert classes.is_dir(), "run `make test-java`: it compiles"
    path = f"{classes}:{Path(pyspark.__file__).parent / 'jars'}/*"
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path, str(PROGRAMS / "AppendByLogs.java"), *arguments]


def test_appends_while_leaders_are_killed_are_there_once(own_quorum: LocalQuorum) -> None:
    servers = own_quorum.bootstrap_servers
    with running(program("append", servers, TOPIC), aborts=False) as appends:
        ledger = through_kills(own_quorum, appends)
    seen = read_by(program("read", servers, TOPIC))
    assert read_by_librdkafka(own_quorum) == seen
    for partition, numbers in seen.items():
        # No transaction holds the partitions together.
        assert not (found := findings(ledger, {partition: numbers})), found
    with Client(servers) as client:
        assert min(part.leader_epoch for part in client.describe_topic(TOPIC).partitions[:2]) > 1
    assert not ledger.unknown, "each append that was under way in a kill has an outcome"


def test_librdkafka_reads_each_codec(quorum: LocalQuorum, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=1)
    done = subprocess.run(program("codecs", quorum.bootstrap_servers, topic), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    consumer = Consumer({"bootstrap.servers": quorum.bootstrap_servers, "group.id": "none", "enable.auto.commit": False})
    found = []

    def all_read() -> bool:
        if (message := consumer.poll(1.0)) is not None and message.error() is None:
            found.append((message.key(), message.value(), message.headers()))
        return len(found) == 10

    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        wait_until(all_read, "ten records are read")
    finally:
        consumer.close()
    codecs = (b"none", b"gzip", b"snappy", b"lz4", b"zstd")
    expected = [((codec, b"late, " * 40_000, [("h", b"1")]), (None, codec, None)) for codec in codecs]
    assert found == [record for batch in expected for record in batch]
