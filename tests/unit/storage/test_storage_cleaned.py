"""A compacted segment takes the place of others: a kill before every system call, and a power loss at every one."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compactdisk import GROUP, compacted, epochs_of, files_of, fill_keys, newest_values, opened, put
from contract.file_faults import leave, outcomes_of_kills, without_sync
from contract.power_loss import outcomes_of_power_losses
from raftlake.errors import DamagedData, StorageError
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage.cleaned import cleaned_path, discard_cleaned, finish_swaps, swap_path
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.log import FileLog
from raftlake.wire.aborted_index import AbortedTransaction

Opened = tuple[FileLogDirectory, FileLog]


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Path]:
    return (tmp_path / str(number) for number in itertools.count())


def started(places: Iterator[Path]) -> Callable[[], Opened]:
    def start() -> Opened:
        directory, log = opened(next(places))
        fill_keys(log, 5, epoch=1)
        put(log, [("k0", None)], epoch=1)
        fill_keys(log, 4, keys=3, epoch=4, first=5)
        log.aborted.append([AbortedTransaction(7, base, base, base + 1) for base in log.segment_bases[:-1]])
        log.aborted.sync()
        log.roll()
        directory.flush([log], lambda error: None)
        return directory, log

    return start


def act(state: Opened) -> None:
    # Old and new segments differ in size, so that groups are of one segment and of several.
    compacted(state[1], segment_bytes=1_200)


def what_is_left(state: Opened) -> tuple[int, int]:
    """After a restart: how many segments, and how many bytes. Everything else has to be as it was."""
    directory, log = opened(leave(state[0]))
    log.verify()
    assert newest_values(log) == VALUES
    assert epochs_of(log) == EPOCHS
    bases = log.segment_bases
    assert [name for name in files_of(log) if name.endswith((".cleaned", ".swap"))] == []
    assert {int(name[:20]) for name in files_of(log)} == set(bases)
    assert {base for base, _ in log.aborted.counts(log.end_offset)} <= set(bases)
    segments = log.segments()
    put(log, [("k0", "later")], epoch=9)
    compacted(log, segment_bytes=1_200)
    leave(directory)
    return len(segments), sum(each.size for each in segments)


@pytest.fixture(autouse=True, scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> None:
    global VALUES, EPOCHS
    directory, log = started(iter([tmp_path_factory.mktemp("model")]))()
    VALUES, EPOCHS = newest_values(log), epochs_of(log)
    directory.abandon()


VALUES: dict[bytes, bytes] = {}
EPOCHS: dict[int, int] = {}


def require_progress(seen: list[tuple[int, int]]) -> None:
    """Each moment is that of some groups installed, the first ones first."""
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) > 2, "there are several groups"
    assert seen[-1][1] < seen[0][1] / 2


def test_a_kill_leaves_each_group_old_or_new(places: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    without_sync(monkeypatch)
    require_progress(outcomes_of_kills(started(places), act, what_is_left))


def test_a_power_loss_leaves_each_group_old_or_new(places: Iterator[Path], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    seen = outcomes_of_power_losses(kept, started(places), act, what_is_left)
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) > 2


def test_the_new_segment_is_durable_before_an_old_file_goes(places: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A power loss may take back the one change of names and keep the other."""
    directory, log = started(places)()
    told: list[str] = []
    rename, unlink, fsync = os.rename, os.unlink, os.fsync

    def on_rename(source: Path, target: Path) -> None:
        told.append(f"rename{Path(target).suffix}")
        rename(source, target)

    def on_unlink(path: Path) -> None:
        told.append("unlink")
        unlink(path)

    def on_sync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            told.append("sync")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", on_rename)
        patch.setattr(os, "unlink", on_unlink)
        patch.setattr(os, "fsync", on_sync)
        act((directory, log))
    swaps = [index for index, each in enumerate(told) if each == "rename.swap"]
    assert len(swaps) > 1
    for index in swaps:
        assert told[index + 1] == "sync" and "unlink" in told[index + 2 :]
    directory.abandon()


def test_a_swap_goes_into_the_place_of_all_that_it_covers(places: Iterator[Path]) -> None:
    """A kill after the step that counts: all the old segments are there, and in the end none."""
    directory, log = started(places)()
    bases = log.segment_bases
    path = log.path
    leave(directory)
    data = b"".join((path / f"{base:020d}.log").read_bytes() for base in bases[1:4])
    swap_path(path, bases[1]).write_bytes(data)
    directory, log = opened(path.parent)
    assert log.segment_bases == [bases[0], bases[1], *bases[4:]]
    assert newest_values(log) == VALUES
    assert {base for base, _ in log.aborted.counts(log.end_offset)} == {bases[0], bases[1], *bases[4:-2]}
    directory.abandon()


def test_a_swap_that_is_damaged_is_told_and_set_aside(places: Iterator[Path]) -> None:
    directory, log = started(places)()
    compacted(log, segment_bytes=1_200)
    path, base = log.path, log.segment_bases[1]
    leave(directory)
    swap = swap_path(path, base)
    swap.write_bytes((path / f"{base:020d}.log").read_bytes()[:-1])
    directory = FileLogDirectory(path.parent, segment_bytes=1_000, post=None)
    with pytest.raises(DamagedData) as damage:
        directory.open(GROUP)
    assert "swap" in str(damage.value)
    directory.set_aside(GROUP, damage.value, Epoch(4))
    assert directory.open(GROUP).end_offset == 0
    assert len(list(path.glob("damaged-*/*.swap"))) == 1
    directory.abandon()


def test_a_reset_takes_a_swap_along(places: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A reset that a kill has interrupted comes before the swap of an earlier kill."""
    directory, log = started(places)()
    path, base = log.path, log.segment_bases[1]
    swap_path(path, base).write_bytes((path / f"{base:020d}.log").read_bytes())
    log.reset(OffsetAndEpoch(Offset(500), Epoch(9)))
    leave(directory)
    assert finish_swaps(path) is None
    directory, log = opened(path.parent)
    assert (log.start_offset, log.end_offset) == (500, 500)
    directory.abandon()


def test_discarding_takes_unfinished_files_alone(tmp_path: Path) -> None:
    for name in (f"{0:020d}.log", f"{0:020d}.log.swap"):
        (tmp_path / name).write_bytes(b"x")
    for suffix in (".log", ".index", ".timeindex"):
        cleaned_path(tmp_path, Offset(0), suffix).write_bytes(b"x")
    discard_cleaned(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020d}.log", f"{0:020d}.log.swap"]


def test_a_directory_of_such_a_name_is_told_of_and_stops_no_pass(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Found by putting one there: no pass over that log came to its end any more."""
    directory, log = opened(tmp_path / "logs")
    fill_keys(log, 40)
    log.roll()
    stray = log.path / "backup.cleaned"
    stray.mkdir()
    (stray / "kept").write_bytes(b"x")
    compacted(log)
    assert (stray / "kept").read_bytes() == b"x"
    assert f"{stray} is a directory, and no file of a compaction: it is left alone" in caplog.messages
    directory.abandon()


def test_a_directory_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        discard_cleaned(tmp_path / "gone")
    with pytest.raises(StorageError):
        finish_swaps(tmp_path / "gone")
