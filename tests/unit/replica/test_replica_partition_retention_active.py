"""Retention by time and the active segment: a topic that fills no segment loses its old records too, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from enginekit import ORDERS, Ground, Noted
from raftlake.errors import DiskFull, ErrorCode
from raftlake.ports.driver import LogStore, SegmentInfo
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import FIRST_OFFSET, NodeId, Offset
from raftlake.replica.config import Endpoint, NodeConfig
from raftlake.replica.configs.in_force import in_force
from raftlake.replica.disk.findings import Findings
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.retention import Kept, TableBounds, kept_here, wants_roll
from raftlake.replica.producer_care import ProducerCare
from raftlake.replica.turn.housekeeping import ROLLS_MAX, Housekeeping
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import decode_records
from raftlake.wire.producer_snapshot import decode
from replica_cluster import Cluster, batch, produce_request

ROUND_MS = 500
KEPT_MS = 5_000
NOW_MS = 100_000
OLD, YOUNG = NOW_MS - 1_001, NOW_MS - 1_000


def kept_by(**settings: int) -> Kept:
    """What a node with a remote tier keeps on its disk."""
    here = Endpoint("127.0.0.1", 9092)
    node = NodeConfig(node_id=NodeId(1), voters={NodeId(1): here}, listener=here, **settings)  # type: ignore[arg-type]
    return kept_here(in_force({}, node), is_tiered=True)


def segments(*times_ms: int, size: int = 100) -> list[SegmentInfo]:
    """Of ten offsets each; `size` is that of the active one."""
    found = [SegmentInfo(Offset(10 * i), Offset(10 * i + 10), 100, time_ms) for i, time_ms in enumerate(times_ms)]
    return [*found[:-1], SegmentInfo(found[-1].base_offset, found[-1].end_offset, size, times_ms[-1])]


# --- the rule -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times_ms", "wanted"),
    [
        ((OLD,), True),
        ((YOUNG,), False),
        ((OLD, OLD), True),
        ((OLD, YOUNG), False),
        ((YOUNG, OLD), False),
        ((OLD, YOUNG, OLD), False),
        ((NOW_MS + 5_000,), False),
        ((-1, OLD), True),
        ((OLD, -1), False),
        ((-1,), False),
    ],
)
def test_the_active_segment_is_closed_where_every_record_of_the_log_is_old(times_ms: tuple[int, ...], wanted: bool) -> None:
    assert wants_roll(segments(*times_ms), kept_by(retention_ms=1_000), NOW_MS, 1_000) == wanted


def test_an_empty_segment_and_no_segment_are_not_closed() -> None:
    kept = kept_by(retention_ms=1_000)
    assert not wants_roll(segments(OLD, OLD, size=0), kept, NOW_MS, 1_000)
    assert not wants_roll([], kept, NOW_MS, 1_000)


@pytest.mark.parametrize(("below", "wanted"), [(19, False), (20, True), (21, True)])
def test_what_is_not_committed_keeps_the_active_segment_open(below: int, wanted: bool) -> None:
    assert wants_roll(segments(OLD, OLD), kept_by(retention_ms=1_000), NOW_MS, below) == wanted


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, False),
        ({"retention_bytes": 0}, False),
        ({"retention_ms": 2_000, "local_retention_ms": 1_000}, True),
        ({"retention_ms": 2_000, "local_retention_ms": 3_000}, False),
        ({"retention_ms": 1_000, "retention_bytes": 1 << 30}, True),
        ({"retention_ms": 0}, True),
    ],
)
def test_only_what_local_disks_keep_by_time_closes_it(settings: dict[str, int], wanted: bool) -> None:
    assert wants_roll(segments(OLD, OLD), kept_by(**settings), NOW_MS, 1_000) == wanted


def test_what_total_retention_has_ended_counts_as_gone() -> None:
    kept = kept_by(retention_ms=1_000)
    assert not wants_roll(segments(YOUNG, OLD), kept, NOW_MS, 1_000)
    assert wants_roll(segments(YOUNG, OLD), kept, NOW_MS, 1_000, 10)


# --- clusters -------------------------------------------------------------------------------------------------------------


def new_cluster(**settings: Any) -> tuple[Cluster, GroupId]:
    cluster = Cluster(3, retention_check_interval_ms=ROUND_MS, retention_ms=KEPT_MS, **settings)
    (group,) = cluster.create_topic("t")
    return cluster, group


def write(cluster: Cluster, group: GroupId, value: bytes, age_ms: int = 0, **fields: Any) -> int:
    """The offset of a record of that age."""
    wall_ms = cluster.leader(group).engine.clock.wall_ms()
    made = cluster.produce(group, batch(value, timestamp_ms=wall_ms - age_ms, **fields))
    assert made.error is ErrorCode.NONE
    return made.base_offset


def starts(cluster: Cluster, group: GroupId) -> set[int]:
    return {node.partitions[group].log.start_offset for node in cluster.nodes.values()}


def restart(cluster: Cluster) -> None:
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
        cluster.start(node_id)


def test_a_topic_that_fills_no_segment_loses_its_old_records_and_goes_on() -> None:
    cluster, group = new_cluster()
    for number in range(3):
        end = write(cluster, group, b"%d" % number) + 1
    cluster.run(KEPT_MS - ROUND_MS)
    assert starts(cluster, group) == {0}, "not before its time"
    cluster.run(4 * ROUND_MS)
    assert starts(cluster, group) == {end}
    for node in cluster.nodes.values():
        log = node.partitions[group].log
        assert (log.end_offset, [segment.size for segment in log.segments()]) == (end, [0])
    assert cluster.fetch(cluster.leader(group), group, end - 1).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert write(cluster, group, b"next") == end
    result = cluster.fetch(cluster.leader(group), group, end)
    assert (result.log_start_offset, [record.value for record in decode_records(result.records)]) == (end, [b"next"])


def test_an_old_record_stays_in_front_of_one_that_is_young() -> None:
    cluster, group = new_cluster()
    write(cluster, group, b"old", age_ms=60_000)
    write(cluster, group, b"young")
    cluster.run(3 * ROUND_MS)
    assert starts(cluster, group) == {0}


def test_a_log_that_went_as_a_whole_survives_restarts_and_elections_which_delete_nothing_more() -> None:
    """The records of new leaders have no time: a log of such records alone would be deleted over and over."""
    cluster, group = new_cluster()
    end = write(cluster, group, b"a", age_ms=60_000) + 1
    cluster.run(4 * ROUND_MS)
    for _ in range(2):
        restart(cluster)
        cluster.leader(group)
        cluster.run(6 * ROUND_MS)
        assert starts(cluster, group) == {end}
    assert len({node.partitions[group].log.end_offset for node in cluster.nodes.values()}) == 1
    offset = write(cluster, group, b"b", age_ms=60_000)
    assert offset > end
    cluster.run(4 * ROUND_MS)
    assert starts(cluster, group) == {offset + 1}, "they grow old with what stands behind them"


def test_a_producer_is_known_when_all_of_its_records_are_gone() -> None:
    cluster, group = new_cluster()
    fields = {"producer_id": 7, "producer_epoch": 0}
    first = write(cluster, group, b"a", 60_000, base_sequence=0, **fields)
    cluster.run(4 * ROUND_MS)
    assert starts(cluster, group) == {first + 1}
    for _ in range(2):
        assert write(cluster, group, b"a", 60_000, base_sequence=0, **fields) == first, "a repetition"
        restart(cluster)
        cluster.leader(group)
    assert write(cluster, group, b"b", base_sequence=1, **fields) > first


def test_a_follower_that_was_away_begins_behind_what_is_gone() -> None:
    cluster, group = new_cluster()
    away = cluster.followers(group)[0].config.node_id
    cluster.stop(away)
    for _ in range(3):
        end = write(cluster, group, b"a", age_ms=60_000) + 1
    cluster.run(4 * ROUND_MS)
    assert starts(cluster, group) == {end}
    node = cluster.start(away)
    cluster.run(5_000, until=lambda: group in node.partitions and node.partitions[group].log.start_offset == end)
    offset = write(cluster, group, b"next")
    cluster.run(5_000, until=lambda: node.partitions[group].high_watermark > offset)
    assert [record.value for record in decode_records(cluster.fetch(node, group, offset).records)] == [b"next"]


def test_a_leader_that_is_cut_off_keeps_what_is_not_committed() -> None:
    cluster, group = new_cluster()
    leader = cluster.leader(group)
    write(cluster, group, b"a", age_ms=60_000)
    cluster.cut(leader.config.node_id)
    cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"b", timestamp_ms=1)))
    cluster.run(3 * ROUND_MS)
    log = leader.partitions[group].log
    assert (log.start_offset, len(log.segments())) == (0, 1) and leader.fatal is None


def test_a_log_is_not_trimmed_before_its_producers_are_saved() -> None:
    """Simulator, seeds 860001292 and 873000095: the disk had no room for them, a start forgot them, and a batch that came again
    was appended a second time."""
    cluster, group = new_cluster()
    write(cluster, group, b"a", age_ms=60_000, producer_id=7, producer_epoch=0, base_sequence=0)
    savers = [fill(node.partitions[group].log) for node in cluster.nodes.values()]
    cluster.run(3 * ROUND_MS)
    assert starts(cluster, group) == {0}
    for make_room in savers:
        make_room()
    cluster.run(3 * ROUND_MS)
    for node in cluster.nodes.values():
        partition = node.partitions[group]
        assert partition.log.start_offset == partition.log.end_offset > 0
        known = partition.producers_at(partition.log.start_offset)
        assert known is not None and not known.has_forgotten
        assert [row.producer_id for row in decode(known.encoded)] == [7]


def fill(log: LogStore) -> Callable[[], None]:
    """The disk has no room for a point before what is returned was called."""
    save = log.start_points.save

    def refuse(offset: Offset, producers: bytes, notes: bytes, *, sync: bool = True) -> None:
        raise DiskFull("no room")

    def make_room() -> None:
        log.start_points.save = save  # type: ignore[method-assign]

    log.start_points.save = refuse  # type: ignore[method-assign]
    return make_room


# --- one round alone ------------------------------------------------------------------------------------------------------


class House:
    """Rounds of retention over partitions that this node leads, all of whose records are old by now."""

    def __init__(self, count: int, table: TableBounds | None = None) -> None:
        self.ground = Ground(retention_check_interval_ms=1_000, retention_ms=100, local_retention_ms=100)
        self.partitions = [self.ground.lead(ORDERS._replace(partition=index)) for index in range(count)]
        for partition in self.partitions:
            self.ground.append(partition, b"a")
        self.disk, self.snapshots = Noted(), Noted()
        Housekeeping(
            self.ground.engine,
            disk=self.disk,  # type: ignore[arg-type]
            findings=Findings(self.ground.engine),
            producers=ProducerCare(self.ground.engine),
            scrub=Noted(),  # type: ignore[arg-type]
            snapshots=self.snapshots,  # type: ignore[arg-type]
            ticking=[],
            table=lambda partition: table,
            adopted_start=lambda partition: FIRST_OFFSET,
        ).run()

    def round(self) -> list[Partition]:
        """Which partitions are trimmed."""
        self.snapshots.calls.clear()
        self.ground.run(1_000)
        return [given[0] for name, given in self.snapshots.calls if name == "trim"]


def test_a_round_closes_a_few_segments_and_the_next_ones_the_others() -> None:
    house = House(2 * ROLLS_MAX + 1)
    assert house.round() == house.partitions[:ROLLS_MAX]
    assert house.round() == house.partitions[: 2 * ROLLS_MAX]
    assert house.round() == house.partitions
    assert all(len(partition.log.segments()) == 2 for partition in house.partitions), "each once"


@pytest.mark.parametrize(("safe", "is_closed"), [(0, False), (1, False), (2, True)])
def test_with_a_tier_only_what_the_table_gave_back_is_closed(safe: int, is_closed: bool) -> None:
    house = House(1, TableBounds(start=0, safe=safe))
    assert house.round() == house.partitions * is_closed
    assert len(house.partitions[0].log.segments()) == 1 + is_closed


def test_a_disk_without_room_for_another_segment_is_told_and_asked_again() -> None:
    house = House(2)
    partition, log = house.partitions[0], house.partitions[0].log
    roll, full = log.roll, DiskFull("no room")

    def refuse() -> Any:
        raise full

    log.roll = refuse  # type: ignore[method-assign]
    assert house.round() == house.partitions[1:]
    assert house.disk.calls == [("on_full", (full,))]
    log.roll = roll  # type: ignore[method-assign]
    assert partition in house.round()


def test_a_state_that_was_not_saved_when_the_segment_was_closed_is_saved_in_the_next_round() -> None:
    """Else the log would keep its records for as long as nobody appends."""
    house = House(1)
    (partition,) = house.partitions
    points = partition.log.start_points
    partition.log.roll()
    assert points.offsets == []
    assert house.round() == [partition] and list(points.offsets) == [partition.log.end_offset]


def test_a_partition_that_was_deleted_in_this_turn_is_left_alone() -> None:
    house = House(1)
    house.partitions[0].deleted = True
    house.round()
    assert len(house.partitions[0].log.segments()) == 1
