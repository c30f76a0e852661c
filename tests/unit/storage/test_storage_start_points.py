"""Start points as files: their names, what a crash leaves of them, and errors of the disk."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path

import pytest

from raftlake.errors import DiskFull, StorageError, TooManyFiles
from raftlake.raft.types import Offset
from raftlake.storage import start_points
from raftlake.storage.start_points import FileStartPoints

POINT = Offset(1234)


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path))


def test_a_point_is_two_files(tmp_path: Path) -> None:
    FileStartPoints(tmp_path).save(POINT, b"producers", b"voters")
    assert names(tmp_path) == ["00000000000000001234.snapshot", "00000000000000001234.voters"]
    again = FileStartPoints(tmp_path)
    assert list(again.offsets) == [POINT] and again.load(POINT) == (b"producers", b"voters")
    again.delete([POINT])
    assert names(tmp_path) == [] and list(again.offsets) == []


def test_other_files_are_no_points(tmp_path: Path) -> None:
    for name in ("00000000000000001234.snapshot.tmp", "00000000000000000007.voters", "7.snapshot", f"{9:020d}.log"):
        (tmp_path / name).write_bytes(b"")
    assert list(FileStartPoints(tmp_path).offsets) == []


@pytest.mark.parametrize("write", [1, 2])
@pytest.mark.parametrize("known", [False, True])
def test_a_full_disk_leaves_the_point_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int, known: bool
) -> None:
    points = FileStartPoints(tmp_path)
    if known:
        points.save(POINT, b"producers", b"voters")
    calls: list[Path] = []
    write_file = start_points.write_file

    def fail(path: Path, data: bytes, *, sync: bool) -> None:
        calls.append(path)
        if len(calls) == write:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_file(path, data, sync=sync)

    monkeypatch.setattr(start_points, "write_file", fail)
    with pytest.raises(StorageError, match=r"1234.*ENOSPC"):
        points.save(POINT, b"producers", b"voters")
    again = FileStartPoints(tmp_path)
    assert list(again.offsets) == ([POINT] if known else [])
    if known:
        assert again.load(POINT) == (b"producers", b"voters")


def test_a_deletion_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = FileStartPoints(tmp_path)
    points.save(POINT, b"producers", b"voters")

    def fail(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(start_points, "sync_directory", fail)
    with pytest.raises(StorageError, match="EIO"):
        points.delete([POINT])


def refuse(monkeypatch: pytest.MonkeyPatch, *calls: str) -> None:
    """There is no descriptor for any of these, nor for a list of the directory."""

    def fail(*_given: object, **_named: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    for call in calls:
        monkeypatch.setattr(start_points, call, fail)
    monkeypatch.setattr(os, "listdir", fail)


@pytest.mark.parametrize("call", ["save", "delete"])
def test_a_point_that_an_error_leaves_goes_with_a_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A point that had its name, and was not known, outlived a cut of the log."""
    points = FileStartPoints(tmp_path)
    points.save(Offset(5), b"producers", b"voters")
    points.save(Offset(9), b"producers", b"voters")
    with monkeypatch.context() as patch:
        refuse(patch, "sync_directory")
        attempt = partial(points.save, Offset(12), b"", b"") if call == "save" else partial(points.delete, [Offset(9)])
        with pytest.raises(TooManyFiles, match="EMFILE"):
            attempt()
        assert list(points.offsets) == ([5, 9, 12] if call == "save" else [5, 9])
    points.cut(Offset(7))
    assert list(FileStartPoints(tmp_path).offsets) == [5] and points.load(Offset(5)) == (b"producers", b"voters")


@pytest.mark.parametrize("offset", [5, 7, 9], ids=["replaced", "new", "replaced, the last"])
@pytest.mark.parametrize("call", ["write_file", "sync_directory"])
def test_without_a_descriptor_all_points_stay_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, offset: int
) -> None:
    """Retention, from a timer, asked for the others. The node stopped."""
    points = FileStartPoints(tmp_path)
    points.save(Offset(5), b"producers", b"voters")
    points.save(Offset(9), b"producers", b"voters")
    with monkeypatch.context() as patch:
        refuse(patch, call)
        for _ in range(2):
            with pytest.raises(TooManyFiles):
                points.save(Offset(offset), b"others", b"")
        found = list(points.offsets)
    assert found == sorted({5, 9, offset} if call == "sync_directory" else {5, 9})
    assert found == list(FileStartPoints(tmp_path).offsets)
    points.save(Offset(offset), b"others", b"")
    assert list(points.offsets) == sorted({5, 9, offset}) and points.load(Offset(offset)) == (b"others", b"")


def test_a_deletion_that_is_not_durable_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash would bring the point back, and it tells of records that are gone."""
    points = FileStartPoints(tmp_path)
    for offset in (5, 9):
        points.save(Offset(offset), b"producers", b"voters")
    with monkeypatch.context() as patch:
        refuse(patch, "sync_directory")
        with pytest.raises(TooManyFiles):
            points.delete([Offset(9)])
    synced: list[Path] = []
    monkeypatch.setattr(start_points, "sync_directory", synced.append)
    assert list(points.offsets) == [5, 9]
    points.cut(Offset(8))
    assert list(points.offsets) == [5] and synced == [tmp_path]


def test_half_a_point_cannot_be_loaded(tmp_path: Path) -> None:
    points = FileStartPoints(tmp_path)
    points.save(POINT, b"producers", b"voters")
    (tmp_path / "00000000000000001234.voters").unlink()
    with pytest.raises(StorageError, match="voters is missing"):
        points.load(POINT)


# --- in pieces --------------------------------------------------------------------------------------------------------


def test_a_point_in_pieces_is_there_when_it_is_finished(tmp_path: Path) -> None:
    points = FileStartPoints(tmp_path)
    writer = points.begin(POINT, 4)
    for rows in (b"first ", b"", b"second"):
        writer.append(rows)
    assert list(points.offsets) == [] == list(FileStartPoints(tmp_path).offsets)
    writer.finish(b"head", b"voters")
    writer.abandon()
    assert names(tmp_path) == ["00000000000000001234.snapshot", "00000000000000001234.voters"]
    for found in (points, FileStartPoints(tmp_path)):
        assert list(found.offsets) == [POINT] and found.load(POINT) == (b"headfirst second", b"voters")
    assert (tmp_path / "00000000000000001234.snapshot").stat().st_mode & 0o777 == 0o600


def test_what_is_given_up_leaves_nothing_and_harms_no_point_of_the_same_offset(tmp_path: Path) -> None:
    points = FileStartPoints(tmp_path)
    writer = points.begin(POINT, 4)
    writer.append(b"rows")
    points.save(POINT, b"producers", b"voters")
    writer.abandon()
    writer.abandon()
    assert points.load(POINT) == (b"producers", b"voters") and len(names(tmp_path)) == 2


@pytest.mark.parametrize("failing", ["write_at", "write_file"])
def test_a_full_disk_leaves_nothing_of_a_point_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    points = FileStartPoints(tmp_path)
    writer = points.begin(POINT, 4)
    writer.append(b"rows")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(start_points, failing, fail)
    with pytest.raises(DiskFull, match=r"1234.*ENOSPC"):
        writer.finish(b"head", b"voters")
    assert names(tmp_path) == [] and list(points.offsets) == []


def test_a_directory_that_is_gone_is_told_at_the_beginning(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="ENOENT"):
        FileStartPoints(tmp_path / "gone").begin(POINT, 4)
