"""One node whose wall clock is hours wrong, as the leader of a partition and beside it: copies and retention go on.

Time passes here as the wall clocks of all nodes say it; the wrong one stays wrong. Retention goes by the leader's clock and by
the times of records, so a leader that is some hours wrong removes files so much too early or too late, and never others.
"""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.tier import Lineage
from raftlake.replica.node import ReplicaNode
from raftlake.sim.clock import WALL_START_MS
from raftlake.sim.tier_table import Shown
from replica_cluster import Cluster, batch
from txnkit import lead

HOUR_MS = 3_600_000
WRONG_BY_MS = 5 * HOUR_MS
KEPT_MS = 24 * HOUR_MS
LAG_MS, COPIED_WITHIN_MS = 2_000, 12_000
APPENDS = 8


class World:
    """Three nodes, one of them with a wrong clock; clients and the other nodes have the right time."""

    def __init__(self, wrong_by_ms: int, *, does_lead: bool, **settings: int) -> None:
        self.cluster = Cluster(
            has_tier=True, segment_bytes=300, tier_target_lag_ms=LAG_MS, retention_check_interval_ms=500, **settings
        )
        self.cluster.leader()
        (self.group,) = self.cluster.create_topic("orders")
        leader = self.cluster.leader(self.group)
        self.wrong = leader if does_lead else next(node for node in self.cluster.nodes.values() if node is not leader)
        self.passed_ms = 0
        self._set_forward(self.wrong, wrong_by_ms)

    def start_wrong(self) -> None:
        """The node begins anew, with its wrong clock."""
        node_id = self.wrong.config.node_id
        wrong_by_ms = self.cluster.machines[node_id].clock.wall_offset_ms
        self.wrong = self.cluster.start(node_id)
        self.cluster.machines[node_id].clock.wall_offset_ms = wrong_by_ms

    def _set_forward(self, node: ReplicaNode, by_ms: int) -> None:
        self.cluster.machines[node.config.node_id].clock.wall_offset_ms += by_ms

    def pass_hours(self, hours: int) -> None:
        """At the nodes' wall clocks, and some seconds in which they act on it."""
        for node in self.cluster.nodes.values():
            self._set_forward(node, hours * HOUR_MS)
        self.passed_ms += hours * HOUR_MS
        self.cluster.run(20_000)

    def append(self) -> None:
        """Records that clients stamp with the right time."""
        for _ in range(APPENDS):
            now_ms = WALL_START_MS + self.passed_ms + self.cluster.now_ms
            assert self.cluster.produce(self.group, batch(b"x" * 150, timestamp_ms=now_ms)).error is ErrorCode.NONE
            self.cluster.run(100)

    @property
    def shown(self) -> Shown:
        return self.cluster.tier.of(Lineage(self.group, 0))

    @property
    def copied_end(self) -> int:
        return 0 if self.shown.newest is None else self.shown.newest.end_offset

    @property
    def first_kept(self) -> int:
        """Where table and log together begin."""
        return self.shown.start_offset

    @property
    def starts(self) -> set[int]:
        """Where the local logs begin."""
        return {node.partitions[self.group].log.start_offset for node in self.cluster.nodes.values()}

    def require_copied(self) -> None:
        """All that is committed is in the table, as soon as with right clocks, and nobody complains. A new leader takes several
        times the lag, since it looks first at what the last one has begun."""
        end = self.cluster.leader(self.group).partitions[self.group].high_watermark
        self.cluster.run(COPIED_WITHIN_MS, until=lambda: self.copied_end == end)
        assert [node.tiering.warnings for node in self.cluster.nodes.values()] == [()] * 3


@pytest.fixture(params=[-WRONG_BY_MS, WRONG_BY_MS], ids=["back", "ahead"])
def wrong_by_ms(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.mark.parametrize("does_lead", [False, True], ids=["beside", "leads"])
def test_copies_go_on_and_no_record_goes_before_its_time(wrong_by_ms: int, does_lead: bool) -> None:
    world = World(wrong_by_ms, does_lead=does_lead, retention_ms=KEPT_MS)
    world.append()
    world.require_copied()
    world.pass_hours(12)
    world.append()
    world.require_copied()
    assert world.first_kept == 0, "what is half a day old is kept, by either clock"
    old_end = world.shown.segments[0].end_offset
    # The first records are 25 hours old. A clock that is five hours back learns it five hours later.
    late = does_lead and wrong_by_ms < 0
    world.pass_hours(13)
    assert (world.first_kept < old_end) is late
    world.pass_hours(6)
    assert world.first_kept >= old_end
    assert world.copied_end == world.cluster.leader(world.group).partitions[world.group].high_watermark


def test_a_leader_with_a_wrong_clock_goes_in_the_middle_of_copies_and_leads_again(wrong_by_ms: int) -> None:
    world = World(wrong_by_ms, does_lead=True, retention_ms=KEPT_MS, local_retention_ms=HOUR_MS)
    world.append()
    world.cluster.stop(world.wrong.config.node_id)
    world.append()
    world.start_wrong()
    lead(world.cluster, world.wrong, world.group)
    world.append()
    world.require_copied()
    segments = world.shown.segments
    assert [each.base_offset for each in segments] == [0, *(each.end_offset for each in segments[:-1])], "each offset once"


def test_local_disks_lose_only_what_the_table_has(wrong_by_ms: int) -> None:
    """A clock that is ahead calls everything old at once."""
    world = World(wrong_by_ms, does_lead=True, local_retention_ms=HOUR_MS)
    fate = world.cluster.tier.draw_fate
    world.cluster.tier.draw_fate = lambda: "stalls for ever"  # type: ignore[method-assign]
    world.append()
    world.cluster.run(20_000)
    assert world.starts == {0}, "nothing is copied, so nothing is old enough"
    world.cluster.tier.draw_fate = fate  # type: ignore[method-assign]
    world.cluster.run(20_000)
    world.require_copied()
    assert world.first_kept == 0
    # The first segment has no record of clients, and so no time.
    assert (max(world.starts) > 1) is (wrong_by_ms > 0)
    assert max(world.starts) <= world.copied_end
