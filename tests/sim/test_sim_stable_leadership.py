"""Named situations in which leadership must, or must not, move (RaftEventSimulationTest's properties).

No drawn faults here: each test does one thing to a quiet cluster and says what has to follow.
"""

from __future__ import annotations

import pytest

from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import Settings
from raftlake.sim.invariants.convergence import disagreements

pytestmark = pytest.mark.sim


class Scene:
    """A cluster of `voters` with its clients, settled: one node leads the metadata log."""

    def __init__(self, voters: int = 3, observers: int = 0, seed: int = 1) -> None:
        self.cluster = Cluster(Settings(seed=seed, voters=voters, observers=observers, partitions=1))
        self.cluster.restarts_by_itself = False
        self.cluster.start_all()
        for client in self.cluster.clients:
            client.start()
        self.run(6_000)
        assert len(self.leaders()) == 1

    def run(self, ms: int) -> None:
        end_us = self.cluster.scheduler.now_us + ms * US_PER_MS
        while self.cluster.scheduler.now_us < end_us:
            self.cluster.run_a_while()

    def leaders(self) -> list[NodeId]:
        """Who leads the metadata log, by their own word."""
        replicas = (replica for replica in self.cluster.replicas() if replica.group == METADATA_GROUP)
        return [replica.node_id for replica in replicas if replica.is_leader]

    @property
    def leader(self) -> NodeId:
        (leader,) = self.leaders()
        return leader

    @property
    def followers(self) -> list[NodeId]:
        return [node_id for node_id in self.cluster.node_ids if node_id != self.leader]

    @property
    def bystanders(self) -> list[NodeId]:
        """Who leads nothing at all, not the data partition either."""
        leading = self.cluster.leader_ids()
        return [node_id for node_id in self.cluster.node_ids if node_id not in leading]

    def epoch(self, node_id: NodeId) -> int:
        return self.cluster.machines[node_id].replicas[METADATA_GROUP].epoch

    @classmethod
    def with_one_leader(cls, voters: int) -> Scene:
        """One node leads both groups: taken from the first seed that comes out so."""
        scenes = (cls(voters, seed=seed) for seed in range(1, 60))
        return next(scene for scene in scenes if len(scene.bystanders) == voters - 1)

    def isolate(self, node_id: NodeId) -> None:
        for other in self.cluster.node_ids:
            if other != node_id:
                self.cluster.cut_link(node_id, other)
                self.cluster.cut_link(other, node_id)

    def completed(self) -> int:
        return sum(client.completed for client in self.cluster.clients)

    def finish(self) -> None:
        """Heal, let the traffic end, and check every promise."""
        self.cluster.heal()
        self.run(3_000)
        self.cluster.shared.stopped = True
        self.run(6_000)
        assert disagreements(self.cluster.replicas(), len(self.cluster.node_ids)) == []
        self.cluster.check_oracle()


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("observers", [0, 2])
def test_an_initial_leader_is_elected(voters: int, observers: int) -> None:
    """canElectInitialLeader, with observers that replicate as well."""
    scene = Scene(voters, observers)
    assert scene.completed() > 10
    scene.finish()


def test_a_node_that_is_cut_off_and_comes_back_disturbs_nobody() -> None:
    """leadershipWillNotChange...: with pre-vote the returning node has not raised its epoch (KIP-650, KIP-996)."""
    scene = Scene()
    victim = scene.bystanders[0]
    scene.cluster.stable_leadership.armed = True
    epoch = scene.epoch(victim)
    scene.isolate(victim)
    scene.run(15_000)
    assert scene.epoch(victim) == epoch
    scene.cluster.heal_links()
    scene.run(10_000)
    scene.cluster.stable_leadership.armed = False
    scene.finish()


def test_a_follower_that_restarts_disturbs_nobody() -> None:
    scene = Scene(voters=5)
    scene.cluster.stable_leadership.armed = True
    for victim in scene.bystanders:
        scene.cluster.crash(victim, "test")
        scene.run(3_000)
        scene.cluster.start(victim)
        scene.run(5_000)
    scene.cluster.stable_leadership.armed = False
    scene.finish()


def test_a_leader_that_a_majority_reaches_stays_when_two_nodes_lose_each_other() -> None:
    """The KIP-996 topology: not every voter sees every other, but each sees the leader."""
    scene = Scene.with_one_leader(voters=5)
    one, two, three, four = scene.bystanders
    scene.cluster.stable_leadership.armed = True
    for left, right in ((one, two), (one, three), (two, four), (three, four)):
        scene.cluster.cut_link(left, right)
        scene.cluster.cut_link(right, left)
    scene.run(15_000)
    scene.cluster.stable_leadership.armed = False
    scene.finish()


def test_a_leader_that_is_cut_off_is_replaced_and_stops_leading() -> None:
    """canElectNewLeaderAfterOldLeaderPartitionedAway, and check quorum (KAFKA-15489)."""
    scene = Scene()
    old, epoch = scene.leader, scene.epoch(scene.leader)
    scene.isolate(old)
    scene.run(6_000)
    assert scene.leader != old
    assert scene.epoch(scene.leader) > epoch
    before = scene.completed()
    scene.run(5_000)
    assert scene.completed() > before
    scene.finish()


@pytest.mark.parametrize("times", [1, 3])
def test_a_killed_leader_is_replaced_within_a_second(times: int) -> None:
    """canMakeProgressAfterBackToBackLeaderFailures; fast because its connections close (DESIGN §4.4)."""
    scene = Scene(voters=5 if times > 1 else 3)
    for _ in range(times):
        victim = scene.leader
        scene.cluster.crash(victim, "test")
        scene.run(1_000)
        assert scene.leader != victim
        scene.cluster.start(victim)
        scene.run(2_000)
    scene.finish()


def test_all_nodes_killed_at_once_lose_nothing() -> None:
    """canRecoverAfterAllNodesKilled."""
    scene = Scene()
    for node_id in scene.cluster.node_ids:
        scene.cluster.crash(node_id, "test")
    scene.run(1_000)
    for node_id in scene.cluster.node_ids[:2]:
        scene.cluster.start(node_id)
    scene.run(5_000)
    before = scene.completed()
    scene.run(5_000)
    assert scene.completed() > before
    scene.finish()


def test_progress_goes_on_where_the_majority_is() -> None:
    """canMakeProgressIfMajorityIsReachable: two voters on one side, three on the other."""
    scene = Scene(voters=5)
    small = (scene.leader, scene.followers[0])
    for left in small:
        for right in scene.cluster.node_ids:
            if right not in small:
                scene.cluster.cut_link(left, right)
                scene.cluster.cut_link(right, left)
    scene.run(8_000)
    assert scene.leader not in small
    before = scene.completed()
    scene.run(5_000)
    assert scene.completed() > before
    scene.finish()


def test_a_paused_leader_is_deposed_and_serves_no_stale_read_when_it_wakes() -> None:
    """The oracle would tell a read that misses what the next leader acknowledged meanwhile."""
    scene = Scene()
    old = scene.leader
    scene.cluster.pause(old, 8_000 * US_PER_MS)
    scene.run(6_000)
    assert any(leader != old for leader in scene.leaders())
    scene.run(6_000)
    assert scene.leader != old
    scene.finish()
