"""The check at the end of a run that every node tells of everybody, and that it finds who does not."""

from __future__ import annotations

from raftlake.replica.config import REPLICA_LAG_MS_MAX
from raftlake.replica.replication.in_sync import LOOK_INTERVAL_MS
from raftlake.sim.invariants.told_in_sync import told_apart
from replica_cluster import Cluster


def test_a_node_that_tells_of_less_is_found_until_it_tells_of_all() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    cluster.run(2 * LOOK_INTERVAL_MS)
    assert told_apart(cluster.nodes.values()) == []
    victim = cluster.followers(group)[0].config.node_id
    cluster.stop(victim)
    cluster.run(REPLICA_LAG_MS_MAX + 3 * LOOK_INTERVAL_MS)
    found = told_apart(cluster.nodes.values())
    for told in (f"tells that [{victim}] are gone", f"tells that [{victim}] lag in t-0", "partitions that miss a replica"):
        assert any(told in line for line in found), found
    cluster.start(victim)
    cluster.run(5_000, until=lambda: told_apart(cluster.nodes.values()) == [])
