"""The election contract on quorum-state files."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from contract.election_store_contract import Disk, ElectionStoreContract
from contract.file_faults import without_sync
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses power."""
    without_sync(monkeypatch)


class TestFileElections(ElectionStoreContract):
    """All in the file of the quorum's own log, but for the groups called "many"."""

    filed = "orders"
    opened: list[Disk]

    def open_disk(self, place: Path) -> Disk:
        disk = Disk(
            FileLogDirectory(place, post=None),
            FileElectionStore(place, voters=[NodeId(1), NodeId(2), NodeId(3)], filed=self.filed),
        )
        self.opened = [*getattr(self, "opened", []), disk]
        return disk

    def restart(self, disk: Disk) -> Disk:
        self.close_one(disk)
        return self.open_disk(cast(FileLogDirectory, disk.logs).path)

    def close(self, disk: Disk) -> None:
        for opened in self.opened:
            self.close_one(opened)

    def close_one(self, disk: Disk) -> None:
        cast(FileLogDirectory, disk.logs).close()
        cast(FileElectionStore, disk.elections).close()

    def forget(self, disk: Disk, group: GroupId) -> None:
        (cast(FileLogDirectory, disk.logs).path / str(group) / "quorum-state").unlink()


class TestJournaledElections(TestFileElections):
    """All of them where those of data partitions are."""

    filed = "the quorum's own log"

    def forget(self, disk: Disk, group: GroupId) -> None:
        """As if the file had been lost."""
        del cast(FileElectionStore, disk.elections)._journal.states[group]
