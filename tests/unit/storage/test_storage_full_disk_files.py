"""Files beside the logs on a disk without room: what must be written takes the ballast, the rest waits, nothing is left."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from contract.batches import data_of, fill, make_batch, read_all
from diskkit import GROUP, LIMIT, META, Disk, directory, disk, leftovers, look
from raftlake.errors import DiskFull, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.recovery_points import FILE_NAME as POINTS_NAME
from raftlake.storage.recovery_points import RecoveryPoints
from raftlake.storage.room import FILE_NAME

__all__ = ["directory", "disk"]


def voted(epoch: int) -> ElectionState:
    return ElectionState(epoch=Epoch(epoch), voted_key=ReplicaKey(NodeId(1)))


@pytest.mark.parametrize("group", [META, GROUP], ids=["quorum-state", "journal"])
def test_a_vote_takes_the_ballast_and_without_one_is_saved_later(
    directory: FileLogDirectory, disk: Disk, group: GroupId
) -> None:
    directory.open(group)
    store = FileElectionStore(directory.path, room=directory.room)
    store.save({group: voted(1)})
    look(directory)
    disk.fill(0)
    for epoch in range(2, 1500):
        # The journal has room of its own for a while.
        store.save({group: voted(epoch)})
        if not (directory.path / FILE_NAME).exists():
            break
    assert not (directory.path / FILE_NAME).exists()
    disk.fill(0)

    def save_on() -> None:
        for epoch in range(1500, 3000):
            store.save({group: voted(epoch)})

    with pytest.raises(DiskFull):
        save_on()
    assert leftovers(directory.path) == []
    disk.fill(1 << 30)
    store.save({group: voted(4000)})
    store.close()
    assert FileElectionStore(directory.path).load(group) == voted(4000)


def test_a_failed_sync_of_a_vote_is_no_want_of_room(directory: FileLogDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.open(GROUP)
    store = FileElectionStore(directory.path, room=directory.room)

    def sync(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("raftlake.storage.election_journal.sync_data", sync)
    with pytest.raises(StorageError) as raised:
        store.save({GROUP: voted(1)})
    assert not isinstance(raised.value, DiskFull)
    store.close()


def test_points_that_must_not_stay_go_where_there_is_no_room_for_others(tmp_path: Path, disk: Disk) -> None:
    points = RecoveryPoints(tmp_path)
    points.note({GROUP: Offset(9), META: Offset(5)})
    points.save()
    disk.fill(0)
    points.lower(GROUP, Offset(3))
    assert not (tmp_path / POINTS_NAME).exists() and RecoveryPoints(tmp_path).of(GROUP) is None
    assert leftovers(tmp_path) == []
    disk.fill(1 << 30)
    assert points.note({GROUP: Offset(3)}), "they are to be saved again"
    points.save()
    assert not points.note({GROUP: Offset(3)})
    assert RecoveryPoints(tmp_path).of(META) == 5


def test_the_checkpoints_of_each_second_wait_for_room(directory: FileLogDirectory, disk: Disk) -> None:
    log = directory.open(GROUP)
    fill(log, 2)
    flushed: list[StorageError | None] = []
    directory.flush([log], flushed.append)
    disk.fill(0)
    directory.checkpoint()
    directory.flush([log], flushed.append)
    assert flushed == [None, None]
    assert leftovers(directory.path) == []
    disk.fill(1 << 30)
    directory.checkpoint()
    assert RecoveryPoints(directory.path).of(GROUP) == 2


def test_an_epoch_file_without_room_is_written_with_a_later_flush(directory: FileLogDirectory, disk: Disk) -> None:
    log = directory.open(GROUP)
    data, span = make_batch(0, epoch=3)
    log.append([data], [span])
    disk.fill(0)
    flushed: list[StorageError | None] = []
    directory.flush([log], flushed.append)
    assert flushed == [None] and not (log.path / "leader-epoch-checkpoint").exists()
    disk.fill(1 << 30)
    directory.flush([log], flushed.append)
    assert flushed == [None, None] and "3 0" in (log.path / "leader-epoch-checkpoint").read_text()


def test_a_snapshot_without_room_says_so_and_leaves_nothing(directory: FileLogDirectory, disk: Disk) -> None:
    directory.open(GROUP)
    told: list[StorageError | None] = []
    for size in (10, 3 << 20):
        disk.fill(5)
        writer = directory.snapshots.create(GROUP, OffsetAndEpoch(Offset(3), Epoch(1)))
        for _ in range(0, size, 10):
            writer.append(bytes(10))
        assert size < 100 or leftovers(directory.path) == [], "the room is given back before the end"
        writer.freeze(told.append)
        assert leftovers(directory.path) == [] and not directory.snapshots.ids(GROUP)
    assert [type(error) for error in told] == [DiskFull, DiskFull]
    disk.fill(1 << 30)
    writer = directory.snapshots.create(GROUP, OffsetAndEpoch(Offset(3), Epoch(1)))
    writer.append(bytes(10))
    writer.freeze(told.append)
    assert told[2] is None and len(directory.snapshots.ids(GROUP)) == 1


def test_what_a_crash_left_of_writes_is_removed_at_start(tmp_path: Path) -> None:
    first = FileLogDirectory(tmp_path, post=None)
    fill(first.open(GROUP), 1)
    first.close()
    snapshot = "00000000000000000003-0000000001.checkpoint.part"
    for name in (snapshot, "leader-epoch-checkpoint.tmp", "00000000000000000001.snapshot.tmp"):
        (tmp_path / str(GROUP) / name).write_bytes(b"half")
    (tmp_path / f"{POINTS_NAME}.tmp").write_bytes(b"half")
    (tmp_path / "notes.tmp").mkdir()
    FileLogDirectory(tmp_path, post=None).close()
    assert leftovers(tmp_path) == ["notes.tmp"]


def test_a_start_point_without_room_leaves_nothing(directory: FileLogDirectory, disk: Disk) -> None:
    log = directory.open(GROUP)
    disk.fill(3)
    with pytest.raises(DiskFull):
        log.start_points.save(Offset(1), b"producers", b"voters")
    assert leftovers(directory.path) == [] and list(log.start_points.offsets) == []


def test_directories_of_new_topics_take_the_ballast_and_leave_nothing_without(directory: FileLogDirectory, disk: Disk) -> None:
    look(directory)
    disk.fill(0)
    directory.prepare([GROUP])
    assert (directory.path / str(GROUP)).is_dir() and not (directory.path / FILE_NAME).exists()
    disk.fill(0)
    others = [GroupId("others", index, bytes(range(1, 17))) for index in range(3)]
    with pytest.raises(DiskFull):
        directory.prepare(others)
    assert leftovers(directory.path) == []
    directory.delete([GROUP])
    assert not (directory.path / str(GROUP)).exists()


def test_a_directory_opens_writes_and_closes_with_no_byte_left(tmp_path: Path, disk: Disk) -> None:
    first = FileLogDirectory(tmp_path, post=None)
    batches = fill(first.open(GROUP), 3)
    elections = FileElectionStore(tmp_path)
    elections.save({GROUP: voted(2)})
    elections.close()
    first.close()
    disk.fill(0)
    full = FileLogDirectory(tmp_path, post=None, min_free_bytes=LIMIT)
    log = full.open(GROUP)
    assert read_all(log) == data_of(batches)
    store = FileElectionStore(tmp_path, room=full.room)
    assert store.load(GROUP) == voted(2)
    with pytest.raises(DiskFull):
        fill(log, 1)
    full.delete([GROUP])
    store.close()
    full.close()
