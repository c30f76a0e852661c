"""Partitions that are added and records that are deleted, on real nodes: over a killed leader, and over a restart of all."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import waitkit
from leaderkit import leader_of
from raftlake import Client, LocalQuorum
from raftlake.client import EARLIEST, LATEST
from raftlake.client.errors import OffsetOutOfRange

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=30)
SETTINGS = {"log.segment.bytes": "16384"}


def segments(directory: Path, topic: str) -> int:
    """Files counted by name: a node that deletes them meanwhile takes them from the list, and no look fails."""
    return len(list(directory.glob(f"node-*/{topic}-0/*.log")))


def test_what_was_acknowledged_holds_after_a_killed_leader_and_a_restart(tmp_path: Path) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path, settings=SETTINGS) as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic("t")
        for _ in range(20):
            start = client.append_many("t", [bytes(1_000)] * 10)[-1].offset
        before = segments(tmp_path, "t")
        assert client.delete_records("t", {0: start}) == {0: start}
        with pytest.raises(OffsetOutOfRange):
            client.read("t", 0, start - 1)
        assert len(client.create_partitions("t", 3).partitions) == 3
        wait_until(lambda: segments(tmp_path, "t") < before // 4, "whole segments are gone on all nodes")
        quorum.kill(leader_of(client, "t"))
        assert client.list_offsets("t", {0: EARLIEST}) == {0: start}
        end = client.list_offsets("t", {0: LATEST})[0]
    with LocalQuorum(nodes=3, data_dir=tmp_path, settings=SETTINGS) as quorum, Client(quorum.bootstrap_servers) as client:
        wait_until(lambda: client.partitions("t") == [0, 1, 2], "all nodes know three partitions")
        assert client.list_offsets("t", {0: EARLIEST}) == {0: start}
        assert client.list_offsets("t", {0: LATEST})[0] >= end
        assert client.append("t", b"new", partition=2).offset >= 0
        with pytest.raises(OffsetOutOfRange):
            client.read("t", 0, start - 1)
