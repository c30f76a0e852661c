"""The simulated disk keeps the contracts of logs and election files, and loses at a crash only what it may lose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import cast

import pytest

from contract.aborted_index_contract import AbortedIndexContract
from contract.batches import data_of, fill, make_batch, read_all
from contract.election_store_contract import Disk, ElectionStoreContract
from contract.log_store_contract import SEGMENT_BYTES
from raftlake.errors import InvariantViolation, StorageError
from raftlake.ports.driver import ElectionStore, LogDirectory
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, Epoch, Offset, OffsetAndEpoch
from raftlake.replica.config import SEGMENT_BYTES as NODE_SEGMENT_BYTES
from raftlake.sim.disk.disk import MemoryLog, SimulatedDisk
from raftlake.sim.disk.log_image import Segments
from raftlake.sim.disk.power import SimulatedCrash

GROUP = GroupId("orders", 0, bytes(range(16)))


class QuietMachine:
    """Syncs when it is told to; crashes at the port call that it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.crash_at = -1
        self.flushes: list[Callable[[], None]] = []
        self.failures: list[Callable[[], None]] = []

    def port_call(self, name: str) -> None:
        if len(self.calls) == self.crash_at:
            raise SimulatedCrash(name)
        self.calls.append(name)

    def flush_later(self, complete: Callable[[], None], fail: Callable[[], None]) -> None:
        self.flushes.append(complete)
        self.failures.append(fail)

    def settle(self) -> None:
        flushes, self.flushes = self.flushes, []
        for complete in flushes:
            complete()


def machine_of(directory: object) -> QuietMachine:
    return cast(QuietMachine, cast(SimulatedDisk, directory).machine)


