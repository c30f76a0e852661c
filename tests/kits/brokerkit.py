"""Node processes for stories with a few brokers: each is started, killed, stopped and recovered by itself, and asked raw."""

from __future__ import annotations

import http.client
import importlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import waitkit
from raftlake.errors import ErrorCode
from raftlake.runtime.format import format_data_dir
from raftlake.runtime.free_ports import free_ports
from raftlake.wire.api import ApiKey, decode_response, encode_request
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest, FetchTopic
from raftlake.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

CLUSTER = "kip-405"
TOPIC = "orders"
PRODUCER_ID = 4_242
wait_until = partial(waitkit.wait_until, seconds=90)
epoch_ends = importlib.import_module("kio.schema.offset_for_leader_epoch.v4.request")


def raftlake(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raftlake", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False)


class Broker:
    """One node with a data directory of its own. `voters` of the settings may change while it is down."""

    def __init__(self, place: Path, node_id: int, settings: dict[str, str]) -> None:
        self.node_id = node_id
        self.directory = place / f"node-{node_id}"
        self.directory.mkdir(parents=True)
        format_data_dir(self.directory, node_id, CLUSTER)
        self.address, self.http = (f"127.0.0.1:{port}" for port in free_ports("127.0.0.1", 2))
        self.settings = {
            "node.id": str(node_id),
            "log.dirs": str(self.directory),
            "listeners": f"PLAINTEXT://{self.address}",
            "http.listener": self.http,
            **settings,
        }
        self._config = place / f"node-{node_id}.properties"
        self.log = place / f"node-{node_id}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def voter(self) -> str:
        """As `quorum.voters` names it."""
        return f"{self.node_id}@{self.address}"

    @property
    def partition(self) -> Path:
        """The directory of the one partition."""
        return self.directory / f"{TOPIC}-0"

    def spawn(self) -> None:
        """Start the process, and do not wait for it."""
        self._write_config()
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "raftlake", "serve", "--config", str(self._config)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def start(self) -> None:
        self.spawn()
        self.wait_ready()

    def wait_ready(self) -> None:
        wait_until(self._is_ready, f"node {self.node_id} to be ready")

    def _is_ready(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.log.read_text()[-2_000:]
        return self.get("/health/ready") is not None

    def get(self, path: str) -> str | None:
        """The body of a good answer over HTTP; None for any other, or none."""
        with closing(http.client.HTTPConnection(self.http, timeout=5)) as connection:
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException):
                return None
        return body.decode() if answer.status == 200 else None

    def kill(self) -> None:
        """As a crash would. Nothing where it is down."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As an operator would: the node saves what it knows of producers."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(60)

    # --- raftlake recover

    def recover(self, *words: str) -> subprocess.CompletedProcess[str]:
        self._write_config()
        return raftlake("recover", "--config", str(self._config), "--confirm", CLUSTER, "--json", *words)

    def recover_unclean(self) -> dict[str, Any]:
        """The node is the only voter from now on. What is told of its partition."""
        done = self.recover("--unclean")
        assert done.returncode == 0, done.stderr
        self.settings["quorum.voters"] = self.voter
        (told,) = [each for each in json.loads(done.stdout)["groups"] if each["group"] == f"{TOPIC}-0"]
        return dict(told)

    def _write_config(self) -> None:
        self._config.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))

    # --- requests

    def ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        """Raises OSError where the node is not there."""
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(b"".join(encode_request(api_key, version, 1, "test", request)))
            stream = connection.makefile("rb")
            size = int.from_bytes(stream.read(4), "big")
            return decode_response(api_key, version, stream.read(size))[1]

    def produce(self, batch: bytes | bytearray) -> int | ErrorCode:
        """The offset that an append got, or why it got none."""
        topic = ProduceTopic(TOPIC, None, [ProducePartition(0, memoryview(batch))])
        (result,) = self.ask(ApiKey.PRODUCE, 12, ProduceRequest(-1, 30_000, None, [topic])).topics[0].partitions
        return int(result.base_offset) if result.error is ErrorCode.NONE else result.error

    def fetch(self, offset: int, *, wait_ms: int = 5_000, **fields: int) -> FetchPartitionResult:
        """As a consumer asks; `fields` are those of the partition."""
        given = {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1, "bytes_max": 1 << 20, **fields}
        topic = FetchTopic(TOPIC, None, [FetchPartition(index=0, fetch_offset=offset, **given)])
        request = FetchRequest(wait_ms_max=wait_ms, bytes_min=1, topics=[topic])
        result: FetchPartitionResult = self.ask(ApiKey.FETCH, 12, request).topics[0].partitions[0]
        return result

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: the largest epoch up to this one, and where it ends."""
        asked = epoch_ends.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        topic = epoch_ends.OffsetForLeaderTopic(topic=TOPIC, partitions=(asked,))
        request = epoch_ends.OffsetForLeaderEpochRequest(topics=(topic,), replica_id=-1)
        part = self.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request).topics[0].partitions[0]
        assert part.error_code == 0, part
        return int(part.leader_epoch), int(part.end_offset)


class Brokers:
    """Those of one story. All that run are killed at its end."""

    def __init__(self, place: Path, settings: dict[str, str]) -> None:
        self._place = place
        self._settings = settings
        self.all: list[Broker] = []

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.all:
            broker.kill()

    def add(self, node_id: int, place: str = "brokers", **settings: str) -> Broker:
        """A new one, formatted and down."""
        more = {name.replace("_", "."): value for name, value in settings.items()}
        broker = Broker(self._place / place, node_id, {**self._settings, **more})
        self.all.append(broker)
        return broker

    def begin(self, count: int) -> list[Broker]:
        """New voters, which run."""
        found = [self.add(node_id) for node_id in range(1, count + 1)]
        for each in found:
            each.settings["quorum.voters"] = ",".join(other.voter for other in found)
            each.spawn()
        for each in found:
            each.wait_ready()
        return found


def message(value: str, sequence: int, size: int = 0) -> bytearray:
    """A batch with one record of the idempotent producer; with a `size` its key is as long as the batch of that size needs."""

    def made(key_size: int) -> bytearray:
        record = Record(offset=0, key=bytes(key_size), value=value.encode(), timestamp_ms=1)
        return build_batch([record], timestamp_ms=1, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence)

    small = made(0)
    if size <= len(small):
        return small
    # The lengths inside the batch take some bytes more in a large one.
    found = next(each for less in range(16) if len(each := made(size - len(small) - less)) <= size)
    assert len(found) == size, (len(found), size)
    return found


def sequences(rows: Sequence[Any]) -> list[tuple[int, int]]:
    """Of the producer's batches in Kafka's producer state file: sequence and offset."""
    assert {row.producer_id for row in rows} <= {PRODUCER_ID}
    return [(row.last_sequence, row.last_offset) for row in rows]
