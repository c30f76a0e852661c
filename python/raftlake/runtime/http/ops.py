"""Operations over HTTP: /metrics, /health/live, /health/ready, /v1/quorum.

Never waits for the quorum, so that it answers just when the quorum does not; a follower gives the leader half a second to say
how the quorum stands.
"""

from __future__ import annotations

import asyncio

from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse

from raftlake.errors import RequestRejected, WireError, for_clients
from raftlake.ports.peer_rpcs import DescribeReply, DescribeRpc, PeerReply
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NO_LEADER, NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.runtime.http.base import HttpError, Request, Response, json_bytes, parse_count
from raftlake.runtime.http.exchange import Waiter
from raftlake.runtime.http.metrics_page import MetricsPage
from raftlake.wire.quorum import (
    QuorumDescription,
    describe_quorum_request,
    quorum_description,
    replication_facts,
    status_facts,
)

PROMETHEUS_TEXT = b"text/plain; version=0.0.4; charset=utf-8"
#: How long a follower's /v1/quorum waits for the leader's view.
LEADER_SECONDS = 0.5


class OpsHandlers:
    """Handlers for the routes of operations."""

    def __init__(self, node: ReplicaNode, page: MetricsPage, root: str) -> None:
        """`root` is the data directory, whose path is told to no client."""
        self._node = node
        self._page = page
        self.root = root

    async def metrics(self, request: Request) -> Response:
        request.query()
        waiter: Waiter[bytearray | None] = Waiter()
        self._page.ask(waiter.set)
        page = await waiter
        if page is None:
            raise HttpError(500, "internal error, see the node's log")
        return Response(200, page, PROMETHEUS_TEXT)

    async def live(self, request: Request) -> Response:
        """The loop runs and nothing has stopped the node."""
        request.query()
        if self._node.fatal is not None:
            return Response(503, json_bytes({"live": False, "error": for_clients(str(self._node.fatal), self.root)}))
        return Response(200, json_bytes({"live": True, **self._alarms()}))

    async def ready(self, request: Request) -> Response:
        """Requests that need the quorum can be served."""
        request.query()
        ready = self._node.is_ready()
        leader_id = self._node.metadata_leader_id
        return Response(200 if ready else 503, json_bytes({"ready": ready, "leaderId": leader_id, **self._alarms()}))

    def _alarms(self) -> dict[str, object]:
        """The logs that are being repaired from other nodes, with what was found, the groups whose epochs somebody tried to
        raise too far, and what has to be seen to before it stops something; nothing where all is well."""
        alarms = {"impaired": self._node.damage.impaired, "epochs": self._node.reports.alarms}
        told: dict[str, object] = {
            name: {str(group): for_clients(reason, self.root) for group, reason in found.items()}
            for name, found in alarms.items()
            if found
        }
        node = self._node
        services = (node.disk, node.kv.room, node.tiering, node.cluster_identity)
        if warnings := [warning for service in services for warning in service.warnings]:
            told["warnings"] = [for_clients(warning, self.root) for warning in warnings]
        return told

    async def quorum(self, request: Request) -> Response:
        """The quorum as its leader sees it, or, where no leader answers soon, what this node knows: then there are no
        `replicas`, and the lags are -1."""
        query = request.query("topic", "partition")
        partition = parse_count(query, "partition", default=0, low=0, high=2**31 - 1)
        assert partition is not None
        topic = query.get("topic", self._node.config.quorum_group.topic)
        known = self._node.describe(topic, partition)
        if known is None:
            raise HttpError(404, f"no such partition on this node: {topic}-{partition}")
        body = describe_json(await self._as_the_leader_sees_it(known, topic, partition))
        body["nodeId"] = self._node.config.node_id
        leader_http = None
        if known.leader_id != NO_LEADER:
            leader_http = self._node.membership.http_endpoint(NodeId(known.leader_id))
        body["leaderHttp"] = None if leader_http is None else str(leader_http)
        return Response(200, json_bytes(body))

    async def _as_the_leader_sees_it(self, known: QuorumDescription, topic: str, partition: int) -> QuorumDescription:
        """A follower passes the question on, as it does with a client's DescribeQuorum."""
        if known.leader is not None or known.leader_id in (NO_LEADER, self._node.config.node_id):
            return known
        waiter: Waiter[PeerReply | FailureReason | None] = Waiter()
        patience = asyncio.get_running_loop().call_later(LEADER_SECONDS, waiter.set, None)
        try:
            self._node.engine.begin_input()
            asked = DescribeRpc(request=describe_quorum_request(topic, partition))
            self._node.engine.network.send(NodeId(known.leader_id), asked, waiter.set)
            reply = await waiter
        finally:
            patience.cancel()
        if not isinstance(reply, DescribeReply) or not isinstance(reply.response, DescribeQuorumResponse):
            return known
        try:
            described = quorum_description(reply.response, known.cluster_id)
        except (RequestRejected, WireError):
            # Kafka's own Raft server does not describe itself.
            return known
        return described if isinstance(described, QuorumDescription) else known


def describe_json(described: QuorumDescription) -> dict[str, object]:
    """The fields of `raftlake describe --status`, and `replicas` as in `--replication`."""
    return {**status_facts(described), "replicas": replication_facts(described)}
