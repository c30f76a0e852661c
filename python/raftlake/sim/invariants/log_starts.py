"""At the end of a run no replica shows what the leader of its partition has deleted.

A replica that has heard of no deletion yet may become the leader, and records come back. Faults keep news away for a while.
Without faults every replica has to hear where its leader's log begins. A replica may begin later than its leader.
"""

from __future__ import annotations

from collections.abc import Sequence

from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode

#: What is promised, for the message.
ALL_DELETED = "without faults every replica begins where its leader does, or later"


def starts_behind(nodes: Sequence[ReplicaNode]) -> list[str]:
    """Where replicas show more than their leader, one line each. Of the metadata log each node's snapshots decide."""
    found: list[str] = []
    for leader in nodes:
        for group, led in leader.partitions.items():
            if group == METADATA_GROUP or not led.is_serving:
                continue
            start = leader.remote_log.start_offset(led)
            for node in nodes:
                partition = node.partitions.get(group)
                if partition is not None and (own := node.remote_log.start_offset(partition)) < start:
                    place = f"{group} begins at {own} on node {node.config.node_id}"
                    found.append(f"{place}, and at {start} on its leader {leader.config.node_id}")
    return found
