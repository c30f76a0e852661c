"""Operations over HTTP: /metrics, /health/live, /health/ready, /v1/quorum. Never waits for the quorum, so that it answers just
when the quorum does not."""

from __future__ import annotations

from raftlake.raft.types import NO_LEADER
from raftlake.replica.describe import QuorumDescription, ReplicaDescription
from raftlake.replica.node import ReplicaNode
from raftlake.runtime.http_base import HttpError, Request, Response, json_bytes, parse_count
from raftlake.runtime.metrics import NodeMetrics
from raftlake.wire.ids import id_to_text

PROMETHEUS_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class OpsHandlers:
    """Handlers for the routes of operations."""

    def __init__(self, node: ReplicaNode, metrics: NodeMetrics) -> None:
        self._node = node
        self._metrics = metrics

    async def metrics(self, request: Request) -> Response:
        request.query()
        return Response(200, self._metrics.text(), PROMETHEUS_TEXT)

    async def live(self, request: Request) -> Response:
        """The loop runs and nothing has stopped the node."""
        request.query()
        if self._node.fatal is not None:
            return Response(503, json_bytes({"live": False, "error": str(self._node.fatal)}))
        return Response(200, json_bytes({"live": True, **self._impaired()}))

    async def ready(self, request: Request) -> Response:
        """Requests that need the quorum can be served."""
        request.query()
        ready = self._node.is_ready()
        leader_id = self._node.metadata_leader_id
        return Response(200 if ready else 503, json_bytes({"ready": ready, "leaderId": leader_id, **self._impaired()}))

    def _impaired(self) -> dict[str, object]:
        """The logs that are being repaired from other nodes, with what was found; nothing where all are sound."""
        impaired = self._node.damage.impaired
        return {"impaired": {str(group): reason for group, reason in impaired.items()}} if impaired else {}

    async def quorum(self, request: Request) -> Response:
        """The quorum as this node knows it; the leader alone knows the replicas, so others name its address beside it."""
        query = request.query("topic", "partition")
        partition = parse_count(query, "partition", default=0, low=0, high=2**31 - 1)
        assert partition is not None
        topic = query.get("topic", self._node.config.quorum_group.topic)
        described = self._node.describe(topic, partition)
        if described is None:
            raise HttpError(404, f"no such partition on this node: {topic}-{partition}")
        body = describe_json(described)
        body["nodeId"] = self._node.config.node_id
        leader_http = None
        if described.leader_id != NO_LEADER:
            leader_http = self._node.membership.http_endpoint(described.leader_id)
        body["leaderHttp"] = None if leader_http is None else str(leader_http)
        return Response(200, json_bytes(body))


def describe_json(described: QuorumDescription) -> dict[str, object]:
    """The fields of `raftlake describe --status`, and `replicas` as in `--replication`."""
    return {
        "clusterId": described.cluster_id,
        "leaderId": described.leader_id,
        "leaderEpoch": described.leader_epoch,
        "highWatermark": described.high_watermark,
        "maxFollowerLag": described.max_follower_lag,
        "maxFollowerLagTimeMs": described.max_follower_lag_ms,
        "currentVoters": list(described.voters),
        "currentObservers": list(described.observers),
        "replicas": [_replica_json(replica) for replica in described.replicas],
    }


def _replica_json(replica: ReplicaDescription) -> dict[str, object]:
    return {
        "nodeId": replica.node_id,
        "directoryId": id_to_text(replica.directory_id),
        "logEndOffset": replica.log_end_offset,
        "lag": replica.lag,
        "lastFetchTimestamp": replica.last_fetch_ms,
        "lastCaughtUpTimestamp": replica.last_caught_up_ms,
        "status": replica.status,
    }
