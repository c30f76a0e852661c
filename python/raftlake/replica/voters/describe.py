"""A quorum as this node can describe it, for DescribeQuorum and `/v1/quorum` (KIP-595 "Tooling Support").

The leader alone knows its replicas. What is computed from a description (lags, rows) belongs to `wire.quorum`.
"""

from __future__ import annotations

from raftlake.raft.types import NO_DIRECTORY, ReplicaKey
from raftlake.replica.engine import Engine
from raftlake.replica.names import Names
from raftlake.replica.partition.partition import Partition
from raftlake.replica.quorum import LISTENER_NAME, Quorum
from raftlake.replica.replication.fetch_server import FetchServer
from raftlake.wire.quorum import QuorumDescription, ReplicaDescription, listener_text

#: Two clocks that are read one after the other, in whole ms, may differ by so much more or less the next time.
CLOCK_MS = 5


class Describer:
    def __init__(self, engine: Engine, names: Names, quorum: Quorum, fetch_server: FetchServer) -> None:
        self._engine = engine
        self._names = names
        self._quorum = quorum
        self._fetch_server = fetch_server
        self._to_wall_ms = 0

    def describe(self, topic: str | None = None, partition: int = 0) -> QuorumDescription | None:
        """A group (default: the quorum's log) as this node can describe it; None where it is not hosted."""
        group = self._engine.config.quorum_group if topic is None else self._names.resolve_group(topic, partition)
        hosted = self._engine.partitions.get(group)
        return None if hosted is None else self.of(hosted)

    def of(self, partition: Partition) -> QuorumDescription:
        """The leader's view; elsewhere the same shape, in which no more is known than who votes and who leads."""
        core = partition.core
        voters: list[ReplicaDescription]
        if core.is_leader:
            voters, observers = self._replicas(partition)
        else:
            voters, observers = [_unseen(core.voters.voters[node_id]) for node_id in core.voters.ids], []
        return QuorumDescription(
            cluster_id=self._engine.cluster_id or "",
            leader_id=core.leader_id,
            leader_epoch=core.epoch,
            high_watermark=partition.high_watermark,
            voters=tuple(voters),
            observers=tuple(observers),
            listeners={
                node_id: (listener_text(LISTENER_NAME, endpoint.host, endpoint.port),)
                for node_id, endpoint in self._quorum.addresses().items()
            },
        )

    def _replicas(self, partition: Partition) -> tuple[list[ReplicaDescription], list[ReplicaDescription]]:
        """Voters and observers."""
        engine = self._engine
        # Idle replicas are confirmed lazily: bring their times up to date before showing them.
        self._fetch_server.confirm(partition.group)
        wall_ms = engine.clock.wall_ms()
        to_wall_ms = self._offset_of_clocks(wall_ms)
        me = engine.config.node_id
        voters: list[ReplicaDescription] = []
        observers: list[ReplicaDescription] = []
        for progress in partition.core.replica_progress():
            is_self = progress.key.id == me
            described = ReplicaDescription(
                replica_id=progress.key.id,
                directory_id=bytes(engine.config.directory_id if is_self else progress.key.directory_id or NO_DIRECTORY),
                log_end_offset=progress.log_end,
                last_fetch_timestamp_ms=-1 if is_self else _to_wall(progress.last_fetch_ms, to_wall_ms),
                last_caught_up_timestamp_ms=wall_ms if is_self else _to_wall(progress.last_caught_up_ms, to_wall_ms),
            )
            (voters if progress.is_voter else observers).append(described)
        return voters, observers

    def _offset_of_clocks(self, wall_ms: int) -> int:
        """Wall time less monotonic time, the same until the wall clock is set: the time of a fetch does not move."""
        found = wall_ms - self._engine.clock.now_ms()
        if abs(found - self._to_wall_ms) > CLOCK_MS:
            self._to_wall_ms = found
        return self._to_wall_ms


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
