"""The simulated disk keeps the snapshot contract, and a crash takes only what no freeze has finished."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import cast

from contract.snapshot_store_contract import GROUP, SnapshotStoreContract, snapshot_id
from raftlake.errors import StorageError
from raftlake.ports.driver import LogDirectory
from raftlake.sim.disk.disk import SimulatedDisk
from raftlake.sim.disk.snapshot_store import SimulatedSnapshots
from unit.sim.test_sim_log_store import QuietMachine


class TestMemorySnapshots(SnapshotStoreContract):
    def open_directory(self, place: Path) -> SimulatedDisk:
        return SimulatedDisk(QuietMachine())

    def restart(self, directory: LogDirectory) -> LogDirectory:
        cast(SimulatedDisk, directory).crash(Random(7))
        return directory

    def settle(self, directory: LogDirectory) -> None:
        cast(QuietMachine, cast(SimulatedDisk, directory).machine).settle()

    def close(self, directory: LogDirectory) -> None:
        """Nothing to close."""


def test_a_crash_before_the_sync_takes_the_snapshot() -> None:
    machine = QuietMachine()
    store = SimulatedSnapshots(machine)
    heard: list[StorageError | None] = []
    writer = store.create(GROUP, snapshot_id(5, 1))
    writer.append(b"content")
    writer.freeze(heard.append)
    store.crash(Random(1))
    machine.settle()
    assert list(store.ids(GROUP)) == [] and heard == []


def test_a_crash_may_bring_a_deleted_snapshot_back() -> None:
    outcomes = []
    for seed in range(8):
        machine = QuietMachine()
        store = SimulatedSnapshots(machine)
        writer = store.create(GROUP, snapshot_id(5, 1))
        writer.append(b"content")
        writer.freeze(lambda error: None)
        machine.settle()
        store.delete(GROUP, snapshot_id(5, 1))
        assert list(store.ids(GROUP)) == []
        store.crash(Random(seed))
        outcomes.append(list(store.ids(GROUP)))
    assert [] in outcomes and [snapshot_id(5, 1)] in outcomes


def test_a_failed_sync_is_told_and_leaves_nothing() -> None:
    machine = QuietMachine()
    store = SimulatedSnapshots(machine)
    heard: list[StorageError | None] = []
    store.create(GROUP, snapshot_id(5, 1)).freeze(heard.append)
    machine.failures[0]()
    assert isinstance(heard[0], StorageError)
    assert list(store.ids(GROUP)) == []


def test_what_has_arrived_of_snapshots_counts_until_they_are_finished_or_given_up() -> None:
    machine = QuietMachine()
    store = SimulatedSnapshots(machine)
    first, second = (store.create(GROUP, snapshot_id(offset, 1)) for offset in (5, 9))
    first.append(b"content")
    second.append(b"other")
    assert store.unfinished_bytes == 12
    first.freeze(lambda error: None)
    machine.settle()
    assert store.unfinished_bytes == 5
    store.create(GROUP, snapshot_id(9, 1)).append(b"it")
    assert store.unfinished_bytes == 2
    store.create(GROUP, snapshot_id(9, 1)).append(b"anew")
    store.create(GROUP, snapshot_id(11, 1)).abandon()
    assert store.unfinished_bytes == 4
    store.crash(Random(1))
    assert store.unfinished_bytes == 0
