"""Commits what no gate has seen, and tells what nodes make of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from raftlake.kv.commands import encode, put
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode
from replica_cluster import Cluster


def commit(cluster: Cluster, commands: Sequence[bytes], *, without: Collection[NodeId] = ()) -> list[Any]:
    """Let the leader append records that no gate has seen, and all other nodes apply them. Returns the outcomes."""
    leader = cluster.leader()
    outcomes: list[Any] = []
    leader.engine.begin_input()
    for value in commands:
        leader.kv._collected.append((value, outcomes.append))
    leader.engine.mark_appending(leader.partitions[METADATA_GROUP])
    cluster.run(5_000, until=lambda: len(outcomes) == len(commands))
    applied = leader.kv.machine.applied_offset
    nodes = [node for node_id, node in cluster.nodes.items() if node_id not in without]
    cluster.run(5_000, until=lambda: all(node.kv.machine.applied_offset >= applied for node in nodes))
    return outcomes


def trim(cluster: Cluster, *, without: Collection[NodeId] = ()) -> None:
    """Write until the metadata log of all other nodes begins with a snapshot of what is applied now."""
    wanted = cluster.leader().kv.machine.applied_offset
    logs = [node.partitions[METADATA_GROUP].log for node_id, node in cluster.nodes.items() if node_id not in without]
    for _ in range(200):
        if all(log.start_offset >= wanted for log in logs):
            return
        commit(cluster, [encode(put("filler", bytes(3_000)))], without=without)
        cluster.run(300)
    raise AssertionError("the log was not trimmed")


def view(node: ReplicaNode) -> tuple[object, ...]:
    """What a node makes of the reserved keys, but for what it knows without them."""
    topics_known = {topic.name: topic for topic in node.names.all()}
    assert node.kv.state.partition_count == 1 + sum(topic.partitions for topic in node.kv.state.topics.values())
    hosted = sorted(group for group in node.partitions if group != METADATA_GROUP)
    return topics_known, hosted, node.membership._known, node.cluster_id


def wait_for_one_view(cluster: Cluster) -> None:
    cluster.run(10_000, until=lambda: all(view(node) == view(cluster.leader()) for node in cluster.nodes.values()))
