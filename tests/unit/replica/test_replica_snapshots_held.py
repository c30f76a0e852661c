"""Which snapshots stay because replicas are fetching them, and for how long."""

from __future__ import annotations

from enginekit import METADATA_GROUP, ORDERS, Ground
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.replica.snapshots.held import HELD_MAX, HELD_MS_MAX, IDLE_MS_MAX, HeldSnapshots


def snapshot(offset: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(offset), Epoch(1))


class World:
    def __init__(self) -> None:
        self.ground = Ground()
        self.held = HeldSnapshots(self.ground.engine)

    def later(self, ms: int) -> None:
        self.ground.time.ms += ms
        self.ground.engine.begin_input()


def test_a_snapshot_is_held_until_no_piece_is_asked_for_any_more() -> None:
    world, ids = World(), [snapshot(1), snapshot(2)]
    assert world.held.of(METADATA_GROUP, ids) == []
    world.held.note(METADATA_GROUP, snapshot(1))
    world.later(IDLE_MS_MAX - 1)
    assert world.held.of(METADATA_GROUP, ids) == [snapshot(1)] and world.held.of(ORDERS, ids) == []
    world.held.note(METADATA_GROUP, snapshot(1))
    world.later(IDLE_MS_MAX - 1)
    assert world.held.of(METADATA_GROUP, ids) == [snapshot(1)]
    world.later(1)
    assert world.held.of(METADATA_GROUP, ids) == []


def test_no_snapshot_is_held_for_good() -> None:
    world = World()
    while world.ground.time.ms < HELD_MS_MAX - IDLE_MS_MAX // 2:
        world.held.note(METADATA_GROUP, snapshot(1))
        assert world.held.of(METADATA_GROUP, [snapshot(1)]) == [snapshot(1)]
        world.later(IDLE_MS_MAX // 2)
    world.held.note(METADATA_GROUP, snapshot(1))
    world.later(IDLE_MS_MAX // 2)
    world.held.note(METADATA_GROUP, snapshot(1))
    assert world.held.of(METADATA_GROUP, [snapshot(1)]) == []


def test_the_newest_of_many_are_held() -> None:
    world, ids = World(), [snapshot(offset) for offset in range(1, HELD_MAX + 3)]
    for each in ids:
        world.held.note(METADATA_GROUP, each)
    assert world.held.of(METADATA_GROUP, ids) == ids[-HELD_MAX:]


def test_what_is_deleted_is_forgotten() -> None:
    world = World()
    world.held.note(METADATA_GROUP, snapshot(1))
    world.held.note(ORDERS, snapshot(1))
    assert world.held.of(METADATA_GROUP, [snapshot(2)]) == []
    assert list(world.held._readings) == [(ORDERS, snapshot(1))]
