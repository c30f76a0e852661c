"""The check at the end of a run that no replica shows what its leader has deleted."""

from __future__ import annotations

from raftlake.raft.types import FIRST_OFFSET, Offset
from raftlake.sim.invariants.log_starts import starts_behind
from replica_cluster import Cluster, batch


def test_a_replica_that_begins_before_its_leader_is_found_and_one_behind_it_is_not() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    for _ in range(10):
        cluster.produce(group, batch(b"x"))
    leader, (first, second) = cluster.leader(group), cluster.followers(group)
    nodes = list(cluster.nodes.values())
    cluster.run(100)
    assert starts_behind(nodes) == []
    for node, start in ((leader, 5), (first, 4), (second, 7)):
        node.partitions[group].core.told_log_start = Offset(start)
    (line,) = starts_behind(nodes)
    leads, lags = leader.config.node_id, first.config.node_id
    assert line == f"t-0 begins at 4 on node {lags}, and at 5 on its leader {leads}"
    leader.partitions[group].core.told_log_start = FIRST_OFFSET
    assert starts_behind(nodes) == []
