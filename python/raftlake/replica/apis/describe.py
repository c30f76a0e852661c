"""A quorum as this node can describe it, for DescribeQuorum and `/v1/quorum` (KIP-595 "Tooling Support").

The leader alone knows its replicas. What is computed from a description (lags, rows) belongs to `wire.quorum`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftlake.raft.types import NO_DIRECTORY, ReplicaKey
from raftlake.replica.quorum import LISTENER_NAME
from raftlake.wire.quorum import QuorumDescription, ReplicaDescription, listener_text

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode
    from raftlake.replica.partition.partition import Partition


def describe_quorum(node: ReplicaNode, partition: Partition) -> QuorumDescription:
    """The leader's view; elsewhere the same shape, in which no more is known than who votes and who leads."""
    core = partition.core
    voters: list[ReplicaDescription]
    if core.is_leader:
        voters, observers = _replicas(node, partition)
    else:
        voters, observers = [_unseen(core.voters.voters[node_id]) for node_id in core.voters.ids], []
    return QuorumDescription(
        cluster_id=node.cluster_id or "",
        leader_id=core.leader_id,
        leader_epoch=core.epoch,
        high_watermark=partition.high_watermark,
        voters=tuple(voters),
        observers=tuple(observers),
        listeners={
            node_id: (listener_text(LISTENER_NAME, endpoint.host, endpoint.port),)
            for node_id, endpoint in node.quorum.addresses().items()
        },
    )


def _replicas(node: ReplicaNode, partition: Partition) -> tuple[list[ReplicaDescription], list[ReplicaDescription]]:
    """Voters and observers."""
    # Idle replicas are confirmed lazily: bring their times up to date before showing them.
    node.fetch_server.confirm(partition.group)
    wall_ms = node.clock.wall_ms()
    to_wall_ms = wall_ms - node.clock.now_ms()
    me = node.config.node_id
    voters: list[ReplicaDescription] = []
    observers: list[ReplicaDescription] = []
    for progress in partition.core.replica_progress():
        is_self = progress.key.id == me
        described = ReplicaDescription(
            replica_id=progress.key.id,
            directory_id=bytes(node.config.directory_id if is_self else progress.key.directory_id or NO_DIRECTORY),
            log_end_offset=progress.log_end,
            last_fetch_timestamp_ms=-1 if is_self else _to_wall(progress.last_fetch_ms, to_wall_ms),
            last_caught_up_timestamp_ms=wall_ms if is_self else _to_wall(progress.last_caught_up_ms, to_wall_ms),
        )
        (voters if progress.is_voter else observers).append(described)
    return voters, observers


def _unseen(key: ReplicaKey) -> ReplicaDescription:
    return ReplicaDescription(
        replica_id=key.id,
        directory_id=bytes(key.directory_id or NO_DIRECTORY),
        log_end_offset=-1,
        last_fetch_timestamp_ms=-1,
        last_caught_up_timestamp_ms=-1,
    )


def _to_wall(at_ms: int | None, offset_ms: int) -> int:
    return -1 if at_ms is None or at_ms < 0 else at_ms + offset_ms
