"""Several snapshots that are being written at once: each ends as it should, whatever becomes of the others."""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from contract.file_faults import without_sync
from contract.snapshot_store_contract import GROUP, OTHER, snapshot_id
from raftlake.errors import InvariantViolation, StorageError
from raftlake.storage import snapshots
from raftlake.storage.directory import FileLogDirectory

Posted = queue.SimpleQueue[Callable[[], None]]


@pytest.fixture
def posted() -> Posted:
    return queue.SimpleQueue()


@pytest.fixture(params=["thread", "inline"])
def directory(
    tmp_path: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[FileLogDirectory]:
    without_sync(monkeypatch)
    opened = FileLogDirectory(tmp_path, post=posted.put if request.param == "thread" else None)
    opened.open(GROUP)
    opened.open(OTHER)
    yield opened
    opened.close()


def finished(directory: FileLogDirectory, posted: Posted, writer: snapshots.FileSnapshotWriter) -> StorageError | None:
    ended: list[StorageError | None] = []
    writer.freeze(ended.append)
    if not ended:
        posted.get(timeout=60)()
    (result,) = ended
    return result


def names(directory: FileLogDirectory) -> list[str]:
    """Of all snapshots, finished or not, below the data directory."""
    return sorted(f"{path.parent.name}/{path.name}" for path in directory.path.rglob("*.checkpoint*"))


@pytest.mark.parametrize("bad", range(3))
def test_a_write_that_fails_leaves_no_snapshot_however_well_the_others_went(
    directory: FileLogDirectory, posted: Posted, monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    """The first, the second or the last of three pieces."""
    monkeypatch.setattr(snapshots, "WRITE_BYTES", 1)
    write_at, calls = snapshots.write_at, []

    def write(descriptor: int, chunks: Sequence[bytes], position: int, size: int) -> None:
        calls.append(position)
        if len(calls) == bad + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_at(descriptor, chunks, position, size)

    monkeypatch.setattr(snapshots, "write_at", write)
    writer = directory.snapshots.create(GROUP, snapshot_id(5, 1))
    for part in (b"one", b"two", b"three"):
        writer.append(part)
    error = finished(directory, posted, writer)
    assert error is not None and "ENOSPC" in str(error)
    assert list(directory.snapshots.ids(GROUP)) == []
    assert [name for name in names(directory) if name.endswith(".checkpoint")] == []


def test_snapshots_that_are_written_in_turns_do_not_mix(directory: FileLogDirectory, posted: Posted) -> None:
    wanted = [(GROUP, snapshot_id(5, 1)), (OTHER, snapshot_id(5, 1)), (GROUP, snapshot_id(4, 1))]
    writers = [directory.snapshots.create(*each) for each in wanted]
    for part in range(5):
        for number, writer in enumerate(writers):
            writer.append(b"%d.%d " % (number, part))
    for writer in writers:
        assert finished(directory, posted, writer) is None
    for number, each in enumerate(wanted):
        expected = b"".join(b"%d.%d " % (number, part) for part in range(5))
        assert directory.snapshots.read(*each, 0, 100) == expected
    assert list(directory.snapshots.ids(GROUP)) == [snapshot_id(4, 1), snapshot_id(5, 1)]


def test_an_attempt_that_was_replaced_changes_nothing_any_more(directory: FileLogDirectory, posted: Posted) -> None:
    """Whoever still writes to it, or gives it up once more: the second attempt is the one that counts."""
    first = directory.snapshots.create(GROUP, snapshot_id(5, 1))
    first.append(b"first ")
    second = directory.snapshots.create(GROUP, snapshot_id(5, 1))
    second.append(b"second")
    first.append(b"and more of the first")
    heard: list[StorageError | None] = []
    first.freeze(heard.append)
    first.abandon()
    assert finished(directory, posted, second) is None
    assert directory.snapshots.read(GROUP, snapshot_id(5, 1), 0, 100) == b"second"
    assert heard == [] and posted.empty()


def test_a_group_that_goes_takes_all_its_unfinished_snapshots_and_no_others(
    directory: FileLogDirectory, posted: Posted
) -> None:
    mine = [directory.snapshots.create(GROUP, snapshot_id(offset, 1)) for offset in (5, 6, 7)]
    other = directory.snapshots.create(OTHER, snapshot_id(5, 1))
    for writer in (*mine, other):
        writer.append(b"half")
    directory.snapshots.forget(GROUP)
    other.append(b" and whole")
    assert finished(directory, posted, other) is None
    assert directory.snapshots.read(OTHER, snapshot_id(5, 1), 0, 100) == b"half and whole"
    assert names(directory) == ["orders-1/00000000000000000005-0000000001.checkpoint"]


def test_a_store_that_is_closed_leaves_no_unfinished_snapshot(directory: FileLogDirectory) -> None:
    for group in (GROUP, OTHER):
        for offset in (5, 6):
            directory.snapshots.create(group, snapshot_id(offset, 1)).append(b"half")
    directory.close()
    assert names(directory) == []


@pytest.mark.parametrize("call", ["unlink", "close"])
def test_an_abandoned_snapshot_that_cannot_be_removed_holds_up_no_other(
    directory: FileLogDirectory, posted: Posted, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The thread ended, and the node waited for the end of each later snapshot for as long as it ran."""
    failed: list[object] = []

    def fail(*given: object, **named: object) -> None:
        failed.append(given)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def wait_for_worker() -> None:
        """What was submitted before is done."""
        directory.snapshots._worker.submit(lambda: posted.put(lambda: None))
        posted.get(timeout=60)

    first = directory.snapshots.create(GROUP, snapshot_id(5, 1))
    first.append(b"half of it")
    wait_for_worker()
    with monkeypatch.context() as patch:
        patch.setattr(*((Path, "unlink") if call == "unlink" else (snapshots.os, "close")), fail)
        first.abandon()
        wait_for_worker()
    assert len(failed) == 1
    second = directory.snapshots.create(OTHER, snapshot_id(6, 1))
    second.append(b"all of it")
    assert finished(directory, posted, second) is None
    assert directory.snapshots.read(OTHER, snapshot_id(6, 1), 0, 99) == b"all of it"


def test_snapshots_are_written_where_no_thread_can_be_started(
    tmp_path: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sync(monkeypatch)
    directory = FileLogDirectory(tmp_path, post=posted.put)
    directory.open(GROUP)

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for number in (5, 6):
            writer = directory.snapshots.create(GROUP, snapshot_id(number, 1))
            writer.append(b"some bytes")
            assert finished(directory, posted, writer) is None
    writer = directory.snapshots.create(GROUP, snapshot_id(7, 1))
    writer.append(b"some bytes")
    assert finished(directory, posted, writer) is None
    assert list(directory.snapshots.ids(GROUP)) == [snapshot_id(number, 1) for number in (5, 6, 7)]
    directory.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_by_a_bug_is_told(tmp_path: Path, posted: Posted) -> None:
    directory = FileLogDirectory(tmp_path, post=posted.put)

    def bug() -> None:
        raise ZeroDivisionError

    directory.snapshots._worker.submit(bug)
    with pytest.raises(InvariantViolation, match="thread that writes snapshots"):
        posted.get(timeout=60)()
    directory.close()


def test_what_the_thread_removes_while_the_directory_is_looked_through_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged log was opened anew while what had been written of a snapshot was removed: the node stopped."""
    directory = FileLogDirectory(tmp_path, post=None)
    directory.open(GROUP)
    parts = [snapshots.partition_path(tmp_path, GROUP) / f"{snapshots.snapshot_name(snapshot_id(n, 1))}.part" for n in (5, 6)]
    for part in parts:
        part.write_bytes(b"half of it")
    directory.snapshots.forget(GROUP)
    listdir = os.listdir

    def then_removed(path: Path) -> list[str]:
        found = listdir(path)
        parts[0].unlink()
        return found

    monkeypatch.setattr(snapshots.os, "listdir", then_removed)
    assert list(directory.snapshots.ids(GROUP)) == []
    assert not parts[1].exists(), "the other one is swept"
    directory.close()
