"""A disk without room, write by write: what must be written takes the ballast, what need not waits, and nothing is left.

The room of the disk is a number here: every call that would take blocks fails with ENOSPC when there are not enough of them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from contract.batches import Batch, data_of, fill, make_batch, read_all
from raftlake.errors import DiskFull, StorageError
from raftlake.ports import GroupId, Room
from raftlake.raft.types import ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.storage import room as rooms
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.files import storage_error
from raftlake.storage.lock import DirectoryLock
from raftlake.storage.log import FileLog
from raftlake.storage.recovery_points import FILE_NAME as POINTS_NAME
from raftlake.storage.recovery_points import RecoveryPoints
from raftlake.storage.room import FILE_NAME, DiskRoom, KeptRoom

GROUP = GroupId("orders", 0, bytes(range(16)))
META = GroupId("__cluster_metadata", 0, bytes(15) + b"\x01")
LIMIT = 1 << 20
BALLAST = LIMIT // rooms.BALLAST_PART


class Disk:
    """So many bytes are left; the system calls that take some are counted. Files that go give theirs back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 1 << 40
        #: A write that does not fit is cut, as the system does it, and the next one fails.
        self._pwritev, self._unlink = os.pwritev, Path.unlink
        monkeypatch.setattr(os, "pwritev", self.pwritev)
        monkeypatch.setattr(os, "pwrite", self.pwrite)
        monkeypatch.setattr(os, "posix_fallocate", self.fallocate)
        monkeypatch.setattr(os, "statvfs", self.statvfs)
        monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: self.unlink(path, missing_ok))

    def fill(self, left: int = 0) -> None:
        self.left = left

    def _full(self) -> OSError:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def pwritev(self, descriptor: int, chunks: Sequence[Any], position: int) -> int:
        data = b"".join(bytes(chunk) for chunk in chunks)
        if data and self.left <= 0:
            raise self._full()
        written = self._pwritev(descriptor, [data[: self.left]], position)
        self.left -= written
        return written

    def pwrite(self, descriptor: int, data: bytes, position: int) -> int:
        if len(data) > self.left:
            raise self._full()
        self.left -= len(data)
        return self._pwritev(descriptor, [data], position)

    def fallocate(self, descriptor: int, offset: int, size: int) -> None:
        if size > self.left:
            raise self._full()
        self.left -= size
        os.ftruncate(descriptor, offset + size)

    def statvfs(self, _path: object) -> os.statvfs_result:
        return os.statvfs_result((1, 1, 1 << 40, self.left, self.left, 0, 0, 0, 0, 255))

    def unlink(self, path: Path, missing_ok: bool) -> None:
        size = path.stat().st_size if path.exists() else 0
        self._unlink(path, missing_ok=missing_ok)
        self.left += size


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def directory(tmp_path: Path, disk: Disk) -> Iterator[FileLogDirectory]:
    opened = FileLogDirectory(tmp_path, segment_bytes=1_000, post=None, min_free_bytes=LIMIT)
    yield opened
    opened.abandon()


def look(directory: FileLogDirectory) -> Room:
    found: list[Room | None] = []
    directory.look_for_room(found.append)
    assert found[0] is not None
    return found[0]


def leftovers(path: Path) -> list[str]:
    return sorted(each.name for each in path.rglob("*") if each.name.endswith((".tmp", ".part", "-create")))


