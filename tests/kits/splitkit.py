"""A quorum of real processes whose peers have a listener of their own, and one request at a time to either listener."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from raftlake.runtime.format import format_data_dir
from raftlake.runtime.free_ports import free_ports
from raftlake.wire.api import ApiKey, decode_response, encode_request
from waitkit import wait_until

PATIENCE_S = 30


@dataclass(frozen=True)
class SplitNode:
    """Addresses of one node."""

    node_id: int
    clients: str
    peers: str
    http: str
    process: subprocess.Popen[bytes]
    out: Path

    def is_ready(self) -> bool:
        assert self.process.poll() is None, f"node {self.node_id} ended: {self.out.read_text()}"
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"http://{self.http}/health/ready", trust_env=False).status_code == 200
        return False

    def quorum(self) -> Any:
        return httpx.get(f"http://{self.http}/v1/quorum", trust_env=False).json()


@contextlib.contextmanager
def split_quorum(directory: Path, **settings: str) -> Iterator[list[SplitNode]]:
    """Three nodes, ready, each with a CONTROLLER listener."""
    addresses = [[f"127.0.0.1:{port}" for port in free_ports("127.0.0.1", 3)] for _ in range(3)]
    voters = ",".join(f"{node_id}@{peers}" for node_id, (_, peers, _) in enumerate(addresses, 1))
    nodes: list[SplitNode] = []
    try:
        for node_id, (clients, peers, http) in enumerate(addresses, 1):
            home = directory / f"node-{node_id}"
            format_data_dir(home, node_id, "AAAAAAAAAAAAAAAAAAAAAA")
            given = {
                "node.id": str(node_id), "quorum.voters": voters, "log.dirs": str(home), "http.listener": http,
                "listeners": f"PLAINTEXT://{clients},CONTROLLER://{peers}", **settings,
            }  # fmt: skip
            (home / "node.properties").write_text("".join(f"{name}={value}\n" for name, value in given.items()))
            command = [sys.executable, "-m", "raftlake", "serve", "--config", str(home / "node.properties")]
            with (home / "out").open("wb") as out:
                process = subprocess.Popen(command, stdout=out, stderr=out)
            nodes.append(SplitNode(node_id, clients, peers, http, process, home / "out"))
        for node in nodes:
            wait_until(node.is_ready, f"node {node.node_id} is ready", PATIENCE_S)
        yield nodes
    finally:
        for node in nodes:
            node.process.terminate()
        for node in nodes:
            node.process.wait(PATIENCE_S)


def ask(address: str, key: ApiKey, version: int, message: object, client_id: str = "stranger") -> Any:
    """The answer to one request on a connection of its own; None where the connection was closed instead."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(b"".join(bytes(part) for part in encode_request(key, version, 1, client_id, message)))
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            piece = connection.recv(1 << 16)
            if not piece:
                assert not data, "half an answer"
                return None
            data += piece
    return decode_response(key, version, data[4:])[1]
