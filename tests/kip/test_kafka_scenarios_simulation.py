"""The properties of Kafka's RaftEventSimulationTest, by their names, over the in-memory cluster. The simulator
runs the same over the whole node; here a failure is the core's own.
"""

from __future__ import annotations

import pytest

from raftkit.cluster import Cluster
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
    """KIP-996, leadershipWillNotChangeDuringNetworkPartitionIfMajorityStillReachable: links 1-3, 2-4, 3-4, 3-5, 4-5 only;
    the leader keeps its majority and nobody's pre-vote unseats it.
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
