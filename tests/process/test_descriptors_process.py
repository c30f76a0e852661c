"""A node as a process with few descriptors: crowds of idle connections, and no module that is read when it is too late."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

import httpx
import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

import waitkit
from raftlake import Client
from raftlake.runtime.format import format_data_dir
from raftlake.runtime.free_ports import free_ports
from raftlake.wire.api import API_TABLE, ApiKey, encode_request, request_type
from raftlake.wire.write_markers import WriteMarkersRequest
from runtime_fakes import fetch_of, find, produce_of

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open descriptors are not listed here"),
]

#: A line on standard input is answered with the modules that need no file: those that are imported, and those that are kept.
SERVE = """
import json, sys, threading
from raftlake.runtime import preload
from raftlake.runtime.server import serve
from raftlake.runtime.settings.settings import load_settings
def tell():
    for _ in sys.stdin:
        kept = {name for name, _ in preload.message_modules() if preload.KEPT.find_spec(name)}
        print(json.dumps(sorted(kept | set(sys.modules))), flush=True)
threading.Thread(target=tell, daemon=True).start()
sys.modules.setdefault("hypothesis", None)
sys.exit(serve(load_settings(None, overrides=sys.argv[1:])))
"""
LIMIT = 300
PATIENCE_SECONDS = 60
wait_until = partial(waitkit.wait_until, seconds=PATIENCE_SECONDS)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Node:
    def __init__(self, directory: Path, process: subprocess.Popen[str], ports: list[int], log: Path) -> None:
        self.directory, self.process, self.log = directory, process, log
        self.port, self.http_port = ports
        self.bootstrap, self.http = f"127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.http}/health/ready", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def modules(self) -> set[str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return set(json.loads(self.process.stdout.readline()))

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    started: list[Node] = []

    def start_node(limit: int | None = None) -> Node:
        ports = free_ports("127.0.0.1", 2)
        format_data_dir(tmp_path / "data", 1, "c")
        arguments = ["node.id=1", f"quorum.voters=1@127.0.0.1:{ports[0]}", f"log.dirs={tmp_path / 'data'}"]
        command = [sys.executable, "-c", SERVE, *arguments, f"http.listener=127.0.0.1:{ports[1]}"]
        log = tmp_path / "log"

        def held() -> None:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

        with log.open("wb") as written:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=written, text=True, preexec_fn=held
            )
        node = Node(tmp_path / "data", process, ports, log)
        started.append(node)
        wait_until(node.is_ready, f"{node.http} is ready")
        return node

    yield start_node
    for node in started:
        if node.process.poll() is None:
            node.process.kill()
        node.process.communicate()


def blank(kind: Any, kafka_type: str = "") -> Any:
    """A value of a field: zero, a short text, or a structure of such. Arrays have one element."""
    if get_origin(kind) is tuple:
        return (blank(get_args(kind)[0], kafka_type),)
    arguments = [each for each in get_args(kind) if each is not NoneType]
    if arguments:
        return blank(arguments[0], kafka_type)
    if dataclasses.is_dataclass(kind):
        fields = [(field.name, field.type, field.metadata.get("kafka_type", "")) for field in dataclasses.fields(kind)]
        return kind(**{name: blank(inner, of) for name, inner, of in fields})
    others = {"string": "t", "bytes": b"", "bool": False, "uuid": None, "timedelta_i32": datetime.timedelta(seconds=1)}
    return {**others, "error_code": KioErrorCode.none}.get(kafka_type, 0)


HOT: dict[ApiKey, Any] = {
    ApiKey.PRODUCE: produce_of(b""),
    ApiKey.FETCH: fetch_of(),
    ApiKey.FIND_QUORUM: find(),
    ApiKey.WRITE_MARKERS: WriteMarkersRequest(cluster_id=None, markers=[]),
}


def ask(node: Node, key: ApiKey, version: int) -> bool:
    """Whether the node answered; it may also end the connection."""
    if (key, version) == (ApiKey.PRODUCE, 13):
        # It names topics by ids; the client below speaks it.
        return False
    message = HOT[key] if key in HOT else blank(request_type(key, version))
    with socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE_SECONDS) as wire:
        wire.sendall(b"".join(encode_request(key, version, 1, "tour", message)))
        wire.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError), wire.makefile("rb") as answers:
            size = answers.read(4)
            return len(size) == 4 and len(answers.read(struct.unpack(">i", size)[0])) > 0
    return False


def tour(node: Node) -> int:
    """Ask everything that a node is asked, in each version; how much was answered."""
    answered = 0
    for api in API_TABLE.values():
        if api.key not in (ApiKey.FETCH_SNAPSHOT, ApiKey.READ_OFFSET):
            answered += sum(ask(node, api.key, version) for version in range(api.version_min, api.version_max + 1))
    with Client(node.bootstrap) as client:
        client.create_topic("toured", 2)
        client.append("toured", b"one", partition=0)
        assert client.read("toured", 0, 0)[0].value == b"one"
        client.delete_topic("toured")
    with httpx.Client(base_url=node.http, trust_env=False) as http:
        assert http.put("/v1/kv/a", content=b"1").status_code == 200
        for path in ("/v1/kv/a", "/v1/kv?values=true", "/v1/quorum", "/metrics", "/health/live", "/health/ready", "/nothing"):
            http.get(path)
        http.post("/v1/txn", json={"ops": [{"delete": {"key": "a"}}]})
        http.delete("/v1/kv/a")
        with http.stream("GET", "/v1/watch?from=0") as watch:
            assert next(watch.iter_lines()).startswith(":")
    return answered


def compressed(node: Node, codec: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": node.bootstrap, "compression.type": codec, "enable.idempotence": True})
    errors: list[Any] = []
    producer.produce("kept", b"value" * 1_000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_SECONDS) == 0 and errors == [None]


def test_no_module_is_read_after_the_start(start: Callable[..., Node]) -> None:
    """The end of a leader's term was told by a module that had not been imported yet, in a process without descriptors."""
    node = start()
    wait_until(lambda: "kio.schema.update_raft_voter.v0.response" in node.modules(), "all messages are in memory")
    before = node.modules()
    assert tour(node) > 100
    with Client(node.bootstrap) as client:
        client.create_topic("kept", 1)
    for codec in CODECS:
        compressed(node, codec)
    assert sorted(node.modules() - before) == []


