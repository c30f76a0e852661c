"""The jar's log client on a real quorum while leaders are killed, its batches as other people's clients read them, and the room
that large files take in the quorum.

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
BLOBS = "__raftlake-blobs"


@pytest.fixture
def own_quorum(tmp_path: Path) -> Iterator[LocalQuorum]:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
        yield quorum


def program(*arguments: str, name: str = "AppendByLogs") -> list[str]:
    """The command that runs a program on the classes that `make test-java` compiles."""
    import pyspark

    build = ROOT / "jvm_shim" / "build"
    assert (build / "classes" / "java" / "main").is_dir(), "run `make test-java`: it compiles"
    path = f"{build / 'classes' / 'java' / 'main'}:{build / 'resources' / 'main'}:{Path(pyspark.__file__).parent / 'jars'}/*"
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path, str(PROGRAMS / f"{name}.java"), *arguments]


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


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        # Compaction has deleted it since it was listed.
        return 0


def test_compaction_gives_the_room_of_deleted_files_back(tmp_path: Path) -> None:
    """Thirteen files of 3 MB were written, and one is left. Segments are closed soon: compaction looks at closed ones."""
    directory = tmp_path / "quorum"
    with LocalQuorum(nodes=3, data_dir=directory, settings={"log.cleaner.backoff.ms": "200"}) as quorum:

        def files(what: str, name: str, times: int) -> None:
            addresses = (quorum.bootstrap_servers, quorum.http_servers)
            command = program(what, *addresses, name, str(times), name="LargeFiles")
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr

        def sizes() -> list[int]:
            logs = [directory.glob(f"node-{node_id}/{BLOBS}-*/*.log") for node_id in (1, 2, 3)]
            return [sum(map(size_of, found)) for found in logs]

        files("write", "kept", 1)
        with Client(quorum.bootstrap_servers) as client:
            assert client.topic_configs(BLOBS)["cleanup.policy"] == "compact"
            client.alter_topic_configs(BLOBS, {"segment.bytes": "1048576", "segment.ms": "1000"})
            one = client.read_offset(BLOBS)
            files("write", "churned", 12)
            # Some of that may be compacted already. The chunks of the first file are in one partition.
            chunks = max(one.values()) - min(one.values())
            assert chunks > 1 and sum(client.read_offset(BLOBS).values()) - sum(one.values()) >= 12 * chunks
        files("delete", "churned", 0)
        files("read", "kept", 1)
        wait_until(lambda: max(sizes()) < 4_000_000, "each node has the room back")
        files("read", "kept", 1)
