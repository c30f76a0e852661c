"""ReadOffset (KIP-650) between the wire and `ports`, both directions.

Knows no node: who asks and which group a name stands for are told.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.ports.peer_rpcs import GroupId, ReadOffsetReply, ReadOffsetResult, ReadOffsetRpc
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.wire import read_offset
from raftlake.wire.topic_lists import TopicPartitions

ResolveGroup = Callable[[str, int], GroupId]


def encode_request(rpc: ReadOffsetRpc) -> read_offset.ReadOffsetRequest:
    topics: list[TopicPartitions] = []
    for group in rpc.groups:
        if not topics or topics[-1].name != group.topic:
            topics.append(TopicPartitions(group.topic, []))
        topics[-1].partitions.append(group.partition)
    return read_offset.ReadOffsetRequest(rpc.cluster_id, rpc.read_timestamp_ms, topics)


def decode_request(message: read_offset.ReadOffsetRequest, asking: NodeId | None, resolve: ResolveGroup) -> ReadOffsetRpc:
    """`asking` is the node at the other end, None for a client."""
    return ReadOffsetRpc(
        cluster_id=message.cluster_id,
        read_timestamp_ms=message.read_timestamp_ms,
        groups=tuple(resolve(topic.name, index) for topic in message.topics for index in topic.partitions),
        replica_id=NodeId(-1) if asking is None else asking,
    )


def encode_reply(rpc: ReadOffsetRpc, reply: ReadOffsetReply) -> read_offset.ReadOffsetResponse:
    topics: list[read_offset.ReadOffsetTopicResult] = []
    for result in reply.results:
        if not topics or topics[-1].name != result.group.topic:
            topics.append(read_offset.ReadOffsetTopicResult(result.group.topic, []))
        topics[-1].partitions.append(
            read_offset.ReadOffsetPartitionResult(
                result.group.partition, result.error, result.applied_offset, result.leader_id, result.leader_epoch
            )
        )
    return read_offset.ReadOffsetResponse(rpc.cluster_id, reply.error, topics)


def decode_reply(rpc: ReadOffsetRpc, message: read_offset.ReadOffsetResponse) -> ReadOffsetReply:
    groups = {(group.topic, group.partition): group for group in rpc.groups}
    results: list[ReadOffsetResult] = []
    for topic in message.topics:
        for part in topic.partitions:
            group = groups.get((topic.name, part.index))
            if group is not None:
                results.append(
                    ReadOffsetResult(
                        group=group,
                        error=part.error,
                        applied_offset=Offset(part.applied_offset),
                        leader_id=NodeId(part.leader_id),
                        leader_epoch=Epoch(part.leader_epoch),
                    )
                )
    return ReadOffsetReply(error=message.error, results=tuple(results))
