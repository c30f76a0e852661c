"""Topic configs on real nodes: through librdkafka, the client and the command line, over a killed leader and a restart."""

from __future__ import annotations

import json
import operator
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)
from typer.testing import CliRunner

import waitkit
from leaderkit import is_everywhere, leader_of
from raftlake import Client, LocalQuorum
from raftlake.cli.main import app
from raftlake.errors import RaftlakeError, RequestRejected, UnknownOutcome

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=30)
OP = AlterConfigOpType


def segments(directory: Path, topic: str) -> list[int]:
    """How many segments each node has."""
    return [len(list(directory.glob(f"node-{node_id}/{topic}-0/*.log"))) for node_id in (1, 2, 3)]


def settled(client: Client, directory: Path, topic: str) -> list[int]:
    """The segments of each node, once all of them have the whole log."""
    wait_until(lambda: is_everywhere(client, topic), f"{topic} is whole on all nodes")
    return segments(directory, topic)


def change(admin: AdminClient, topic: str, *changes: tuple[str, str | None, Any]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=operation) for name, value, operation in changes]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def described(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(30)
    return found


def test_librdkafkas_admin_creates_changes_and_reads_configs(tmp_path: Path) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum:
        admin = AdminClient({"bootstrap.servers": quorum.bootstrap_servers})
        made = NewTopic("t", num_partitions=1, config={"retention.ms": "60000", "message.timestamp.type": "LogAppendTime"})
        admin.create_topics([made])["t"].result(30)
        bad = NewTopic("bad", num_partitions=1, config={"cleanup.policy": "keep"})
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([bad])["bad"].result(30)
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
        assert "accepted is delete, compact" in refused.value.args[0].str()

        change(admin, "t", ("max.message.bytes", "2000", OP.SET), ("retention.ms", None, OP.DELETE))
        wait_until(lambda: described(admin, "t")["max.message.bytes"].value == "2000", "each node knows of the change")
        told = described(admin, "t")
        sources = {name: told[name].source for name in ("max.message.bytes", "message.timestamp.type", "retention.ms")}
        assert sources == {
            "max.message.bytes": ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
            "message.timestamp.type": ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
            "retention.ms": ConfigSource.DEFAULT_CONFIG.value,
        }
        with pytest.raises(KafkaException) as unknown:
            change(admin, "t", ("color", "red", OP.SET))
        assert unknown.value.args[0].code() == KafkaError.INVALID_CONFIG

        outcomes: list[Any] = []
        producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "linger.ms": 0})
        before_ms = int(time.time() * 1000)
        producer.produce("t", b"small", timestamp=5, on_delivery=lambda error, message: outcomes.append((error, message)))
        assert producer.flush(30) == 0
        (error, message) = outcomes.pop()
        assert error is None and message.timestamp()[1] >= before_ms - 1_000
        producer.produce("t", bytes(3_000), on_delivery=lambda error, message: outcomes.append((error, message)))
        assert producer.flush(30) == 0
        assert outcomes[0][0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_configs_hold_over_a_killed_leader_and_a_restart_of_all(tmp_path: Path) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic("t", configs={"segment.bytes": "16384"})
        client.create_topic("other")
        for topic in ("t", "other"):
            for _ in range(10):
                client.append_many(topic, [bytes(1_000)] * 10)
        # What a follower fetches in one piece goes into one segment, so a late one has fewer than its leader.
        before = settled(client, tmp_path, "t")
        for _ in range(2):
            client.append_many("t", [bytes(1_000)] * 10)
            after = settled(client, tmp_path, "t")
        assert all(map(operator.gt, after, before)), "two batches that come one by one do not fit into one segment"
        assert settled(client, tmp_path, "other") == [1, 1, 1]
        client.alter_topic_configs("t", {"max.message.bytes": "1500", "segment.ms": "1000"}, delete=["segment.bytes"])
        # A node that has not applied the change yet would accept the batch below, if it became the leader.
        wait_until(
            lambda: all(map(operator.gt, segments(tmp_path, "t"), after)), "each node closes its open segment for its age"
        )
        quorum.kill(leader_of(client, "t"))
        # The killed leader may have had the append: then the client does not know what became of that one.
        with pytest.raises((RequestRejected, UnknownOutcome), match="MESSAGE_TOO_LARGE"):
            client.append("t", bytes(2_000))
        assert client.append("t", b"small").offset > 0
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum, Client(quorum.bootstrap_servers) as client:
        with pytest.raises(RequestRejected, match="MESSAGE_TOO_LARGE"):
            client.append("t", bytes(2_000))
        wait_until(
            lambda: (
                client.own_topic_configs(["t", "other", "none"])
                == {"t": {"max.message.bytes": "1500", "segment.ms": "1000"}, "other": {}}
            ),
            "each node knows what the topics say",
        )
        assert client.topic_configs("t")["segment.bytes"] == str(128 << 20)


def test_the_command_line_sets_shows_and_deletes_configs(tmp_path: Path) -> None:
    with LocalQuorum(nodes=1, data_dir=tmp_path) as quorum:

        def run(*arguments: str) -> str:
            done = CliRunner().invoke(app, ["topics", *arguments, "--bootstrap-server", quorum.bootstrap_servers])
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise done.exception
            return done.stdout

        run("create", "t", "--config", "retention.ms=60000", "--config", "segment.ms=5000")
        assert "Configs: retention.ms=60000,segment.ms=5000" in run("describe", "t")
        told = run("alter", "t", "--config", "retention.ms=70000", "--delete-config", "segment.ms", "--partitions", "2")
        assert told.splitlines() == [
            "topic t has 2 partitions",
            "topic t has retention.ms=70000",
            "topic t follows the nodes in segment.ms",
        ]
        assert json.loads(run("list", "--json")) == [{"name": "t", "partitions": 2, "configs": {"retention.ms": "70000"}}]
        assert json.loads(run("describe", "t", "--json"))["configs"] == {"retention.ms": "70000"}
        run("create", "t", "--if-not-exists", "--config", "retention.ms=70000")
        with pytest.raises(RaftlakeError, match="exists with retention.ms=70000: .*--config retention.ms=5"):  # noqa: RUF043
            run("create", "t", "--if-not-exists", "--config", "retention.ms=5")
        with pytest.raises(RaftlakeError, match="accepted is delete, compact"):
            run("alter", "t", "--config", "cleanup.policy=keep")


def test_topics_come_about_where_the_nodes_say_so(tmp_path: Path) -> None:
    settings = {"auto.create.topics.enable": "true"}
    with LocalQuorum(nodes=3, data_dir=tmp_path, settings=settings) as quorum, Client(quorum.bootstrap_servers) as client:
        delivered: list[Any] = []
        producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "allow.auto.create.topics": True})
        producer.produce("asked-for", b"a", on_delivery=lambda error, _: delivered.append(error))
        assert producer.flush(30) == 0 and delivered == [None]
        assert len(client.partitions("asked-for")) == 1
        with pytest.raises(RequestRejected, match="UNKNOWN_TOPIC"):
            client.append("not-asked-for", b"a")
