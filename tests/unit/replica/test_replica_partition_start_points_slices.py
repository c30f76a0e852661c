"""Points of many producers: written a slice at a time, of the very offset where the segment begins, whatever comes between."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from contract.file_faults import without_sync
from factkit import HeadersRead
from raftlake.errors import DamagedData, StorageError
from raftlake.ports.driver import BatchSpan
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch, VoterSet
from raftlake.raft.voters import VoterHistory
from raftlake.replica.partition.producer_state import SLICE_PRODUCERS, ProducerTally
from raftlake.replica.partition.start_points import KnownProducers, LogFacts, Slices
from raftlake.storage import start_points
from raftlake.storage.directory import FileLogDirectory
from raftlake.wire import producer_snapshot
from raftlake.wire.batches import Record, build_batch, iterate_headers
from raftlake.wire.snapshots import BATCH_BYTES_MAX

GROUP = GroupId("orders", 0, bytes(range(16)))
SEGMENT_BYTES = 400_000


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses power."""
    without_sync(monkeypatch)


class World:
    """A log on files whose producers write one record each, and the work that is to be done in slices."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.producer_id = 0
        self.open()

    def open(self) -> None:
        self.work: list[Slices] = []
        self.tally = ProducerTally()
        self.directory = FileLogDirectory(self.place, segment_bytes=SEGMENT_BYTES, post=None)
        self.log = self.directory.open(GROUP)
        history = VoterHistory(VoterSet({}))
        start = self.log.start_offset
        self.facts = LogFacts(GROUP, self.log, history, start, tally=self.tally, in_slices=self.work.append)
        self.headers_read = HeadersRead(self.facts)
        self.facts.restore(5_000, with_voters=True)

    def kill(self) -> None:
        self.directory.close()
        self.open()

    def write(self, count: int) -> None:
        """One batch of each of `count` new producers."""
        for _ in range(count):
            end = self.log.end_offset
            record = [Record(value=b"x")]
            data = build_batch(
                record,
                base_offset=end,
                leader_epoch=1,
                timestamp_ms=7,
                producer_id=self.producer_id,
                producer_epoch=0,
                base_sequence=0,
            )
            self.producer_id += 1
            (header,) = iterate_headers(data)
            self.facts.remember(header, 1_000)
            begun = self.log.append([data], [BatchSpan(end, header.end_offset, 1, 7, header.size)])
            self.facts.appended(begun)

    def write_segment(self) -> Offset:
        """Up to the first batch of the next one; its base."""
        bases = len(self.log.segment_bases)
        while len(self.log.segment_bases) == bases:
            self.write(1)
        return self.log.segment_bases[-1]

    def finish(self) -> None:
        for work in self.work:
            for _ in work:
                pass
        self.work.clear()

    def told(self, offset: Offset) -> list[int]:
        """The producer ids that the point at `offset` tells: each is that of its only batch's offset."""
        rows = producer_snapshot.decode(self.log.start_points.load(offset)[0])
        assert all(row.producer_id == row.last_offset for row in rows)
        return sorted(row.producer_id for row in rows)

    @property
    def points(self) -> Sequence[Offset]:
        return list(self.log.start_points.offsets)

    @property
    def leftovers(self) -> list[str]:
        return [name for name in os.listdir(self.place / str(GROUP)) if name.endswith(".tmp")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A second segment has begun, and its point is to be written."""
    world = World(tmp_path)
    world.write_segment()
    assert len(world.work) == 1 and world.points == [] and len(world.facts.producers) > 2 * SLICE_PRODUCERS
    return world


def test_a_point_is_written_a_slice_at_a_time_and_tells_what_was_below_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write_at = start_points.write_at

    def noted(descriptor: int, chunks: Sequence[bytes], position: int, size: int) -> None:
        written.append(size)
        write_at(descriptor, chunks, position, size)

    monkeypatch.setattr(start_points, "write_at", noted)
    base = world.log.segment_bases[-1]
    (work,) = world.work
    for number, _ in enumerate(work):
        world.write(3)
        assert len(written) == number + 1 and world.tally.count == world.producer_id
    assert max(written) <= SLICE_PRODUCERS * producer_snapshot.ENTRY.size and len(written) > 3
    assert world.points == [base] and world.leftovers == []
    assert world.told(base) == list(range(base))
    assert len(world.facts.producers.at(world.log.end_offset)) == world.producer_id


def test_a_segment_that_begins_while_a_point_is_written_has_none_and_the_next_one_has(world: World) -> None:
    first = world.log.segment_bases[-1]
    next(world.work[0])
    world.write_segment()
    assert len(world.work) == 1
    world.finish()
    assert world.points == [first]
    third = world.write_segment()
    world.finish()
    assert world.points == [first, third] and world.told(third) == list(range(third))
    world.kill()
    assert world.headers_read.count < 10 and len(world.facts.producers) == world.producer_id


@pytest.mark.parametrize("slices", [0, 2])
def test_a_crash_amid_the_writing_leaves_the_point_before_it(world: World, slices: int) -> None:
    """A start reads on from there, and writes the point of the last segment alone."""
    for _ in range(slices):
        next(world.work[0])
    world.write_segment()
    assert len(world.leftovers) == (slices > 0)
    last = world.log.segment_bases[-1]
    dead = world.work
    world.kill()
    assert dead, "nothing of it was tidied up"
    assert world.headers_read.count == world.producer_id == len(world.facts.producers) == world.tally.count
    assert world.points == [] and world.leftovers == []
    world.finish()
    assert world.points == [last] and world.told(last) == list(range(last))


@pytest.mark.parametrize("slices", [0, 2])
@pytest.mark.parametrize("how", ["cut", "cut behind it", "reset", "close", "stop"])
def test_what_is_being_written_is_given_up_when_the_log_becomes_another_one(world: World, how: str, slices: int) -> None:
    base = world.log.segment_bases[-1]
    world.write(10)
    (given_up,) = world.work
    for _ in range(slices):
        next(given_up)
    world.work.clear()
    match how:
        case "cut" | "cut behind it":
            end = Offset(base - 5 if how == "cut" else base + 5)
            world.facts.stop_saving()
            world.log.truncate_to(end)
            world.facts.restore(5_000, with_voters=False)
            assert world.tally.count == len(world.facts.producers) == end
        case "reset":
            world.log.reset(OffsetAndEpoch(Offset(900), Epoch(1)))
            world.facts.reset(None)
            assert world.tally.count == 0
        case "close":
            world.facts.close()
            assert world.tally.count == 0
        case "stop":
            world.facts.save_at_stop()
    assert list(given_up) == [] and world.leftovers == []
    assert world.points == ([world.log.end_offset] if how == "stop" else [])
    world.finish()
    if how == "cut behind it":
        assert world.points == [base] and world.told(base) == list(range(base)), "the start behind the cut wrote it anew"


def test_a_cut_to_the_very_base_of_a_segment_does_not_lose_its_point(world: World) -> None:
    base = world.log.segment_bases[-1]
    world.facts.stop_saving()
    world.log.truncate_to(base)
    world.work.clear()
    world.facts.restore(5_000, with_voters=False)
    world.finish()
    assert world.log.segment_bases[-1] == base == world.log.end_offset and world.points == [base]


@pytest.mark.parametrize("failing", [0, 2, 3])
def test_a_full_disk_costs_the_point_and_not_the_node(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing: int
) -> None:
    """Retention waits for the next one: who forgets producers appends batches that come again."""
    base = world.log.segment_bases[-1]
    assert world.facts.can_begin_at(base) == 0, "it is on its way"
    write_at, calls = start_points.write_at, []

    def full(descriptor: int, chunks: Sequence[bytes], position: int, size: int) -> None:
        calls.append(position)
        if len(calls) > failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_at(descriptor, chunks, position, size)

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(start_points, "write_at", full)
        world.finish()
    assert "is not saved" in caplog.text and world.points == [] and world.leftovers == []
    assert world.facts.can_begin_at(base) == 0
    following = world.write_segment()
    assert len(world.work) == 1
    world.finish()
    assert world.points == [following] and world.told(following) == list(range(following))
    assert world.facts.can_begin_at(base) == 0 and world.facts.can_begin_at(following) == following


def test_a_log_may_begin_at_the_last_segment_whose_producers_are_told(world: World) -> None:
    first, second = world.log.segment_bases[-1], world.write_segment()
    world.finish()
    assert world.points == [first]
    assert [world.facts.can_begin_at(offset) for offset in (first, second)] == [first, first]
    world.log.advance_start(first)
    assert world.facts.can_begin_at(second) == first, "the log begins there"
    world.facts.save_at_stop()
    world.kill()
    assert world.facts.can_begin_at(second) == first, "the point of a clean stop is not where a segment begins"


def test_a_disk_that_fails_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int, chunks: Sequence[bytes], position: int, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(start_points, "write_at", broken)
    with pytest.raises(StorageError, match="EIO"):
        world.finish()


def test_a_reading_that_meets_damage_leaves_nothing_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is opened anew then, by another who counts the same producers."""
    read = world.facts._read

    def damaged(offset: Offset) -> object:
        for number, each in enumerate(read(offset)):
            if number == world.producer_id - 1:
                raise DamagedData("flipped", offset=Offset(number))
            yield each

    monkeypatch.setattr(world.facts, "_read", damaged)
    world.work.clear()
    with pytest.raises(DamagedData):
        world.facts.restore(5_000, with_voters=True)
    world.finish()
    assert world.tally.count == 0 and world.points == [] and world.leftovers == []


@pytest.mark.parametrize(("rows", "records"), [(0, 1), (1, 1), (1 << 14, 1), ((1 << 14) + 1, 2), (3 << 14, 3)])
def test_many_producers_stand_in_several_records_of_a_snapshot(rows: int, records: int) -> None:
    packed = b"".join(producer_snapshot.ENTRY.pack(number, 0, 0, number, 0, 7, -1, -1) for number in range(rows))
    known = KnownProducers(producer_snapshot.encode_packed(packed), has_forgotten=True)
    found = list(known.records())
    assert len(found) == records and max(map(len, found)) < 1 << 20 < BATCH_BYTES_MAX
    parts = [KnownProducers.decode(record) for record in found]
    assert KnownProducers.join([part for part in parts if part is not None]) == known
    assert KnownProducers.join([]) is None
