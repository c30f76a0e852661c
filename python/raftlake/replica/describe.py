"""A quorum in figures, as `raftlake describe`, `/v1/quorum` and DescribeQuorum show it (KIP-595 "Tooling Support")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftlake.raft.types import NO_DIRECTORY, NodeId

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode
    from raftlake.replica.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """One replica as its leader sees it. Times are milliseconds since 1970, -1 when unknown; the leader does not fetch."""

    node_id: NodeId
    directory_id: bytes
    log_end_offset: int
    lag: int
    last_fetch_ms: int
    last_caught_up_ms: int
    #: Leader, Follower or Observer.
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """`replicas` and the lags are known to the leader alone; elsewhere the list is empty and the lags are -1."""

    cluster_id: str | None
    leader_id: NodeId
    leader_epoch: int
    high_watermark: int
    max_follower_lag: int
    max_follower_lag_ms: int
    voters: tuple[NodeId, ...]
    observers: tuple[NodeId, ...]
    replicas: tuple[ReplicaDescription, ...]
    is_leader: bool


def describe_quorum(node: ReplicaNode, partition: Partition) -> QuorumDescription:
    core = partition.core
    voters = core.voters.ids
    replicas = _replicas(node, partition) if core.is_leader else ()
    followers = [replica for replica in replicas if replica.status == "Follower"]
    wall_ms = node.clock.wall_ms()
    # A follower that never caught up since this leader began has an unknown lag in time: -1 wins over any number.
    lags_ms = [-1 if replica.last_caught_up_ms < 0 else max(0, wall_ms - replica.last_caught_up_ms) for replica in followers]
    return QuorumDescription(
        cluster_id=node.cluster_id,
        leader_id=core.leader_id,
        leader_epoch=core.epoch,
        high_watermark=partition.high_watermark,
        max_follower_lag=max((replica.lag for replica in followers), default=0) if core.is_leader else -1,
        max_follower_lag_ms=(-1 if -1 in lags_ms else max(lags_ms, default=0)) if core.is_leader else -1,
        voters=voters,
        observers=tuple(replica.node_id for replica in replicas if replica.status == "Observer"),
        replicas=replicas,
        is_leader=core.is_leader,
    )


def _replicas(node: ReplicaNode, partition: Partition) -> tuple[ReplicaDescription, ...]:
    # Idle replicas are confirmed lazily: bring their times up to date before showing them.
    node.fetch_server.confirm(partition.group)
    to_wall_ms = node.clock.wall_ms() - node.now_ms
    me = node.config.node_id
    described: list[ReplicaDescription] = []
    log_end = partition.core.log_end
    for progress in partition.core.replica_progress():
        is_self = progress.key.id == me
        status = "Leader" if is_self else "Follower" if progress.is_voter else "Observer"
        described.append(
            ReplicaDescription(
                node_id=progress.key.id,
                directory_id=bytes(node.config.directory_id if is_self else progress.key.directory_id or NO_DIRECTORY),
                log_end_offset=log_end if is_self else progress.log_end,
                lag=0 if is_self else (log_end - progress.log_end if progress.log_end >= 0 else -1),
                last_fetch_ms=_to_wall(progress.last_fetch_ms, to_wall_ms) if not is_self else -1,
                last_caught_up_ms=node.clock.wall_ms() if is_self else _to_wall(progress.last_caught_up_ms, to_wall_ms),
                status=status,
            )
        )
    return tuple(described)


def _to_wall(at_ms: int | None, offset_ms: int) -> int:
    return -1 if at_ms is None or at_ms < 0 else at_ms + offset_ms
