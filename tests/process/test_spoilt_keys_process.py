"""Real nodes whose logs hold what no gate has seen: a topic keeps its data, and the commands tell the way out."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import waitkit
from raftlake import Client, LocalQuorum
from raftlake.kv.commands import put
from raftlake.kv.keys import topic_key
from spoilkit import kill_with_equal_logs, spoil

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=30)
NODES = (1, 2, 3)


def raftlake(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raftlake", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)


def test_spoilt_keys_cost_no_data_and_can_be_deleted(tmp_path: Path) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as quorum:
        with Client(quorum.bootstrap_servers) as client:
            client.create_topic("kept", 2)
            for number in range(20):
                client.append("kept", f"record {number}", partition=number % 2)
        kill_with_equal_logs(quorum)
    directories = {node_id: tmp_path / "quorum" / f"node-{node_id}" for node_id in NODES}
    spoil(directories.values(), put(topic_key("kept"), b"{}"), put(topic_key("never"), b"{}"))
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as quorum:
        at = f"--bootstrap-server={quorum.bootstrap_servers}"
        with Client(quorum.bootstrap_servers) as client:
            for partition in (0, 1):
                wait_until(lambda p=partition: client.read("kept", p, 0, max_bytes=1 << 20), "it is served")
                values = [record.value for record in client.read("kept", partition, 0, max_bytes=1 << 20)]
                assert values == [f"record {number}".encode() for number in range(partition, 20, 2)]
            assert all((directory / "kept-1").is_dir() for directory in directories.values())
            told = raftlake("topics", "create", "never", at)
            assert told.returncode == 1 and "`raftlake topics delete never`" in told.stderr, told
            for name in ("never", "kept"):
                done = raftlake("topics", "delete", name, at)
                assert done.returncode == 0, done.stderr
            assert raftlake("topics", "create", "never", at).returncode == 0
            assert [topic.name for topic in client.topics()] == ["never"]
        wait_until(lambda: not any((directory / "kept-1").exists() for directory in directories.values()), "its data is gone")
