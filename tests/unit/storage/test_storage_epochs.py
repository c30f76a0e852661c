"""The epoch history: the entry before the log's start, and a file that is whole or rebuilt."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage import epochs as epoch_files
from raftlake.storage.epochs import FILE_NAME, LeaderEpochs, load, parse


def history(path: Path, *entries: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs(path)
    for epoch, offset in entries:
        made.note(Epoch(epoch), Offset(offset))
    return made


def test_only_a_higher_epoch_is_noted(tmp_path: Path) -> None:
    epochs = history(tmp_path, (1, 0), (1, 5), (4, 9), (4, 12))
    assert list(epochs.entries) == [(1, 0), (4, 9)]
    assert epochs.last == 4
    assert LeaderEpochs(tmp_path).last == 0


def test_the_file_is_kafkas(tmp_path: Path) -> None:
    history(tmp_path, (1, 0), (6, 4)).save()
    assert (tmp_path / FILE_NAME).read_text() == "0\n2\n1 0\n6 4\n"
    assert load(tmp_path) == [(1, 0), (6, 4)]


def test_advancing_keeps_the_epoch_of_the_record_before_the_start(tmp_path: Path) -> None:
    epochs = history(tmp_path, (1, 0), (3, 10), (6, 20))
    epochs.advance_to(Offset(15))
    assert list(epochs.entries) == [(3, 15), (6, 20)]
    epochs.advance_to(Offset(20))
    # The record before 20 has epoch 3; the log's own records begin with epoch 6.
    assert list(epochs.entries) == [(6, 20)]
    assert list(epochs.all_entries) == [(3, 20), (6, 20)]
    epochs.truncate_to(Offset(20), Offset(20))
    assert list(epochs.entries) == [(3, 20)]


def test_a_reset_history_survives_truncation_to_its_start(tmp_path: Path) -> None:
    epochs = history(tmp_path, (1, 0))
    epochs.reset_to(OffsetAndEpoch(Offset(50), Epoch(7)))
    epochs.note(Epoch(7), Offset(50))
    epochs.note(Epoch(9), Offset(60))
    epochs.truncate_to(Offset(50), Offset(50))
    assert list(epochs.entries) == [(7, 50)]


def test_what_is_durable_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that begins waits for this file, on the thread of the driver."""
    replace, synced = epoch_files.replace_file, []

    def noted(path: Path, data: bytes, *, sync: bool) -> None:
        replace(path, data, sync=sync)
        synced.append(sync)

    monkeypatch.setattr(epoch_files, "replace_file", noted)
    epochs = history(tmp_path, (1, 0))
    epochs.save()
    epochs.save()
    assert synced == [True]
    for number, sync in enumerate((False, True)):
        epochs.note(Epoch(2 + number), Offset(10 + number))
        changed = epochs.take_changes()
        assert changed is not None
        epochs.write(*changed, sync=sync)
        epochs.save()
        assert load(tmp_path) == list(epochs.all_entries)
    assert synced == [True, False, True, True], "what a flush has written unsynced is written again"


def test_an_older_write_never_replaces_a_newer_one(tmp_path: Path) -> None:
    epochs = history(tmp_path, (1, 0))
    older = epochs.take_changes()
    assert older is not None
    epochs.note(Epoch(2), Offset(9))
    epochs.save()
    epochs.write(*older, sync=False)
    assert load(tmp_path) == [(1, 0), (2, 9)]


def test_changes_are_taken_once(tmp_path: Path) -> None:
    epochs = history(tmp_path, (1, 0))
    assert epochs.take_changes() is not None
    assert epochs.take_changes() is None
    epochs.truncate_to(Offset(9), Offset(0))
    assert epochs.take_changes() is None
    epochs.truncate_to(Offset(0), Offset(0))
    assert epochs.take_changes() == (2, b"0\n0\n")


DAMAGED = [
    "",
    "0\n",
    "0\n1\n",
    "0\n1\n1 0",
    "1\n1\n1 0\n",
    "0\n2\n1 0\n",
    "0\n1\n1\n",
    "0\n1\n1 x\n",
    "0\n2\n2 0\n1 5\n",
    "0\n2\n1 5\n2 0\n",
    "0\n1\n-1 0\n",
    "\0" * 20,
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_not_believed(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError):
        parse(text.encode())
    (tmp_path / FILE_NAME).write_text(text)
    assert load(tmp_path) is None
