"""Where logs begin for clients is on disk soon after it was noted, and nobody waits for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from contract.batches import fill
from contract.file_faults import without_sync
from raftlake.errors import DiskFull, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.noted_starts import FILE_NAME, NotedStarts
from raftlake.storage.recovery_points import RecoveryPoints

GROUP = GroupId("orders", 0, bytes(range(16)))
OTHER = GroupId("others", 1, bytes(16))


class Aside:
    """Calls that wait until they are run, or fail."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[StorageError | None], None]]] = []

    def __call__(self, call: Callable[[], None], done: Callable[[StorageError | None], None]) -> None:
        self.waiting.append((call, done))

    def run(self) -> None:
        call, done = self.waiting.pop(0)
        call()
        done(None)

    def fail(self, error: StorageError, points: RecoveryPoints, monkeypatch: pytest.MonkeyPatch) -> None:
        """The file cannot be written."""

        def broken(path: Path, data: bytes) -> None:
            raise error

        call, done = self.waiting.pop(0)
        with monkeypatch.context() as patch:
            patch.setattr("raftlake.storage.recovery_points.replace_file", broken)
            with pytest.raises(StorageError):
                call()
        done(error)


class Ground:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.aside = Aside()
        self.failures: list[StorageError] = []
        self.points = RecoveryPoints(path, FILE_NAME)
        self.starts = NotedStarts(self.points, self.aside, self.failures.append)

    @property
    def on_disk(self) -> dict[str, int]:
        path = self.path / FILE_NAME
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        return {line.rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1]) for line in lines}


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    without_sync(monkeypatch)
    return Ground(tmp_path)


def test_a_note_counts_at_once_and_is_written_aside(ground: Ground) -> None:
    ground.starts.note(GROUP, Offset(7))
    assert (ground.starts.of(GROUP), ground.starts.of(OTHER), ground.on_disk) == (7, 0, {})
    ground.aside.run()
    assert ground.on_disk == {"orders 0": 7} and ground.aside.waiting == []


def test_what_comes_while_the_file_is_written_is_written_together_afterwards(ground: Ground) -> None:
    ground.starts.note(GROUP, Offset(7))
    for start in (8, 9):
        ground.starts.note(GROUP, Offset(start))
    ground.starts.note(OTHER, Offset(3))
    assert len(ground.aside.waiting) == 1 and (ground.starts.of(GROUP), ground.starts.of(OTHER)) == (9, 3)
    ground.aside.run()
    assert len(ground.aside.waiting) == 1
    ground.aside.run()
    assert ground.on_disk == {"orders 0": 9, "others 1": 3} and ground.aside.waiting == []


def test_a_note_that_says_nothing_new_writes_nothing(ground: Ground) -> None:
    ground.starts.note(GROUP, Offset(7))
    ground.aside.run()
    ground.starts.note(GROUP, Offset(7))
    ground.starts.save()
    assert ground.aside.waiting == []


def test_a_full_disk_is_tried_again_and_another_error_is_told(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.starts.note(GROUP, Offset(7))
    ground.aside.fail(DiskFull("full"), ground.points, monkeypatch)
    assert ground.failures == [] and ground.starts.of(GROUP) == 7 and ground.aside.waiting == []
    ground.starts.save()
    error = StorageError("broken")
    ground.aside.fail(error, ground.points, monkeypatch)
    assert ground.failures == [error]


def test_a_cut_lowers_what_is_written_and_what_waits(ground: Ground) -> None:
    ground.starts.note(GROUP, Offset(7))
    ground.aside.run()
    ground.starts.lower(GROUP, Offset(5))
    assert (ground.starts.of(GROUP), ground.on_disk) == (5, {"orders 0": 5})
    ground.starts.note(GROUP, Offset(6))
    ground.starts.note(GROUP, Offset(9))
    ground.starts.lower(GROUP, Offset(4))
    assert ground.starts.of(GROUP) == 4
    while ground.aside.waiting:
        ground.aside.run()
    assert ground.on_disk == {"orders 0": 4}


def test_nothing_stays_of_a_deleted_log(ground: Ground) -> None:
    ground.starts.note(GROUP, Offset(7))
    ground.starts.note(GROUP, Offset(8))
    ground.starts.forget([GROUP])
    while ground.aside.waiting:
        ground.aside.run()
    assert (ground.starts.of(GROUP), ground.on_disk) == (0, {})


def test_a_clean_stop_writes_what_is_left(ground: Ground) -> None:
    ground.starts.note(GROUP, Offset(7))
    ground.starts.note(OTHER, Offset(2))
    ground.aside.waiting.clear()
    ground.starts.close()
    assert ground.on_disk == {"orders 0": 7, "others 1": 2}


def test_the_file_is_kafkas_and_there_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_sync(monkeypatch)
    directory = FileLogDirectory(tmp_path, post=None)
    log = directory.open(GROUP)
    fill(log, 10)
    log.note_start(Offset(6))
    directory.abandon()
    assert (tmp_path / FILE_NAME).read_text() == "0\n1\norders 0 6\n"
    again = FileLogDirectory(tmp_path, post=None)
    assert again.open(GROUP).noted_start == 6
    again.abandon()
