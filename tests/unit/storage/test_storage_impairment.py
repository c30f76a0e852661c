"""Damage in the files of a log: what each kind of file and each place means, and that what is cut is put aside."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.batches import Batch, data_of, fill, read_all
from contract.file_faults import outcomes_of_kills, without_sync
from damagekit import COUNT, GROUP, Model, copy_of, flip, make_model, reopen, segments
from raftlake.errors import DamagedData, StorageError
from raftlake.raft.types import Epoch, Impairment, Offset, OffsetAndEpoch
from raftlake.storage import scan, scrub
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.impairment import UNKNOWN_END, UNKNOWN_EPOCH, mark, read_impairment, unmark
from raftlake.storage.scrub import Scrub
from raftlake.storage.snapshots import snapshot_name


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return make_model(tmp_path_factory.mktemp("model"), epochs=[1, 2, 3, 4])


@pytest.fixture
def place(tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_sync(monkeypatch)
    return copy_of(model, tmp_path)


@pytest.fixture
def batches(model: Model) -> list[Batch]:
    return model[1]


#: What happens to a file, at a byte of it.
ACCIDENTS: dict[str, Callable[[bytes, int], bytes]] = {
    "bit flipped": flip,
    "zeroed from there": lambda data, at: data[:at] + bytes(len(data) - at),
    "a zeroed sector": lambda data, at: data[:at] + bytes(len(data[at : at + 64])) + data[at + 64 :],
    "cut off": lambda data, at: data[:at],
    "a misdirected write": lambda data, at: (data[:at] + data[:200] + data[at + 200 :])[: len(data)],
}


@pytest.mark.parametrize("accident", ACCIDENTS)
@pytest.mark.parametrize("number", [0, 2, -1], ids=["first segment", "middle segment", "last segment"])
@pytest.mark.parametrize("part", [0.0, 0.05, 0.5, 0.97])
def test_any_damage_in_a_segment_is_found_and_cut_before(
    place: Path, batches: list[Batch], accident: str, number: int, part: float
) -> None:
    """At the start where the start looks, by the check of everything at the latest; never is a damaged batch handed out."""
    path = segments(place)[number]
    whole = path.read_bytes()
    at = min(max(int(len(whole) * part), 200 if accident == "a misdirected write" else 0), len(whole) - 1)
    damaged = ACCIDENTS[accident](whole, at)
    path.write_bytes(damaged)
    directory = reopen(place)
    try:
        directory.open(GROUP).verify()
    except DamagedData as found:
        damage = found
    assert path.name in str(damage)
    said = directory.set_aside(GROUP, damage, Epoch(7))
    log = directory.open(GROUP)
    first = int(path.stem)
    end = log.end_offset
    assert first <= end < COUNT
    assert read_all(log) == data_of(batches[:end])
    log.verify()
    aside = next((place / str(GROUP)).glob("damaged-*"))
    assert str(aside) in said
    assert aside.name == f"damaged-{end:020d}"
    assert (aside / path.name).read_bytes() == damaged
    kept = sorted(each.name for each in aside.iterdir())
    assert kept == [each.name for each in sorted(aside.glob("*.log"))] and kept[0] == path.name, "and all that followed it"
    noted = directory.impairment(GROUP)
    assert noted is not None and noted[0].epoch == 7
    assert str(path) in noted[1]
    again = fill(log, 5, epoch=7)
    directory.close()
    directory = reopen(place)
    assert read_all(directory.open(GROUP)) == data_of([*batches[:end], *again])
    assert directory.impairment(GROUP) == noted, "until it is mended"
    directory.mend(GROUP)
    assert directory.impairment(GROUP) is None
    directory.close()


@pytest.mark.parametrize("number", [0, 1, -1])
def test_the_index_of_aborted_transactions_goes_with_the_segments_that_are_put_aside(place: Path, number: int) -> None:
    for path in segments(place):
        path.with_suffix(".txnindex").write_bytes(b"of that segment")
    damaged = segments(place)[number]
    damaged.write_bytes(bytes(damaged.stat().st_size))
    directory = reopen(place)
    with pytest.raises(DamagedData) as found:
        directory.open(GROUP).verify()
    directory.set_aside(GROUP, found.value, Epoch(7))
    kept = sorted((place / str(GROUP)).rglob("*.txnindex"))
    assert kept == [path.with_suffix(".txnindex") for path in segments(place) if path < damaged]
    directory.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("accident", [*ACCIDENTS, "gone"])
@pytest.mark.parametrize("number", [0, 2, -1])
def test_damaged_indexes_change_nothing(place: Path, batches: list[Batch], suffix: str, accident: str, number: int) -> None:
    path = segments(place)[number].with_suffix(suffix)
    if accident == "gone":
        path.unlink()
    elif path.stat().st_size:
        path.write_bytes(ACCIDENTS[accident](path.read_bytes(), path.stat().st_size // 2))
    directory = reopen(place)
    assert read_all(directory.open(GROUP)) == data_of(batches)
    directory.close()


@pytest.mark.parametrize("accident", [*ACCIDENTS, "gone"])
@pytest.mark.parametrize("at", range(0, 24, 3))
def test_damaged_epoch_files_are_rebuilt_from_the_batches(place: Path, batches: list[Batch], accident: str, at: int) -> None:
    path = place / str(GROUP) / "leader-epoch-checkpoint"
    if accident == "gone":
        path.unlink()
    else:
        path.write_bytes(ACCIDENTS[accident](path.read_bytes(), min(at, path.stat().st_size - 1)))
    directory = reopen(place)
    assert list(directory.open(GROUP).epochs) == [(1, 0), (2, 10), (3, 20), (4, 30)]
    directory.close()


@pytest.mark.parametrize("accident", [*ACCIDENTS, "gone"])
def test_without_partition_metadata_or_election_state_nothing_starts(place: Path, accident: str) -> None:
    """They name the topic and the vote; no guess will do."""
    for name in ("partition.metadata", "quorum-state"):
        path = place / str(GROUP) / name
        whole = path.read_bytes()
        if accident == "gone":
            path.unlink()
        else:
            path.write_bytes(ACCIDENTS[accident](whole, 9))
        with pytest.raises(StorageError, match=name):
            begin(place)
        path.write_bytes(whole)


def begin(place: Path) -> None:
    reopen(place).abandon()
    FileElectionStore(place).load(GROUP)


def test_a_damaged_recovery_point_is_only_unknown(place: Path, batches: list[Batch]) -> None:
    path = place / "recovery-point-offset-checkpoint"
    whole = path.read_bytes()
    for accident, at in itertools.product(ACCIDENTS, (0, len(whole) // 2)):
        path.write_bytes(ACCIDENTS[accident](whole, at))
        directory = reopen(place)
        assert read_all(directory.open(GROUP)) == data_of(batches)
        directory.abandon()


def test_bytes_that_cannot_be_read_are_left_alone(place: Path, batches: list[Batch], monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad sector: what lies before it is copied, the file itself is only renamed."""
    path = segments(place)[1]
    first = int(path.stem)
    bad = len(batches[first][0]) + 70
    inode = path.stat().st_ino
    real = scan.read_at

    def read(descriptor: int, size: int, position: int) -> bytes:
        if scan_inode(descriptor) == inode and position <= bad < position + size:
            raise OSError(errno.EIO, "Input/output error")
        return real(descriptor, size, position)

    monkeypatch.setattr(scan, "read_at", read)
    directory = reopen(place)
    log = directory.open(GROUP)
    with pytest.raises(DamagedData, match=rf"{path.name} is damaged at byte \d+ .*cannot be read: Input/output error") as found:
        read_all(log)
    directory.set_aside(GROUP, found.value, Epoch(5))
    assert directory.open(GROUP).end_offset == first + 1
    assert (place / str(GROUP) / f"damaged-{first + 1:020d}" / path.name).stat().st_ino == inode
    directory.close()


