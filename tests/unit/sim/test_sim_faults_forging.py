"""The forged epoch as the nodes get it: just so high that it is taken, or one too high, in each group."""

from __future__ import annotations

from raftlake.raft.credit import REQUEST_STEPS
from raftlake.raft.types import NodeId
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import Settings
from raftlake.sim.faults.strikes import Strike
from raftlake.sim.machine import Machine

NODE = NodeId(2)


def settled() -> tuple[Cluster, Machine, dict[object, int]]:
    """A cluster with leaders, a node of it, and the node's epochs by group."""
    cluster = Cluster(Settings(seed=1, partitions=1))
    cluster.start_all()
    for _ in range(100):
        cluster.run_a_while()
    return cluster, cluster.machines[NODE], epochs(cluster.machines[NODE])


def epochs(machine: Machine) -> dict[object, int]:
    assert machine.node is not None
    return {group: partition.core.epoch for group, partition in machine.node.partitions.items()}


def test_the_highest_epoch_that_is_taken_from_a_request_is_taken_and_leaves_no_room() -> None:
    cluster, machine, before = settled()
    assert before and all(epoch > 0 for epoch in before.values())
    cluster.forge_epoch(NODE, 1)
    assert epochs(machine) == before
    cluster.forge_epoch(NODE, 0)
    after = epochs(machine)
    assert after == {group: epoch + REQUEST_STEPS for group, epoch in before.items()}
    cluster.forge_epoch(NODE, 1)
    assert epochs(machine) == after


def test_a_node_that_is_down_gets_nothing() -> None:
    cluster, machine, before = settled()
    cluster.restarts_by_itself = False
    cluster.crash(NODE, "test")
    cluster.forge_epoch(NODE, 0)
    cluster.start(NODE)
    assert epochs(machine) == before


def test_the_strike_reaches_all_nodes_and_kills_the_leader() -> None:
    strike = Strike(12_000 * US_PER_MS, "forge-epoch", (("leader", 1), ("pick", 0), ("all", 1), ("above", 0), ("kills", 1)))
    outcome = Cluster(Settings(seed=1, safety_ms=16_000), strikes=(strike,)).run()
    assert outcome.faults["epochs forged"] == 1
    assert outcome.completed > 10
