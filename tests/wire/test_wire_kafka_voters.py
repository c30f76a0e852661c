"""Kafka's own tool (4.3.1, Java) changes our voters: kafka-metadata-quorum remove-controller and add-controller (KIP-853)."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import waitkit
from raftlake import Client, LocalQuorum
from raftlake.runtime.sockets import bind
from runtime_fakes import LOOPBACK, address_of

pytestmark = pytest.mark.java
wait_until = partial(waitkit.wait_until, seconds=20)

Tool = Callable[..., subprocess.CompletedProcess[str]]
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"


def voters_of(client: Client) -> dict[int, bytes]:
    return {voter.replica_id: voter.directory_id for voter in client.describe_quorum().voters}


def write_properties(config: Path, quorum: LocalQuorum, node_id: int, address: str) -> None:
    """What Kafka's tool reads of a controller that it is to add."""
    properties = {
        "process.roles": "controller",
        "node.id": node_id,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://{address}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": quorum.bootstrap_servers,
        "log.dirs": config.parent / "quorum" / f"node-{node_id}",
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def test_a_controller_is_removed_and_added_by_kafkas_tool(tmp_path: Path, kafka_tool: Tool) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as quorum, Client(quorum.bootstrap_servers) as client:
        wait_until(lambda: all(any(directory) for directory in voters_of(client).values()), "every disk is known")
        gone = next(node_id for node_id in (1, 2, 3) if node_id != quorum.leader())
        directory = voters_of(client)[gone]
        address = quorum.bootstrap_servers.split(",")[gone - 1]
        at = ("--bootstrap-controller", quorum.bootstrap_servers)
        text = base64.urlsafe_b64encode(directory).decode().rstrip("=")
        kafka_tool(QUORUM, *at, "remove-controller", "--controller-id", str(gone), "--controller-directory-id", text)
        assert gone not in voters_of(client)
        wait_until(lambda: gone in {replica.replica_id for replica in client.describe_quorum().observers}, "it observes")
        config = tmp_path / "controller.properties"
        with bind(LOOPBACK, "x") as unused:
            nowhere = address_of(unused)
        write_properties(config, quorum, gone, str(nowhere))
        refused = kafka_tool(QUORUM, "--command-config", str(config), *at, "add-controller", check=False)
        assert refused.returncode != 0
        assert "the voter's endpoint is not confirmed" in refused.stdout + refused.stderr
        assert gone not in voters_of(client)
        write_properties(config, quorum, gone, address)
        added = kafka_tool(QUORUM, "--command-config", str(config), *at, "add-controller").stdout
        assert f"Added controller {gone} with directory id {text}" in added
        assert voters_of(client)[gone] == directory
