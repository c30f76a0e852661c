"""Kafka's own command-line tools (4.3.1, Java): describe the quorum, produce, consume, and read our files."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from leaderkit import is_everywhere
from raftlake import Client, LocalQuorum
from waitkit import wait_until

pytestmark = pytest.mark.java

NewTopicName = Callable[..., str]
Tool = Callable[..., subprocess.CompletedProcess[str]]

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
#: KIP-595 "Tooling Support" as the tool prints it today.
STATUS_LINES = [
    *("ClusterId", "LeaderId", "LeaderEpoch", "HighWatermark"),
    *("MaxFollowerLag", "MaxFollowerLagTimeMs", "CurrentVoters", "CurrentObservers"),
]
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"


@pytest.mark.parametrize("node", [0, 1, 2])
@pytest.mark.parametrize("how", ["--bootstrap-server", "--bootstrap-controller"])
def test_kafka_metadata_quorum_describes_the_status(quorum: LocalQuorum, kafka_tool: Tool, how: str, node: int) -> None:
    """Asked at each node, whether it leads or not."""
    output = kafka_tool(QUORUM, how, quorum.bootstrap_servers.split(",")[node], "describe", "--status").stdout
    facts = dict(re.findall(r"^(\w+):\s+(.*)$", output, flags=re.MULTILINE))
    assert list(facts) == STATUS_LINES
    assert int(facts["LeaderId"]) in (1, 2, 3)
    assert int(facts["LeaderEpoch"]) >= 1
    assert int(facts["HighWatermark"]) >= 1
    assert int(facts["MaxFollowerLag"]) >= 0
    assert {int(voter) for voter in re.findall(r'"id": (\d+)', facts["CurrentVoters"])} == {1, 2, 3}
    assert facts["CurrentObservers"] == "[]"


@pytest.mark.parametrize("how", ["--bootstrap-server", "--bootstrap-controller"])
def test_kafka_metadata_quorum_describes_the_replication(quorum: LocalQuorum, kafka_tool: Tool, how: str) -> None:
    output = kafka_tool(QUORUM, how, quorum.bootstrap_servers, "describe", "--replication").stdout
    rows = [line.split() for line in output.splitlines() if line.strip()]
    assert rows[0][:4] == ["NodeId", "DirectoryId", "LogEndOffset", "Lag"]
    assert rows[0][-1] == "Status"
    assert sorted(row[0] for row in rows[1:]) == ["1", "2", "3"]
    assert sorted(row[-1] for row in rows[1:]) == ["Follower", "Follower", "Leader"]


def test_kafka_topics_sees_our_topics(quorum: LocalQuorum, kafka_tool: Tool) -> None:
    at = ("--bootstrap-server", quorum.bootstrap_servers)
    kafka_tool(TOPICS, *at, "--create", "--topic", "made-by-java", "--partitions", "2")
    # Any node answers, also one that has not applied the change yet.
    listed = lambda: "made-by-java" in kafka_tool(TOPICS, *at, "--list").stdout.split()  # noqa: E731
    wait_until(listed, "the topic is listed", seconds=60)
    described = kafka_tool(TOPICS, *at, "--describe", "--topic", "made-by-java").stdout
    assert re.search(r"PartitionCount:\s*2\b", described)
    assert re.search(r"ReplicationFactor:\s*3\b", described)
    kafka_tool(TOPICS, *at, "--delete", "--topic", "made-by-java")
    wait_until(lambda: not listed(), "the topic is gone", seconds=60)


def test_the_console_producer_and_consumer_understand_each_other(
    quorum: LocalQuorum, new_topic: NewTopicName, kafka_tool: Tool
) -> None:
    topic = new_topic()
    at = ("--bootstrap-server", quorum.bootstrap_servers)
    lines = [f"line {number}" for number in range(300)]
    kafka_tool(CONSOLE_PRODUCER, *at, "--topic", topic, stdin="\n".join(lines) + "\n")
    read = kafka_tool(
        CONSOLE_CONSUMER,
        *at,
        "--topic",
        topic,
        "--partition",
        "0",
        "--offset",
        "earliest",
        "--max-messages",
        "300",
        "--timeout-ms",
        "60000",
    )
    assert read.stdout.splitlines() == lines
    latest = kafka_tool(GET_OFFSETS, *at, "--topic", topic, "--time", "latest").stdout.strip()
    assert latest.startswith(f"{topic}:0:")
    # A few control records of the partition's leader and voters are counted too.
    assert 301 <= int(latest.rpartition(":")[2]) <= 310
    assert f"{topic}:0:0" in kafka_tool(GET_OFFSETS, *at, "--topic", topic, "--time", "earliest").stdout.split()


def test_the_console_consumer_of_a_group_ends_instead_of_waiting(
    quorum: LocalQuorum, new_topic: NewTopicName, kafka_tool: Tool
) -> None:
    at = ("--bootstrap-server", quorum.bootstrap_servers)
    refused = kafka_tool(CONSOLE_CONSUMER, *at, "--topic", new_topic(), "--group", "billing")
    # Without that error it would wait for records until `kafka_tool` gives up; the error itself goes to its log only.
    assert "Processed a total of 0 messages" in refused.stderr


@pytest.fixture
def written_dir(tmp_path: Path) -> Path:
    """The data of a quorum that was stopped when every node had 3,000 records in segments of 256 KiB; topic `numbers`."""
    settings = {"log.segment.bytes": str(256 << 10)}
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum", settings=settings) as own, Client(own.bootstrap_servers) as client:
        client.create_topic("numbers", partitions=1)
        producer = Producer(
            {"bootstrap.servers": own.bootstrap_servers, "acks": "all", "batch.num.messages": 20, "linger.ms": 5}
        )
        for number in range(3000):
            producer.produce("numbers", bytes(300), key=b"%d" % number, partition=0)
            producer.poll(0)
        assert producer.flush(60) == 0

        wait_until(lambda: is_everywhere(client, "numbers"), "three whole replicas", seconds=20)
    return tmp_path / "quorum"


def test_kafka_dump_log_reads_our_files(written_dir: Path, kafka_tool: Tool) -> None:
    """All segments of a node, both indexes and the metadata log: every batch valid, every index entry right."""
    segments = sorted((written_dir / "node-1" / "numbers-0").glob("*.log"))
    assert len(segments) >= 2, "rolled by size"
    dump = kafka_tool(DUMP, "--files", ",".join(map(str, segments))).stdout
    assert "isvalid: false" not in dump
    counts = [int(count) for count in re.findall(r"count: (\d+) .*isControl: false .*isvalid: true", dump)]
    assert sum(counts) == 3000
    assert re.search(r"baseOffset: 0 lastOffset: [02] count: [13] .*isControl: true .*isvalid: true", dump)

    # A segment may hold a single batch, when a large append came right behind it; then it has nothing to index.
    indexed = next(segment for segment in segments if segment.with_suffix(".index").stat().st_size)
    for suffix in ("index", "timeindex"):
        index = indexed.with_suffix(f".{suffix}")
        checked = kafka_tool(DUMP, "--files", str(index), "--index-sanity-check")
        assert f"{index} passed sanity check." in checked.stdout
        verified = kafka_tool(DUMP, "--files", f"{indexed},{index}")
        problems = ("Mismatches", "not found", "Found", "Exception", "corrupt")
        assert not [line for line in (verified.stdout + verified.stderr).splitlines() if line.startswith(problems)]

    metadata = written_dir / "node-1" / "__cluster_metadata-0" / "00000000000000000000.log"
    dump = kafka_tool(DUMP, "--files", str(metadata), "--print-data-log").stdout
    assert re.search(r'LeaderChange: \{"version":0,"leaderId":[123],"voters":\[\{"voterId":1\},', dump)


# --- a topic's partitions, their records, and what disks have of them


def test_kafka_delete_records_moves_the_start(
    quorum: LocalQuorum, new_topic: NewTopicName, kafka_tool: Tool, tmp_path: Path
) -> None:
    topic = new_topic()
    at = ("--bootstrap-server", quorum.bootstrap_servers)
    with Client(quorum.bootstrap_servers) as client:
        end = [client.append(topic, b"%d" % number, partition=0).offset for number in range(20)][-1] + 1
    offsets = tmp_path / "offsets.json"

    def delete(offset: int) -> str:
        partitions = [{"topic": topic, "partition": 0, "offset": offset}]
        offsets.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return kafka_tool(DELETE_RECORDS, *at, "--offset-json-file", str(offsets)).stdout

    def earliest() -> list[str]:
        return kafka_tool(GET_OFFSETS, *at, "--topic", topic, "--time", "earliest").stdout.split()

    assert f"partition: {topic}-0\tlow_watermark: {end - 5}" in delete(end - 5)
    assert f"{topic}:0:{end - 5}" in earliest()
    read = kafka_tool(
        CONSOLE_CONSUMER,
        *at,
        *("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "5", "--timeout-ms", "60000"),
    )
    assert read.stdout.splitlines() == [str(number) for number in range(15, 20)]
    assert "OffsetOutOfRangeException" in delete(end + 100)
    assert f"low_watermark: {end}" in delete(-1)
    assert f"{topic}:0:{end}" in earliest()


def test_kafka_topics_adds_partitions(quorum: LocalQuorum, new_topic: NewTopicName, kafka_tool: Tool) -> None:
    topic = new_topic()
    at = ("--bootstrap-server", quorum.bootstrap_servers)
    kafka_tool(TOPICS, *at, "--alter", "--topic", topic, "--partitions", "4")

    def count() -> list[str]:
        return re.findall(r"PartitionCount:\s*(\d+)", kafka_tool(TOPICS, *at, "--describe", "--topic", topic).stdout)

    wait_until(lambda: count() == ["4"], "every node tells four partitions", seconds=60)
    with Client(quorum.bootstrap_servers) as client:
        assert client.append(topic, b"new", partition=3).offset >= 0
    refused = kafka_tool(TOPICS, *at, "--alter", "--topic", topic, "--partitions", "2", check=False)
    told = f"The topic {topic} currently has 4 partition(s); 2 would not be an increase."
    assert told in refused.stdout + refused.stderr


def test_kafka_log_dirs_describes_each_node(quorum: LocalQuorum, new_topic: NewTopicName, kafka_tool: Tool) -> None:
    topic = new_topic()
    with Client(quorum.bootstrap_servers) as client:
        client.append(topic, bytes(5_000), partition=0)
    at = ("--bootstrap-server", quorum.bootstrap_servers)

    def described() -> list[dict[str, Any]]:
        output = kafka_tool(LOG_DIRS, *at, "--describe", "--topic-list", topic).stdout
        (line,) = [line for line in output.splitlines() if line.startswith("{")]
        return list(json.loads(line)["brokers"])

    def everywhere() -> bool:
        found = [each for broker in described() for dirs in broker["logDirs"] for each in dirs["partitions"]]
        return len(found) == 3 and all(
            each["partition"] == f"{topic}-0" and each["size"] > 5_000 and each["offsetLag"] == 0 and not each["isFuture"]
            for each in found
        )

    wait_until(everywhere, "three nodes with the whole log", seconds=60)
    brokers = described()
    assert sorted(broker["broker"] for broker in brokers) == [1, 2, 3]
    for broker in brokers:
        (directory,) = broker["logDirs"]
        assert directory["error"] is None and Path(directory["logDir"]).is_absolute()
