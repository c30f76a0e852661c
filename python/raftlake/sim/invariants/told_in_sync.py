"""At the end of a run every node tells clients that all replicas are in sync, and that no node is gone.

Both are what nodes have heard of one another, so the faults of a run make them wrong for a while. Without faults they have to
become right everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from raftlake.replica.node import ReplicaNode

#: What is promised, for the message.
ALL_IN_SYNC = "without faults every node tells that all replicas are in sync"


def told_apart(nodes: Iterable[ReplicaNode]) -> list[str]:
    """What nodes tell otherwise, one line each."""
    found: list[str] = []
    for node in nodes:
        teller = f"node {node.config.node_id}"
        if gone := sorted(node.in_sync.gone()):
            found.append(f"{teller} tells that {gone} are gone")
        for group, partition in node.partitions.items():
            if lagging := node.in_sync.lagging(partition):
                found.append(f"{teller} tells that {list(lagging)} lag in {group}")
        if under := node.in_sync.under_replicated:
            found.append(f"{teller} counts {under} partitions that miss a replica")
    return found
