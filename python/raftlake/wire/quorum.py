"""How a quorum stands, in the words of KIP-595 "Tooling Support" (KIP-836 for the times).

Owns the values that a DescribeQuorum answer holds, and the one reading of them: `raftlake describe` as text and as JSON and
`GET /v1/quorum` all show what `status_facts` and `replication_facts` make of a description, in the fields of Kafka's
kafka-metadata-quorum, and computed as it does. Knows neither who asked nor how the answer came.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse, ReplicaState
from kio.schema.types import TopicName
from kio.static.primitive import i32

from raftlake.errors import ErrorCode, RequestRejected, WireError, code_of
from raftlake.wire.ids import id_from_kio, id_to_text

DESCRIBE_QUORUM_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """One replica as its leader sees it. Times are milliseconds since 1970, -1 where unknown (and for the leader itself); the
    log end is -1 until it has fetched from this leader."""

    replica_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """The quorum of one partition, by default of the metadata log."""

    cluster_id: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]
    #: Where the nodes listen, as the leader knows it: `NAME://host:port`, the first one serving the quorum.
    listeners: dict[int, tuple[str, ...]]

    @property
    def leader(self) -> ReplicaDescription | None:
        """Its own row (an observer's, once it has removed itself); None where there is no leader, or another node tells."""
        replicas = (*self.voters, *self.observers)
        found = next((replica for replica in replicas if replica.replica_id == self.leader_id), None)
        return found if found is not None and found.log_end_offset >= 0 else None


def describe_quorum_request(topic: str, partition: int) -> DescribeQuorumRequest:
    """About one partition."""
    return DescribeQuorumRequest(
        topics=(TopicData(topic_name=TopicName(topic), partitions=(PartitionData(partition_index=i32(partition)),)),)
    )


def quorum_description(answer: DescribeQuorumResponse, cluster_id: str) -> QuorumDescription | ErrorCode:
    """The description, or the partition's error (NOT_LEADER_OR_FOLLOWER when a follower was asked)."""
    if answer.error_code != 0:
        raise RequestRejected(code_of(answer.error_code), f"describe quorum: {answer.error_message or 'no reason given'}")
    if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
        raise WireError("DescribeQuorum did not answer for exactly one partition")
    partition = answer.topics[0].partitions[0]
    if partition.error_code != 0:
        return code_of(partition.error_code)
    return QuorumDescription(
        cluster_id=cluster_id,
        leader_id=int(partition.leader_id),
        leader_epoch=int(partition.leader_epoch),
        high_watermark=int(partition.high_watermark),
        voters=tuple(_replica(replica) for replica in partition.current_voters),
        observers=tuple(_replica(replica) for replica in partition.observers),
        listeners={
            int(node.node_id): tuple(
                listener_text(listener.name, listener.host, int(listener.port)) for listener in node.listeners
            )
            for node in answer.nodes
        },
    )


def listener_text(name: str, host: str, port: int) -> str:
    return f"{name}://[{host}]:{port}" if ":" in host else f"{name}://{host}:{port}"


def max_follower_lag(described: QuorumDescription) -> tuple[int, int]:
    """(records, milliseconds) that the slowest voter is behind the leader, as Kafka's MetadataQuorumCommand computes them: the
    voter with the lowest log end, -1 for one that has never fetched from this leader, which is behind by all there is; its time
    is that since it last had everything, -1 where it never had. Of voters that are equally far, the one that had it
    longest ago counts, so that a dead voter of an idle quorum shows. (-1, -1) where the leader's view is not known."""
    leader = described.leader
    if leader is None or not described.voters:
        return -1, -1
    slowest = min(described.voters, key=lambda replica: (replica.log_end_offset, replica.last_caught_up_timestamp_ms))
    lag = leader.log_end_offset - slowest.log_end_offset
    if slowest is leader:
        return lag, 0
    caught_up, now = slowest.last_caught_up_timestamp_ms, leader.last_caught_up_timestamp_ms
    return lag, -1 if min(caught_up, now) < 0 else now - caught_up


def status_facts(described: QuorumDescription) -> dict[str, Any]:
    """The fields of `describe --status`."""
    lag, lag_ms = max_follower_lag(described)
    return {
        "clusterId": described.cluster_id,
        "leaderId": described.leader_id,
        "leaderEpoch": described.leader_epoch,
        "highWatermark": described.high_watermark,
        "maxFollowerLag": lag,
        "maxFollowerLagTimeMs": lag_ms,
        "currentVoters": [_node_facts(described, replica) for replica in described.voters],
        "currentObservers": [_node_facts(described, replica) for replica in described.observers],
    }


def replication_facts(described: QuorumDescription) -> list[dict[str, Any]]:
    """The rows of `describe --replication`: the leader, the other voters, the observers; nothing where the leader's view is
    not known."""
    leader = described.leader
    if leader is None:
        return []
    ranked = [
        (leader, "Leader"),
        *((replica, "Follower") for replica in described.voters if replica is not leader),
        *((replica, "Observer") for replica in described.observers if replica is not leader),
    ]
    return [
        {
            "nodeId": replica.replica_id,
            "directoryId": id_to_text(replica.directory_id),
            "logEndOffset": replica.log_end_offset,
            "lag": leader.log_end_offset - replica.log_end_offset,
            "lastFetchTimestamp": replica.last_fetch_timestamp_ms,
            "lastCaughtUpTimestamp": replica.last_caught_up_timestamp_ms,
            "status": role,
        }
        for replica, role in ranked
    ]


def status_lines(described: QuorumDescription) -> list[str]:
    """`raftlake describe --status` as text: the names begin with a capital, the values line up."""
    return [f"{name[0].upper()}{name[1:]}:".ljust(24) + _shown(value) for name, value in status_facts(described).items()]


def _shown(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return json.dumps(value)
    return str(value)


def _node_facts(described: QuorumDescription, replica: ReplicaDescription) -> dict[str, Any]:
    facts: dict[str, Any] = {"id": replica.replica_id}
    if any(replica.directory_id):
        facts["directoryId"] = id_to_text(replica.directory_id)
    listeners = described.listeners.get(replica.replica_id, ())
    if listeners:
        facts["endpoints"] = list(listeners)
    return facts


def _replica(replica: ReplicaState) -> ReplicaDescription:
    return ReplicaDescription(
        replica_id=int(replica.replica_id),
        directory_id=id_from_kio(replica.replica_directory_id),
        log_end_offset=int(replica.log_end_offset),
        last_fetch_timestamp_ms=int(replica.last_fetch_timestamp),
        last_caught_up_timestamp_ms=int(replica.last_caught_up_timestamp),
    )
