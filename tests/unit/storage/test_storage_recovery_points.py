"""What is known to be durable is never taken for a torn tail, and a legal cut is never taken for damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.batches import data_of, fill
from contract.file_faults import Killed, killed_at, without_sync
from raftlake.errors import DamagedData, StorageError, TooManyFiles
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage import recovery_points
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.recovery_points import FILE_NAME, RecoveryPoints, parse

GROUP = GroupId("orders", 0, bytes(range(16)))
OTHER = GroupId("orders", 1, bytes(range(16)))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that was closed cleanly with 30 batches in `orders-0`."""
    without_sync(monkeypatch)
    directory = FileLogDirectory(tmp_path, segment_bytes=2_000, post=None)
    fill(directory.open(GROUP), 30)
    directory.open(GroupId("empty", 3))
    directory.close()
    return tmp_path


def last_segment(place: Path) -> Path:
    return sorted((place / str(GROUP)).glob("*.log"))[-1]


def end_after_opening(place: Path) -> int:
    directory = FileLogDirectory(place, segment_bytes=2_000, post=None)
    try:
        return directory.open(GROUP).end_offset
    finally:
        directory.abandon()


def test_the_file_is_kafkas(place: Path) -> None:
    assert (place / FILE_NAME).read_text() == "0\n2\nempty 3 0\norders 0 30\n"


@pytest.mark.parametrize("cut", [1, 60, 171, 342])
def test_a_tail_that_was_durable_is_never_cut(place: Path, cut: int) -> None:
    path = last_segment(place)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    with pytest.raises(StorageError, match=rf"{path.name} is damaged at byte .*but 29 was durable"):
        end_after_opening(place)
    assert path.read_bytes() == whole[:-cut]
    path.write_bytes(whole)
    assert end_after_opening(place) == 30


def test_a_flipped_bit_in_the_last_batch_is_damage(place: Path) -> None:
    path = last_segment(place)
    data = bytearray(path.read_bytes())
    data[-5] ^= 4
    path.write_bytes(data)
    with pytest.raises(StorageError, match=r"\(offset 29\): CRC-32C"):
        end_after_opening(place)


def test_what_was_written_since_may_be_torn(place: Path) -> None:
    directory = FileLogDirectory(place, segment_bytes=1 << 20, post=None)
    fill(directory.open(GROUP), 2)
    directory.abandon()
    path = last_segment(place)
    path.write_bytes(path.read_bytes()[:-1])
    assert end_after_opening(place) == 31


@pytest.mark.parametrize("end", [29, 15, 0])
@pytest.mark.parametrize("call", [*range(12), 99])
def test_a_truncation_lowers_the_point_first(place: Path, end: int, call: int) -> None:
    directory = FileLogDirectory(place, segment_bytes=2_000, post=None)
    log = directory.open(GROUP)
    try:
        with killed_at(call):
            log.truncate_to(Offset(end))
    except Killed:
        pass
    directory.abandon()
    assert end <= end_after_opening(place) <= 30


@pytest.mark.parametrize("call", [*range(20), 99])
def test_a_reset_lowers_the_point_first(place: Path, call: int) -> None:
    directory = FileLogDirectory(place, segment_bytes=2_000, post=None)
    log = directory.open(GROUP)
    try:
        with killed_at(call):
            log.reset(OffsetAndEpoch(Offset(7), Epoch(1)))
    except Killed:
        pass
    directory.abandon()
    assert end_after_opening(place) in (7, 30)


def test_a_deleted_group_may_come_back_empty(place: Path) -> None:
    directory = FileLogDirectory(place, post=None)
    directory.delete([GROUP])
    fill(directory.open(GROUP), 1)
    directory.abandon()
    assert end_after_opening(place) == 1


def test_a_removed_directory_is_missed(place: Path) -> None:
    """Its vote is gone with it, so beginning anew in its place could vote twice."""
    for path in (place / str(GROUP)).iterdir():
        path.unlink()
    (place / str(GROUP)).rmdir()
    with pytest.raises(StorageError, match=r"orders-0 is missing, but this node had it.*raftlake format"):
        end_after_opening(place)
    assert not (place / str(GROUP)).exists()


def test_removed_segments_are_missed(place: Path) -> None:
    for path in (place / str(GROUP)).glob("*.log"):
        path.unlink()
    with pytest.raises(DamagedData, match=r"orders-0 holds no segment, but 29 was durable") as raised:
        end_after_opening(place)
    assert raised.value.offset == 0


def test_the_point_follows_the_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_sync(monkeypatch)
    directory = FileLogDirectory(tmp_path, segment_bytes=1 << 20, post=None)
    log = directory.open(GROUP)
    fill(log, 3)
    directory.checkpoint()
    assert RecoveryPoints(tmp_path).of(GROUP) == 0, "nothing of it is synced"
    directory.flush([log], lambda error: None)
    fill(log, 1)
    assert RecoveryPoints(tmp_path).of(GROUP) == 0, "not written down yet"
    directory.checkpoint()
    assert RecoveryPoints(tmp_path).of(GROUP) == 3
    log.truncate_to(Offset(1))
    assert RecoveryPoints(tmp_path).of(GROUP) == 1
    directory.checkpoint()
    assert RecoveryPoints(tmp_path).of(GROUP) == 1
    log.reset(OffsetAndEpoch(Offset(9), Epoch(1)))
    directory.checkpoint()
    assert RecoveryPoints(tmp_path).of(GROUP) == 9
    directory.abandon()