class TestMemoryLog(AbortedIndexContract):
    def open_directory(self, place: Path) -> SimulatedDisk:
        return SimulatedDisk(QuietMachine(), segment_bytes=SEGMENT_BYTES)

    def limit_of(self, segment_bytes: int) -> int:
        """The disk is small, and makes what it is told as much smaller."""
        return -(-segment_bytes * NODE_SEGMENT_BYTES // SEGMENT_BYTES)

    def restart(self, directory: LogDirectory) -> LogDirectory:
        """By power loss: the contract's restarts come after a flush, so nothing may be missing."""
        cast(SimulatedDisk, directory).crash(Random(7))
        return directory

    def settle(self, directory: LogDirectory) -> None:
        machine_of(directory).settle()

    def close(self, directory: LogDirectory) -> None:
        """Nothing to close."""


class TestMemoryElections(ElectionStoreContract):
    def open_disk(self, place: Path) -> Disk:
        disk = SimulatedDisk(QuietMachine())
        return Disk(disk, disk)

    def restart(self, disk: Disk) -> Disk:
        cast(SimulatedDisk, disk.logs).crash(Random(7))
        return disk

    def close(self, disk: Disk) -> None:
        """Nothing to close."""

    def forget(self, disk: Disk, group: GroupId) -> None:
        del cast(SimulatedDisk, disk.elections).elections[group]


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(QuietMachine())


def flush(disk: SimulatedDisk) -> None:
    disk.flush(list(disk.logs.values()), lambda error: None)
    machine_of(disk).settle()


def crashes(make: Callable[[], SimulatedDisk], runs: int = 60) -> list[SimulatedDisk]:
    """The same disk after many different crashes."""
    disks = []
    for seed in range(runs):
        disk = make()
        disk.crash(Random(seed))
        disks.append(disk)
    return disks


def test_a_crash_keeps_the_synced_part_and_any_prefix_of_the_rest() -> None:
    def make() -> SimulatedDisk:
        disk = SimulatedDisk(QuietMachine())
        log = disk.open(GROUP)
        fill(log, 3)
        flush(disk)
        fill(log, 4)
        return disk

    ends = {int(disk.open(GROUP).end_offset) for disk in crashes(make)}
    assert ends == {3, 4, 5, 6, 7}


def test_what_survived_one_crash_survives_the_next() -> None:
    disk = SimulatedDisk(QuietMachine())
    log = disk.open(GROUP)
    fill(log, 5)
    disk.crash(Random(1))
    end = log.end_offset
    for seed in range(40):
        disk.crash(Random(seed))
        assert log.end_offset == end == log.durable_end


def test_a_flush_covers_only_what_was_appended_before_it_began(disk: SimulatedDisk) -> None:
    log = disk.open(GROUP)
    fill(log, 2)
    disk.flush([log], lambda error: None)
    fill(log, 2)
    assert log.durable_end == 0
    machine_of(disk).settle()
    assert log.durable_end == 2


def test_an_unsynced_truncation_leaves_the_old_or_the_new_log() -> None:
    def make() -> SimulatedDisk:
        disk = SimulatedDisk(QuietMachine())
        log = disk.open(GROUP)
        fill(log, 6, epoch=1)
        flush(disk)
        log.truncate_to(Offset(2))
        fill(log, 3, epoch=2)
        return disk

    found = {
        (int(disk.open(GROUP).end_offset), tuple((int(e), int(o)) for e, o in disk.open(GROUP).epochs))
        for disk in crashes(make)
    }
    old, new = (6, ((1, 0),)), {(2, ((1, 0),))} | {(2 + more, ((1, 0), (2, 2))) for more in (1, 2, 3)}
    assert found == {old} | new


def test_a_flush_that_began_before_a_truncation_syncs_nothing_behind_it(disk: SimulatedDisk) -> None:
    """The write ABA of etcd's async_storage_writes_append_aba_race: the sync is about bytes that are gone."""
    log = disk.open(GROUP)
    fill(log, 5, epoch=1)
    disk.flush([log], lambda error: None)
    log.truncate_to(Offset(1))
    fill(log, 4, epoch=2)
    machine_of(disk).settle()
    assert log.durable_end == 1
    flush(disk)
    assert log.durable_end == 5


def test_a_synced_reset_never_brings_the_old_log_back() -> None:
    def make() -> SimulatedDisk:
        disk = SimulatedDisk(QuietMachine())
        log = disk.open(GROUP)
        fill(log, 6)
        log.reset(OffsetAndEpoch(Offset(40), Epoch(3)))
        flush(disk)
        return disk

    assert {int(disk.open(GROUP).start_offset) for disk in crashes(make)} == {40}


def test_a_batch_is_surely_held_only_when_it_is_synced_in_every_possible_log(disk: SimulatedDisk) -> None:
    log = disk.open(GROUP)
    fill(log, 2, epoch=1)
    first, second = log.batches
    assert not log.surely_holds(first)
    flush(disk)
    assert log.surely_holds(first) and log.surely_holds(second)
    log.truncate_to(Offset(1))
    fill(log, 1, epoch=2)
    replaced = log.batches[1]
    flush(disk)
    assert log.surely_holds(first) and log.surely_holds(replaced)
    assert not log.surely_holds(second)


def test_bytes_that_recovery_would_cut_are_refused(disk: SimulatedDisk) -> None:
    log = disk.open(GROUP)
    data, span = make_batch(0)
    damaged = bytearray(data)
    damaged[-1] ^= 1
    with pytest.raises(InvariantViolation, match="CRC"):
        log.append([damaged], [span])
    late, _ = make_batch(5)
    with pytest.raises(InvariantViolation, match="header"):
        log.append([late], [span])


def test_an_election_state_is_durable_when_save_returns(disk: SimulatedDisk) -> None:
    state = ElectionState(epoch=Epoch(4))
    disk.save({GROUP: state})
    disk.crash(Random(3))
    assert disk.load(GROUP) == state


def test_a_crash_may_fall_between_two_election_files(disk: SimulatedDisk) -> None:
    other = GroupId("orders", 1, bytes(range(16)))
    machine_of(disk).crash_at = 1
    with pytest.raises(SimulatedCrash):
        disk.save({GROUP: ElectionState(epoch=Epoch(4)), other: ElectionState(epoch=Epoch(4))})
    assert disk.load(GROUP) == ElectionState(epoch=Epoch(4))
    assert disk.load(other) is None


def test_a_failed_sync_is_reported_and_syncs_nothing(disk: SimulatedDisk) -> None:
    log = disk.open(GROUP)
    fill(log, 2)
    errors: list[StorageError | None] = []
    disk.flush([log], errors.append)
    machine_of(disk).failures[0]()
    assert len(errors) == 1 and isinstance(errors[0], StorageError)
    assert log.durable_end == 0


def test_a_crash_at_a_port_call_comes_before_its_effect(disk: SimulatedDisk) -> None:
    log = disk.open(GROUP)
    batches = fill(log, 1)
    machine_of(disk).crash_at = len(machine_of(disk).calls)
    with pytest.raises(SimulatedCrash):
        fill(log, 1)
    assert read_all(log) == data_of(batches)


def test_the_disk_is_both_ports(disk: SimulatedDisk) -> None:
    logs: LogDirectory = disk
    elections: ElectionStore = disk
    assert logs.groups() == [] and elections.load(GROUP) is None


def require_segments(log: MemoryLog, segment_bytes: int) -> None:
    """They are worked out anew as they are remembered, cover the log, and are no larger than one batch has to be."""
    found = log.segments()
    assert found == Segments().of(log._image)
    assert [each.base_offset for each in found] == [log.start_offset, *(each.end_offset for each in found[:-1])]
    assert found[-1].end_offset == log.end_offset
    for each in found:
        within = [len(batch.data) for batch in log.batches if each.base_offset <= batch.base < each.end_offset]
        assert each.size == sum(within)
        assert each.size <= segment_bytes or len(within) == 1


@pytest.mark.parametrize("seed", range(8))
def test_segments_follow_every_change_of_the_log(seed: int) -> None:
    rng = Random(seed)
    disk = SimulatedDisk(QuietMachine(), segment_bytes=700)
    log = disk.open(GROUP)
    epoch = 1
    for _ in range(150):
        match rng.randrange(12):
            case 0:
                epoch += 1
                log.truncate_to(Offset(rng.choice([log.start_offset, *(batch.end for batch in log.batches)])))
            case 1:
                log.advance_start(Offset(rng.randrange(log.start_offset, log.end_offset + 1)))
            case 2:
                disk.crash(rng)
            case 3 if rng.randrange(4) == 0:
                log.reset(OffsetAndEpoch(Offset(log.end_offset + 5), Epoch(epoch)))
            case _:
                fill(log, rng.randrange(4), epoch=epoch, size=rng.randrange(1, 400))
        if rng.randrange(3):
            require_segments(log, 700)
