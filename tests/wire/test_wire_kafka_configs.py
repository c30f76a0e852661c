"""Kafka's own tools (4.3.1, Java) create topics with configs, change configs and show them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.java

NewTopicName = Callable[..., str]
Tool = Callable[..., subprocess.CompletedProcess[str]]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture
def configs(quorum: LocalQuorum, kafka_tool: Tool) -> Callable[..., subprocess.CompletedProcess[str]]:
    """kafka-configs.sh on one topic."""

    def run(topic: str, *arguments: str, **how: object) -> subprocess.CompletedProcess[str]:
        at = ("--bootstrap-server", quorum.bootstrap_servers, "--entity-type", "topics", "--entity-name", topic)
        return kafka_tool(CONFIGS, *at, *arguments, **how)  # type: ignore[arg-type]

    return run


def own(client: Client, topic: str) -> dict[str, str]:
    return client.own_topic_configs([topic])[topic]


def test_kafka_topics_creates_a_topic_with_configs(quorum: LocalQuorum, kafka_tool: Tool) -> None:
    at = ("--bootstrap-server", quorum.bootstrap_servers)
    given = ("--config", "retention.ms=3600000", "--config", "max.message.bytes=5000", "--config", "cleanup.policy=delete")
    kafka_tool(TOPICS, *at, "--create", "--topic", "with-configs", *given)
    with Client(quorum.bootstrap_servers) as client:
        expected = {"cleanup.policy": "delete", "max.message.bytes": "5000", "retention.ms": "3600000"}
        assert own(client, "with-configs") == expected
    told = kafka_tool(TOPICS, *at, "--describe", "--topic", "with-configs").stdout
    line = re.search(r"Configs: (\S+)", told)
    assert line is not None and set(line[1].split(",")) == {f"{name}={value}" for name, value in expected.items()}


def test_kafka_configs_adds_deletes_and_shows_configs(
    quorum: LocalQuorum, new_topic: NewTopicName, configs: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    topic = new_topic()
    configs(topic, "--alter", "--add-config", "retention.ms=60000,segment.bytes=20000")
    told = configs(topic, "--describe").stdout
    assert "retention.ms=60000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=60000" in told
    assert "segment.bytes=20000" in told and "log.segment.bytes=" in told
    configs(topic, "--alter", "--delete-config", "retention.ms", "--add-config", "message.timestamp.type=LogAppendTime")
    with Client(quorum.bootstrap_servers) as client:
        assert own(client, topic) == {"segment.bytes": "20000", "message.timestamp.type": "LogAppendTime"}
    everything = configs(topic, "--describe", "--all").stdout
    assert "cleanup.policy=delete" in everything and "min.insync.replicas=2" in everything
    assert "retention.ms=60000" not in everything


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("cleanup.policy=keep", "accepted is delete, compact"),
        ("min.insync.replicas=3", "from 1 to 2, the majority"),
        ("color=red", "color is not known here"),
    ],
)
def test_what_is_refused_is_said_with_the_reason(
    new_topic: NewTopicName,
    configs: Callable[..., subprocess.CompletedProcess[str]],
    config: str,
    why: str,
) -> None:
    topic = new_topic()
    done = configs(topic, "--alter", "--add-config", config, check=False)
    assert why in done.stdout + done.stderr
    assert config not in configs(topic, "--describe").stdout


def test_the_settings_of_a_node_are_refused_with_where_they_stand(quorum: LocalQuorum, kafka_tool: Tool) -> None:
    at = ("--bootstrap-server", quorum.bootstrap_servers, "--entity-type", "brokers", "--entity-name", "1")
    done = kafka_tool(CONFIGS, *at, "--alter", "--add-config", "message.max.bytes=1", check=False)
    assert "node.properties" in done.stdout + done.stderr
