"""Damage that is set aside in several tries, because the disk or the process had no room: it ends as if there had been room.

Between two tries the process may end. Then what stands on disk has to lead the next start to the same end.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from contract.batches import fill, read_all
from contract.file_faults import without_sync
from damagekit import COUNT, GROUP, Model, copy_of, flip, make_model, reopen, segments
from raftlake.errors import DamagedData, DiskFull, StorageError, TooManyFiles
from raftlake.raft.types import Epoch, Impairment, Offset, OffsetAndEpoch
from raftlake.storage import impairment as impairment_files
from raftlake.storage.recovery import list_segments
from raftlake.storage.reset import read_pending_reset
from raftlake.storage.snapshots import snapshot_name

EPOCH = Epoch(4)
#: These take a descriptor, or a block of the directory. An open that is refused is made once more (`descriptors.spared`).
REFUSED = {"open": errno.EMFILE, "rename": errno.ENOSPC, "mkdir": errno.ENOSPC}
SNAPSHOT = OffsetAndEpoch(Offset(COUNT), EPOCH)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return make_model(tmp_path_factory.mktemp("model"), epochs=[4])


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_sync(monkeypatch)


@contextmanager
def refused_at(call: int, times: int) -> Iterator[list[str]]:
    """So many of the calls REFUSED are refused, from the `call`th on (0 is the first). Which, is in the list."""
    made, refused = 0, []

    def counted(name: str, real: Any) -> Any:
        def step(*given: Any, **named: Any) -> Any:
            nonlocal made
            made += 1
            if call < made <= call + times:
                refused.append(name)
                raise OSError(REFUSED[name], os.strerror(REFUSED[name]))
            return real(*given, **named)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for name in REFUSED:
            patch.setattr(os, name, counted(name, getattr(os, name)))
        yield refused


class Spoilt:
    """An open log with damage of one of the kinds below, whose recovery point lags behind."""

    def __init__(self, place: Path, kind: str) -> None:
        self.place, self.part = place, place / str(GROUP)
        self.directory = reopen(place)
        self.log = self.directory.open(GROUP)
        if kind.endswith("below a snapshot"):
            (self.part / snapshot_name(SNAPSHOT)).write_bytes(b"x")
        path = segments(place)[1 if kind.startswith("closed") else -1]
        self.damage = DamagedData("found by a test", offset=int(path.stem))
        if kind == "file that ends early":
            lost = Offset(COUNT - 1)
            self.directory._points.lower(GROUP, lost)
            os.truncate(path, self.log._active.locate(lost).position)
        else:
            path.write_bytes(flip(path.read_bytes(), 300))

    def set_aside(self) -> str:
        return self.directory.set_aside(GROUP, self.damage, EPOCH)

    def restart(self) -> None:
        """The process ends. The next one opens the log as a node does."""
        self.directory.abandon()
        self.directory = reopen(self.place)
        try:
            self.directory.open(GROUP)
        except DamagedData as damage:
            self.directory.set_aside(GROUP, damage, EPOCH)

    @property
    def impairment(self) -> Impairment | None:
        noted = self.directory.impairment(GROUP)
        return None if noted is None else noted[0]

    def outcome(self) -> tuple[Any, ...]:
        """All that counts on disk, and what the log says when it is open."""
        aside = [(path.parent.name, path.name, path.read_bytes()) for path in sorted(self.part.glob("damaged-*/*"))]
        pending, bases = read_pending_reset(self.part), list_segments(self.part)
        log = self.directory.open(GROUP)
        log.verify()
        return self.impairment, pending, bases, aside, log.end_offset, read_all(log), list(self.part.glob("*.cut"))


KINDS = ["closed segment", "closed segment below a snapshot", "last segment", "file that ends early"]


@pytest.mark.parametrize("times", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_refused_the_end_is_the_same(model: Model, tmp_path: Path, kind: str, times: int) -> None:
    """The second try took what was left of the files for an intact log, and the node stopped."""
    honest = Spoilt(copy_of(model, tmp_path / "honest"), kind)
    honest.set_aside()
    wanted = honest.outcome()
    assert wanted[0] == Impairment(EPOCH, Offset(COUNT))
    honest.directory.abandon()
    call, refused = 0, ["any"]
    while refused:
        spoilt = Spoilt(copy_of(model, tmp_path / str(call)), kind)
        with refused_at(call, times) as refused:
            for _ in range(1 + times):
                try:
                    spoilt.set_aside()
                    break
                except DiskFull:
                    continue
            else:
                raise AssertionError(f"{kind}, call {call}: more were refused than there are")
        assert spoilt.outcome() == wanted, (kind, call, refused)
        spoilt.directory.abandon()
        call += 1
    assert call > 8


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_ends_between_two_tries_forgets_no_loss(model: Model, tmp_path: Path, kind: str, times: int) -> None:
    call, refused = 0, ["any"]
    while refused:
        spoilt = Spoilt(copy_of(model, tmp_path / str(call)), kind)
        with refused_at(call, times) as refused, suppress(DiskFull):
            spoilt.set_aside()
        spoilt.restart()
        log = spoilt.directory.open(GROUP)
        if log.end_offset < COUNT:
            assert spoilt.impairment is not None and spoilt.impairment.end_offset >= COUNT, (kind, call, refused)
        else:
            # A start does not look into closed segments: it will be found again, as it was the first time.
            assert kind.startswith("closed"), (kind, call, refused)
        spoilt.directory.abandon()
        call += 1


def test_what_is_set_aside_is_left_as_it_was_when_the_end_is_tried_again(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the intact beginning stands in the place of the segment by then."""
    spoilt = Spoilt(copy_of(model, tmp_path), "closed segment below a snapshot")
    damaged = segments(spoilt.place)[1]
    before = damaged.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(impairment_files, "announce_reset", lambda *_given: (_ for _ in ()).throw(DiskFull("full")))
        for _ in range(3):
            with pytest.raises(DiskFull):
                spoilt.set_aside()
    spoilt.set_aside()
    (aside,) = spoilt.part.glob("damaged-*")
    assert (aside / damaged.name).read_bytes() == before
    assert spoilt.directory.open(GROUP).start_offset == COUNT, "the log goes on at its snapshot"


