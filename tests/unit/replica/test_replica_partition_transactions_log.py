"""Transactions as a partition derives them from its log: appends, truncations, starts of all kinds, start points, retention."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from contract.file_faults import without_sync
from enginekit import ORDERS
from raftlake.errors import DiskFull
from raftlake.raft.types import Offset
from raftlake.replica.partition.auxiliary import Auxiliary
from raftlake.replica.partition.producer_state import SLICE_PRODUCERS
from raftlake.replica.partition.start_points import KnownProducers, Notes
from raftlake.replica.partition.transactions import EndedTransaction
from raftlake.wire.aborted_index import AbortedTransaction
from transactionlog import FileMachine, Follower, Machine, MemoryMachine, rows_of

SEGMENT_BYTES = 1_000


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What loses power here is simulated."""
    without_sync(monkeypatch)


def machine_of(kind: str, place: Path, seed: int = 1, segment_bytes: int = SEGMENT_BYTES) -> Machine:
    return FileMachine(place, segment_bytes) if kind == "files" else MemoryMachine(Random(seed), segment_bytes)


@pytest.fixture(params=["files", "memory"])
def follower(request: pytest.FixtureRequest, tmp_path: Path) -> Follower:
    return Follower(machine_of(request.param, tmp_path))


# --- boundaries -----------------------------------------------------------------------------------------------------------


def test_a_transaction_is_stable_once_its_marker_is_committed(follower: Follower) -> None:
    follower.write(9, 0, transactional=False)
    begin = follower.write(7, 0, count=3)
    marker = follower.end_of(7, commit=True)
    partition = follower.partition
    for high_watermark, stable in ((1, 1), (marker, begin), (marker + 1, marker + 1)):
        follower.commit(high_watermark)
        assert partition.last_stable_offset == stable
        follower.require_agreement()
    assert partition.aborted(Offset(0), follower.end) == []


def test_a_transaction_at_the_start_of_the_log(follower: Follower) -> None:
    assert follower.write(7, 0) == 0
    follower.commit(1)
    assert follower.partition.last_stable_offset == 0
    marker = follower.end_of(7)
    follower.commit(2)
    assert follower.partition.last_stable_offset == 2
    assert follower.partition.aborted(Offset(0), Offset(1)) == [AbortedTransaction(7, 0, marker, 2)]
    assert follower.partition.aborted(Offset(2), Offset(2)) == []


def test_the_last_stable_offset_waits_for_the_earliest_transaction(follower: Follower) -> None:
    follower.write(7, 0)
    follower.write(8, 0)
    follower.end_of(8)
    follower.write(8, 1)
    follower.commit(follower.end)
    assert follower.partition.last_stable_offset == 0
    marker = follower.end_of(7, commit=True)
    follower.commit(marker)
    assert follower.partition.last_stable_offset == 0
    follower.commit(marker + 1)
    assert follower.partition.last_stable_offset == 3
    follower.require_agreement()


def test_who_hears_of_the_high_watermark_may_ask_for_the_last_stable_offset(follower: Follower) -> None:
    heard: list[tuple[int, int]] = []

    def hear(high_watermark: int) -> bool:
        heard.append((high_watermark, follower.partition.last_stable_offset))
        return False

    follower.partition.wait_for_watermark(hear)
    follower.write(7, 0)
    marker = follower.end_of(7)
    follower.commit(marker)
    follower.commit(marker + 1)
    assert heard == [(1, 0), (2, 2)]


def test_a_transaction_without_records_here_leaves_a_marker_that_ends_nothing(follower: Follower) -> None:
    follower.end_of(7, epoch=3)
    follower.commit(1)
    assert follower.partition.last_stable_offset == 1 and follower.partition.aborted(Offset(0), Offset(1)) == []
    follower.restart()
    follower.require_agreement()


