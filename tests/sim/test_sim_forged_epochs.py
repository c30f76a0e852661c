"""Whole clusters in which somebody forges epochs at the very limit, and clusters whose voters lie millions of epochs apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlake.raft.credit import ANSWER_STEPS, REQUEST_STEPS
from raftlake.raft.types import ElectionState, Epoch, NodeId
from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import Settings

#: In the last one voters change while a leader has taken fewer epochs than those that it leaves.
SEEDS = (*range(1, 13), 1066)
FAR = 7 * ANSWER_STEPS


@pytest.mark.sim
@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_while_epochs_are_forged(seed: int) -> None:
    """Under every other fault that the seed draws; afterwards each client is served within seconds."""
    cluster = Cluster(replace(Settings.draw(seed), forge_interval_ms=1_500))
    outcome = cluster.run()
    assert outcome.completed > 10
    assert outcome.faults.get("epochs forged", 0) + outcome.faults.get("epoch forged", 0) > 10
    assert max(replica.epoch for replica in cluster.replicas()) > REQUEST_STEPS


@pytest.mark.sim
@pytest.mark.parametrize("away", [(3,), (1, 4), (2, 5)])
@pytest.mark.parametrize("seed", SEEDS[:3])
def test_voters_that_were_away_for_millions_of_epochs_converge(seed: int, away: tuple[int, ...]) -> None:
    """A minority of five; the others went on meanwhile, in every group."""
    cluster = Cluster(Settings(seed=seed, voters=5, safety_ms=4_000))
    cluster.restarts_by_itself = False
    cluster.start_all()
    for _ in range(60):
        cluster.run_a_while()
    for node_id, machine in cluster.machines.items():
        machine.crash("test")
        if node_id not in away:
            machine.disk.save({group: ElectionState(epoch=Epoch(FAR + node_id)) for group in machine.disk.groups()})
    others = [node_id for node_id in cluster.node_ids if node_id not in away]
    for node_id in others:
        cluster.start(node_id)
    for _ in range(100):
        cluster.run_a_while()
    assert len(cluster.leader_ids()) > 0
    for node_id in away:
        cluster.start(NodeId(node_id))
    for _ in range(100):
        cluster.run_a_while()
    found = {(replica.node_id, replica.group): replica.epoch for replica in cluster.replicas()}
    assert {node_id for node_id, _ in found} == set(cluster.node_ids)
    assert all(epoch > FAR for epoch in found.values()), found
    cluster._await_convergence(cluster.scheduler.now_us + 10_000_000)
