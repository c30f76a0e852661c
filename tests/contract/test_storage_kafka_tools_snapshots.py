"""Kafka's own kafka-dump-log reads our snapshots: header, voters, data, footer."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.snapshot_store_contract import GROUP, snapshot_id
from raftlake.raft.types import DirectoryId, NodeId, ReplicaKey, VoterEndpoint, VoterSet
from raftlake.replica.partition.snapshot_files import SnapshotMaker
from raftlake.storage.directory import FileLogDirectory

DUMP = "org.apache.kafka.tools.DumpLogSegments"
Tool = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.java


@pytest.mark.parametrize("with_voters", [False, True])
def test_a_snapshot_is_valid_and_says_what_it_holds(tmp_path: Path, kafka_tool: Tool, with_voters: bool) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    directory.open(GROUP)
    me = NodeId(1)
    voters = VoterSet(
        {me: ReplicaKey(me, DirectoryId(bytes(range(16))))}, {me: (VoterEndpoint("CONTROLLER", "localhost", 9092),)}
    )
    writer = directory.snapshots.create(GROUP, snapshot_id(1234, 7))
    maker = SnapshotMaker(writer, snapshot_id(1234, 7), voters if with_voters else None, 1_700_000_000_000, 1_600_000_000_000)
    maker.add(b"first chunk")
    maker.add(b"second chunk")
    maker.end()
    writer.freeze(lambda error: None)
    directory.close()
    file = tmp_path / str(GROUP) / "00000000000000001234-0000000007.checkpoint"
    text = kafka_tool(DUMP, "--print-data-log", "--files", str(file)).stdout
    batches = [line for line in text.splitlines() if line.startswith("baseOffset")]
    assert len(batches) == 4 and all("isvalid: true" in line and "partitionLeaderEpoch: 7" in line for line in batches)
    assert "SnapshotHeader" in text and '"lastContainedLogTimestamp":1600000000000' in text
    assert "SnapshotFooter" in text
    assert "payload: first chunk" in text and "payload: second chunk" in text
    assert ("KRaftVoters" in text and '"voterId":1' in text) == with_voters
