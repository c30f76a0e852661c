"""The size of a simulated disk: what a fault leaves of it, what writes take, and that a healed machine has room."""

from __future__ import annotations

import pytest

from raftlake.errors import DiskFull
from raftlake.raft.types import NodeId
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.cluster import Cluster
from raftlake.sim.disk.space import BALLAST_BYTES, ENDLESS, Space
from raftlake.sim.faults.faults import Settings
from raftlake.sim.faults.filling import MIN_FREE_BYTES
from raftlake.sim.faults.strikes import Strike

ONE = NodeId(1)


def test_a_disk_has_room_until_something_takes_it() -> None:
    space = Space()
    space.take(ENDLESS, "write")
    assert space.room.free_bytes == ENDLESS and not space.give_up_ballast()
    space.fill(100)
    space.take(60, "write")
    assert space.room.free_bytes == 40 and space.is_filled
    space.empty()
    assert space.room.free_bytes == ENDLESS and not space.is_filled


def test_what_is_needed_takes_the_ballast_once_and_what_is_not_leaves_it() -> None:
    space = Space()
    space.fill(10)
    with pytest.raises(DiskFull, match="cannot save"):
        space.take(11, "save", is_needed=False)
    assert space.room.free_bytes == 10
    space.take(11, "write")
    assert space.room.free_bytes == 10 + BALLAST_BYTES - 11
    with pytest.raises(DiskFull):
        space.take(BALLAST_BYTES, "write")
    assert space.refused == 2 and space.room.free_bytes == BALLAST_BYTES - 1
    space.empty()
    space.fill(0)
    space.take(BALLAST_BYTES, "write")
    assert space.room.free_bytes == 0


def run_until(cluster: Cluster, ms: int) -> None:
    while cluster.scheduler.now_us < ms * US_PER_MS:
        cluster.run_a_while()


def test_a_strike_fills_a_disk_for_its_time() -> None:
    strike = Strike(1_000 * US_PER_MS, "fill-disk", (("leader", 0), ("pick", 0), ("all", 0), ("left", 300), ("ms", 2_000)))
    cluster = Cluster(Settings(seed=1, safety_ms=10_000), strikes=[strike])
    cluster.start_all()
    cluster.injector.start()
    run_until(cluster, 2_900)
    node = cluster.machines[ONE].node
    assert node is not None and node.disk.is_low and node.disk.limit_bytes == MIN_FREE_BYTES
    assert [machine.disk.space.is_filled for machine in cluster.machines.values()] == [True, False, False]
    run_until(cluster, 4_900)
    assert not node.disk.is_low and not cluster.machines[ONE].disk.space.is_filled
    assert cluster.injector.counts == {"disk filled": 1}


def test_all_disks_are_filled_together_and_a_healed_machine_has_room() -> None:
    strike = Strike(1_000 * US_PER_MS, "fill-disk", (("leader", 1), ("pick", 7), ("all", 1), ("left", 0), ("ms", 60_000)))
    cluster = Cluster(Settings(seed=1, safety_ms=3_000), strikes=[strike])
    cluster.start_all()
    cluster.injector.start()
    run_until(cluster, 2_900)
    assert all(machine.disk.space.is_filled for machine in cluster.machines.values())
    cluster.heal()
    assert not any(machine.disk.space.is_filled for machine in cluster.machines.values())
    cluster.fill_disk(ONE, 5)
    assert cluster.machines[ONE].disk.space.is_filled, "before the faults end"
    cluster.heal()
    run_until(cluster, 3_100)
    cluster.fill_disk(ONE, 5)
    assert not cluster.machines[ONE].disk.space.is_filled, "and not after"
