"""The index of aborted transactions in memory: what a crash takes of it, port calls only for what changes, and a full disk."""

from __future__ import annotations

from random import Random

import pytest

from contract.batches import fill
from raftlake.errors import DiskFull, InvariantViolation
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.sim.disk.disk import MemoryLog, SimulatedDisk
from raftlake.wire.aborted_index import AbortedTransaction
from unit.sim.test_sim_log_store import QuietMachine

GROUP = GroupId("orders", 0, bytes(range(16)))
ENTRIES = [AbortedTransaction(1, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(5)]
END = Offset(1 << 40)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(QuietMachine())


@pytest.fixture
def log(disk: SimulatedDisk) -> MemoryLog:
    log = disk.open(GROUP)
    fill(log, 10)
    log.settle()
    return log


def calls_of(disk: SimulatedDisk) -> list[str]:
    assert isinstance(disk.machine, QuietMachine)
    return disk.machine.calls


def test_a_crash_takes_only_what_was_not_synced(log: MemoryLog) -> None:
    left = set()
    for seed in range(60):
        log.aborted.truncate_to(Offset(0))
        log.aborted.append(ENTRIES[:2])
        log.aborted.sync()
        log.aborted.append(ENTRIES[2:])
        log.crash(Random(seed))
        found = log.aborted.find(Offset(0), END)
        assert found == ENTRIES[: len(found)]
        left.add(len(found))
        log.crash(Random(seed + 1))
        assert log.aborted.find(Offset(0), END) == found, "recovery has synced it"
    assert left == {2, 3, 4, 5}


def test_a_crash_may_leave_entries_of_records_that_it_took(log: MemoryLog) -> None:
    """As a file system does: a start drops them."""
    fill(log, 2)
    log.aborted.append([AbortedTransaction(1, 10, 11, 12)])
    log.aborted.sync()
    seen = set()
    for seed in range(20):
        images = list(log.images)
        log.crash(Random(seed))
        seen.add((log.end_offset, len(log.aborted.find(Offset(0), END))))
        log._images, log._image = images, images[-1]
    assert (10, 0) in seen and (12, 1) in seen


def test_a_truncation_that_a_crash_takes_back_brings_the_entries_back(log: MemoryLog) -> None:
    log.aborted.append(ENTRIES)
    log.aborted.sync()
    log.truncate_to(Offset(4))
    assert log.aborted.find(Offset(0), END) == ENTRIES[:2]
    seen = set()
    for seed in range(20):
        images = list(log.images)
        log.crash(Random(seed))
        seen.add((log.end_offset, len(log.aborted.find(Offset(0), END))))
        log._images, log._image = images, images[-1]
    assert seen == {(10, 5), (4, 2)}


def test_a_log_without_transactions_draws_no_lots_and_makes_no_port_calls(disk: SimulatedDisk, log: MemoryLog) -> None:
    before = list(calls_of(disk))
    log.aborted.sync()
    log.aborted.truncate_to(Offset(0))
    assert log.aborted.counts(END) == () and log.aborted.agrees(END, ()) and log.aborted.find(Offset(0), END) == []
    assert calls_of(disk) == before


def test_changes_are_port_calls(disk: SimulatedDisk, log: MemoryLog) -> None:
    before = len(calls_of(disk))
    log.aborted.append(ENTRIES)
    log.aborted.sync()
    log.aborted.sync()
    log.aborted.truncate_to(Offset(3))
    assert [name.split()[0] for name in calls_of(disk)[before:]] == ["append", "sync", "truncate"]


def test_a_full_disk_takes_none_of_it(disk: SimulatedDisk, log: MemoryLog) -> None:
    disk.space.fill(40)
    with pytest.raises(DiskFull):
        log.aborted.append(ENTRIES[:2])
    assert log.aborted.find(Offset(0), END) == []
    log.aborted.append(ENTRIES[:1])
    assert log.aborted.find(Offset(0), END) == ENTRIES[:1]


@pytest.mark.parametrize("entries", [ENTRIES[::-1], [ENTRIES[0], ENTRIES[0]], [AbortedTransaction(1, 0, 10, 11)]])
def test_markers_out_of_order_or_not_in_the_log_are_our_own_mistake(log: MemoryLog, entries: list[AbortedTransaction]) -> None:
    with pytest.raises(InvariantViolation):
        log.aborted.append(entries)
