"""What the invariants are told of a node: what its groups commit, also in the turn in which one is closed."""

from __future__ import annotations

import pytest

from raftlake.kv.commands import put
from raftlake.raft.types import NodeId, Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import Settings

ONE = NodeId(1)


@pytest.mark.parametrize("is_opened", [True, False])
def test_what_a_group_commits_in_the_turn_that_closes_it_is_told(*, is_opened: bool) -> None:
    """Seed 1180000052: a key was committed and applied, and a later append of the turn found no room. What the node did by the
    key was called a broken promise, for the simulator had not seen it committed."""
    cluster = Cluster(Settings(seed=1, voters=1))
    cluster.restarts_by_itself = False
    cluster.start_all()
    for _ in range(20):
        cluster.run_a_while()
    node = cluster.machines[ONE].node
    assert node is not None and node.partitions[METADATA_GROUP].core.is_leader
    committed, honest = cluster.committed.of(METADATA_GROUP), node.run_turn
    before, closed_at = committed.end, [0]

    def turn() -> None:
        honest()
        partition = node.partitions.get(METADATA_GROUP)
        if partition is not None and not closed_at[0] and partition.high_watermark > before:
            closed_at[0] = partition.high_watermark
            if is_opened:
                node.turn._restarts.without_room(partition)
            else:
                node.hosting.let_go(partition)

    node.run_turn = turn  # type: ignore[method-assign]
    cluster.machines[ONE].run(lambda: node.kv.propose(put("k", b"v"), lambda outcome: None))
    for _ in range(5):
        cluster.run_a_while()
    assert closed_at[0] > before and committed.end >= closed_at[0]


def test_a_log_that_was_cut_meanwhile_tells_nothing() -> None:
    cluster = Cluster(Settings(seed=1, voters=1))
    cluster.restarts_by_itself = False
    cluster.start_all()
    for _ in range(20):
        cluster.run_a_while()
    machine = cluster.machines[ONE]
    node = machine.node
    assert node is not None
    partition = node.partitions[METADATA_GROUP]
    committed = cluster.committed.of(METADATA_GROUP)
    end = committed.end
    partition.high_watermark = Offset(end + 5)
    node.hosting.let_go(partition)
    machine.run(node.engine.request_turn)
    for _ in range(3):
        cluster.run_a_while()
    assert committed.end == end
