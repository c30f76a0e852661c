"""The first records of a recovered group: the same on files and on a simulated disk, and when they are written again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contract.batches import fill
from contract.file_faults import without_sync
from raftlake.kv.commands import decode
from raftlake.kv.keys import INCARNATION_KEY
from raftlake.ports.driver import ElectionStore, LogDirectory
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import DirectoryId, ElectionState, Epoch, NodeId
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.runtime.recovery.beginning import OnlyVoter, begin_epoch
from raftlake.sim.disk.disk import SimulatedDisk
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.wire.batches import decode_records, iterate_headers

ORDERS = GroupId("orders", 0, bytes(range(16)))
VOTER = OnlyVoter(node_id=NodeId(3), directory_id=DirectoryId(b"d" * 16), endpoint=Endpoint("h", 9093))


class Machine:
    def port_call(self, name: str) -> None:
        """No fault."""

    def flush_later(self, complete: Any, fail: Any) -> None:
        raise AssertionError("the caller waits for the disk")


def files(root: Path) -> tuple[LogDirectory, ElectionStore]:
    directory = FileLogDirectory(root, post=None)
    return directory, FileElectionStore(root)


def simulated(root: Path) -> tuple[LogDirectory, ElectionStore]:
    disk = SimulatedDisk(Machine())
    disk.is_quick = True
    return disk, disk


def written(logs: LogDirectory, group: GroupId) -> bytes:
    log = logs.open(group)
    return log.read(log.start_offset, log.end_offset, 1 << 20)


@pytest.mark.parametrize("make", [files, simulated])
@pytest.mark.parametrize("count", [0, 5])
def test_a_group_begins_with_its_only_voter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, count: int) -> None:
    without_sync(monkeypatch)
    logs, elections = make(tmp_path)
    for group in (ORDERS, METADATA_GROUP):
        fill(logs.open(group), count, epoch=4)
        begin_epoch(logs, elections, group, Epoch(1_004), VOTER, is_quorum=group == METADATA_GROUP)
        assert elections.load(group) == ElectionState(Epoch(1_004))
        headers = [each for each in iterate_headers(written(logs, group)) if each.base_offset >= count]
        assert [(each.leader_epoch, each.is_control) for each in headers][:1] == [(1_004, True)]
        assert len(headers) == (2 if group == METADATA_GROUP else 1)
        before = written(logs, group)
        begin_epoch(logs, elections, group, Epoch(1_004), VOTER, is_quorum=group == METADATA_GROUP)
        assert written(logs, group) == before, "a second run changes nothing"
    (operation,) = decode(list(decode_records(written(logs, METADATA_GROUP)))[-1].value or b"").ops
    assert operation.key == INCARNATION_KEY


def test_files_and_simulated_disks_get_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_sync(monkeypatch)
    found = set()
    for logs, elections in (files(tmp_path), simulated(tmp_path)):
        begin_epoch(logs, elections, METADATA_GROUP, Epoch(1_004), VOTER, is_quorum=True)
        found.add(written(logs, METADATA_GROUP))
    assert len(found) == 1
