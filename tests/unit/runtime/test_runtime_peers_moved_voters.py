"""When a node says that the voters' addresses keep them from electing a leader, and when it does not."""

from __future__ import annotations

from raftlake.raft.types import NodeId
from raftlake.replica.config import Endpoint
from raftlake.replica.node import ReplicaNode
from raftlake.runtime.peers.moved_voters import TELL_AFTER_MS, MovedVoters, explain
from replica_cluster import Cluster

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
HERE = Endpoint("127.0.0.1", 7001)


def grown() -> Cluster:
    """Three nodes whose voters are in the log, all of them stopped."""
    cluster = Cluster(3, directories=True)
    cluster.leader()
    cluster.run(5_000, lambda: all(node.quorum.committed is not None for node in cluster.nodes.values()))
    for node_id in (ONE, TWO, THREE):
        cluster.stop(node_id)
    return cluster


def alone(cluster: Cluster, *, moved: bool = True, voters_given: bool = False) -> ReplicaNode:
    if moved:
        cluster.move(ONE, HERE)
    if not voters_given:
        cluster.voters = {}
    node = cluster.start(ONE, peer_listener=cluster.listeners[ONE], bootstrap_servers=() if voters_given else (HERE,))
    cluster.run(3_000)
    return node


def test_a_moved_voter_that_reaches_no_majority_says_what_to_set() -> None:
    node = alone(grown())
    assert explain(node, []) == (
        "no node leads; this node is at 127.0.0.1:7001, its log has it at 127.0.0.1:9091, and the voters 2@127.0.0.1:9092, "
        "3@127.0.0.1:9093 are not reached there. If they have moved too, set quorum.voters to all voters at their present "
        "addresses, on each of them: quorum.voters=1@127.0.0.1:7001,..."
    )
    assert explain(node, [THREE]) is None, "two of three elect a leader"
    assert explain(node, [NodeId(-2)]) is not None, "an address whose node is not known is no voter"


def test_nothing_is_said_where_something_else_is_the_matter() -> None:
    assert explain(alone(grown(), moved=False), []) is None, "the others are down, as far as anybody knows"
    assert explain(alone(grown(), voters_given=True), []) is None, "their addresses were given"
    cluster = Cluster(3, directories=True)
    assert all(explain(node, []) is None for node in (cluster.leader(), *cluster.followers()))


def test_it_is_said_once_and_not_at_once() -> None:
    node = alone(grown())
    reached: list[NodeId] = []
    told: list[str] = []
    moved = MovedVoters(node, lambda: reached, told.append)
    for now_ms in range(0, 3 * TELL_AFTER_MS, 1000):
        moved.sample(now_ms)
        assert bool(told) == (now_ms >= TELL_AFTER_MS)
    assert len(told) == 1
    reached.append(TWO)
    moved.sample(3 * TELL_AFTER_MS)
    reached.clear()
    for now_ms in range(4 * TELL_AFTER_MS, 6 * TELL_AFTER_MS, 1000):
        moved.sample(now_ms)
    assert len(told) == 2
