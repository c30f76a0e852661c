"""FindQuorum (KIP-595): any node tells who leads a quorum, as far as it knows, and who votes in it."""

from __future__ import annotations

from collections.abc import Callable

from raftlake.errors import ErrorCode
from raftlake.raft.types import NO_LEADER
from raftlake.replica.services import Services
from raftlake.wire.common import NodeEndpoint
from raftlake.wire.find_quorum import (
    FindQuorumPartitionResult,
    FindQuorumRequest,
    FindQuorumResponse,
    FindQuorumTopicResult,
)


def find_quorum(node: Services, request: FindQuorumRequest, reply: Callable[[object], None]) -> None:
    if request.cluster_id is not None and node.engine.cluster_id is not None and request.cluster_id != node.engine.cluster_id:
        reply(FindQuorumResponse(error=ErrorCode.INCONSISTENT_CLUSTER_ID, topics=[]))
        return
    voters = [NodeEndpoint(voter, endpoint.host, endpoint.port) for voter, endpoint in node.quorum.addresses().items()]
    # Each partition once: the answer to one names all voters.
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    topics = [
        FindQuorumTopicResult(name, [_find(node, name, index, voters) for index in indexes]) for name, indexes in asked.items()
    ]
    reply(FindQuorumResponse(error=ErrorCode.NONE, topics=topics))


def _find(node: Services, topic: str, index: int, voters: list[NodeEndpoint]) -> FindQuorumPartitionResult:
    partition = node.engine.partitions.get(node.names.resolve_group(topic, index))
    if partition is None:
        return FindQuorumPartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_LEADER, -1, voters=[])
    leader_id = partition.core.leader_id
    return FindQuorumPartitionResult(
        index,
        ErrorCode.NONE if leader_id != NO_LEADER else ErrorCode.LEADER_NOT_AVAILABLE,
        leader_id,
        partition.core.epoch,
        voters=voters,
    )
