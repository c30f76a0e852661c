"""The snapshot of a partition: voters or producers that are not those of the committed records are told."""

from __future__ import annotations

import pytest

from enginekit import ORDERS
from raftkit.replica import position, voter_set
from raftlake.ports.driver import BatchSpan
from raftlake.raft.types import NodeId, Offset, VoterEndpoint, VoterSet
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.partition.producer_state import ProducerStates
from raftlake.replica.partition.snapshot_files import SnapshotMaker, write_producers
from raftlake.replica.partition.start_points import KnownProducers
from raftlake.replica.partition.voter_log import entries_of
from raftlake.sim.invariants import Violation
from raftlake.sim.invariants.partition_snapshot import PartitionSnapshot
from raftlake.wire import producer_snapshot
from raftlake.wire.batches import Record, build_batch, iterate_headers, leader_change_batch
from raftlake.wire.producer_snapshot import ProducerRow
from transactionkit import data_batch, marker_batch
from unit.sim.test_sim_invariants import NODES, Disks


def voters(*ids: int) -> VoterSet:
    return VoterSet(voter_set(ids).voters, {NodeId(each): (VoterEndpoint("P", "h", 9000 + each),) for each in ids})


class World:
    """A committed log: the first leader with three voters (offsets 0 to 2), then two batches of one producer (3 and 4)."""

    def __init__(self) -> None:
        disks = Disks()
        log = disks.disks[NODES[0]].open(ORDERS)
        first = leader_change_batch(0, 1, -1, 1, (1, 2, 3), (1, 2), entries_of(voters(1, 2, 3)))
        log.append([first], [BatchSpan(0, 3, 1, -1, len(first))])
        for sequence, offset in ((0, 3), (1, 4)):
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            batch = build_batch([Record(value=b"v")], base_offset=offset, leader_epoch=1, timestamp_ms=5, **fields)
            log.append([batch], [BatchSpan(offset, offset + 1, 1, 5, len(batch))])
        assert disks.committed.of(ORDERS).extend(log, 5, 1)
        self.invariant = PartitionSnapshot(disks.view, disks.committed)

    def judge(self, offset: int, found: VoterSet | None, producers: KnownProducers | None) -> None:
        written = bytearray()
        maker = SnapshotMaker(_Writer(written), position(offset, 1), found, 5, 5)
        for _ in write_producers(maker, producers):
            pass
        self.invariant.on_snapshot(NODES[0], ORDERS, position(offset, 1), bytes(written))


class _Writer:
    backlog = 0

    def __init__(self, written: bytearray) -> None:
        self._written = written
        self.size = 0

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._written += data

    def freeze(self, done: object) -> None: ...

    def abandon(self) -> None: ...


def known(*sequences: int, has_forgotten: bool = False, seen_ms: int = 900) -> KnownProducers:
    states = ProducerStates()
    for sequence in sequences:
        states.record(7, 0, sequence, 1, Offset(3 + sequence), seen_ms)
    return KnownProducers(producer_snapshot.encode_packed(states.packed(Offset(99))), has_forgotten)


def test_what_the_records_before_it_say_is_fine() -> None:
    world = World()
    for offset, sequences in ((5, (0, 1)), (4, (0,)), (3, ()), (5, (0, 1))):
        world.judge(offset, voters(1, 2, 3), known(*sequences, seen_ms=offset))


@pytest.mark.parametrize("found", [None, voters(1, 2)])
def test_other_voters_are_told(found: VoterSet | None) -> None:
    with pytest.raises(Violation, match="names the voters"):
        World().judge(5, found, known(0, 1))


@pytest.mark.parametrize("sequences", [(), (0,), (1,), (0, 1, 2)])
def test_other_producers_are_told(sequences: tuple[int, ...]) -> None:
    with pytest.raises(Violation, match="tells of"):
        World().judge(5, voters(1, 2, 3), known(*sequences))


def test_a_node_that_knows_that_it_does_not_know_is_right() -> None:
    world = World()
    world.judge(5, voters(1, 2, 3), None)
    world.judge(5, voters(1, 2, 3), known(1, has_forgotten=True))


def test_the_snapshots_of_the_quorums_own_log_are_judged_elsewhere() -> None:
    World().invariant.on_snapshot(NODES[0], METADATA_GROUP, position(5, 1), b"")


class Transactional(World):
    """Behind the two batches: an open transaction of 8 (offset 5), and one of 7 that a marker of a higher epoch ends (6, 7)."""

    def __init__(self) -> None:
        disks = Disks()
        log = disks.disks[NODES[0]].open(ORDERS)
        first = leader_change_batch(0, 1, -1, 1, (1, 2, 3), (1, 2), entries_of(voters(1, 2, 3)))
        log.append([first], [BatchSpan(0, 3, 1, -1, len(first))])
        for batch in (
            data_batch(7, 0, base_offset=3, transactional=False),
            data_batch(8, 0, base_offset=4),
            data_batch(7, 1, base_offset=5),
            marker_batch(7, epoch=1, base_offset=6),
        ):
            (header,) = iterate_headers(batch)
            log.append([batch], [BatchSpan(header.base_offset, header.end_offset, 1, 1, len(batch))])
        assert disks.committed.of(ORDERS).extend(log, 7, 1)
        self.invariant = PartitionSnapshot(disks.view, disks.committed)


def told_of_transactions(*, coordinator_epoch: int = 3, opened_at: int = 4) -> KnownProducers:
    rows = [ProducerRow(7, 1, -1, -1, 0, 9, coordinator_epoch, -1), ProducerRow(8, 0, 0, 4, 0, 9, -1, opened_at)]
    return KnownProducers(producer_snapshot.encode(rows), has_forgotten=False)


def test_transactions_are_those_of_the_records() -> None:
    Transactional().judge(7, voters(1, 2, 3), told_of_transactions())


@pytest.mark.parametrize("wrong", [{"coordinator_epoch": -1}, {"opened_at": -1}, {"opened_at": 3}])
def test_other_transactions_are_told(wrong: dict[str, int]) -> None:
    with pytest.raises(Violation, match="tells of"):
        Transactional().judge(7, voters(1, 2, 3), told_of_transactions(**wrong))
