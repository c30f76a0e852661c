"""What was durable at a clean stop is never taken for a torn tail, and a legal cut is never taken for damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.batches import fill
from contract.file_faults import Killed, killed_at, without_sync
from raftlake.errors import StorageError
from raftlake.ports import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.recovery_points import FILE_NAME, RecoveryPoints, parse

GROUP = GroupId("orders", 0, bytes(range(16)))


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
    assert (place / FILE_NAME).read_text() == "0\n1\norders 0 30\n"


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
    directory.delete(GROUP)
    fill(directory.open(GROUP), 1)
    directory.abandon()
    assert end_after_opening(place) == 1


def test_a_removed_directory_begins_anew(place: Path) -> None:
    for path in (place / str(GROUP)).iterdir():
        path.unlink()
    (place / str(GROUP)).rmdir()
    assert end_after_opening(place) == 0
    assert (place / FILE_NAME).read_text() == "0\n0\n"


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
