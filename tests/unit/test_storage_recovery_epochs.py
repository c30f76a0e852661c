"""The epoch file at a start: it has no checksum, so every line of it is held against the batches before it is believed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from contract.batches import fill
from contract.file_faults import without_sync
from raftlake.ports import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.epochs import FILE_NAME, Entry, load
from raftlake.storage.log import FileLog
from raftlake.storage.snapshots import snapshot_name

GROUP = GroupId("orders", 0, bytes(range(16)))
#: Records of a batch: a boundary between epochs may lie between batches, never inside of one.
COUNT = 2
#: So large that the index has an entry after every three batches.
BATCH_BYTES = 2_000
#: Epochs and how many batches each has.
EPOCHS = ((1, 4), (2, 3), (5, 1), (6, 4))
END = COUNT * sum(batches for _, batches in EPOCHS)


class Place:
    """A log that is closed and opened again, with another epoch file in between."""

    def __init__(self, path: Path, segment_batches: int) -> None:
        self.path = path
        self.segment_bytes = segment_batches * (BATCH_BYTES + 200)
        self.directory: FileLogDirectory | None = None

    @property
    def file(self) -> Path:
        return self.path / str(GROUP) / FILE_NAME

    def open(self) -> FileLog:
        self.directory = FileLogDirectory(self.path, segment_bytes=self.segment_bytes, post=None)
        return self.directory.open(GROUP)

    def stop(self, *, clean: bool = True) -> None:
        if self.directory is not None:
            self.directory.close() if clean else self.directory.abandon()
            self.directory = None

    def write(self, entries: Sequence[tuple[int, int]]) -> None:
        lines = "".join(f"{epoch} {offset}\n" for epoch, offset in entries)
        self.file.write_text(f"0\n{len(entries)}\n{lines}")


def fill_epochs(log: FileLog) -> None:
    for epoch, batches in EPOCHS:
        fill(log, batches, count=COUNT, epoch=epoch, size=BATCH_BYTES)
    assert log.end_offset == END


def wrong_files(right: Sequence[Entry], first_checked: int) -> Iterator[list[tuple[int, int]]]:
    """Each file with one number of one entry changed, from entry `first_checked` on, with an entry too few or too many."""
    for number in range(first_checked, len(right)):
        before, (epoch, offset), after = right[:number], right[number], right[number + 1 :]
        yield from ([*before, (epoch, other), *after] for other in range(END + 2) if other != offset)
        yield from ([*before, (other, offset), *after] for other in range(8) if other != epoch)
        yield [*before, *after]
        yield [*before, (epoch - 1, offset), *right[number:]]
        yield from ([*right[: number + 1], (epoch + 1, other), *after] for other in range(offset + 1, END))


@pytest.fixture(params=[1, 3, 99], ids="{} batches a segment".format)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Place]:
    without_sync(monkeypatch)
    made = Place(tmp_path, request.param)
    yield made
    made.stop(clean=False)


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_no_wrong_epoch_file_of_a_log_from_zero_is_believed(place: Place, clean: bool) -> None:
    fill_epochs(place.open())
    place.stop(clean=clean)
    right = [(1, 0), (2, 8), (5, 14), (6, 16)]
    for wrong in wrong_files([(Epoch(epoch), Offset(offset)) for epoch, offset in right], 0):
        place.write(wrong)
        assert list(place.open().epochs) == right, wrong
        assert load(place.file.parent) == right, "the file is put right"
        place.stop(clean=clean)


@pytest.mark.parametrize("keep_from", [6, 8, 15, 16])
def test_no_wrong_epoch_file_of_a_trimmed_log_is_believed(place: Place, keep_from: int) -> None:
    """The entry before the first record is not in the batches: where another is in doubt, the snapshot there tells it."""
    log = place.open()
    fill_epochs(log)
    start = log.advance_start(Offset(keep_from))
    place.stop()
    right = load(place.file.parent)
    assert right is not None and right[0][1] == start
    epoch_before, _ = right[0]
    (place.file.parent / snapshot_name(OffsetAndEpoch(start, epoch_before))).write_bytes(b"")
    for wrong in wrong_files(right, 1):
        place.write(wrong)
        log = place.open()
        assert load(place.file.parent) == right, wrong
        assert (log.start_offset, log.end_offset) == (start, END)
        place.stop()


@pytest.mark.parametrize("wrong", [[], [(3, 41)]], ids=str)
def test_an_empty_log_behind_a_snapshot_has_the_epoch_of_that_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: list[tuple[int, int]]
) -> None:
    """No batch tells the epoch; without one the replica would claim in an election that it never had a record."""
    without_sync(monkeypatch)
    place = Place(tmp_path, 99)
    place.open().reset(OffsetAndEpoch(Offset(40), Epoch(4)))
    place.stop()
    (place.file.parent / snapshot_name(OffsetAndEpoch(Offset(40), Epoch(4)))).write_bytes(b"")
    place.write(wrong)
    log = place.open()
    assert (list(log.epochs), log.start_offset, log.end_offset) == ([(4, 40)], 40, 40)
    place.stop()
