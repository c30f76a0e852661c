"""A node is killed, and Kafka's own kafka-topics (4.3.1, Java) tells which partitions miss it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from raftlake import Client, LocalQuorum
from waitkit import wait_until

pytestmark = pytest.mark.java

Tool = Callable[..., subprocess.CompletedProcess[str]]
TOPICS = "org.apache.kafka.tools.TopicCommand"
#: The machine of a test may be slow; how long it takes there is tested on simulated time.
PATIENCE_S = 60


def under_replicated(tool: Tool, server: str) -> dict[str, set[int]]:
    """The in-sync sets of the partitions that kafka-topics lists, by topic and partition."""
    output = tool(TOPICS, "--bootstrap-server", server, "--describe", "--under-replicated-partitions").stdout
    found = re.findall(r"Topic: (\S+)\s+Partition: (\d+)\s.*Isr: ([\d,]*)", output)
    return {f"{topic}-{partition}": {int(node) for node in isr.split(",") if node} for topic, partition, isr in found}


def test_kafka_topics_lists_the_partitions_of_a_killed_node_and_none_when_it_is_back(tmp_path: Path, kafka_tool: Tool) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as quorum:
        servers = quorum.bootstrap_servers.split(",")
        with Client(quorum.bootstrap_servers) as client:
            client.create_topic("orders", 3)
        wait_until(lambda: under_replicated(kafka_tool, servers[0]) == {}, "nobody lags", PATIENCE_S)
        victim = quorum.leader()
        quorum.kill(victim)
        alive = {1, 2, 3} - {victim}
        expected = {f"orders-{partition}": alive for partition in range(3)}
        # Each node that lives tells it, though it leads but some of the partitions.
        for node_id in sorted(alive):
            server = servers[node_id - 1]
            listed = lambda: under_replicated(kafka_tool, server).items() >= expected.items()  # noqa: B023, E731
            wait_until(listed, f"node {node_id} tells of the partitions that miss node {victim}", PATIENCE_S)
            with Client(server) as client:
                assert set(client.describe_cluster().nodes) == alive
        quorum.start(victim)
        wait_until(lambda: under_replicated(kafka_tool, servers[victim - 1]) == {}, "it has caught up", PATIENCE_S)
