"""Real nodes of one quorum that were formatted with a cluster id, without one, and with another one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from raftlake.runtime.format import format_data_dir
from raftlake.runtime.free_ports import free_ports
from raftlake.storage.meta import FILE_NAME, read_meta
from waitkit import wait_until

pytestmark = pytest.mark.process

A, B = "AAECAwQFBgcICQoLDA0ODw", "BAECAwQFBgcICQoLDA0ODw"
PATIENCE_S = 60
#: Node 3 asks for votes long before the others do.
PATIENT = {"quorum.fetch.timeout.ms": "6000", "quorum.election.timeout.ms": "6000"}


class Nodes:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.kafka = [f"127.0.0.1:{port}" for port in free_ports("127.0.0.1", 3)]
        self.http = [f"127.0.0.1:{port}" for port in free_ports("127.0.0.1", 3)]
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, node_id: int, **more: str) -> None:
        settings = {
            "node.id": str(node_id),
            "quorum.voters": ",".join(f"{number}@{address}" for number, address in enumerate(self.kafka, 1)),
            "log.dirs": str(self.directory(node_id)),
            "listeners": f"PLAINTEXT://{self.kafka[node_id - 1]}",
            "http.listener": self.http[node_id - 1],
            **more,
        }
        properties = self.place / f"{node_id}.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with self.log(node_id).open("ab") as log:
            command = [sys.executable, "-m", "raftlake.runtime", "--config", str(properties)]
            self.running[node_id] = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self, node_id: int) -> None:
        process = self.running.pop(node_id)
        process.terminate()
        process.wait(PATIENCE_S)

    def directory(self, node_id: int) -> Path:
        return self.place / f"node-{node_id}"

    def log(self, node_id: int) -> Path:
        return self.place / f"{node_id}.log"

    def health(self, node_id: int, what: str) -> Any:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"http://{self.http[node_id - 1]}/health/{what}", trust_env=False).json()
        return {}


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    yield nodes
    for node_id in list(nodes.running):
        nodes.stop(node_id)


def test_a_node_without_an_id_becomes_one_of_the_others_and_one_with_another_id_is_told_of(quorum: Nodes) -> None:
    """The node without an id led first, made an id up, and was refused by its followers for ever. No log said why."""
    for node_id, cluster_id in ((1, A), (2, A), (3, None)):
        format_data_dir(quorum.directory(node_id), node_id, cluster_id)
    quorum.start(3)
    for node_id in (1, 2):
        quorum.start(node_id, **PATIENT)
    for node_id in (1, 2, 3):
        wait_until(lambda node_id=node_id: quorum.health(node_id, "ready").get("ready"), f"{node_id} is ready", PATIENCE_S)
    wait_until(lambda: read_meta(quorum.directory(3)).cluster_id == A, "node 3 has learned the id", PATIENCE_S)
    quorum.stop(3)
    meta = quorum.directory(3) / FILE_NAME
    meta.write_text(meta.read_text().replace(A, B))
    quorum.start(3)

    def warned(node_id: int, start: str) -> bool:
        return any(warning.startswith(start) for warning in quorum.health(node_id, "live").get("warnings", ()))

    wait_until(lambda: warned(3, "node "), "node 3 says that it is refused", PATIENCE_S)
    refusal = f"node 3 is of cluster {B}, this one of {A}: it is answered nothing"
    wait_until(lambda: warned(1, refusal) or warned(2, refusal), "a node says that it refuses node 3", PATIENCE_S)
    assert f"is of another cluster, this one of {B}: it answers nothing to this node" in quorum.log(3).read_text()
    assert refusal in quorum.log(1).read_text() + quorum.log(2).read_text()
    quorum.stop(3)
    meta.write_text(meta.read_text().replace(B, A))
    quorum.start(3)
    wait_until(lambda: quorum.health(3, "ready").get("ready"), "the mended node is ready", PATIENCE_S)