# --- truncation and starts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_log_is_cut_anywhere(follower: Follower, cut: int) -> None:
    """7 is 0 to 3 with its marker at 4, 8 is 5 and 6 with its marker at 7, and 9 begins at 8: so also exactly at a marker."""
    follower.write(7, 0)
    follower.write(9, 0, transactional=False)
    follower.write(7, 1)
    follower.write(7, 2)
    follower.end_of(7)
    follower.write(8, 0)
    follower.write(8, 1)
    follower.end_of(8, epoch=1)
    follower.write(9, 1)
    follower.cut(cut)
    follower.require_agreement()
    for producer_id in list(follower.partition.producers.open_transactions):
        follower.end_of(producer_id, epoch=1)
    follower.commit(follower.end)
    follower.require_agreement()
    assert follower.partition.last_stable_offset == follower.end


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("marked", [False, True])
def test_a_node_that_starts_between_a_batch_and_its_marker(follower: Follower, clean: bool, marked: bool) -> None:
    follower.write(7, 0)
    follower.write(8, 0)
    follower.end_of(8)
    if marked:
        follower.end_of(7)
    follower.machine.flush(follower.log)
    follower.stop_and_start() if clean else follower.restart()
    assert follower.end == 3 + marked
    follower.require_agreement()
    assert follower.partition.producers.open_transactions == ({} if marked else {7: 0})
    if not marked:
        follower.end_of(7)
    follower.commit(follower.end)
    follower.require_agreement()
    assert follower.partition.aborted(Offset(0), Offset(4)) == [
        AbortedTransaction(8, 1, 2, 0),
        AbortedTransaction(7, 0, 3, 4),
    ]


def test_a_start_point_amid_an_open_transaction_spares_the_reading_of_its_beginning(follower: Follower) -> None:
    follower.write(7, 0)
    for number in range(20):
        follower.write(9, number, transactional=False)
    follower.end_of(8)
    assert follower.log.start_points.offsets, "segments were begun"
    follower.machine.flush(follower.log)
    follower.restart()
    follower.require_agreement()
    assert follower.partition.producers.open_transactions == {7: 0}
    follower.commit(follower.end)
    assert follower.partition.last_stable_offset == 0


def test_a_start_point_tells_what_was_ended_and_not_committed(follower: Follower) -> None:
    """The segment with the marker is not read again. The high watermark lies before the marker, and is learnt later."""
    follower.write(7, 0)
    marker = follower.end_of(7)
    for number in range(20):
        follower.write(9, number, transactional=False)
    point = follower.log.start_points.offsets[0]
    _, encoded = follower.log.start_points.load(point)
    assert Notes.decode(encoded).ended == (EndedTransaction(marker, 0),) and Notes.decode(encoded).aborted == ((0, 1),)
    follower.machine.flush(follower.log)
    follower.restart()
    for high_watermark, stable in ((1, 0), (marker, 0), (marker + 1, marker + 1)):
        follower.commit(high_watermark)
        assert follower.partition.last_stable_offset == stable
    follower.require_agreement()


def test_what_was_committed_is_not_kept_for_a_start(follower: Follower) -> None:
    for number in range(9):
        follower.write(7, number)
        follower.end_of(7, commit=True)
        follower.commit(follower.end)
    for point in follower.log.start_points.offsets:
        assert len(Notes.decode(follower.log.start_points.load(point)[1]).ended) <= 1
    follower.partition.save_start_point()
    assert Notes.decode(follower.log.start_points.load(follower.end)[1]).ended == ()


# --- the index of aborted transactions --------------------------------------------------------------------------------------


def aborting(follower: Follower, count: int) -> None:
    for number in range(count):
        follower.write(7, number)
        follower.end_of(7)


def test_the_index_is_behind_no_start_point(follower: Follower) -> None:
    aborting(follower, 20)
    for point in follower.log.start_points.offsets:
        counts = Notes.decode(follower.log.start_points.load(point)[1]).aborted
        assert sum(count for _, count in counts) == len([each for each in follower.said if each.marker and each.offset < point])
    follower.machine.flush(follower.log)
    follower.restart()
    follower.commit(follower.end)
    follower.require_agreement()
    assert len(follower.partition.aborted(Offset(0), follower.end)) == 20


