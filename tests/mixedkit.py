"""Quorums of Kafka's own Raft implementation (`kafka.tools.TestRaftServer`) and raftlake nodes, as processes.

TestRaftServer has one hard-wired log and cluster id (TOPIC, TOPIC_ID, CLUSTER_ID). Where it leads it appends records of zeros
by itself, `--throughput` a second. Its log says at debug level what it does; a fault ends its process. It waits for
conditions alone.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from raftlake.runtime.format import format_data_dir
from raftlake.wire.batches import BatchHeader, iterate_headers, validate

TOPIC = "__raft_performance_test"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAg"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
SLF4J = "slf4j-simple-1.7.36"
HOST = "127.0.0.1"
PATIENCE_SECONDS = 30.0
#: What a Java process says when something happened that it did not expect. Exceptions below that level are told in passing: an
#: append whose leader lost its office, say.
TROUBLE = re.compile(r"^(?:ERROR .*|Exception in thread.*|.*OutOfMemoryError.*)(?:\n.*)?", re.MULTILINE)
#: Retried by Kafka until the leader knows the API; nothing else depends on it.
HARMLESS = re.compile("UpdateRaftVoterRequestData|UPDATE_RAFT_VOTER")


def wait_until(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now. All are held at once, so they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@dataclass
class Node:
    """One process of a quorum and its directory."""

    node_id: int
    port: int
    directory: Path
    process: subprocess.Popen[bytes] | None = None
    output_start: int = 0

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def log_directory(self) -> Path:
        return self.directory / f"{TOPIC}-0"

    @property
    def output(self) -> str:
        path = self.directory.parent / f"{self.directory.name}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def output_of_process(self) -> str:
        """What it said since it was started last."""
        return self.output[self.output_start :]

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        assert not self.is_alive
        self.output_start = len(self.output)
        with (self.directory.parent / f"{self.directory.name}.out").open("ab") as output:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def kill(self) -> None:
        """As a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Gracefully: leadership is handed over."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_SECONDS)

    def command(self) -> list[str]:
        raise AssertionError("a kind of node says how it is started")

    def headers(self) -> list[BatchHeader]:
        """The batches in its log, every CRC checked; a batch that is being written does not count yet."""
        return [header for path in self.segments() for header in validate(whole_batches(path))]

    def segments(self) -> list[Path]:
        return sorted(self.log_directory.glob("*.log"))

    def log_bytes(self, end_offset: int) -> bytes:
        """Its log below an offset."""
        data = b"".join(whole_batches(path) for path in self.segments())
        size = sum(header.size for header in iterate_headers(data) if header.end_offset <= end_offset)
        return data[:size]

    @property
    def log_end(self) -> int:
        data = b"".join(whole_batches(path) for path in self.segments())
        return max((header.end_offset for header in iterate_headers(data)), default=0)

    def election(self) -> tuple[int, int]:
        """(leader, epoch) by its quorum-state; (-1, -1) without one."""
        path = self.log_directory / "quorum-state"
        if not path.exists():
            return -1, -1
        state = json.loads(path.read_text())
        return int(state["leaderId"]), int(state["leaderEpoch"])


def whole_batches(path: Path) -> bytes:
    """A segment without reserved space and without a batch that is not complete yet."""
    data = path.read_bytes()
    end = max((header.end_position for header in _complete(data)), default=0)
    return data[:end]


def _complete(data: bytes) -> list[BatchHeader]:
    found: list[BatchHeader] = []
    position = 0
    while len(data) - position >= 61 and any(data[position + 8 : position + 12]):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        if position + size > len(data):
            break
        found += [header._replace(position=position) for header in iterate_headers(data[position : position + size])]
        position += size
    return found


