"""The tier as a node sees it: open segments are closed in time, led partitions are copied, and their lag is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from copierkit import Keys, Tier
from enginekit import METADATA_GROUP, ORDERS, Ground, Noted
from raftlake.errors import DiskFull
from raftlake.kv.commands import Put, Txn
from raftlake.kv.keys import INCARNATION_KEY, tier_key
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.replica.disk.findings import Findings
from raftlake.replica.partition.retention import TableBounds
from raftlake.replica.quorum import Quorum
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.replica.tiering.tiering import BUSY_MAX, LATE_LAGS, LOOK_INTERVAL_MS, SEEN_MAX, Tiering
from raftlake.tier.entries import Tiered, encode_tiered
from raftlake.wire.ids import id_to_text


class World:
    def __init__(self, *, with_tier: bool = True, **settings: Any) -> None:
        self.ground = Ground(**{"tier_flush_bytes": 500, "tier_target_lag_ms": 10_000, **settings})
        self.keys, self.tier = Keys(), Tier()
        keys: Any = self.keys
        disk: Any = Noted()
        self.tiering = Tiering(
            self.ground.engine,
            kv=keys,
            quorum=Quorum(self.ground.engine),
            disk=disk,
            findings=Findings(self.ground.engine),
            remote_log=RemoteLog(self.ground.engine, keys, is_on=with_tier),
            tier=self.tier if with_tier else None,
        )

    def tick(self, later_ms: int = LOOK_INTERVAL_MS) -> None:
        self.ground.time.ms += later_ms
        self.ground.engine.begin_input()
        self.tiering.tick()


def group(index: int) -> GroupId:
    return GroupId("orders", index, ORDERS.topic_id)


def test_a_segment_is_closed_when_its_records_have_waited_for_half_of_the_lag() -> None:
    world = World()
    partition = world.ground.lead(ORDERS)
    world.tick()
    world.tick(4_000)
    assert len(partition.log.segments()) == 1
    world.tick(1_000)
    assert [segment.base_offset for segment in partition.log.segments()] == [0, 1]
    world.tick(20_000)
    assert len(partition.log.segments()) == 2, "an empty one is not closed"
    world.ground.append(partition, b"x")
    world.tick()
    world.tick(3_999)
    assert len(partition.log.segments()) == 2, "the wait begins with the last look at which it was empty"
    world.tick(1_000)
    assert len(partition.log.segments()) == 3
    for _ in range(20):
        world.tick()
    world.ground.append(partition, b"x")
    world.tick()
    assert len(partition.log.segments()) == 3, "not with the segment"


def test_a_closed_segment_whose_state_found_no_room_is_copied_without_another_append() -> None:
    """Simulator seed 809004282: the last segment of a partition waited for ever, for nothing more was appended."""
    world = World()
    partition = world.ground.lead(ORDERS)
    world.ground.append(partition, b"x" * 600)
    real = partition.log.start_points.save

    def refuse(*told: Any, **more: Any) -> None:
        raise DiskFull("no room")

    partition.log.start_points.save = refuse  # type: ignore[method-assign]
    world.tick()
    assert [segment.base_offset for segment in partition.log.segments()] == [0, 2]
    world.tick()
    assert world.keys.proposed == [], "a replica cannot begin there"
    partition.log.start_points.save = real  # type: ignore[method-assign]
    world.tick()
    world.keys.commit()
    assert [request.end_offset for request, _ in world.tier.copies] == [2]
    world.tick()
    assert partition.log.start_points.offsets == [2]


def test_a_large_segment_is_closed_at_once() -> None:
    world = World()
    partition = world.ground.lead(ORDERS)
    world.ground.append(partition, b"x" * 600)
    world.tick()
    assert len(partition.log.segments()) == 2


@pytest.mark.parametrize("how", ["resigns", "serves no longer"])
def test_a_node_that_does_not_serve_closes_segments_too_and_copies_nothing(how: str) -> None:
    world = World()
    partition = world.ground.lead(ORDERS)
    world.ground.append(partition, b"x" * 600)
    if how == "resigns":
        world.ground.engine.is_resigning = True
    else:
        partition.high_watermark = Offset(0)
        assert not partition.is_serving
    world.tick()
    assert len(partition.log.segments()) == 2 and world.keys.proposed == [] and world.tiering.statuses() == []


def test_the_quorums_own_log_is_left_alone() -> None:
    world = World()
    partition = world.ground.lead(METADATA_GROUP)
    world.tick()
    world.tick(60_000)
    assert len(partition.log.segments()) == 1 and world.tiering.statuses() == []


def test_without_a_tier_nothing_happens() -> None:
    world = World(with_tier=False)
    partition = world.ground.lead(ORDERS)
    world.tick()
    world.tick(60_000)
    assert len(partition.log.segments()) == 1 and world.tiering.table(partition) is None and world.tiering.warnings == ()


def test_a_led_partition_is_copied_and_what_is_read_back_may_be_deleted_here() -> None:
    world = World()
    partition = world.ground.lead(ORDERS)
    world.ground.append(partition, b"x" * 600)
    assert world.tiering.table(partition) == TableBounds(0, 0), "nothing of it may be deleted yet"
    world.tick()
    world.keys.commit()
    world.tier.copied()
    world.keys.commit()
    (status,) = world.tiering.statuses()
    assert (status.start_offset, status.copied_end, status.checked_end) == (0, 2, 0)
    assert world.tiering.table(partition) == TableBounds(0, 0), "it is copied, and not read back"
    world.tier.checked()
    world.keys.commit()
    assert world.tiering.table(partition) == TableBounds(0, 2)
    assert world.tiering.counts.checks == 1


def test_nothing_is_deleted_where_the_key_is_spoilt() -> None:
    world = World()
    partition = world.ground.lead(ORDERS)
    world.keys.apply(Txn((), (Put(tier_key(id_to_text(ORDERS.topic_id), 0), b"garbage"),)))
    assert world.tiering.table(partition) == TableBounds(0, partition.log.start_offset)
    world.ground.append(partition, b"x" * 600)
    world.tick()
    (status,) = world.tiering.statuses()
    assert status.copied_end is None and status.error is not None


def test_after_a_recovery_nothing_is_deleted_here_before_the_table_is_taken_over() -> None:
    """What was read back is of a history that the new leader may not share: its own records may be nowhere else."""
    world = World()
    partition = world.ground.lead(ORDERS)
    world.ground.append(partition, b"x" * 600)
    partition.roll()
    key = tier_key(id_to_text(ORDERS.topic_id), 0)
    lost = Tiered(start_offset=Offset(1), end_offset=Offset(9), checked_offset=Offset(9))
    world.keys.apply(Txn((), (Put(key, encode_tiered(lost)),)))
    assert world.tiering.table(partition) == TableBounds(1, 9)
    recovery = id_to_text(b"the-one-recovery")
    told = {"directoryId": recovery, "nodeId": 1, "epoch": 1001}
    world.keys.apply(Txn((), (Put(INCARNATION_KEY, json.dumps(told).encode()),)))
    assert world.tiering.table(partition) == TableBounds(0, partition.log.start_offset)
    own = Tiered(incarnation=1, recovery=recovery, start_offset=Offset(0), end_offset=Offset(2), checked_offset=Offset(2))
    world.keys.apply(Txn((), (Put(key, encode_tiered(own)),)))
    assert world.tiering.table(partition) == TableBounds(0, 2)


def test_while_the_table_is_changed_by_others_nothing_is_deleted_here() -> None:
    """What was read back may be gone from there."""
    world = World()
    partition = world.ground.lead(ORDERS)
    world.ground.append(partition, b"x" * 600)
    partition.roll()
    key = tier_key(id_to_text(ORDERS.topic_id), 0)
    held = Tiered(start_offset=Offset(1), end_offset=Offset(9), checked_offset=Offset(9), is_held=True)
    world.keys.apply(Txn((), (Put(key, encode_tiered(held)),)))
    assert world.tiering.table(partition) == TableBounds(1, 1)


def test_a_few_partitions_are_copied_at_a_time_those_that_waited_longest_first() -> None:
    world = World(tier_target_lag_ms=1_000_000)
    for index in range(BUSY_MAX + 1, -1, -1):
        world.ground.append(world.ground.lead(group(index)), b"x" * 600)
        world.tick()
    asked = [txn.compares[0].key.rpartition("/")[2] for txn, _ in world.keys.proposed]
    assert asked == [str(index) for index in range(BUSY_MAX + 1, 1, -1)]
    world.keys.commit()
    world.tier.copied()
    while world.keys.proposed:
        world.keys.commit()
    world.tick()
    assert world.keys.proposed == [], "one of them is read back"
    world.tier.checked()
    world.keys.commit()
    world.tick()
    assert [txn.compares[0].key.rpartition("/")[2] for txn, _ in world.keys.proposed] == ["1"]


def test_the_lag_is_the_age_of_the_oldest_record_that_is_not_copied() -> None:
    world = World(tier_target_lag_ms=1_000_000)
    partition = world.ground.lead(ORDERS)
    world.tick()
    world.tick(7_000)
    (status,) = world.tiering.statuses()
    assert (status.copied_end, status.high_watermark, status.lag_ms) == (0, 1, 7_000)
    world.ground.append(partition, b"new")
    world.tick(1_000)
    assert world.tiering.statuses()[0].lag_ms == 8_000
    copied = Tiered(start_offset=Offset(0), end_offset=Offset(1))
    world.keys.apply(Txn((), (Put(tier_key(id_to_text(ORDERS.topic_id), 0), encode_tiered(copied)),)))
    world.tick(1_000)
    assert world.tiering.statuses()[0].lag_ms == 1_000, "that of the second record"
    copied = Tiered(start_offset=Offset(0), end_offset=Offset(2))
    world.keys.apply(Txn((), (Put(tier_key(id_to_text(ORDERS.topic_id), 0), encode_tiered(copied)),)))
    world.tick(1_000)
    assert world.tiering.statuses()[0].lag_ms == 0


def test_the_times_that_are_kept_for_a_lag_are_bounded_and_the_oldest_stays() -> None:
    world = World(tier_target_lag_ms=1 << 40, tier_flush_bytes=1 << 40)
    partition = world.ground.lead(ORDERS)
    world.tick()
    began_ms = world.ground.time.ms
    for _ in range(3 * SEEN_MAX):
        world.ground.append(partition, b"x")
        world.tick()
    (watched,) = world.tiering._watched.values()
    assert len(watched.seen) <= SEEN_MAX
    assert world.tiering.statuses()[0].lag_ms == world.ground.time.ms - began_ms


@pytest.mark.parametrize("how", ["deleted", "new epoch", "resigns"])
def test_a_copier_ends_with_the_leadership_that_it_was_made_for(how: str) -> None:
    world = World()
    partition = world.ground.lead(ORDERS)
    world.ground.append(partition, b"x" * 600)
    world.tick()
    (watched,) = world.tiering._watched.values()
    led = watched.led
    assert led is not None
    match how:
        case "deleted":
            world.ground.engine.partitions.pop(ORDERS)
            world.ground.engine.forget(partition)
        case "new epoch":
            led.epoch = led.epoch - 1  # type: ignore[assignment]
            world.tick()
        case "resigns":
            world.ground.engine.is_resigning = True
            world.tick()
    world.keys.commit()
    assert world.tier.copies == [], "what it asked for is of no interest any more"
    assert len(world.tiering.statuses()) == (how == "new epoch")


@pytest.mark.parametrize(
    ("count", "named"), [(1, "orders-0: "), (2, "orders-0 and 1 more partition: "), (3, "orders-0 and 2 more partitions: ")]
)
def test_copies_that_cannot_keep_up_are_told(count: int, named: str) -> None:
    world = World()
    lag_ms = world.ground.engine.config.tier_target_lag_ms
    for index in range(count):
        # The first one waits longest.
        world.ground.append(world.ground.lead(group(index)), b"x" * 600)
        world.tick()
    longest_ms = LATE_LAGS * lag_ms + LOOK_INTERVAL_MS * (count - 1)
    world.tick(LATE_LAGS * lag_ms - LOOK_INTERVAL_MS * (count - 1))
    assert world.tiering.statuses()[0].lag_ms == LATE_LAGS * lag_ms and world.tiering.warnings == ()
    world.tick(LOOK_INTERVAL_MS * (count - 1) + 1)
    (warning,) = world.tiering.warnings
    assert warning.startswith(f"{named}copies to the tier are {longest_ms // 1000} s late and do not fail")
    assert f"tier.target.lag.ms={lag_ms}" in warning
    copied = Tiered(start_offset=Offset(0), end_offset=Offset(2), checked_offset=Offset(2))
    for index in range(count):
        world.keys.apply(Txn((), (Put(tier_key(id_to_text(ORDERS.topic_id), index), encode_tiered(copied)),)))
    world.tick()
    assert world.tiering.warnings == ()


def test_a_failing_copy_is_told_once_and_not_as_late() -> None:
    world = World()
    partition = world.ground.lead(ORDERS)
    world.ground.append(partition, b"x" * 600)
    world.keys.apply(Txn((), (Put(tier_key(id_to_text(ORDERS.topic_id), 0), b"spoilt"),)))
    for _ in range(3):
        world.tick(LATE_LAGS * world.ground.engine.config.tier_target_lag_ms)
    (warning,) = world.tiering.warnings
    assert "late" not in warning


def test_a_partition_with_an_error_is_looked_at_until_the_error_is_gone() -> None:
    """Nothing waits to be copied, and nothing else is due: only the look finds that the key is whole again."""
    world = World()
    partition = world.ground.lead(ORDERS)
    world.ground.append(partition, b"x" * 600)
    key = tier_key(id_to_text(ORDERS.topic_id), 0)
    world.keys.apply(Txn((), (Put(key, b"spoilt"),)))
    world.tick()
    assert world.tiering.statuses()[0].error is not None and world.tiering.warnings != ()
    whole = Tiered(start_offset=Offset(0), end_offset=Offset(2), checked_offset=Offset(2))
    world.keys.apply(Txn((), (Put(key, encode_tiered(whole)),)))
    world.tick()
    assert world.tiering.statuses()[0].error is None and world.tiering.warnings == ()