def test_each_try_goes_on_with_the_same_directory(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one left an empty directory, and the thousandth stopped the node."""
    spoilt = Spoilt(copy_of(model, tmp_path), "last segment")
    with monkeypatch.context() as patch:
        patch.setattr(impairment_files, "sync_directory", lambda _path: (_ for _ in ()).throw(OSError(errno.EMFILE, "many")))
        for _ in range(5):
            with pytest.raises(TooManyFiles):
                spoilt.set_aside()
    spoilt.set_aside()
    assert len(list(spoilt.part.glob("damaged-*"))) == 1


def refuse_mark(spoilt: Spoilt) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(impairment_files, "replace_file", lambda *_given: (_ for _ in ()).throw(DiskFull("full")))
        with pytest.raises(DiskFull):
            spoilt.set_aside()


def test_a_group_that_is_deleted_and_made_again_is_looked_at_anew(model: Model, tmp_path: Path) -> None:
    spoilt = Spoilt(copy_of(model, tmp_path), "file that ends early")
    refuse_mark(spoilt)
    spoilt.directory.delete([GROUP])
    spoilt.directory.open(GROUP)
    with pytest.raises(StorageError, match="now all of it can be read"):
        spoilt.directory.set_aside(GROUP, DamagedData("found by a test", offset=0), EPOCH)
    spoilt.directory.abandon()


def test_a_log_that_was_opened_between_two_tries_is_looked_at_anew(model: Model, tmp_path: Path) -> None:
    """Its files are others by then: it may have grown."""
    spoilt = Spoilt(copy_of(model, tmp_path), "closed segment")
    refuse_mark(spoilt)
    assert spoilt.directory.open(GROUP).end_offset == COUNT
    os.truncate(segments(spoilt.place)[2], 0)
    spoilt.set_aside()
    assert spoilt.impairment == Impairment(EPOCH, Offset(COUNT))
    (aside,) = spoilt.part.glob("damaged-*")
    assert spoilt.directory.open(GROUP).end_offset < int(segments(spoilt.place)[-1].stem) + 100 and aside.is_dir()
    spoilt.directory.abandon()


def test_a_short_file_is_found_by_an_open_between_two_tries(model: Model, tmp_path: Path) -> None:
    """Only the log that was in use knew its end, and the recovery point was older."""
    spoilt = Spoilt(copy_of(model, tmp_path), "file that ends early")
    refuse_mark(spoilt)
    with pytest.raises(DamagedData, match=f"{COUNT - 1} was durable"):
        spoilt.directory.open(GROUP)
    spoilt.set_aside()
    assert spoilt.impairment is not None and spoilt.impairment.end_offset >= COUNT
    spoilt.directory.abandon()


def test_the_second_damage_of_a_log_is_another_one(model: Model, tmp_path: Path) -> None:
    spoilt = Spoilt(copy_of(model, tmp_path), "last segment")
    refuse_mark(spoilt)
    spoilt.set_aside()
    spoilt.directory.open(GROUP)
    first = segments(spoilt.place)[0]
    first.write_bytes(flip(first.read_bytes(), 300))
    spoilt.directory.set_aside(GROUP, DamagedData("found by a test", offset=0), EPOCH)
    assert spoilt.directory.open(GROUP).end_offset < int(spoilt.damage.offset)
    assert len(list(spoilt.part.glob("damaged-*"))) == 2
    spoilt.directory.abandon()


@pytest.mark.parametrize("end", ["set aside", "opened", "deleted"])
def test_the_directory_keeps_nothing_of_what_is_done(model: Model, tmp_path: Path, end: str) -> None:
    spoilt = Spoilt(copy_of(model, tmp_path), "closed segment")
    refuse_mark(spoilt)
    directory = spoilt.directory
    assert list(directory._damages) == [GROUP]
    match end:
        case "set aside":
            spoilt.set_aside()
        case "opened":
            directory.open(GROUP)
        case _:
            directory.delete([GROUP])
    assert directory._damages == {}
    directory.abandon()


def test_a_log_that_cannot_be_looked_at_stays_open(model: Model, tmp_path: Path) -> None:
    """It alone knows all of its end, with what is not synced."""
    spoilt = Spoilt(copy_of(model, tmp_path), "closed segment")
    fill(spoilt.log, 2, epoch=4)
    with refused_at(1, 2) as refused, pytest.raises(TooManyFiles):
        spoilt.set_aside()
    assert refused == ["open", "open"] and spoilt.directory.open(GROUP) is spoilt.log
    fill(spoilt.log, 1, epoch=4)
    spoilt.set_aside()
    assert spoilt.impairment == Impairment(EPOCH, Offset(COUNT + 3))
    spoilt.directory.abandon()
