"""Kafka's own tools for administrators (4.3.1, Java): features, configs, and partitions with few replicas in sync."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from raftlake import LocalQuorum

pytestmark = pytest.mark.java

NewTopicName = Callable[..., str]
Tool = Callable[..., subprocess.CompletedProcess[str]]

FEATURES = "org.apache.kafka.tools.FeatureCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.mark.parametrize("how", ["--bootstrap-server", "--bootstrap-controller"])
def test_kafka_features_shows_the_kraft_version_that_the_log_has(quorum: LocalQuorum, kafka_tool: Tool, how: str) -> None:
    for node in quorum.bootstrap_servers.split(","):
        told = kafka_tool(FEATURES, how, node, "describe").stdout
        (line,) = (line for line in told.splitlines() if "kraft.version" in line)
        assert re.search(r"SupportedMinVersion: 0\s+SupportedMaxVersion: 1\s+FinalizedVersionLevel: 1\s+Epoch: \d+", line), line


def test_kafka_features_shows_the_transaction_version_that_all_nodes_know(quorum: LocalQuorum, kafka_tool: Tool) -> None:
    told = kafka_tool(FEATURES, "--bootstrap-server", quorum.bootstrap_servers, "describe").stdout
    (line,) = (line for line in told.splitlines() if "transaction.version" in line)
    assert re.search(r"SupportedMinVersion: 0\s+SupportedMaxVersion: 2\s+FinalizedVersionLevel: 2\s+Epoch: \d+", line), line


@pytest.mark.parametrize("which", ["--under-min-isr-partitions", "--at-min-isr-partitions"])
def test_kafka_topics_compares_the_replicas_in_sync_with_the_majority(
    quorum: LocalQuorum, new_topic: NewTopicName, kafka_tool: Tool, which: str
) -> None:
    at = ("--bootstrap-server", quorum.bootstrap_servers)
    topic = new_topic()
    assert kafka_tool(TOPICS, *at, "--describe", which, "--topic", topic).stdout.strip() == ""
    everything = kafka_tool(TOPICS, *at, "--describe", "--topic", topic).stdout
    assert "min.insync.replicas" not in everything, "it is no config of the topic's own"


def test_kafka_configs_lists_no_defaults_of_all_brokers(quorum: LocalQuorum, kafka_tool: Tool) -> None:
    at = ("--bootstrap-server", quorum.bootstrap_servers, "--describe", "--entity-type", "brokers")
    defaults = kafka_tool(CONFIGS, *at, "--entity-default", "--all").stdout
    assert defaults.strip().splitlines() == ["Default configs for brokers in the cluster are:"]
    told = kafka_tool(CONFIGS, *at, "--entity-name", "2", "--all").stdout
    assert "node.id=2 " in told and "min.insync.replicas=2 " in told
