"""`raftlake describe`: the quorum as its leader sees it.

Owns the words: they are those of Kafka's kafka-metadata-quorum (KIP-595, "Tooling Support"), text and columns alike, so
that scripts written for one read the other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftlake.cli_output import (
    BOOTSTRAP_DEFAULT,
    TIMEOUT_MS_DEFAULT,
    AsJson,
    BootstrapServer,
    TimeoutMs,
    connect,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from raftlake.client import QuorumDescription, ReplicaDescription

_COLUMNS = ["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"]


def describe(
    status: Annotated[bool, typer.Option("--status", help="A summary: leader, epoch, high watermark, lag, voters.")] = False,
    replication: Annotated[bool, typer.Option("--replication", help="One line per replica.")] = False,
    topic: Annotated[str | None, typer.Option(help="The quorum of this topic's partition, not of the metadata log.")] = None,
    partition: Annotated[int, typer.Option(min=0, help="The partition of --topic.")] = 0,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Describe the quorum: --status or --replication."""
    if status == replication:
        raise typer.BadParameter("give one of --status and --replication")
    with connect(bootstrap_server, timeout_ms) as client:
        described = client.describe_quorum(topic, partition) if topic is not None else client.describe_quorum()
    if as_json:
        print_json(status_facts(described) if status else replication_facts(described))
    elif status:
        print("\n".join(status_lines(described)))
    else:
        rows = [[str(value) for value in row.values()] for row in replication_facts(described)]
        print_table(_COLUMNS, rows)


def status_facts(described: QuorumDescription) -> dict[str, Any]:
    """The fields of --status."""
    leader = _leader(described)
    lag, lag_ms = _max_follower_lag(described, leader)
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


def status_lines(described: QuorumDescription) -> list[str]:
    """--status as text: the names begin with a capital, the values line up."""
    return [f"{name[0].upper()}{name[1:]}:".ljust(24) + _shown(value) for name, value in status_facts(described).items()]


def replication_facts(described: QuorumDescription) -> list[dict[str, Any]]:
    """The rows of --replication: the leader, the other voters, the observers."""
    leader = _leader(described)
    followers = [replica for replica in described.voters if replica.replica_id != described.leader_id]
    ranked = [
        *([(leader, "Leader")] if leader is not None else []),
        *((replica, "Follower") for replica in followers),
        *((replica, "Observer") for replica in described.observers),
    ]
    return [
        {
            "nodeId": replica.replica_id,
            "directoryId": _id_text(replica.directory_id),
            "logEndOffset": replica.log_end_offset,
            "lag": -1 if leader is None else leader.log_end_offset - replica.log_end_offset,
            "lastFetchTimestamp": replica.last_fetch_timestamp_ms,
            "lastCaughtUpTimestamp": replica.last_caught_up_timestamp_ms,
            "status": role,
        }
        for replica, role in ranked
    ]


def _leader(described: QuorumDescription) -> ReplicaDescription | None:
    return next((replica for replica in described.voters if replica.replica_id == described.leader_id), None)


def _max_follower_lag(described: QuorumDescription, leader: ReplicaDescription | None) -> tuple[int, int]:
    """(records, milliseconds) that the slowest voter is behind the leader; -1 where that is not known."""
    if leader is None:
        return -1, -1
    slowest = min(described.voters, key=lambda replica: replica.log_end_offset)
    lag = leader.log_end_offset - slowest.log_end_offset
    if slowest is leader or lag == 0:
        return lag, 0
    times = (leader.last_caught_up_timestamp_ms, slowest.last_caught_up_timestamp_ms)
    return lag, -1 if min(times) < 0 else times[0] - times[1]


def _node_facts(described: QuorumDescription, replica: ReplicaDescription) -> dict[str, Any]:
    facts: dict[str, Any] = {"id": replica.replica_id}
    if any(replica.directory_id):
        facts["directoryId"] = _id_text(replica.directory_id)
    listeners = described.listeners.get(replica.replica_id, ())
    if listeners:
        facts["endpoints"] = list(listeners)
    return facts


def _id_text(raw: bytes) -> str:
    from raftlake.wire.ids import id_to_text

    return id_to_text(raw)


def _shown(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return json.dumps(value)
    return str(value)