@dataclass
class JavaNode(Node):
    """kafka.tools.TestRaftServer. Without `voters` it is an observer that asks `bootstrap`."""

    #: The directory of Kafka's jars, beside that of the logging backend.
    jars: Path = Path()
    voters: str = ""
    bootstrap: str = ""
    throughput: int = 50
    record_size: int = 64
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def directory_id(self) -> str:
        return f"javaJAVAjavaJAVAjava{self.node_id:01d}A"

    def command(self) -> list[str]:
        values = {
            "node.id": str(self.node_id),
            "listeners": f"CONTROLLER://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.directory),
            **({"controller.quorum.voters": self.voters} if self.voters else {}),
            **({"controller.quorum.bootstrap.servers": self.bootstrap} if self.bootstrap else {}),
            **self.settings,
        }
        properties = self.directory.parent / f"{self.directory.name}.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        jars = [path for path in sorted(self.jars.glob("*.jar")) if not path.name.startswith("slf4j-nop")]
        classpath = ":".join(map(str, [*jars, *(self.jars.parent / SLF4J).glob("*.jar")]))
        logging = {"defaultLogLevel": "warn", "log.org.apache.kafka.raft": "debug", "showThreadName": "false"}
        return [
            *("java", "-Xmx200m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"),
            *(f"-Dorg.slf4j.simpleLogger.{name}={value}" for name, value in logging.items()),
            *("-cp", classpath, "kafka.tools.TestRaftServer", "--config", str(properties)),
            *("--replica-directory-id", self.directory_id),
            *("--throughput", str(self.throughput), "--record-size", str(self.record_size)),
        ]

    @property
    def high_watermark(self) -> int:
        """The last one that it reported, as leader or follower; a new process begins with none."""
        found = re.findall(r"high watermark updated to (?:LogOffsetMetadata\(offset=)?(\d+)", self.output_of_process)
        return int(found[-1]) if found else -1

    @property
    def latency_lines(self) -> list[str]:
        """What it prints every five seconds while records that it appended are committed."""
        return re.findall(r"^Throughput .*", self.output, re.MULTILINE)

    def trouble(self) -> list[str]:
        return [match[0] for match in TROUBLE.finditer(self.output) if not HARMLESS.search(match[0])]


@dataclass
class OurNode(Node):
    """`raftlake serve` with this quorum's log."""

    voters: str = ""
    http_port: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        format_data_dir(self.directory, self.node_id, CLUSTER_ID)
        values = {
            "node.id": str(self.node_id),
            "quorum.voters": self.voters,
            "quorum.topic": TOPIC,
            "quorum.topic.id": TOPIC_ID,
            "log.dirs": str(self.directory),
            "listeners": f"PLAINTEXT://{self.address}",
            "http.listener": f"{HOST}:{self.http_port}",
            **self.settings,
        }
        properties = self.directory / "node.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        return [sys.executable, "-m", "raftlake", "serve", "--config", str(properties)]

    def get(self, path: str) -> bytes | None:
        """A 200 answer's body."""
        connection = http.client.HTTPConnection(HOST, self.http_port, timeout=2)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return body if answer.status == 200 else None

    def describe(self) -> dict[str, Any]:
        """/v1/quorum; without an answer, an empty one."""
        body = self.get("/v1/quorum") if self.is_alive else None
        return {} if body is None else dict(json.loads(body))

    @property
    def high_watermark(self) -> int:
        return int(self.describe().get("highWatermark", -1))

    def requests_served(self, api: str) -> float:
        body = self.get("/metrics") or b""
        found = re.findall(rf'^raftlake_requests_total{{api="{api}"}} (\S+)', body.decode(), re.MULTILINE)
        return float(found[0]) if found else 0.0

    def trouble(self) -> list[str]:
        return [line for line in self.output.splitlines() if " ERROR " in line or " CRITICAL " in line or "Traceback" in line]


