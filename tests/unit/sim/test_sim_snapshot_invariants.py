"""The invariants about snapshots: each fails on a history that breaks it, and is silent on the one beside it that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlake.kv.commands import encode, put
from raftlake.kv.machine import StateMachine
from raftlake.ports.driver import BatchSpan
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP
from raftlake.sim.disk.observer import SilentObserver
from raftlake.sim.faults.faults import Settings
from raftlake.sim.invariants import Violation
from raftlake.sim.invariants.leader_never_loads_snapshot import LeaderNeverLoadsSnapshot
from raftlake.sim.invariants.snapshot_at_log_start import SnapshotAtLogStart
from raftlake.sim.invariants.snapshot_data import SnapshotData
from raftlake.wire.batches import Record, build_batch, leader_change_batch
from raftlake.wire.snapshots import data_batch, footer_batch, header_batch
from unit.sim.test_sim_invariants import GROUP, NODES, Disks


def at(offset: int, epoch: int = 1) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(offset), Epoch(epoch))


@pytest.fixture
def disks() -> Disks:
    return Disks()


def with_snapshots(disks: Disks, *snapshots: OffsetAndEpoch) -> None:
    disks.view = replace(disks.view, snapshots_of=lambda node_id, group: snapshots)


def test_a_log_start_without_a_snapshot_is_told(disks: Disks) -> None:
    with_snapshots(disks, at(3))
    invariant = SnapshotAtLogStart(disks.view)
    invariant.on_log_start(NODES[0], GROUP, 3, False)
    with pytest.raises(Violation, match=r"the log begins at 4, the snapshots are \[OffsetAndEpoch"):
        invariant.on_log_start(NODES[0], GROUP, 4, False)


def test_a_snapshot_that_a_crash_took_is_told(disks: Disks) -> None:
    disks.fill(5)
    disks.log(1).reset(at(5))
    with_snapshots(disks, at(5))
    invariant = SnapshotAtLogStart(disks.view)
    invariant.on_log_start(NODES[0], GROUP, 5, True)
    invariant.on_crash(NODES[0])
    with_snapshots(disks)
    invariant.view = disks.view
    with pytest.raises(Violation, match="the log begins at 5"):
        invariant.on_crash(NODES[0])


def test_a_leader_whose_log_begins_anew_is_told(disks: Disks) -> None:
    invariant = LeaderNeverLoadsSnapshot(disks.view)
    leader = disks.replica(1, epoch=3, leads=True)
    invariant.on_leader(leader)
    invariant.on_log_start(NODES[0], GROUP, 5, False)
    invariant.on_log_start(NODES[1], GROUP, 5, True)
    invariant.on_turn(leader)
    invariant.on_log_start(NODES[0], GROUP, 5, True)
    with pytest.raises(Violation, match="leads epoch 3 and its log began anew"):
        invariant.on_turn(leader)


def test_a_leader_that_gave_its_office_up_may_begin_anew(disks: Disks) -> None:
    invariant = LeaderNeverLoadsSnapshot(disks.view)
    leader = disks.replica(1, epoch=3, leads=True)
    invariant.on_leader(leader)
    invariant.on_log_start(NODES[0], GROUP, 5, True)
    leader.is_leader = False
    invariant.on_turn(leader)
    leader.is_leader, leader.epoch = True, 4
    invariant.on_leader(leader)
    invariant.on_turn(leader)


class Metadata:
    """A committed metadata log of one LeaderChange and two puts."""

    def __init__(self) -> None:
        self.disks = Disks()
        self.machine = StateMachine()
        log = self.disks.disks[NODES[0]].open(METADATA_GROUP)
        first = leader_change_batch(0, 1, -1, 1, (1,), (1,))
        log.append([first], [BatchSpan(0, 1, 1, -1, len(first))])
        self.machine.advance_to(1)
        for offset, value in ((1, b"old"), (2, b"new")):
            command = encode(put("k", value))
            batch = build_batch([Record(value=command)], base_offset=offset, leader_epoch=1, timestamp_ms=5)
            log.append([batch], [BatchSpan(offset, offset + 1, 1, 5, len(batch))])
            self.machine.apply(offset, command)
        assert self.disks.committed.of(METADATA_GROUP).extend(log, 3, 1)
        self.invariant = SnapshotData(self.disks.view, self.disks.committed)

    def snapshot(self, snapshot_id: OffsetAndEpoch) -> bytes:
        data = header_batch(snapshot_id.epoch, 5, 5)
        chunks = list(self.machine.snapshot())
        for offset, chunk in enumerate(chunks, 1):
            data += data_batch(offset, snapshot_id.epoch, 5, [chunk])
        return data + footer_batch(len(chunks) + 1, snapshot_id.epoch, 5)

    def judge(self, snapshot_id: OffsetAndEpoch) -> None:
        self.invariant.on_snapshot(NODES[0], METADATA_GROUP, snapshot_id, self.snapshot(snapshot_id))


def test_a_snapshot_of_the_committed_state_is_fine() -> None:
    metadata = Metadata()
    metadata.judge(at(3))
    metadata.judge(at(3))


def test_a_snapshot_that_is_of_another_offset_is_told() -> None:
    with pytest.raises(Violation, match=r"holds .*new.* the committed records make .*old"):
        Metadata().judge(at(2))


def test_a_snapshot_of_what_is_not_committed_is_told() -> None:
    with pytest.raises(Violation, match="committed is only what lies below 3"):
        Metadata().judge(at(4))


def test_a_snapshot_with_another_epoch_is_told() -> None:
    with pytest.raises(Violation, match="the last committed record before it has epoch 1"):
        Metadata().judge(at(3, 2))


def test_the_silent_observer_wants_nothing(disks: Disks) -> None:
    observer = SilentObserver()
    observer.log_start_moved(GROUP, 5, is_reset=True)
    observer.snapshot_finished(GROUP, at(5), b"")
    assert isinstance(disks.disks[NODES[0]].observer, SilentObserver)


def test_every_kind_of_snapshot_policy_is_drawn() -> None:
    drawn = [Settings.draw(seed) for seed in range(60)]
    assert {settings.snapshot_bytes_between for settings in drawn} == {500, 2_000, 10_000}
    assert {settings.snapshot_fetch_bytes_max for settings in drawn} == {100, 1_000, 1024 * 1024}