def scan_inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


def test_a_log_that_was_in_use_knows_what_it_may_have_acknowledged(place: Path, batches: list[Batch]) -> None:
    directory = reopen(place)
    log = directory.open(GROUP)
    fill(log, 2, epoch=9)
    directory.set_aside(GROUP, damage_at(place, 1, 80), Epoch(9))
    assert directory.impairment(GROUP) == (Impairment(Epoch(9), Offset(COUNT + 2)), noted_reason(directory))
    directory.abandon()


def noted_reason(directory: FileLogDirectory) -> str:
    noted = directory.impairment(GROUP)
    assert noted is not None
    return noted[1]


def damage_at(place: Path, number: int, at: int) -> DamagedData:
    path = segments(place)[number]
    path.write_bytes(flip(path.read_bytes(), at))
    return DamagedData("found by a test", offset=int(path.stem))


@pytest.mark.parametrize(("epoch", "end"), [(4, COUNT), (5, 0)])
def test_records_of_older_epochs_were_not_acknowledged_in_this_one(place: Path, epoch: int, end: int) -> None:
    directory = reopen(place)
    directory.set_aside(GROUP, damage_at(place, 1, 80), Epoch(epoch))
    noted = directory.impairment(GROUP)
    assert noted is not None and noted[0] == Impairment(Epoch(epoch), Offset(end))
    directory.close()


def test_what_a_damaged_end_held_is_not_known(place: Path) -> None:
    path = segments(place)[-1]
    path.write_bytes(flip(path.read_bytes(), path.stat().st_size - 5))
    directory = reopen(place)
    with pytest.raises(DamagedData) as found:
        directory.open(GROUP)
    directory.set_aside(GROUP, found.value, Epoch(4))
    noted = directory.impairment(GROUP)
    assert noted is not None and noted[0].end_offset == UNKNOWN_END
    directory.close()


