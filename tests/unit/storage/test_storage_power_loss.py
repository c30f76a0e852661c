"""Power that fails before every single rename, deletion and sync, and right after an operation has returned or reported: names
that were not synced come back, and what was promised holds all the same."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.batches import fill
from contract.file_faults import leave, without_sync
from contract.power_loss import outcomes_of_power_losses, power_lost_after
from raftlake.errors import StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.log import FileLog

GROUP = GroupId("orders", 0, bytes(range(16)))
OTHER = GroupId("orders", 1, bytes(range(16)))
SNAPSHOT = OffsetAndEpoch(Offset(7), Epoch(2))
Opened = tuple[FileLogDirectory, FileLog]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "kept"
    path.mkdir()
    return path


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Opened]:
    """A log of some segments, all of it durable, in a directory of its own."""
    without_sync(monkeypatch)
    numbers = itertools.count()

    def begin() -> Opened:
        path = tmp_path / f"data{next(numbers)}"
        path.mkdir()
        directory, log = opened(path)
        fill(log, 10, epoch=1)
        fill(log, 10, epoch=2)
        directory.flush([log], lambda error: None)
        assert len(log.segments()) > 3
        return directory, log

    return begin


def opened(path: Path) -> Opened:
    directory = FileLogDirectory(path, segment_bytes=1_000, post=None)
    return directory, directory.open(GROUP)


def ends_after_restart(state: Opened) -> tuple[int, int]:
    """Where the log begins and ends; it is whole, and can be written again."""
    directory, log = opened(leave(state[0]))
    log.verify()
    found = log.start_offset, log.end_offset
    fill(log, 3, epoch=9)
    leave(directory)
    return found


@pytest.mark.parametrize("end", [14, 10, 3, 0])
def test_a_truncation_is_durable_when_it_returns(start: Callable[[], Opened], kept: Path, end: int) -> None:
    """Segments that came back behind the cut would be records of an epoch that lost, with a hole before them."""
    seen = outcomes_of_power_losses(kept, start, lambda state: state[1].truncate_to(Offset(end)), ends_after_restart)
    assert (seen[0], seen[-1]) == ((0, 20), (0, end))
    assert seen == sorted(seen, reverse=True)


def test_what_retention_deleted_is_gone_when_it_returns(start: Callable[[], Opened], kept: Path) -> None:
    told: list[int] = []
    seen = outcomes_of_power_losses(
        kept, start, lambda state: told.append(state[1].advance_start(Offset(15))), ends_after_restart
    )
    assert seen[0] == (0, 20) and seen == sorted(seen)
    assert seen[-1] == (told[-1], 20) and 0 < told[-1] <= 15


def test_a_reset_is_durable_when_it_returns(start: Callable[[], Opened], kept: Path) -> None:
    """Were it done again at the next start, what was synced since would be lost."""

    def act(state: Opened) -> None:
        state[1].reset(OffsetAndEpoch(Offset(50), Epoch(4)))
        fill(state[1], 3, epoch=4)
        state[0].flush([state[1]], lambda error: None)

    seen = outcomes_of_power_losses(kept, start, act, ends_after_restart)
    assert seen[0] == (0, 20) and seen == sorted(seen)
    assert set(seen) <= {(0, 20), (50, 50), (50, 53)} and seen[-1] == (50, 53)


def test_a_deleted_topic_stays_deleted(start: Callable[[], Opened], kept: Path) -> None:
    """Else a node would come up with a topic that the quorum has forgotten; several go with one sync."""

    def begin() -> Opened:
        directory, log = start()
        fill(directory.open(OTHER), 3)
        return directory, log

    def look(state: Opened) -> list[GroupId]:
        path = leave(state[0])
        directory = FileLogDirectory(path, post=None)
        groups = list(directory.groups())
        assert all(directory.open(group).end_offset == {GROUP: 20, OTHER: 3}[group] for group in groups)
        assert not list(path.glob("*-delete"))
        leave(directory)
        return groups

    seen = outcomes_of_power_losses(kept, begin, lambda state: state[0].delete([GROUP, OTHER]), look)
    assert (seen[0], seen[-1]) == ([GROUP, OTHER], [])
    assert [len(groups) for groups in seen] == sorted((len(groups) for groups in seen), reverse=True)


def test_a_snapshot_that_was_reported_is_there(start: Callable[[], Opened], kept: Path) -> None:
    """Its log is trimmed behind it as soon as it is reported."""
    reported: list[StorageError | None] = []

    def act(state: Opened) -> None:
        writer = state[0].snapshots.create(GROUP, SNAPSHOT)
        writer.append(b"content")
        writer.freeze(reported.append)

    def look(state: Opened) -> bytes | None:
        directory = FileLogDirectory(leave(state[0]), post=None)
        store = directory.snapshots
        content = store.read(GROUP, SNAPSHOT, 0, 100) if SNAPSHOT in store.ids(GROUP) else None
        leave(directory)
        return content

    seen = outcomes_of_power_losses(kept, start, act, look)
    assert reported == [None]
    assert seen[0] is None and seen[-1] == b"content"
    assert set(seen) == {None, b"content"}


def test_the_power_loss_takes_back_what_was_not_synced_and_nothing_else(tmp_path: Path, kept: Path) -> None:
    """Checks the check."""
    place = tmp_path / "place"
    (place / "deep").mkdir(parents=True)
    for name in ("a", "b", "c", "deep/d"):
        (place / name).write_text(name)

    def change() -> Iterator[str]:
        os.rename(place / "a", place / "b")
        yield "renamed"
        os.unlink(place / "c")
        yield "deleted"
        os.unlink(place / "deep" / "d")
        os.rmdir(place / "deep")
        yield "removed"

    def names() -> dict[str, str]:
        return {str(path.relative_to(place)): path.read_text() for path in sorted(place.rglob("*")) if path.is_file()}

    before = names()
    with power_lost_after(kept, None):
        assert list(change()) == ["renamed", "deleted", "removed"]
        assert names() == {"b": "a"}
    assert names() == before
    with power_lost_after(kept, None):
        changes = change()
        assert (next(changes), next(changes)) == ("renamed", "deleted")
        descriptor = os.open(place, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        assert next(changes) == "removed"
    assert names() == {"b": "a", "deep/d": "deep/d"}