def test_a_crowd_of_idle_connections_leaves_a_node_its_files(start: Callable[..., Node]) -> None:
    """Two of three nodes ended for good, each at a file of its own: `Too many open files`."""
    node = start(LIMIT)
    assert "fewer connections than max.connections" in node.log.read_text()
    crowd: list[socket.socket] = []
    with contextlib.ExitStack() as held, Client(node.bootstrap) as client:
        client.create_topic("orders", 3)
        for number in range(3):
            client.append("orders", b"before", partition=number)
        for _ in range(400):
            for port in (node.port, node.http_port):
                with contextlib.suppress(OSError):
                    crowd.append(held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)))
        assert len(crowd) > LIMIT
        wait_until(lambda: node.descriptors() < LIMIT - 16, "connections above the limits are closed")
        # A client that was there before goes on, also with what opens files.
        for number in range(30):
            client.append("orders", b"%d" % number, partition=number % 3)
        client.create_topic("later", 20)
        client.append("later", b"x", partition=19)
        assert node.process.poll() is None
    for each in crowd:
        each.close()
    wait_until(node.is_ready, "the node takes connections again")
    text = httpx.get(f"{node.http}/metrics", trust_env=False).text
    assert "raftlake_connections_max 41.0" in text and "raftlake_refused_connections_total" in text
    logged = node.log.read_text()
    assert "Traceback" not in logged and "EMFILE" not in logged
