"""What every `ports.SnapshotStore` promises: a snapshot is whole under its name or not there at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlake.errors import StorageError
from raftlake.ports.driver import LogDirectory, SnapshotStore
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch

GROUP = GroupId("orders", 0, bytes(range(16)))
OTHER = GroupId("orders", 1, bytes(range(16)))


def snapshot_id(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(offset), Epoch(epoch))


class SnapshotStoreContract:
    """Subclasses say how to open a directory, restart it and let what is under way end."""

    def open_directory(self, place: Path) -> LogDirectory:
        raise AssertionError("a subclass opens it")

    def restart(self, directory: LogDirectory) -> LogDirectory:
        raise AssertionError("a subclass restarts it")

    def settle(self, directory: LogDirectory) -> None:
        raise AssertionError("a subclass settles it")

    def close(self, directory: LogDirectory) -> None:
        raise AssertionError("a subclass closes it")

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Iterator[LogDirectory]:
        directory = self.open_directory(tmp_path)
        directory.open(GROUP)
        directory.open(OTHER)
        yield directory
        self.close(directory)

    def write(self, directory: LogDirectory, offset: int, epoch: int, *parts: bytes, group: GroupId = GROUP) -> OffsetAndEpoch:
        wanted = snapshot_id(offset, epoch)
        writer = directory.snapshots.create(group, wanted)
        for part in parts:
            writer.append(part)
        ended: list[StorageError | None] = []
        writer.freeze(ended.append)
        for _ in range(100):
            if ended:
                break
            self.settle(directory)
        assert ended == [None]
        return wanted

    def content(self, store: SnapshotStore, wanted: OffsetAndEpoch, group: GroupId = GROUP) -> bytes | None:
        size = store.size(group, wanted)
        return None if size is None else store.read(group, wanted, 0, size + 10)

    def test_a_frozen_snapshot_is_read_back(self, directory: LogDirectory) -> None:
        wanted = self.write(directory, 12, 3, b"abc", b"defgh")
        store = directory.snapshots
        assert list(store.ids(GROUP)) == [wanted]
        assert store.size(GROUP, wanted) == 8
        assert store.read(GROUP, wanted, 2, 4) == b"cdef"
        assert store.read(GROUP, wanted, 6, 100) == b"gh"
        assert list(store.ids(OTHER)) == []

    def test_snapshots_are_listed_by_their_end(self, directory: LogDirectory) -> None:
        late = self.write(directory, 100, 3, b"late")
        early = self.write(directory, 20, 2, b"early")
        assert list(directory.snapshots.ids(GROUP)) == [early, late]

    def test_an_unfinished_snapshot_is_nowhere(self, directory: LogDirectory) -> None:
        writer = directory.snapshots.create(GROUP, snapshot_id(5, 1))
        writer.append(b"half")
        assert writer.size == 4
        assert list(directory.snapshots.ids(GROUP)) == []
        assert directory.snapshots.size(GROUP, snapshot_id(5, 1)) is None
        again = self.restart(directory)
        assert list(again.snapshots.ids(GROUP)) == []

    def test_a_frozen_snapshot_survives_a_restart(self, directory: LogDirectory) -> None:
        wanted = self.write(directory, 12, 3, b"content")
        again = self.restart(directory)
        assert list(again.snapshots.ids(GROUP)) == [wanted]
        assert self.content(again.snapshots, wanted) == b"content"

    def test_an_abandoned_snapshot_is_gone_and_may_begin_anew(self, directory: LogDirectory) -> None:
        writer = directory.snapshots.create(GROUP, snapshot_id(5, 1))
        writer.append(b"first attempt")
        writer.abandon()
        wanted = self.write(directory, 5, 1, b"second")
        assert self.content(directory.snapshots, wanted) == b"second"

    def test_a_second_attempt_replaces_an_unfinished_first(self, directory: LogDirectory) -> None:
        first = directory.snapshots.create(GROUP, snapshot_id(5, 1))
        first.append(b"first attempt, longer than the second")
        wanted = self.write(directory, 5, 1, b"second")
        assert self.content(directory.snapshots, wanted) == b"second"

    def test_nobody_hears_of_a_freeze_that_was_abandoned(self, directory: LogDirectory) -> None:
        heard: list[StorageError | None] = []
        writer = directory.snapshots.create(GROUP, snapshot_id(5, 1))
        if not self.reports_at_once:
            writer.freeze(heard.append)
        writer.abandon()
        self.write(directory, 6, 1, b"another")
        assert heard == []

    #: Whether `done` is called before `freeze` returns.
    reports_at_once = False

    def test_a_deleted_snapshot_is_gone(self, directory: LogDirectory) -> None:
        old = self.write(directory, 5, 1, b"old")
        new = self.write(directory, 9, 1, b"new")
        directory.snapshots.delete(GROUP, old)
        assert list(directory.snapshots.ids(GROUP)) == [new]
        assert directory.snapshots.size(GROUP, old) is None
        with pytest.raises(StorageError):
            directory.snapshots.read(GROUP, old, 0, 10)

    def test_snapshots_go_with_their_group(self, directory: LogDirectory) -> None:
        self.write(directory, 5, 1, b"mine")
        kept = self.write(directory, 5, 1, b"yours", group=OTHER)
        unfinished = directory.snapshots.create(GROUP, snapshot_id(7, 1))
        unfinished.append(b"half")
        directory.delete([GROUP])
        assert list(directory.snapshots.ids(GROUP)) == []
        assert self.content(directory.snapshots, kept, OTHER) == b"yours"
        directory.open(GROUP)
        assert list(directory.snapshots.ids(GROUP)) == []
