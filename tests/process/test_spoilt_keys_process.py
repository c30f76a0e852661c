"""Real nodes whose logs hold what no gate has seen: a topic keeps its data, and the commands tell the way out."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import waitkit
from raftlake import Client, LocalQuorum
from raftlake.kv.commands import encode, put
from raftlake.kv.keys import topic_key
from raftlake.ports import BatchSpan
from raftlake.replica.config import METADATA_GROUP
from raftlake.storage.directory import FileLogDirectory
from raftlake.wire.batches import Record, build_batch

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=30)
NODES = (1, 2, 3)


def raftlake(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raftlake", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)


def spoil(directory: Path, *keys: str) -> int:
    """Append to the metadata log of a node that is stopped; returns where it ends."""
    logs = FileLogDirectory(directory, post=None)
    log = logs.open(METADATA_GROUP)
    epoch, at = log.epochs[-1][0], log.end_offset
    records = [Record(offset=number, value=encode(put(key, b"{}"))) for number, key in enumerate(keys)]
    batch = bytes(build_batch(records, base_offset=at, leader_epoch=epoch, timestamp_ms=1))
    log.append([batch], [BatchSpan(at, at + len(keys), epoch, 1, len(batch))])
    end = log.end_offset
    logs.close()
    return end


def test_spoilt_keys_cost_no_data_and_can_be_deleted(tmp_path: Path) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as quorum:
        with Client(quorum.bootstrap_servers) as client:
            client.create_topic("kept", 2)
            for number in range(20):
                client.append("kept", f"record {number}", partition=number % 2)
            ends = lambda: {voter.log_end_offset for voter in client.describe_quorum().voters}  # noqa: E731
            wait_until(lambda: len(ends()) == 1, "all copies are equal")
            leader = client.describe_quorum().leader_id
        # The leader last, so that no other node is elected meanwhile.
        for node_id in sorted(NODES, key=lambda node_id: node_id == leader):
            quorum.kill(node_id)
    directories = {node_id: tmp_path / "quorum" / f"node-{node_id}" for node_id in NODES}
    reached = {spoil(directory, topic_key("kept"), topic_key("never")) for directory in directories.values()}
    assert len(reached) == 1
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