def test_a_sync_from_before_a_cut_raises_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_sync(monkeypatch)
    directory = FileLogDirectory(tmp_path, segment_bytes=1 << 20, post=None)
    log = directory.open(GROUP)
    fill(log, 5)
    work = log.begin_flush()
    assert work is not None
    log.truncate_to(Offset(2))
    fill(log, 4, epoch=2)
    log.end_flush(work)
    assert log.synced_end == 0, "only what a sync of its own covers counts"
    directory.abandon()


def power_loss(place: Path) -> None:
    """The machine was restarted since the directory was used last."""
    lock = place / ".lock"
    lock.write_text(lock.read_text().splitlines()[0] + "\nanother-boot\n")


@pytest.mark.parametrize("hole", ["zeros", "garbage"])
@pytest.mark.parametrize("damaged", range(2, 6))
def test_a_hole_in_what_was_never_synced_is_cut_after_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hole: str, damaged: int
) -> None:
    """Batches 0 to 2 are known to be synced; of 3 to 5 a power loss may keep any. The same hole below is damage, and so it is
    when no power was lost."""
    without_sync(monkeypatch)
    directory = FileLogDirectory(tmp_path, segment_bytes=1 << 20, post=None)
    log = directory.open(GROUP)
    batches = fill(log, 3)
    directory.flush([log], lambda error: None)
    directory.checkpoint()
    batches += fill(log, 3)
    directory.abandon()
    path = last_segment(tmp_path)
    data = bytearray(path.read_bytes())
    start = len(data_of(batches[:damaged]))
    size = len(batches[damaged][0])
    data[start : start + size] = bytes(size) if hole == "zeros" else b"\x5a" * size
    path.write_bytes(data)
    for is_power_lost in (False, True):
        if is_power_lost:
            power_loss(tmp_path)
        if damaged == 5 or (is_power_lost and damaged >= 3):
            assert end_after_opening(tmp_path) == damaged
            assert path.stat().st_size == start
        else:
            with pytest.raises(DamagedData, match=rf"\(offset {damaged}\)") as raised:
                end_after_opening(tmp_path)
            assert raised.value.offset == damaged
            assert path.read_bytes() == data


def test_a_failed_log_is_not_recorded(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = FileLogDirectory(place, segment_bytes=1 << 20, post=None)
    log = directory.open(GROUP)
    fill(log, 2)

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("raftlake.storage.flusher.sync_data", fail)
        directory.flush([log], lambda error: None)
    directory.close()
    assert RecoveryPoints(place).of(GROUP) == 30


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0\n1\n",
        "0\n1\na 0 5",
        "1\n1\na 0 5\n",
        "0\n2\na 0 5\n",
        "0\n1\na 0\n",
        "0\n1\na x 5\n",
        "0\n2\na 0 5\na 0 5\n",
    ],
)
def test_a_damaged_file_records_nothing(text: str) -> None:
    assert parse(text.encode()) == {}
    assert parse(b"\xff" + text.encode()) == {}


@pytest.mark.parametrize("call", ["lower", "forget"])
def test_a_file_that_says_too_much_is_written_before_the_second_try_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The second try found the point lowered, and the log was cut. After a crash the file called the cut a loss."""
    points = RecoveryPoints(tmp_path)
    points.note({GROUP: Offset(30), OTHER: Offset(7)})
    points.save()

    def attempt() -> None:
        if call == "lower":
            points.lower(GROUP, Offset(20))
        else:
            points.forget([GROUP])

    def none_free(*_given: object, **_named: object) -> None:
        raise TooManyFiles("simulated")

    with monkeypatch.context() as patch:
        patch.setattr(recovery_points, "replace_file", none_free)
        patch.setattr(recovery_points, "delete_file", none_free)
        for _ in range(2):
            with pytest.raises(TooManyFiles):
                attempt()
        assert RecoveryPoints(tmp_path).of(GROUP) == 30
    attempt()
    again = RecoveryPoints(tmp_path)
    assert (again.of(GROUP), again.of(OTHER)) == (Offset(20) if call == "lower" else None, 7)


@pytest.mark.parametrize(("offset", "written"), [(29, 1), (30, 0), (31, 0)])
def test_only_a_point_that_is_too_high_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, written: int
) -> None:
    points = RecoveryPoints(tmp_path)
    points.note({GROUP: Offset(30)})
    points.save()
    writes: list[Path] = []
    monkeypatch.setattr(recovery_points, "replace_file", lambda path, _data: writes.append(path))
    for _ in range(2):
        points.lower(GROUP, Offset(offset))
        points.forget([OTHER])
    assert len(writes) == written
