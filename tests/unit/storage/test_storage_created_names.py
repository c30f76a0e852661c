"""What has returned is on the disk under its name: what was created, renamed or written, and the directories around it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from contract.batches import fill
from raftlake.errors import DiskFull, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch
from raftlake.storage import election_journal
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.partition import create_partitions
from raftlake.storage.recovery_points import RecoveryPoints

GROUPS = [GroupId("orders", number, bytes(range(16))) for number in range(3)]
METADATA = GroupId("__cluster_metadata", 0, bytes(15) + b"\x01")


class Unsynced:
    """Stands in for the calls of `os` that make names and bytes, and those that make both durable."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        #: By path: the inode whose sync makes the name, or the bytes, durable.
        self._names: dict[Path, int] = {}
        self._bytes: dict[Path, int] = {}
        self._open, self._mkdir, self._rename = os.open, os.mkdir, os.rename
        self._pwritev, self._fsync, self._fdatasync = os.pwritev, os.fsync, os.fdatasync
        for name in ("open", "mkdir", "rename", "pwritev", "fsync", "fdatasync"):
            patch.setattr(os, name, getattr(self, name))

    def left(self) -> list[str]:
        """What would be lost with the power. Epochs of a log from 0 are found in its batches."""
        paths = {*self._names, *self._bytes}
        return sorted({path.name for path in paths if path.exists() and path.name != "leader-epoch-checkpoint"})

    def open(self, path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        is_new = flags & os.O_CREAT and dir_fd is None and not os.path.lexists(path)
        descriptor = self._open(path, flags, mode, dir_fd=dir_fd)
        if is_new:
            self._note(Path(path))
        return descriptor

    def mkdir(self, path: str | Path, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        self._note(Path(path))

    def rename(self, source: str | Path, target: str | Path) -> None:
        self._rename(source, target)
        for pending in (self._names, self._bytes):
            for path in [path for path in pending if path.is_relative_to(source)]:
                pending[Path(target) / path.relative_to(source)] = pending.pop(path)
        self._note(Path(target))

    def _note(self, path: Path) -> None:
        self._names[path] = path.parent.stat().st_ino

    def pwritev(self, descriptor: int, chunks: Sequence[bytes], position: int) -> int:
        self._bytes[Path(os.readlink(f"/proc/self/fd/{descriptor}"))] = os.fstat(descriptor).st_ino
        return self._pwritev(descriptor, chunks, position)

    def fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            self._names = {path: inode for path, inode in self._names.items() if inode != status.st_ino}
        else:
            self.fdatasync(descriptor)

    def fdatasync(self, descriptor: int) -> None:
        synced = os.fstat(descriptor).st_ino
        self._bytes = {path: inode for path, inode in self._bytes.items() if inode != synced}


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> Unsynced:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc here")
    return Unsynced(monkeypatch)


def at_epoch(epoch: int) -> ElectionState:
    return ElectionState(epoch=Epoch(epoch), leader_id=NodeId(1))


@pytest.mark.parametrize("groups", [GROUPS, GROUPS[:1], [METADATA], [METADATA, *GROUPS]], ids=len)
def test_an_election_state_is_durable_when_it_is_saved(tmp_path: Path, unsynced: Unsynced, groups: list[GroupId]) -> None:
    """Also the first one ever, which makes the files; a vote that is forgotten may be given twice."""
    store = FileElectionStore(tmp_path)
    for epoch in (1, 2, 3):
        store.save(dict.fromkeys(groups, at_epoch(epoch)))
        assert unsynced.left() == []
    store.close()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_partitions_are_there_with_all_that_is_in_them_when_they_are_made(
    tmp_path: Path, unsynced: Unsynced, count: int
) -> None:
    create_partitions(tmp_path, GROUPS[:count])
    assert len(list(tmp_path.rglob("partition.metadata"))) == count
    assert unsynced.left() == []


def test_a_flush_covers_the_segments_that_were_begun_before_it(tmp_path: Path, unsynced: Unsynced) -> None:
    directory = FileLogDirectory(tmp_path, segment_bytes=1_000, post=None)
    logs = [directory.open(group) for group in GROUPS]
    for batches in (1, 1, 30, 1):
        for log in logs:
            fill(log, batches)
        directory.flush(logs, lambda error: None)
        assert unsynced.left() == []
    directory.checkpoint()
    assert unsynced.left() == []
    logs[1].reset(OffsetAndEpoch(Offset(100), Epoch(4)))
    logs[2].truncate_to(Offset(7))
    assert unsynced.left() == []
    directory.close()


def test_a_snapshot_and_a_start_point_are_durable_when_they_are_reported(tmp_path: Path, unsynced: Unsynced) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    log = directory.open(GROUPS[0])
    left: list[list[str]] = []
    for offset in (5, 9):
        writer = directory.snapshots.create(GROUPS[0], OffsetAndEpoch(Offset(offset), Epoch(1)))
        writer.append(b"content")
        writer.freeze(lambda error: left.append(unsynced.left()))
        log.start_points.save(Offset(offset), b"producers", b"voters")
        left.append(unsynced.left())
    assert left == [[]] * 4
    directory.close()


def test_what_is_appended_within_the_reserve_changes_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One open journal: a second append, and a third, use the zeros that the first one wrote."""
    monkeypatch.setattr(election_journal, "RESERVE_BYTES", 4_096)
    create_partitions(tmp_path, GROUPS)
    store = FileElectionStore(tmp_path)
    sizes = []
    for epoch in range(1, 9):
        store.save({GROUPS[0]: at_epoch(epoch)})
        sizes.append((tmp_path / election_journal.FILE_NAME).stat().st_size)
    store.close()
    assert len(set(sizes)) == 1
    line = sizes[0] - 4_096
    assert 0 < line < 4_096 // 8


def test_a_clean_close_records_no_log_as_durable_before_it_is(
    tmp_path: Path, unsynced: Unsynced, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    for group in GROUPS:
        fill(directory.open(group), 3)
    save, left = RecoveryPoints.save, []

    def save_and_note(points: RecoveryPoints) -> None:
        left.append([name for name in unsynced.left() if name.endswith(".log")])
        save(points)

    for group in GROUPS:
        directory.flush([directory.open(group)], lambda error: None)
        fill(directory.open(group), 1)
    monkeypatch.setattr(RecoveryPoints, "save", save_and_note)
    directory.close()
    assert left == [[]]


@pytest.mark.parametrize("failing", ["open", "rename", "fsync"])
def test_directories_that_are_there_have_their_names_durably_also_where_others_found_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Those that are there are opened, and nobody syncs the directory around them any more."""
    unsynced = Unsynced(monkeypatch)
    honest_open, honest_rename, honest_sync = os.open, os.rename, os.fsync
    errors = {"open": errno.EMFILE, "rename": errno.ENOSPC, "fsync": errno.ENOSPC}

    def refuse(call: str) -> None:
        if call == failing:
            raise OSError(errors[call], os.strerror(errors[call]))

    def open_(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if Path(path) == tmp_path:
            refuse("open")
        return honest_open(path, flags, mode, dir_fd=dir_fd)

    def rename(source: str | Path, target: str | Path) -> None:
        if Path(target).name == "orders-2":
            refuse("rename")
        honest_rename(source, target)

    def fsync(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), tmp_path.stat()):
            refuse("fsync")
        honest_sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_)
        patch.setattr(os, "rename", rename)
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(StorageError) as told:
            create_partitions(tmp_path, GROUPS)
    assert isinstance(told.value, DiskFull) == (failing != "fsync"), "what a failed sync was to write may be lost"
    there = {path.name for path in tmp_path.glob("orders-*")}
    assert there == {"open": set(), "rename": {"orders-0", "orders-1"}, "fsync": {"orders-0", "orders-1", "orders-2"}}[failing]
    if failing != "fsync":
        assert not there & set(unsynced.left())
        create_partitions(tmp_path, GROUPS)
        assert unsynced.left() == []
