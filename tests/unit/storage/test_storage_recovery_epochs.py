"""The epoch file at a start: it has no checksum, so every line of it is held against the batches before it is believed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from contract.batches import fill
from contract.file_faults import without_sync
from raftlake.errors import DamagedData
from raftlake.ports.driver import BatchSpan
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.epochs import FILE_NAME, Entry, load
from raftlake.storage.log import FileLog
from raftlake.storage.snapshots import snapshot_name
from raftlake.wire.batches import iterate_headers, leader_change_batch

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


# --- a header that is damaged where no checksum covers it -----------------------------------------------------------------


def fill_like_leaders(log: FileLog) -> list[int]:
    """As `fill_epochs`, but each epoch begins with its leader's record; the offsets of all batches."""
    begins = []
    for epoch, batches in ((1, 4), (2, 3), (5, 0), (7, 4), (12, 2)):
        begins.append(int(log.end_offset))
        change = leader_change_batch(log.end_offset, epoch, 1_000, 1, (1,), (1,))
        log.append([change], [BatchSpan(log.end_offset, Offset(log.end_offset + 1), Epoch(epoch), -1, len(change))])
        for _ in range(batches):
            begins.append(int(log.end_offset))
            fill(log, 1, count=COUNT, epoch=epoch, size=BATCH_BYTES)
    return begins


def flip(place: Place, offset: int, bit: int) -> None:
    """One bit of the leader epoch of the batch that begins at `offset`."""
    path = max(each for each in place.file.parent.glob("*.log") if int(each.stem) <= offset)
    data = bytearray(path.read_bytes())
    header = next(each for each in iterate_headers(data) if each.base_offset == offset)
    data[header.position + 15 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def history_of(place: Place) -> list[Entry] | DamagedData:
    try:
        return list(place.open().epochs)
    except DamagedData as damage:
        return damage
    finally:
        place.stop(clean=False)


def test_no_flipped_bit_of_an_epoch_is_believed_but_in_the_last_batch(
    place: Place, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The last batch of epoch 2 with one bit more is one of epoch 3, and the epochs around it are in order."""
    log = place.open()
    begins = fill_like_leaders(log)
    right = list(log.epochs)
    place.stop()
    damaged = set()
    whole = tmp_path_factory.mktemp("copy") / "whole"
    shutil.copytree(place.path, whole)
    for offset in begins[:-1]:
        for bit in (0, 1, 30):
            flip(place, offset, bit)
            found = history_of(place)
            if isinstance(found, DamagedData):
                damaged.add(offset)
                assert cut_before(place, found, Epoch(12)) <= offset
            else:
                assert found == right, (offset, bit)
            shutil.rmtree(place.path)
            shutil.copytree(whole, place.path)
    # Elsewhere each read compares it with the history.
    assert damaged >= {begins[0], begins[4], begins[5], begins[8], begins[9], begins[10], begins[14]}


def cut_before(place: Place, damage: DamagedData, epoch: Epoch) -> int:
    """Where the log ends once the damage is put aside."""
    place.directory = FileLogDirectory(place.path, segment_bytes=place.segment_bytes, post=None)
    place.directory.set_aside(GROUP, damage, epoch)
    end = place.directory.open(GROUP).end_offset
    place.stop(clean=False)
    return int(end)


def test_a_batch_whose_epoch_was_flipped_is_cut_off_and_the_rest_kept(place: Place) -> None:
    begins = fill_like_leaders(place.open())
    right = [(1, 0), (2, 9)]
    place.stop()
    # The last one of epoch 2, which says 3.
    flip(place, begins[8], 0)
    with pytest.raises(DamagedData, match="says leader epoch 3, and leader-epoch-checkpoint says 2") as damage:
        place.open()
    assert place.directory is not None
    place.directory.set_aside(GROUP, damage.value, Epoch(12))
    log = place.directory.open(GROUP)
    assert (log.end_offset, list(log.epochs)) == (begins[8], right)


def test_a_wrong_epoch_file_of_a_leaders_log_is_put_right_or_taken_for_damage(place: Place) -> None:
    """Where the file and one header contradict each other, and each can be right, neither is believed."""
    log = place.open()
    begins = fill_like_leaders(log)
    right = [(int(epoch), int(offset)) for epoch, offset in log.epochs]
    place.stop()
    lone = right[2][1]
    assert right[3][1] == lone + 1
    for number, (epoch, offset) in enumerate(right):
        for other in [
            *((epoch, begin) for begin in begins if begin != offset),
            *((n, offset) for n in range(14) if n != epoch),
        ]:
            wrong = [*right[:number], other, *right[number + 1 :]]
            place.write(wrong)
            found = history_of(place)
            if isinstance(found, DamagedData):
                assert found.offset == lone, wrong
            else:
                assert found == right, wrong
            place.write(right)