# --- how much, and the ballast --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "wanted", "limit"),
    [(1 << 40, -1, 1 << 30), (10 << 30, -1, (10 << 30) // 20), (1 << 40, 5, 5), (1 << 40, 0, 0), (0, -1, 0)],
)
def test_what_has_to_stay_free(total: int, wanted: int, limit: int) -> None:
    assert Room(free_bytes=7, total_bytes=total).limit(wanted) == limit


def test_a_look_tells_what_is_free_and_makes_the_ballast(directory: FileLogDirectory, disk: Disk) -> None:
    before = disk.left
    room = look(directory)
    ballast = directory.path / FILE_NAME
    assert ballast.stat().st_size == BALLAST and room.free_bytes == before - BALLAST == disk.left
    assert look(directory).free_bytes == before - BALLAST, "it is made once"
    assert directory.give_up_ballast() and not ballast.exists() and disk.left == before
    assert not directory.give_up_ballast()


def test_no_ballast_is_made_where_it_would_leave_too_little(directory: FileLogDirectory, disk: Disk) -> None:
    disk.fill(Room.above(LIMIT) + BALLAST)
    look(directory)
    assert not (directory.path / FILE_NAME).exists()
    disk.fill(Room.above(LIMIT) + BALLAST + 1)
    look(directory)
    assert (directory.path / FILE_NAME).exists()


def test_a_ballast_that_does_not_fit_after_all_leaves_nothing(
    directory: FileLogDirectory, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fallocate(descriptor: int, offset: int, size: int) -> None:
        os.ftruncate(descriptor, size // 2)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    look(directory)
    assert not (directory.path / FILE_NAME).exists()


def test_the_ballast_is_a_sixteenth_of_the_limit_and_64_mib_at_most(tmp_path: Path, disk: Disk) -> None:
    for limit, size in ((1 << 30, 64 << 20), (1 << 40, 64 << 20), (1 << 20, 1 << 16), (0, 0)):
        assert DiskRoom(tmp_path, limit)._size(Room(free_bytes=1, total_bytes=1 << 42)) == size
    DiskRoom(tmp_path, 0).keep()
    assert not (tmp_path / FILE_NAME).exists()


def test_a_start_on_a_short_disk_gives_the_ballast_up(tmp_path: Path, disk: Disk) -> None:
    first = FileLogDirectory(tmp_path, post=None, min_free_bytes=LIMIT)
    look(first)
    first.close()
    disk.fill(BALLAST + 100)
    FileLogDirectory(tmp_path, post=None, min_free_bytes=LIMIT).close()
    assert (tmp_path / FILE_NAME).exists(), "there is as much as it holds"
    disk.fill(BALLAST // 2)
    FileLogDirectory(tmp_path, post=None, min_free_bytes=LIMIT).close()
    assert not (tmp_path / FILE_NAME).exists() and disk.left > BALLAST


def test_a_write_is_tried_again_once_and_only_where_there_was_a_ballast(tmp_path: Path, disk: Disk) -> None:
    room, calls = DiskRoom(tmp_path, LIMIT), list[int]()

    def write() -> int:
        calls.append(1)
        if len(calls) != 2:
            raise DiskFull("full")
        return 5

    room.keep()
    assert room.retrying(write) == 5 and len(calls) == 2
    for kept in (room, KeptRoom()):
        with pytest.raises(DiskFull):
            kept.retrying(write)
    assert len(calls) == 4

    def fail() -> None:
        calls.append(1)
        raise StorageError("broken")

    room.keep()
    with pytest.raises(StorageError, match="broken"):
        room.retrying(fail)
    assert len(calls) == 5 and (tmp_path / FILE_NAME).exists()


# --- appends --------------------------------------------------------------------------------------------------------


def test_an_append_without_room_changes_nothing_and_succeeds_later(directory: FileLogDirectory, disk: Disk) -> None:
    log = directory.open(GROUP)
    batches = fill(log, 3)
    size = log.path.joinpath("00000000000000000000.log").stat().st_size
    for left in (0, 1, 60, 61, 100):
        disk.fill(left)
        with pytest.raises(DiskFull, match=r"offset 3$"):
            fill(log, 2)
        assert log.end_offset == 3 and read_all(log) == data_of(batches)
        assert log.path.joinpath("00000000000000000000.log").stat().st_size == size
    disk.fill(1 << 30)
    batches += fill(log, 2)
    directory.settle(GROUP)
    assert read_all(log) == data_of(batches) and log.synced_end == 5


def test_no_batch_of_an_append_that_failed_is_found_behind_a_shorter_one(directory: FileLogDirectory, disk: Disk) -> None:
    """Of two batches the first one fits. What is appended instead is as long, and the second must not follow it at a start."""
    log = directory.open(GROUP)
    batches = fill(log, 1)
    pair = [make_batch(1, timestamp_ms=1_001), make_batch(2, timestamp_ms=1_002)]
    disk.fill(len(pair[0][0]) + len(pair[1][0]) - 1)
    with pytest.raises(DiskFull):
        log.append([data for data, _ in pair], [span for _, span in pair])
    disk.fill(1 << 30)
    other = make_batch(1, timestamp_ms=1_003)
    assert len(other[0]) == len(pair[0][0])
    log.append([other[0]], [other[1]])
    directory.abandon()
    again = FileLogDirectory(directory.path, post=None)
    assert read_all(again.open(GROUP)) == data_of([*batches, other])
    again.close()


def test_an_append_takes_the_ballast_first(directory: FileLogDirectory, disk: Disk) -> None:
    log = directory.open(GROUP)
    look(directory)
    disk.fill(10)
    fill(log, 2)
    assert log.end_offset == 2 and not (directory.path / FILE_NAME).exists()
    disk.fill(0)
    with pytest.raises(DiskFull):
        fill(log, 1)


def test_a_cut_that_fails_behind_a_full_disk_is_final(
    directory: FileLogDirectory, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = directory.open(GROUP)
    fill(log, 1)
    disk.fill(10)
    with monkeypatch.context() as patch:

        def ftruncate(*_: object) -> None:
            raise OSError(errno.EIO, "broken")

        patch.setattr(os, "ftruncate", ftruncate)
        with pytest.raises(StorageError, match="EIO"):
            fill(log, 1)
    disk.fill(1 << 30)
    with pytest.raises(StorageError, match="EIO"):
        fill(log, 1)


def filled_segment(log: FileLog) -> list[Batch]:
    """Append until the next batch begins another segment."""
    batches = fill(log, 1)
    while len(data_of(batches)) + len(make_batch(0)[0]) <= 1_000:
        batches += fill(log, 1)
    return batches


@pytest.mark.parametrize("writes_that_fit", range(4))
def test_a_segment_that_cannot_be_sealed_goes_on(
    directory: FileLogDirectory, disk: Disk, monkeypatch: pytest.MonkeyPatch, writes_that_fit: int
) -> None:
    """Each of the files that a seal writes may be the one for which there is no room."""
    log = directory.open(GROUP)
    batches = filled_segment(log)
    real, calls = os.open, [0]

    def open_(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT:
            calls[0] += 1
            if calls[0] > writes_that_fit:
                raise OSError(errno.ENOSPC, "full")
        return real(path, flags, *mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_)
        for _ in range(2):
            calls[0] = 0
            with pytest.raises(DiskFull):
                fill(log, 1)
            assert len(log.segments()) == 1 and read_all(log) == data_of(batches)
    batches += fill(log, 3)
    assert len(log.segments()) == 2
    assert leftovers(directory.path) == []
    directory.close()
    again = FileLogDirectory(directory.path, segment_bytes=1_000, post=None)
    assert read_all(again.open(GROUP)) == data_of(batches)
    again.close()


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_smaller_append_fits_into_the_segment_that_could_not_be_sealed(
    directory: FileLogDirectory, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = directory.open(GROUP)
    batches = fill(log, 1)
    large, span = make_batch(1, size=950)
    with monkeypatch.context() as patch:
        patch.setattr("raftlake.storage.index_files.write_file", no_room)
        with pytest.raises(DiskFull):
            log.append([large], [span])
    batches += fill(log, 1)
    assert len(log.segments()) == 1 and read_all(log) == data_of(batches)


# --- everything else ------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("is_new", [True, False])
def test_the_lock_needs_no_room(tmp_path: Path, disk: Disk, is_new: bool) -> None:
    if not is_new:
        DirectoryLock(tmp_path).release()
    disk.fill(0)
    lock = DirectoryLock(tmp_path)
    assert not is_new or (tmp_path / ".lock").read_bytes() == b""
    with pytest.raises(StorageError, match="in use by process"):
        DirectoryLock(tmp_path)
    lock.release()


def test_only_want_of_room_is_a_full_disk(tmp_path: Path) -> None:
    def makes(doing: str, number: int) -> type:
        return type(storage_error(doing, tmp_path, OSError(number, "x")))

    assert makes("write", errno.ENOSPC) is makes("replace", errno.EDQUOT) is DiskFull
    assert makes("write", errno.EIO) is makes("sync", errno.ENOSPC) is StorageError