class MixedQuorum:
    """`java` and `ours` are the ids of the voters of each kind. Nodes are started by the test."""

    def __init__(
        self,
        directory: Path,
        jars: Path,
        *,
        java: tuple[int, ...],
        ours: tuple[int, ...],
        throughput: int = 50,
        java_settings: Mapping[str, str] | None = None,
        our_settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.jars = jars
        ports = dict(zip((*java, *ours), free_ports(len(java) + len(ours)), strict=True))
        self.voters = ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in sorted(ports.items()))
        self.java = {
            node_id: JavaNode(
                node_id, ports[node_id], self._directory(node_id), jars=jars, voters=self.voters, throughput=throughput,
                settings=java_settings or {},
            )
            for node_id in java
        }  # fmt: skip
        self.ours = {node_id: self._our(node_id, ports[node_id], our_settings or {}) for node_id in ours}

    def _directory(self, node_id: int) -> Path:
        path = self.directory / f"node-{node_id}"
        path.mkdir(parents=True)
        return path

    def _our(self, node_id: int, port: int, settings: Mapping[str, str]) -> OurNode:
        (http_port,) = free_ports(1)
        return OurNode(node_id, port, self._directory(node_id), voters=self.voters, http_port=http_port, settings=settings)

    def add_java_observer(self, node_id: int, bootstrap: Node, **settings: str) -> JavaNode:
        """Not started yet."""
        (port,) = free_ports(1)
        node = JavaNode(node_id, port, self._directory(node_id), jars=self.jars, bootstrap=bootstrap.address, settings=settings)
        self.java[node_id] = node
        return node

    def add_our_observer(self, node_id: int, **settings: str) -> OurNode:
        """Not started yet."""
        (port,) = free_ports(1)
        node = self.ours[node_id] = self._our(node_id, port, settings)
        return node

    @property
    def nodes(self) -> dict[int, JavaNode | OurNode]:
        return {**self.java, **self.ours}

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids or tuple(self.nodes):
            self.nodes[node_id].start()

    def leader_of(self, epoch_above: int = 0) -> tuple[int, int] | None:
        """(leader, epoch) of the newest epoch that a running node knows, when it is above `epoch_above`."""
        known = [node.election() for node in self.nodes.values() if node.is_alive]
        leader_id, epoch = max(known, key=lambda each: (each[1], each[0]), default=(-1, -1))
        return (leader_id, epoch) if leader_id >= 0 and epoch > epoch_above and self.nodes[leader_id].is_alive else None

    def await_leader(self, among: tuple[int, ...] | None = None, epoch_above: int = 0) -> tuple[int, int]:
        def found() -> tuple[int, int] | None:
            leader = self.leader_of(epoch_above)
            return leader if leader is not None and (among is None or leader[0] in among) else None

        leader: tuple[int, int] = wait_until(found, f"a leader among {among} above epoch {epoch_above}")
        return leader

    def make_lead(self, *among: int) -> tuple[int, int]:
        """Stop each other leader gracefully, and start it again, until one of `among` leads."""
        for _ in range(6):
            leader_id, epoch = self.await_leader()
            if leader_id in among:
                return leader_id, epoch
            self.nodes[leader_id].stop()
            found = self.await_leader(epoch_above=epoch)
            self.nodes[leader_id].start()
            # Whoever stops next needs it to hand over to.
            self.settle()
            if found[0] in among:
                return found
        raise AssertionError(f"none of {among} came to lead")

    def append(self, node_id: int, count: int, *, wait: bool = True) -> None:
        """Append through one of our nodes, one record a batch, as Kafka's Raft writes them."""
        producer = Producer(
            {"bootstrap.servers": self.ours[node_id].address, "acks": "all", "batch.num.messages": 1, "linger.ms": 0}
        )
        failures: list[object] = []
        for number in range(count):
            producer.produce(
                TOPIC, b"record %d of node %d" % (number, node_id), partition=0,
                on_delivery=lambda error, _message: failures.append(error) if error else None,
            )  # fmt: skip
        left = producer.flush(PATIENCE_SECONDS if wait else 1.0)
        if wait:
            assert not left and not failures, f"{left} records unsent, {failures[:1]}"

    def settle(self, above: int = -1) -> int:
        """Wait until every running node has committed more than `above`; the offset below which all have."""
        running = [node for node in self.nodes.values() if node.is_alive]
        wait_until(lambda: all(node.high_watermark > above for node in running), f"high watermarks above {above} everywhere")
        return min(node.high_watermark for node in running)

    def check(self, above: int = 0) -> None:
        """Everybody lives, nobody complained, all have committed more than `above` and hold the same bytes up to there."""
        offset = self.settle(above)
        for node in self.nodes.values():
            assert node.is_alive, f"node {node.node_id} ended: {node.output[-3000:]}"
            assert not node.trouble(), f"node {node.node_id}: {node.trouble()[:5]}"
        logs = {node_id: node.log_bytes(offset) for node_id, node in self.nodes.items()}
        first = next(iter(logs.values()))
        assert first
        for node_id, log in logs.items():
            assert log == first, f"the log of node {node_id} differs below {offset}: {len(log)} and {len(first)} bytes"

    def close(self) -> None:
        for node in self.nodes.values():
            if node.process is not None and node.is_alive:
                node.process.kill()
                node.process.wait()
