"""Three Kafka nodes on loopback, each broker and controller: the peer of the bulk row.

Settings are Kafka's defaults but for what three nodes on one machine and an equal promise need: replication 3,
min.insync.replicas 2 and flush.messages=1, since only with that does Kafka sync what it acknowledges. That holds for its own
topics too: a transaction is decided in one of them.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from processes import HOST, Child, free_ports, wait_until

JARS = Path(__file__).resolve().parents[2] / ".cache" / "kafka-4.3.1"
CLUSTER_ID = "cmFmdGxha2UtYmVuY2gtMQ"
HEAP = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC"]


def _java(main: str, *arguments: str) -> list[str]:
    return ["java", *HEAP, "-cp", f"{JARS}/*", main, *arguments]


class KafkaQuorum:
    """Use as a context manager. Returns once all three brokers are there."""

    def __init__(self, directory: Path) -> None:
        if not (JARS / "complete").exists():
            raise RuntimeError("Kafka is not there: run tools/fetch-kafka")
        self._directory = directory
        self._ports = free_ports(6)
        directory.mkdir(parents=True, exist_ok=True)
        self._children: list[Child] = []
        try:
            formats = [self._format(node) for node in range(3)]
            for running in formats:
                if running.wait(60) != 0:
                    raise RuntimeError(f"Kafka could not format its directories: {directory}")
            self._children = [self._spawn(node) for node in range(3)]
            wait_until(self._is_complete, "Kafka's three brokers", poll_s=0.1)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports[:3])

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self._children if child.is_running]

    def _format(self, node: int) -> subprocess.Popen[bytes]:
        settings = self._directory / f"n{node}.properties"
        voters = ",".join(f"{other}@{HOST}:{port}" for other, port in enumerate(self._ports[3:]))
        client, controller = f"{HOST}:{self._ports[node]}", f"{HOST}:{self._ports[3 + node]}"
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{client}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._directory / f"n{node}"),
            "offsets.topic.replication.factor": "3",
            "log.flush.interval.messages": "1",
            "auto.create.topics.enable": "false",
        }
        settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        command = _java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(settings))
        with (self._directory / f"n{node}.format.log").open("wb") as sink:
            return subprocess.Popen(command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)

    def _spawn(self, node: int) -> Child:
        command = _java("kafka.Kafka", str(self._directory / f"n{node}.properties"))
        return Child(command, self._directory / f"n{node}.log", {"PATH": os.environ["PATH"]})

    def _is_complete(self) -> bool:
        for child in self._children:
            child.assert_running()
        try:
            return len(self._admin().list_topics(timeout=5).brokers) == 3
        except KafkaException:
            return False

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def create_topic(self, name: str, partitions: int) -> None:
        admin = self._admin()
        config = {"min.insync.replicas": "2", "flush.messages": "1"}
        admin.create_topics([NewTopic(name, partitions, 3, config=config)])[name].result(30)

        def has_leaders() -> bool:
            found = admin.list_topics(name, timeout=10).topics[name].partitions
            return len(found) == partitions and all(len(partition.isrs) == 3 for partition in found.values())

        wait_until(has_leaders, f"the leaders of {name}", poll_s=0.05)

    def delete_topic(self, name: str) -> None:
        # In a variable: the client must live until the answer has come.
        admin = self._admin()
        admin.delete_topics([name])[name].result(30)

    def stop(self) -> None:
        """They have nothing to keep."""
        for child in self._children:
            child.kill()
