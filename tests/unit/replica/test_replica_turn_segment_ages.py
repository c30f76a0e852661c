"""segment.ms: when open segments are closed for their age, on a node alone and on one that was restarted."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from configkit import alter, created
from enginekit import ORDERS, Ground, Noted
from raftlake.errors import DamagedData, DiskFull
from raftlake.replica.configs.in_force import in_force
from raftlake.replica.disk.findings import Findings
from raftlake.replica.partition.partition import Partition
from raftlake.replica.turn.segment_ages import LOOK_INTERVAL_MS, ROLLS_MAX, SegmentAges
from replica_cluster import Cluster, batch

AGE_MS = 10_000
INTERVAL_MS = 250


class House:
    """A node that leads some partitions, and looks at their open segments. Each partition has a control record already."""

    def __init__(self, count: int = 1, segment_ms: int | None = AGE_MS) -> None:
        self.ground = ground = Ground()
        self.partitions = [ground.lead(ORDERS._replace(partition=index)) for index in range(count)]
        for partition in self.partitions:
            self.ask(partition, segment_ms)
        self.disk = Noted()
        self.findings = Findings(ground.engine)
        self.begin()

    def begin(self) -> None:
        """A process begins to look."""
        self.ages = SegmentAges(self.ground.engine, self.disk, self.findings)  # type: ignore[arg-type]

    def ask(self, partition: Partition, segment_ms: int | None) -> None:
        configs = {} if segment_ms is None else {"segment.ms": str(segment_ms)}
        partition.obey(in_force(configs, self.ground.engine.config))

    def run(self, duration_ms: int) -> None:
        for _ in range(duration_ms // INTERVAL_MS):
            self.ground.run(INTERVAL_MS)
            self.ages.tick()

    def counts(self) -> list[int]:
        return [len(partition.log.segments()) for partition in self.partitions]


def test_a_segment_is_closed_when_it_has_held_records_for_so_long() -> None:
    house = House()
    (partition,) = house.partitions
    house.ages.tick()
    house.run(AGE_MS - LOOK_INTERVAL_MS)
    assert house.counts() == [1]
    house.run(2 * LOOK_INTERVAL_MS)
    assert house.counts() == [2] and partition.log.segments()[-1].size == 0
    house.run(5 * AGE_MS)
    assert house.counts() == [2], "an empty one stays open"


def test_the_age_counts_from_the_first_record_and_not_from_the_newest() -> None:
    house = House()
    house.run(2 * AGE_MS)
    house.ground.append(house.partitions[0], b"first")
    for _ in range(6):
        house.run(AGE_MS // 4)
        house.ground.append(house.partitions[0], b"more")
    assert house.counts() == [3]
    assert house.partitions[0].log.segments()[-1].size > 0


def test_a_segment_that_was_begun_for_its_size_counts_from_its_own_first_record() -> None:
    house = House()
    (partition,) = house.partitions
    house.run(AGE_MS // 2)
    partition.roll()
    house.ground.append(partition, b"a")
    house.run(AGE_MS // 2 + 2 * LOOK_INTERVAL_MS)
    assert house.counts() == [2]
    house.run(AGE_MS // 2)
    assert house.counts() == [3]


def test_without_the_config_nothing_is_closed() -> None:
    house = House(segment_ms=None)
    house.run(10 * AGE_MS)
    house.partitions[0].in_force = None
    house.run(10 * AGE_MS)
    assert house.counts() == [1]


def test_a_config_that_comes_later_counts_the_time_of_the_first_record() -> None:
    house = House(segment_ms=None)
    house.run(LOOK_INTERVAL_MS)
    house.partitions[0].roll()
    house.ground.append(house.partitions[0], b"a")
    house.run(2 * AGE_MS)
    house.ask(house.partitions[0], AGE_MS)
    house.run(2 * LOOK_INTERVAL_MS)
    assert house.counts() == [3]


@pytest.mark.parametrize(("wrong_ms", "closed"), [(0, True), (-1 << 40, True), (1 << 40, False)])
def test_after_a_restart_the_time_of_the_first_record_counts(wrong_ms: int, closed: bool) -> None:
    """A producer whose clock is ahead makes a segment young; one whose clock is far behind closes one segment too many."""
    house = House()
    (partition,) = house.partitions
    partition.roll()
    wall_ms = house.ground.time.wall_ms
    house.ground.time.wall_ms = lambda: wall_ms() + wrong_ms  # type: ignore[method-assign]
    house.ground.append(partition, b"first")
    house.ground.time.wall_ms = wall_ms  # type: ignore[method-assign]
    house.ground.append(partition, b"newest")
    house.ground.run(AGE_MS)
    house.ground.append(partition, b"newer still")
    house.begin()
    house.run(2 * LOOK_INTERVAL_MS)
    assert (house.counts() == [3]) == closed


def test_a_segment_without_times_counts_from_when_it_was_found() -> None:
    house = House()
    house.ground.run(10 * AGE_MS)
    house.begin()
    house.run(AGE_MS - LOOK_INTERVAL_MS)
    assert house.counts() == [1], "it holds the record of a leader"
    house.run(2 * LOOK_INTERVAL_MS)
    assert house.counts() == [2]


def test_a_look_closes_a_few_and_nobody_starves() -> None:
    house = House(2 * ROLLS_MAX, segment_ms=1)
    closed = []
    for _ in range(4):
        house.run(LOOK_INTERVAL_MS)
        closed.append(sum(house.counts()) - 2 * ROLLS_MAX)
        for partition in house.partitions[:ROLLS_MAX]:
            house.ground.append(partition, b"a")
    assert all(later - before <= ROLLS_MAX for before, later in pairwise(closed))
    assert min(house.counts()) > 1


def test_a_disk_without_room_is_told_and_asked_again() -> None:
    house = House()
    log, full = house.partitions[0].log, DiskFull("no room")
    roll = log.roll

    def refuse() -> Any:
        raise full

    log.roll = refuse  # type: ignore[method-assign]
    house.run(AGE_MS + 2 * LOOK_INTERVAL_MS)
    assert house.disk.calls and set(house.disk.calls) == {("on_full", (full,))}
    log.roll = roll  # type: ignore[method-assign]
    house.run(2 * LOOK_INTERVAL_MS)
    assert house.counts() == [2]


def test_damage_is_noted_and_stops_nobody() -> None:
    house = House(2)
    damage = DamagedData("broken", offset=0)

    def broken() -> Any:
        raise damage

    segments = house.partitions[0].log.segments
    house.partitions[0].log.segments = broken  # type: ignore[method-assign]
    house.run(AGE_MS + 2 * LOOK_INTERVAL_MS)
    house.partitions[0].log.segments = segments  # type: ignore[method-assign]
    assert house.findings.take() == {house.partitions[0].group: damage}
    assert house.counts() == [1, 2]


def test_a_group_that_is_closed_is_forgotten() -> None:
    house = House()
    house.run(LOOK_INTERVAL_MS)
    house.ground.engine.forget(house.partitions[0])
    assert not house.ages._open


def test_all_replicas_close_a_quiet_topics_segment_and_no_other_topics() -> None:
    cluster = Cluster()
    (quiet,) = created(cluster, "quiet", segment_ms="3000")
    (other,) = created(cluster, "other")
    for group in (quiet, other):
        cluster.produce(group, batch(b"a", timestamp_ms=cluster.leader().engine.clock.wall_ms()))
    cluster.run(6_000)
    nodes = cluster.nodes.values()
    assert {len(node.partitions[quiet].log.segments()) for node in nodes} == {2}
    assert {len(node.partitions[other].log.segments()) for node in nodes} == {1}
    alter(cluster, "other", segment_ms="1000")
    cluster.run(3_000)
    assert {len(node.partitions[other].log.segments()) for node in cluster.nodes.values()} == {2}