@pytest.mark.parametrize("clean", [False, True])
def test_the_index_is_durable_before_a_start_point_relies_on_it(clean: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MemoryMachine(Random(1), SEGMENT_BYTES)
    follower = Follower(machine)
    log = machine.disk.logs[ORDERS]
    put = log.start_points.put
    seen: list[int] = []

    def judge(offset: Offset, producers: bytes, voters: bytes) -> None:
        below = [entry for entry in log.image.aborted if entry.last_offset < offset]
        assert len(below) == len([each for each in follower.said if each.marker and each.offset < offset])
        assert log.image.aborted_synced >= len(below)
        seen.append(offset)
        put(offset, producers, voters)

    monkeypatch.setattr(log.start_points, "put", judge)
    aborting(follower, 20)
    if clean:
        seen.clear()
        follower.partition.save_start_point()
    assert seen


def test_the_index_is_durable_before_a_large_start_point_relies_on_it() -> None:
    """One that is written in slices."""
    machine = MemoryMachine(Random(1), SEGMENT_BYTES)
    follower = Follower(machine)
    log, slices = machine.disk.logs[ORDERS], []
    follower.partition._facts._in_slices = slices.append
    for producer_id in range(100, 100 + SLICE_PRODUCERS + 1):
        follower.partition.producers.record(producer_id, 0, 0, 1, 0, 0)
    follower.partition.producers.settle(1)
    aborting(follower, 20)
    assert slices and not log.start_points.offsets
    for _ in slices.pop(0):
        pass
    (point,) = log.start_points.offsets
    notes = Notes.decode(log.start_points.load(point)[1])
    assert sum(count for _, count in notes.aborted) == len([each for each in log.image.aborted if each.last_offset < point])
    assert log.image.aborted_synced >= sum(count for _, count in notes.aborted) > 0


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: bytes(len(data)), None])
@pytest.mark.parametrize("segment", [0, 1, -1])
def test_a_damaged_index_is_made_anew_by_a_start(tmp_path: Path, damage: object, segment: int) -> None:
    follower = Follower(FileMachine(tmp_path, SEGMENT_BYTES))
    aborting(follower, 20)
    follower.partition.save_start_point()
    files = sorted(tmp_path.glob("*/*.txnindex"))
    assert len(files) >= 3
    whole = {file: file.read_bytes() for file in files}
    if damage is None:
        files[segment].unlink()
    else:
        files[segment].write_bytes(damage(whole[files[segment]]))  # type: ignore[operator]
    follower.restart()
    follower.commit(follower.end)
    follower.require_agreement()
    assert {file: file.read_bytes() for file in files} == whole
    assert len(follower.partition.aborted(Offset(0), follower.end)) == 20


