"""The properties of Kafka's RaftEventSimulationTest, by their names, over the in-memory cluster. The simulator
runs the same over the whole node; here a failure is the core's own.
"""

from __future__ import annotations

import pytest

from raftkit.cluster import Cluster
from raftlake.raft import events as on
from raftlake.raft.types import NodeId


@pytest.mark.parametrize("voters", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_can_make_progress_after_back_to_back_leader_failures(voters: int, seed: int) -> None:
    """RaftEventSimulationTest.canMakeProgressAfterBackToBackLeaderFailures"""
    cluster = Cluster(range(1, voters + 1), seed=seed)
    cluster.start()
    for value in range(5):
        leader = cluster.await_leader()
        end = cluster.append(leader.local.id, value)
        cluster.run_until(lambda leader=leader, end=end: leader.high_watermark >= end)
        cluster.crash(leader.local.id)
        cluster.run(20)
        cluster.start(leader.local.id)
    cluster.await_leader()
    cluster.run(3_000)
    for node in cluster.nodes.values():
        assert [value for value in node.applied if isinstance(value, int)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(3))
def test_can_recover_after_all_nodes_killed(seed: int) -> None:
    """RaftEventSimulationTest.canRecoverAfterAllNodesKilled"""
    cluster = Cluster((1, 2, 3, 4, 5), seed=seed)
    cluster.start()
    leader = cluster.await_leader()
    end = cluster.append(leader.local.id, "kept")
    cluster.run_until(lambda: leader.high_watermark >= end)
    for node in cluster.nodes:
        cluster.crash(node, noticed=False)
    cluster.start(1, 2, 3)
    cluster.await_leader()
    cluster.run(1_000)
    assert all("kept" in cluster.nodes[NodeId(node)].applied for node in (1, 2, 3))


@pytest.mark.parametrize("seed", range(5))
def test_can_make_progress_if_majority_is_reachable(seed: int) -> None:
    """RaftEventSimulationTest.canMakeProgressIfMajorityIsReachable"""
    cluster = Cluster((1, 2, 3, 4, 5), seed=seed)
    cluster.start()
    cluster.await_leader()
    cluster.partition((1, 2), (3, 4, 5))
    cluster.run(6_000)
    majority = [cluster[node] for node in (3, 4, 5)]
    assert sum(core.is_serving_leader for core in majority) == 1
    assert not any(cluster[node].is_leader for node in (1, 2))
    cluster.heal()
    cluster.run(6_000)
    assert len({(core.epoch, core.leader_id) for core in [*majority, cluster[1], cluster[2]]}) == 1


@pytest.mark.parametrize("seed", range(5))
def test_can_recover_from_single_node_committed_data_loss(seed: int) -> None:
    """RaftEventSimulationTest.canRecoverFromSingleNodeCommittedDataLoss"""
    cluster = Cluster((1, 2, 3), seed=seed)
    cluster.start()
    leader = cluster.await_leader()
    end = cluster.append(leader.local.id, "kept")
    cluster.run(1_000)
    assert leader.high_watermark >= end
    victim = cluster.nodes[leader.other_voters[0]]
    cluster.crash(victim.id)
    victim.disk = type(victim.disk)()
    cluster.start(victim.id)
    cluster.run(3_000)
    assert "kept" in victim.applied


def test_two_partitions_do_not_pass_leadership_to_and_fro() -> None:
    """RaftEventSimulationTest.leadershipWillNotChangeDuringNetworkPartitionIfMajorityStillReachable: links 1-3, 2-4,
    3-4, 3-5, 4-5 only; the leader keeps its majority and nobody's pre-vote unseats it.
    """
    links = {(1, 3), (2, 4), (3, 4), (3, 5), (4, 5)}
    for seed in range(20):
        cluster = Cluster((1, 2, 3, 4, 5), seed=seed)
        cluster.start()
        cluster.await_leader()
        cluster.run(500)
        leader = cluster.leader()
        assert leader is not None
        if leader.local.id not in (3, 4):
            continue
        epoch = leader.epoch
        cluster.cut = {(a, b) for a in cluster.nodes for b in cluster.nodes if a != b and (min(a, b), max(a, b)) not in links}
        cluster.run(30_000)
        assert leader.is_leader
        assert leader.epoch == epoch
        return
    raise AssertionError("no seed elected 3 or 4")


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("observers", [0, 2])
def test_can_elect_initial_leader(voters: int, observers: int) -> None:
    """RaftEventSimulationTest.canElectInitialLeader"""
    cluster = Cluster(range(1, voters + observers + 1), voters=voters, seed=voters)
    cluster.start()
    leader = cluster.await_leader(limit_ms=5_000)
    cluster.append(leader.local.id, *range(10))
    cluster.run_until(lambda: all(node.alive.high_watermark >= 11 for node in cluster.nodes.values()), limit_ms=5_000)
    assert leader.local.id <= voters


@pytest.mark.parametrize("how", ["gracefully", "killed", "partitioned away"])
@pytest.mark.parametrize("voters", [3, 4, 5])
def test_can_elect_new_leader_after_old_leader_failure(voters: int, how: str) -> None:
    """RaftEventSimulationTest.canElectNewLeaderAfterOldLeaderFailure,
    RaftEventSimulationTest.canElectNewLeaderAfterOldLeaderPartitionedAway
    """
    cluster = Cluster(range(1, voters + 1), seed=voters)
    cluster.start()
    old = cluster.await_leader().local.id
    end = cluster.append(old, "kept")
    cluster.run_until(lambda: cluster[old].high_watermark >= end)
    if how == "gracefully":
        cluster.nodes[old].step(on.ResignRequested())
    elif how == "killed":
        cluster.crash(old, noticed=False)
    else:
        cluster.partition([old], [node for node in cluster.nodes if node != old])
    cluster.run_until(lambda: (leader := cluster.leader()) is not None and leader.local.id != old, limit_ms=10_000)
    new = cluster.leader()
    assert new is not None
    assert "kept" in cluster.nodes[new.local.id].applied


@pytest.mark.parametrize("seed", range(4))
def test_leadership_assigned_only_once_with_network_partition_if_there_exists_majority(seed: int) -> None:
    """RaftEventSimulationTest.leadershipAssignedOnlyOnceWithNetworkPartitionIfThereExistsMajority: links 1-3, 2-4, 3-4, 3-5 and
    4-5 from the start; whoever can have a majority gets it once.
    """
    links = {(1, 3), (2, 4), (3, 4), (3, 5), (4, 5)}
    cluster = Cluster((1, 2, 3, 4, 5), seed=seed)
    cluster.cut = {(a, b) for a in cluster.nodes for b in cluster.nodes if a != b and (min(a, b), max(a, b)) not in links}
    cluster.start()
    leader = cluster.await_leader()
    assert leader.local.id in (3, 4, 5)
    epoch = leader.epoch
    cluster.run(30_000)
    assert (leader.is_leader, leader.epoch) == (True, epoch)
