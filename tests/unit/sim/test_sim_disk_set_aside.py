"""The contract of closed and damaged logs, on the simulated disk, and what only that one has: crashes amid a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import cast

import pytest

from contract.batches import fill
from contract.set_aside_contract import COUNT, EPOCH, GROUP, SEGMENT_BYTES, SetAsideContract
from raftlake.errors import DamagedData, DiskFull, StorageError
from raftlake.ports.driver import LogDirectory, LogStore
from raftlake.raft.types import Impairment, Offset, OffsetAndEpoch
from raftlake.sim.disk.disk import ASIDE_BYTES, SAVED_BYTES, MemoryLog, SimulatedDisk
from raftlake.sim.disk.power import ClosedLog, SimulatedCrash
from raftlake.wire.aborted_index import AbortedTransaction


class Machine:
    """Syncs when it is told to. It may crash at a port call."""

    def __init__(self) -> None:
        self.crash_at = ""
        self.flushes: list[Callable[[], None]] = []

    def port_call(self, name: str) -> None:
        if name == self.crash_at:
            self.crash_at = ""
            raise SimulatedCrash(name)

    def flush_later(self, complete: Callable[[], None], fail: Callable[[], None]) -> None:
        self.flushes.append(complete)

    def settle(self) -> None:
        while self.flushes:
            self.flushes.pop(0)()


def leave(disk: SimulatedDisk, free_bytes: int) -> None:
    """So much is left, and no ballast."""
    disk.space.fill(0)
    disk.space.give_up_ballast()
    disk.space.fill(free_bytes)


class TestMemorySetAside(SetAsideContract):
    # Behind the cut it refuses only where the log goes on at a snapshot.
    steps = 2

    def open_directory(self, place: Path) -> SimulatedDisk:
        return SimulatedDisk(Machine(), segment_bytes=SEGMENT_BYTES)

    def flush(self, directory: LogDirectory, log: LogStore) -> None:
        results: list[StorageError | None] = []
        directory.flush([log], results.append)
        cast(Machine, cast(SimulatedDisk, directory).machine).settle()
        assert results == [None]

    def restart(self, directory: LogDirectory) -> LogDirectory:
        cast(SimulatedDisk, directory).crash(Random(7))
        return directory

    def close(self, directory: LogDirectory) -> None:
        """Nothing to close."""

    def damage(self, directory: LogDirectory, log: LogStore, offset: int) -> None:
        assert cast(MemoryLog, log).damage(offset, 70) is not None

    @contextmanager
    def refusing(self, directory: LogDirectory, step: int) -> Iterator[None]:
        disk = cast(SimulatedDisk, directory)
        leave(disk, (0, SAVED_BYTES, SAVED_BYTES + ASIDE_BYTES)[step])
        yield
        disk.space.empty()


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(Machine(), segment_bytes=SEGMENT_BYTES)
    log = disk.open(GROUP)
    fill(log, COUNT, epoch=EPOCH)
    log.settle()
    return disk


def damaged(offset: int) -> DamagedData:
    return DamagedData("found by a test", offset=offset)


@pytest.mark.parametrize(("free_bytes", "is_cut"), [(0, False), (1, False), (100, False), (101, True)])
def test_without_room_for_a_step_those_before_it_are_done(disk: SimulatedDisk, free_bytes: int, is_cut: bool) -> None:
    disk.logs[GROUP].damage(15, 70)
    leave(disk, free_bytes)
    if is_cut:
        disk.set_aside(GROUP, damaged(15), EPOCH)
    else:
        with pytest.raises(DiskFull):
            disk.set_aside(GROUP, damaged(15), EPOCH)
    assert (disk.impairment(GROUP) is not None) == (free_bytes > 0)
    assert disk.logs[GROUP].end_offset == (15 if is_cut else COUNT)


def test_a_log_that_goes_on_at_its_snapshot_may_be_refused_behind_the_cut(disk: SimulatedDisk) -> None:
    writer = disk.snapshots.create(GROUP, OffsetAndEpoch(Offset(20), EPOCH))
    writer.freeze(lambda _error: None)
    cast(Machine, disk.machine).settle()
    disk.logs[GROUP].damage(15, 70)
    leave(disk, SAVED_BYTES + ASIDE_BYTES)
    for _ in range(2):
        with pytest.raises(DiskFull, match="goes on"):
            disk.set_aside(GROUP, damaged(15), EPOCH)
        assert disk.logs[GROUP].end_offset == 15
        leave(disk, SAVED_BYTES + ASIDE_BYTES)
    disk.space.empty()
    disk.set_aside(GROUP, damaged(15), EPOCH)
    assert disk.open(GROUP).end_offset == 15 and list(disk.snapshots.ids(GROUP)) == [OffsetAndEpoch(Offset(20), EPOCH)]


def test_snapshots_go_with_a_log_of_which_nothing_stays(disk: SimulatedDisk) -> None:
    disk.snapshots.create(GROUP, OffsetAndEpoch(Offset(20), EPOCH)).freeze(lambda _error: None)
    cast(Machine, disk.machine).settle()
    disk.logs[GROUP]._compactor.begin_anew()
    disk.logs[GROUP].damage(25, 70)
    disk.set_aside(GROUP, damaged(25), EPOCH)
    log = disk.open(GROUP)
    assert (log.start_offset, log.end_offset, log.compacted_until, list(disk.snapshots.ids(GROUP))) == (0, 0, 0, [])


@pytest.mark.parametrize(("call", "end", "is_marked"), [("set aside", COUNT, False), ("cut off damage", COUNT, True)])
def test_power_is_lost_between_the_steps(disk: SimulatedDisk, call: str, end: int, is_marked: bool) -> None:
    disk.logs[GROUP].damage(15, 70)
    cast(Machine, disk.machine).crash_at = call
    with pytest.raises(SimulatedCrash):
        disk.set_aside(GROUP, damaged(15), EPOCH)
    disk.crash(Random(3))
    assert disk.open(GROUP).end_offset == end
    assert disk.impairment(GROUP) == ((Impairment(EPOCH, Offset(COUNT)), "damaged at 15") if is_marked else None)
    disk.set_aside(GROUP, damaged(15), EPOCH)
    assert disk.open(GROUP).end_offset == 15


def test_an_open_between_two_steps_syncs_what_it_finds(disk: SimulatedDisk) -> None:
    log = disk.logs[GROUP]
    fill(log, 5, epoch=EPOCH)
    log.damage(15, 70)
    leave(disk, 0)
    with pytest.raises(DiskFull):
        disk.set_aside(GROUP, damaged(15), EPOCH)
    assert disk.logs[GROUP].durable_end == COUNT
    assert disk.open(GROUP).durable_end == COUNT + 5


def test_a_flush_under_way_says_nothing_of_a_log_that_was_cut(disk: SimulatedDisk) -> None:
    log = disk.logs[GROUP]
    fill(log, 5, epoch=EPOCH)
    disk.flush([log], lambda _error: None)
    log.damage(15, 70)
    disk.set_aside(GROUP, damaged(15), EPOCH)
    again = disk.open(GROUP)
    fill(again, 2, epoch=EPOCH)
    cast(Machine, disk.machine).settle()
    assert (again.durable_end, again.end_offset) == (15, 17)


def test_what_lies_beside_a_deleted_log_is_gone_too(disk: SimulatedDisk) -> None:
    log = disk.logs[GROUP]
    entry = AbortedTransaction(producer_id=7, first_offset=3, last_offset=5, last_stable_offset=6)
    log.aborted.append([entry])
    disk.delete([GROUP])
    aborted = log.aborted
    for use in (
        lambda: aborted.append([entry._replace(last_offset=6)]),
        aborted.sync,
        lambda: aborted.find(Offset(0), Offset(9)),
        lambda: aborted.counts(Offset(9)),
        lambda: aborted.truncate_to(Offset(0)),
        lambda: log.start_points.put(Offset(5), b"", b""),
    ):
        with pytest.raises(ClosedLog):
            use()


@pytest.mark.parametrize("free_bytes", [0, 1, 2])
def test_a_directory_takes_room_and_one_that_is_there_does_not(disk: SimulatedDisk, free_bytes: int) -> None:
    leave(disk, free_bytes)
    others = [GROUP, *(GROUP._replace(partition=number) for number in (4, 5))]
    if free_bytes < 2 * SAVED_BYTES:
        with pytest.raises(DiskFull):
            disk.prepare(others)
    else:
        disk.prepare(others)
    disk.prepare([GROUP])


def test_a_segment_that_is_begun_by_hand_takes_room(disk: SimulatedDisk) -> None:
    log = disk.logs[GROUP]
    leave(disk, 0)
    with pytest.raises(DiskFull):
        log.roll()
    assert log.segments()[-1].size, "it goes on"
    leave(disk, SAVED_BYTES)
    assert list(log.roll()) == [COUNT] and list(log.roll()) == []
