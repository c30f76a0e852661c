"""One node of a mixed quorum as a process: Kafka's own Raft (`kafka.tools.TestRaftServer`) or raftlake, and its log files.

TestRaftServer has one hard-wired log and cluster id (TOPIC, TOPIC_ID, CLUSTER_ID). Where it leads it appends records of zeros
by itself, `--throughput` a second. Its log says at debug level what it does; a fault ends its process. It waits for
conditions alone (`wait_until`).
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import waitkit
from raftlake.runtime.format import format_data_dir
from raftlake.wire.batches import BatchHeader, iterate_headers, validate

TOPIC = "__raft_performance_test"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAg"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
SLF4J = "slf4j-simple-1.7.36"
HOST = "127.0.0.1"
PATIENCE_SECONDS = 30.0
wait_until = partial(waitkit.wait_until, seconds=PATIENCE_SECONDS)
#: What a Java process says when something happened that it did not expect. Exceptions below that level are told in passing: an
#: append whose leader lost its office, say.
TROUBLE = re.compile(r"^(?:ERROR .*|Exception in thread.*|.*OutOfMemoryError.*)(?:\n.*)?", re.MULTILINE)
#: TestRaftServer offers UpdateRaftVoter and has no handler for it; its own voters send it to each other. And a leader that
#: stops says so when it sees no successor within five seconds, which a busy machine may need to elect one.
ALLOWED = ("apiKey=UPDATE_RAFT_VOTER", "Graceful shutdown of RaftClient failed")


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
        """Until it runs; whether anybody leads then is another question."""
        self.launch()
        self.await_start()

    def launch(self) -> None:
        assert not self.is_alive
        self.output_start = len(self.output)
        with (self.directory.parent / f"{self.directory.name}.out").open("ab") as output:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def await_start(self) -> None:
        wait_until(lambda: self.has_started or not self.is_alive, f"node {self.node_id} has started")
        assert self.is_alive, f"node {self.node_id} ended: {self.output[-3000:]}"

    @property
    def has_started(self) -> bool:
        raise AssertionError("a kind of node says how it tells that it runs")

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

    def log_bytes(self, end_offset: int, start_offset: int = 0) -> bytes:
        """Its log between two offsets."""
        data = b"".join(whole_batches(path) for path in self.segments())
        headers = [header for header in iterate_headers(data) if start_offset <= header.base_offset]
        return b"".join(data[each.position : each.end_position] for each in headers if each.end_offset <= end_offset)

    @property
    def log_start(self) -> int:
        """The first offset in its log; behind a snapshot that it has fetched and nothing since, that snapshot's end."""
        return min(int(path.stem) for path in self.segments())

    def snapshots(self) -> list[tuple[int, int]]:
        """(end offset, epoch) of its finished snapshots, ascending."""
        names = [path.stem.split("-") for path in self.log_directory.glob("*.checkpoint")]
        return sorted((int(offset), int(epoch)) for offset, epoch in names)

    @property
    def log_end(self) -> int:
        data = b"".join(whole_batches(path) for path in self.segments())
        return max((header.end_offset for header in iterate_headers(data)), default=0)

    def election(self) -> tuple[int, int]:
        """(leader, epoch) by its quorum-state; (-1, -1) without one."""
        path = self.log_directory / "quorum-state"
        if not path.exists():
            return -1, -1
        # Kafka reads the first line; ours have a checksum in a second one.
        state = json.loads(path.read_text().splitlines()[0])
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
    def has_started(self) -> bool:
        return "Completed transition to" in self.output_of_process

    @property
    def times_told_of_an_end(self) -> int:
        """How often a leader that steps down has told it so, by EndQuorumEpoch."""
        return self.output.count("after receiving EndQuorumEpoch request from leader")

    @property
    def latency_lines(self) -> list[str]:
        """What it prints every five seconds while records that it appended are committed."""
        return re.findall(r"^Throughput .*", self.output, re.MULTILINE)

    def trouble(self) -> list[str]:
        found = [match[0] for match in TROUBLE.finditer(self.output)]
        return [line for line in found if not any(words in line for words in ALLOWED)]


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
        """As this node knows it: /v1/quorum tells the leader's."""
        found = re.findall(r"^raftlake_high_watermark\{.*\} (\S+)", (self.get("/metrics") or b"").decode(), re.MULTILINE)
        return int(float(found[0])) if found and self.is_alive else -1

    @property
    def has_started(self) -> bool:
        return self.get("/health/live") is not None

    @property
    def times_told_of_an_end(self) -> int:
        """How often it has campaigned because its leader said, by EndQuorumEpoch, that it steps down."""
        return self.output.count("reason='leader resigned'")

    def requests_served(self, api: str) -> float:
        body: bytes = wait_until(lambda: self.get("/metrics"), f"metrics of node {self.node_id}")
        found = re.findall(rf'^raftlake_requests_total{{api="{api}"}} (\S+)', body.decode(), re.MULTILINE)
        return float(found[0]) if found else 0.0

    def trouble(self) -> list[str]:
        return [line for line in self.output.splitlines() if " ERROR " in line or " CRITICAL " in line or "Traceback" in line]