def test_without_room_for_the_index_entries_are_kept_and_no_point_is_saved(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = follower.log.aborted

    def fail(*arguments: object) -> None:
        raise DiskFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(index, "append", fail)
        aborting(follower, 20)
        follower.commit(follower.end)
        follower.require_agreement()
        assert list(follower.log.segment_bases)[1:] and not follower.log.start_points.offsets
        follower.partition.save_start_point()
        assert not follower.log.start_points.offsets
    aborting(follower, 1)
    follower.commit(follower.end)
    follower.require_agreement()
    assert index.find(Offset(0), follower.end) == follower.reading.aborted(0, follower.end)


def test_retention_takes_entries_with_their_segments(follower: Follower) -> None:
    aborting(follower, 20)
    follower.commit(follower.end)
    start = follower.log.advance_start(Offset(follower.end // 2))
    assert start > 0
    follower.require_agreement()
    assert all(each.last_offset >= start for each in follower.partition.aborted(start, follower.end))
    follower.machine.flush(follower.log)
    follower.restart()
    follower.commit(follower.end)
    follower.require_agreement()


def test_a_log_that_begins_amid_an_open_transaction(follower: Follower) -> None:
    """Its first records were deleted: the rest is shown when it ends."""
    follower.write(7, 0)
    for number in range(20):
        follower.write(9, number, transactional=False)
    follower.commit(follower.end)
    start = follower.log.advance_start(Offset(follower.end - 5))
    assert start > 0 and follower.partition.last_stable_offset == start
    marker = follower.end_of(7)
    follower.commit(follower.end)
    assert follower.partition.aborted(start, follower.end) == [AbortedTransaction(7, 0, marker, marker + 1)]
    follower.require_agreement()


# --- a log that begins behind a snapshot --------------------------------------------------------------------------------------


def test_a_reset_log_begins_with_the_open_transactions_of_the_snapshot(follower: Follower) -> None:
    follower.write(7, 0)
    follower.write(8, 0)
    follower.end_of(8)
    follower.commit(3)
    follower.reset(3)
    assert follower.partition.producers.open_transactions == {7: 0} and follower.partition.last_stable_offset == 3
    assert follower.partition.aborted(Offset(3), Offset(3)) == []
    follower.write(7, 1)
    marker = follower.end_of(7)
    follower.machine.flush(follower.log)
    for _ in range(2):
        follower.commit(follower.end)
        assert follower.partition.aborted(Offset(3), follower.end) == [AbortedTransaction(7, 0, marker, marker + 1)]
        assert follower.partition.producers.open_transactions == {}
        follower.restart()


def test_what_the_tier_keeps_beside_a_copy_tells_open_transactions(follower: Follower) -> None:
    follower.write(7, 0)
    for number in range(20):
        follower.write(9, number, transactional=False)
    point = follower.log.start_points.offsets[-1]
    told = follower.partition.auxiliary_at(point)
    assert told is not None
    again = Auxiliary.decode(told).producers
    (row,) = [row for row in rows_of(again.packed) if row.producer_id == 7]
    assert row == follower.partition.producers.last_row(7) and row.transaction_first_offset == 0
    assert KnownProducers.decode(next(iter(again.records()))) == again


# --- notes --------------------------------------------------------------------------------------------------------------------


def test_notes_without_transactions_are_those_of_before() -> None:
    notes = Notes(has_forgotten=True, voters_from=Offset(5), voters=())
    assert notes.encode()[:2] == b"\0\1" and len(notes.encode()) == 15 and Notes.decode(notes.encode()) == notes


def test_notes_with_transactions_have_a_version_of_their_own() -> None:
    notes = Notes(
        has_forgotten=False,
        voters_from=Offset(5),
        voters=(),
        ended=(EndedTransaction(9, 3), EndedTransaction(12, 1)),
        aborted=((Offset(0), 4), (Offset(100), 1)),
    )
    assert notes.encode()[:2] == b"\0\2" and Notes.decode(notes.encode()) == notes


# --- any history --------------------------------------------------------------------------------------------------------------


class Story:
    """Random events of several producers, of which some write without transactions."""

    def __init__(self, follower: Follower, rng: Random) -> None:
        self.follower, self.rng = follower, rng
        self.sequences: dict[tuple[int, int], int] = {}
        self.epochs = dict.fromkeys(range(6), 0)

    def step(self) -> None:
        follower, rng = self.follower, self.rng
        events = (self.write, self.end, self.commit, self.cut, self.restart, self.stop, self.roll, self.trim)
        rng.choices(events, [50, 25, 20, 4, 4, 3, 4, 3])[0](follower, rng)

    def write(self, follower: Follower, rng: Random) -> None:
        producer_id = rng.randrange(6)
        row = follower.partition.producers.last_row(producer_id)
        epoch = max(self.epochs[producer_id], row.epoch if row else 0)
        sequence = row.last_sequence + 1 if row is not None and row.epoch == epoch else 0
        follower.write(producer_id, sequence, count=rng.randrange(1, 4), epoch=epoch, transactional=producer_id != 5)

    def end(self, follower: Follower, rng: Random) -> None:
        known = follower.partition.producers
        producer_id = rng.choice(list(known.open_transactions) or [0])
        row = known.last_row(producer_id)
        epoch = (row.epoch if row else 0) + (rng.randrange(4) == 0)
        self.epochs[producer_id] = max(self.epochs[producer_id], epoch)
        follower.end_of(producer_id, commit=rng.randrange(2) == 0, epoch=epoch)

    def commit(self, follower: Follower, rng: Random) -> None:
        ends = [each.end_offset for each in follower.said if each.end_offset >= follower.high_watermark]
        if ends:
            follower.machine.flush(follower.log)
            follower.commit(rng.choice(ends))

    def cut(self, follower: Follower, rng: Random) -> None:
        ends = [each.end_offset for each in follower.said if each.end_offset >= follower.high_watermark]
        if ends and min(ends) >= follower.log.start_offset:
            follower.cut(rng.choice(ends))

    def restart(self, follower: Follower, rng: Random) -> None:
        """A high watermark is remembered by nobody, and not known to be lower than it was by a node that heard it."""
        follower.restart()

    def stop(self, follower: Follower, rng: Random) -> None:
        follower.stop_and_start()

    def roll(self, follower: Follower, rng: Random) -> None:
        follower.partition.roll()

    def trim(self, follower: Follower, rng: Random) -> None:
        point = follower.partition.can_begin_at(Offset(follower.high_watermark))
        if point in follower.log.segment_bases and rng.randrange(2):
            follower.log.advance_start(point)


@pytest.mark.parametrize("kind", ["files", "memory"])
@pytest.mark.parametrize("seed", range(12))
def test_any_history_says_what_a_plain_reading_says(kind: str, seed: int, tmp_path: Path) -> None:
    """Also at every offset: what is derived step by step is what is derived anew."""
    rng = Random(seed)
    story = Story(Follower(machine_of(kind, tmp_path, seed, rng.choice([700, 2_000, 20_000]))), rng)
    for _ in range(120):
        story.step()
        story.follower.require_agreement()
    follower = story.follower
    for end in sorted({each.end_offset for each in follower.said if each.end_offset > follower.high_watermark}, reverse=True):
        follower.cut(end)
        follower.require_agreement()