def test_damage_that_is_gone_when_looked_at_again_stops_the_node(place: Path, batches: list[Batch]) -> None:
    directory = reopen(place)
    with pytest.raises(StorageError, match="now all of it can be read"):
        directory.set_aside(GROUP, DamagedData("a cosmic ray in memory", offset=5), Epoch(4))
    assert read_all(directory.open(GROUP)) == data_of(batches)
    directory.close()


def test_a_kill_at_any_call_leaves_a_marked_log_or_an_untouched_one(
    place: Path, batches: list[Batch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = itertools.count()

    def start() -> FileLogDirectory:
        copy = tmp_path / f"run-{next(number)}"
        shutil.copytree(place, copy)
        damage_at(copy, 1, 80)
        return reopen(copy)

    def act(directory: FileLogDirectory) -> None:
        first = int(segments(directory.path)[1].stem)
        directory.set_aside(GROUP, DamagedData("found by a test", offset=first), Epoch(4))

    def look(directory: FileLogDirectory) -> tuple[bool, int]:
        directory.abandon()
        again = reopen(directory.path)
        try:
            for _ in range(3):
                try:
                    log = again.open(GROUP)
                    log.verify()
                    break
                except DamagedData as damage:
                    again.set_aside(GROUP, damage, Epoch(4))
            assert read_all(log) == data_of(batches[: log.end_offset])
            kept = {each.read_bytes() for each in directory.path.rglob("*.log")}
            assert len(kept) >= len(segments(place)) - 1, "nothing was deleted"
            return again.impairment(GROUP) is not None, log.end_offset
        finally:
            again.abandon()

    seen = outcomes_of_kills(start, act, look)
    assert len(seen) > 8
    assert all(is_impaired for is_impaired, _ in seen)
    assert {end for _, end in seen} <= {0, int(segments(place)[1].stem)}


def test_the_log_goes_on_at_a_snapshot_behind_the_damage(place: Path) -> None:
    directory = reopen(place)
    snapshot = place / str(GROUP) / snapshot_name(impairment_snapshot())
    snapshot.write_bytes(b"")
    directory.set_aside(GROUP, damage_at(place, 1, 80), Epoch(4))
    log = directory.open(GROUP)
    assert (log.start_offset, log.end_offset, list(log.epochs)) == (35, 35, [(4, 35)])
    directory.close()


def impairment_snapshot() -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(35), Epoch(4))


@pytest.mark.parametrize("data", [b"", b"0\n", b"\xff", b"0\n3\nx\n", b"1\n3 4\nx\n", b"0\n-2 4\nx\n", bytes(30)])
def test_a_damaged_marker_says_the_worst(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "impaired").write_bytes(data)
    noted = read_impairment(tmp_path)
    assert noted is not None and noted[0] == Impairment(UNKNOWN_EPOCH, UNKNOWN_END)
    mark(tmp_path, Impairment(Epoch(9), Offset(1)), "more")
    noted = read_impairment(tmp_path)
    assert noted is not None and noted[0] == Impairment(UNKNOWN_EPOCH, UNKNOWN_END), "a later one takes nothing back"
    unmark(tmp_path)
    unmark(tmp_path)
    assert read_impairment(tmp_path) is None


def test_markers_add_up(tmp_path: Path) -> None:
    mark(tmp_path, Impairment(Epoch(3), Offset(50)), "one")
    mark(tmp_path, Impairment(Epoch(4), Offset(0)), "two\nlines")
    mark(tmp_path, Impairment(Epoch(4), Offset(0)), "one")
    assert read_impairment(tmp_path) == (Impairment(Epoch(4), Offset(50)), "one; two lines")


@pytest.mark.parametrize("budget", [1, 700, 2_500, 1 << 20])
def test_the_scrub_reads_all_closed_segments_and_begins_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    monkeypatch.setattr(scrub, "BATCH_BYTES_MIN", 1)
    directory = reopen(place)
    log = directory.open(GROUP)
    closed = sum(path.stat().st_size for path in segments(place)[:-1])
    for _ in range(2):
        total = 0
        while (read := log.scrub(budget)) >= budget:
            total += read
        assert total + read == closed
    directory.close()


def test_the_scrub_finds_a_flipped_bit_and_a_wrong_epoch(place: Path) -> None:
    """No CRC covers the epoch of a batch; the history of the log does."""
    path = segments(place)[1]
    whole = path.read_bytes()
    for at in (15, 90):
        path.write_bytes(flip(whole, at))
        directory = reopen(place)
        with pytest.raises(DamagedData, match=rf"{path.name} is damaged at byte"):
            directory.open(GROUP).scrub(1 << 20)
        directory.abandon()
    assert Scrub().read_on([], [], 10) == 0
