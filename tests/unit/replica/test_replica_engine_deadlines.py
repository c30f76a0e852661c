"""Turns and deadlines of a node: asked for when there is something to do, and only then."""

from __future__ import annotations

from collections.abc import Callable

from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode
from replica_cluster import Cluster


def _count(node: ReplicaNode, name: str) -> list[int]:
    """How often a method of the node is called from now on."""
    calls: list[int] = []
    method: Callable[..., None] = getattr(node, name)

    def counted(*args: object) -> None:
        calls.append(1)
        method(*args)

    setattr(node, name, counted)
    return calls


def test_an_idle_quorum_takes_few_turns() -> None:
    """A Fetch round costs two turns at each end at most; what finds nothing to do costs none."""
    cluster = Cluster(3)
    cluster.run(2_000)
    nodes = list(cluster.nodes.values())
    turns = [_count(node, "run_turn") for node in nodes]
    rounds = [_count(node, "receive") for node in nodes]
    cluster.run(10_000)
    assert 0 < sum(map(len, turns)) <= 2 * sum(map(len, rounds)) + 20


def test_several_inputs_share_the_turn_that_the_first_of_them_asked_for() -> None:
    cluster = Cluster(1)
    cluster.run(100)
    node = cluster.leader(METADATA_GROUP)
    asked: list[int] = []
    node.engine._ask_for_turn = lambda: asked.append(1)
    for _ in range(3):
        node.engine.request_turn()
    assert len(asked) == 1
    node.run_turn()
    assert len(asked) == 1
    node.engine.request_turn()
    assert len(asked) == 2


def test_what_a_turn_leaves_behind_gets_a_turn_of_its_own() -> None:
    cluster = Cluster(1)
    cluster.run(100)
    node = cluster.leader(METADATA_GROUP)
    asked: list[int] = []
    node.engine._ask_for_turn = lambda: asked.append(1)
    send_all = node.control.send_all
    node.control.send_all = lambda: (send_all(), node.engine.mark_appending(node.partitions[METADATA_GROUP]))[0]  # type: ignore[method-assign]
    node.run_turn()
    assert len(asked) == 1


def test_a_deadline_that_moved_away_is_armed_anew_and_a_closer_one_takes_its_place() -> None:
    cluster = Cluster(3)
    cluster.run(2_000)
    node = cluster.leader(METADATA_GROUP)
    partition = node.partitions[METADATA_GROUP]
    armed_ms = partition.armed_deadline_ms
    assert armed_ms is not None
    node.engine._arm(partition)
    assert partition.armed_deadline_ms == armed_ms
    partition.armed_deadline_ms = armed_ms + 10_000
    node.engine._arm(partition)
    assert partition.armed_deadline_ms is not None
    assert partition.armed_deadline_ms <= armed_ms + 1_000
    cluster.run(5_000)
    assert partition.armed_deadline_ms > armed_ms
