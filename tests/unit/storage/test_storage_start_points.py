"""Start points as files: their names, what a crash leaves of them, and errors of the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from raftlake.errors import StorageError
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


def test_half_a_point_cannot_be_loaded(tmp_path: Path) -> None:
    points = FileStartPoints(tmp_path)
    points.save(POINT, b"producers", b"voters")
    (tmp_path / "00000000000000001234.voters").unlink()
    with pytest.raises(StorageError, match="voters is missing"):
        points.load(POINT)
