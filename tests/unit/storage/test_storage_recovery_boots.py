"""Starts after a power loss that end before all logs are recovered: the next one has to know of the power loss as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from contract.batches import fill
from contract.file_faults import without_sync
from raftlake.errors import DamagedData
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.lock import DirectoryLock
from raftlake.storage.partition import partition_path

GROUPS = [GroupId("orders", number, bytes(range(16))) for number in range(3)]
SYNCED = 5


@pytest.fixture(autouse=True)
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    without_sync(monkeypatch)
    named = tmp_path / "boot_id"
    monkeypatch.setattr("raftlake.storage.lock.BOOT_ID", named)
    named.write_text("first\n")

    def restart(name: str) -> None:
        named.write_text(name)

    return restart


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    return made


def opened(place: Path) -> FileLogDirectory:
    return FileLogDirectory(place, post=None)


def with_holes(place: Path, groups: list[GroupId] = GROUPS) -> None:
    """Killed: of the three batches behind the recovery point of each log, which were never synced, the first is not there."""
    directory = opened(place)
    for group in groups:
        log = directory.open(group)
        fill(log, SYNCED)
        directory.flush([log], lambda error: None)
    directory.checkpoint()
    holes = {}
    for group in groups:
        log = directory.open(group)
        begin = log.segments()[-1].size
        fill(log, 1)
        holes[group] = begin, log.segments()[-1].size - begin
        fill(log, 2)
    directory.abandon()
    for group, (begin, size) in holes.items():
        (path,) = partition_path(place, group).glob("*.log")
        with path.open("r+b") as file:
            file.seek(begin)
            file.write(bytes(size))


def ends(place: Path, groups: list[GroupId] = GROUPS) -> list[int]:
    directory = opened(place)
    try:
        return [directory.open(group).end_offset for group in groups]
    finally:
        directory.abandon()


def test_the_same_bytes_are_damage_where_no_power_was_lost(place: Path, boot: Callable[[str], None]) -> None:
    with_holes(place, GROUPS[:1])
    for _ in range(2):
        with pytest.raises(DamagedData, match="no torn tail"):
            ends(place, GROUPS[:1])
    boot("second\n")
    assert ends(place, GROUPS[:1]) == [SYNCED]


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_a_start_that_ended_before_it_opened_all_logs(
    place: Path, boot: Callable[[str], None], count: int, is_closed: bool
) -> None:
    """Its port was in use, or one log could not be read. The start behind it took what the power loss had left for damage."""
    with_holes(place)
    boot("second\n")
    for _ in range(2):
        directory = opened(place)
        for group in GROUPS[:count]:
            assert directory.open(group).end_offset == SYNCED
        directory.checkpoint()
        if is_closed:
            directory.close()
        else:
            directory.abandon()
    assert ends(place) == [SYNCED] * 3


def test_who_locks_a_directory_before_the_node_does(place: Path, boot: Callable[[str], None]) -> None:
    with_holes(place)
    boot("second\n")
    DirectoryLock(place).release()
    assert ends(place) == [SYNCED] * 3


@pytest.mark.parametrize("is_deleted", [False, True])
def test_once_all_logs_are_recovered_nothing_can_be_missing(place: Path, boot: Callable[[str], None], is_deleted: bool) -> None:
    with_holes(place)
    boot("second\n")
    directory = opened(place)
    for group in GROUPS[:2]:
        directory.open(group)
    if is_deleted:
        directory.delete(GROUPS[2:])
    else:
        directory.open(GROUPS[2])
    directory.abandon()
    with_holes(place, GROUPS[:1])
    with pytest.raises(DamagedData, match="no torn tail"):
        ends(place, GROUPS[:1])


def test_a_log_that_is_made_later_is_none_of_those_that_were_found(place: Path, boot: Callable[[str], None]) -> None:
    with_holes(place, GROUPS[:2])
    boot("second\n")
    directory = opened(place)
    directory.open(GROUPS[0])
    directory.open(GROUPS[2])
    directory.delete(GROUPS[2:])
    directory.abandon()
    assert ends(place, GROUPS[:2]) == [SYNCED] * 2


def test_a_log_whose_damage_was_set_aside_counts_when_it_is_open_again(place: Path, boot: Callable[[str], None]) -> None:
    with_holes(place, GROUPS[:1])
    (path,) = partition_path(place, GROUPS[0]).glob("*.log")
    data = path.read_bytes()
    path.write_bytes(b"\x5a" * 100 + data[100:])
    boot("second\n")
    for _ in range(2):
        with pytest.raises(DamagedData):
            ends(place, GROUPS[:1])
        assert "second" not in (place / ".lock").read_text()
    directory = opened(place)
    with pytest.raises(DamagedData) as raised:
        directory.open(GROUPS[0])
    directory.set_aside(GROUPS[0], raised.value, Epoch(0))
    directory.open(GROUPS[0])
    assert "second" in (place / ".lock").read_text()
    directory.abandon()
