"""The data directory as a whole: its lock, its bound on open files, leaving it clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.batches import data_of, fill, read_all
from contract.file_faults import without_sync
from raftlake.errors import PathOutside, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.storage.directory import FileLogDirectory


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    first = FileLogDirectory(tmp_path, post=None)
    with pytest.raises(StorageError, match="in use by process"):
        FileLogDirectory(tmp_path, post=None)
    first.close()
    first.close()
    FileLogDirectory(tmp_path, post=None).close()


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a directory"):
        FileLogDirectory(tmp_path / "nowhere", post=None)


def test_many_logs_share_few_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_sync(monkeypatch)
    directory = FileLogDirectory(tmp_path, segment_bytes=500, post=None, files_max=8)
    logs = [directory.open(GroupId("many", number)) for number in range(60)]
    expected = []
    for log in logs:
        expected.append(fill(log, 10))
        directory.flush([log], lambda error: None)
    assert directory.open_files == 8
    for log, batches in zip(logs, expected, strict=True):
        assert read_all(log) == data_of(batches)
        log.verify()
    assert directory.open_files == 8
    directory.close()
    assert directory.open_files == 0


def test_a_clean_close_leaves_indexes_and_epochs(tmp_path: Path) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    log = directory.open(GroupId("a", 0))
    fill(log, 100)
    directory.close()
    assert sorted(path.name for path in log.path.iterdir()) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "quorum-state",
    ]
    assert (log.path / "00000000000000000000.index").stat().st_size >= 8


def test_a_closed_log_is_of_no_use(tmp_path: Path) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    log = directory.open(GroupId("a", 0))
    directory.close()
    with pytest.raises(StorageError, match="is closed"):
        fill(log, 1)


def test_abandoning_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    log = directory.open(GroupId("a", 0))
    fill(log, 100)
    before = sorted(path.name for path in log.path.iterdir())
    directory.abandon()
    assert sorted(path.name for path in log.path.iterdir()) == before
    again = FileLogDirectory(tmp_path, post=None)
    assert again.open(GroupId("a", 0)).end_offset == 100
    again.close()


def test_leftovers_of_a_crash_are_swept(tmp_path: Path) -> None:
    (tmp_path / "a-0-delete").mkdir()
    FileLogDirectory(tmp_path, post=None).close()
    assert not (tmp_path / "a-0-delete").exists()


def test_nothing_of_a_deletion_happens_when_one_of_its_names_leads_out(tmp_path: Path) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    good, bad = GroupId("a", 0), GroupId("../a", 0)
    log = directory.open(good)
    fill(log, 10)
    for groups in ([good, bad], [bad, good]):
        with pytest.raises(PathOutside):
            directory.delete(groups)
        with pytest.raises(PathOutside):
            directory.prepare(groups)
    assert directory.open(good) is log and log.end_offset > 0
    directory.delete([good])
    assert not (tmp_path / "a-0").exists()
    directory.close()
