"""ListOffsets and OffsetForLeaderEpoch of a replica: the wire's messages to the values of `ports` and back (KIP-405).

One partition in each request. Topics are named as in Vote: `name:id` between our nodes, so that a topic that was deleted and
created again is not taken for its successor. Spoken: ListOffsets version 11, OffsetForLeaderEpoch version 4.
"""

from __future__ import annotations

from typing import Any

from kio.schema.list_offsets.v11 import request as list_request
from kio.schema.list_offsets.v11 import response as list_response
from kio.schema.offset_for_leader_epoch.v4 import request as epoch_request
from kio.schema.offset_for_leader_epoch.v4 import response as epoch_response

from raftlake.errors import WireError
from raftlake.ports.peer_rpcs import EpochEndRpc, LocalStartRpc, OffsetReply, OffsetRpc, PeerRpc
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch
from raftlake.runtime.peers.control import ResolveGroup, group_named, name_of
from raftlake.wire.api import ApiKey
from raftlake.wire.durations import milliseconds
from raftlake.wire.primitives import error_code

LIST_OFFSETS_VERSION = 11
EPOCH_END_VERSION = 4
SPOKEN = {(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION), (ApiKey.OFFSET_FOR_LEADER_EPOCH, EPOCH_END_VERSION)}

#: kio's classes, untyped: each integer would otherwise have to be wrapped in a class of its own.
_ListRequest: Any = list_request
_ListResponse: Any = list_response
_EpochRequest: Any = epoch_request
_EpochResponse: Any = epoch_response


# --- the answering side ---


def decode_request(api_key: ApiKey, message: Any, resolve: ResolveGroup) -> OffsetRpc | None:
    """None where it is not what a replica asks."""
    partitions = [(topic, part) for topic in message.topics for part in topic.partitions]
    replica_id = getattr(message, "replica_id", -1)
    if len(partitions) != 1 or replica_id < 0:
        return None
    topic, part = partitions[0]
    replica, epoch = NodeId(replica_id), Epoch(getattr(part, "current_leader_epoch", -1))
    if api_key is ApiKey.LIST_OFFSETS:
        group = group_named(topic.name, part.partition_index, resolve)
        return LocalStartRpc(group=group, replica_id=replica, leader_epoch=epoch, timestamp=part.timestamp)
    group = group_named(topic.topic, part.partition, resolve)
    return EpochEndRpc(group=group, replica_id=replica, leader_epoch=epoch, epoch=Epoch(part.leader_epoch))


def encode_reply(rpc: PeerRpc, reply: OffsetReply, quorum_topic: str) -> object:
    assert isinstance(rpc, LocalStartRpc | EpochEndRpc)
    name, position = name_of(rpc.group, quorum_topic), reply.position
    if isinstance(rpc, LocalStartRpc):
        found = _ListResponse.ListOffsetsPartitionResponse(
            partition_index=rpc.group.partition,
            error_code=reply.error,
            offset=position.offset,
            leader_epoch=position.epoch,
        )
        topic = _ListResponse.ListOffsetsTopicResponse(name=name, partitions=(found,))
        return _ListResponse.ListOffsetsResponse(throttle_time=milliseconds(0), topics=(topic,))
    end = _EpochResponse.EpochEndOffset(
        partition=rpc.group.partition,
        error_code=reply.error,
        leader_epoch=position.epoch,
        end_offset=position.offset,
    )
    result = _EpochResponse.OffsetForLeaderTopicResult(topic=name, partitions=(end,))
    return _EpochResponse.OffsetForLeaderEpochResponse(throttle_time=milliseconds(0), topics=(result,))


# --- the asking side ---


def encode_request(rpc: OffsetRpc, quorum_topic: str) -> tuple[ApiKey, int, object]:
    name = name_of(rpc.group, quorum_topic)
    if isinstance(rpc, LocalStartRpc):
        asked = _ListRequest.ListOffsetsPartition(
            partition_index=rpc.group.partition, current_leader_epoch=rpc.leader_epoch, timestamp=rpc.timestamp
        )
        topics = (_ListRequest.ListOffsetsTopic(name=name, partitions=(asked,)),)
        message = _ListRequest.ListOffsetsRequest(
            replica_id=rpc.replica_id, isolation_level=0, topics=topics, timeout=milliseconds(0)
        )
        return ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, message
    part = _EpochRequest.OffsetForLeaderPartition(
        partition=rpc.group.partition, current_leader_epoch=rpc.leader_epoch, leader_epoch=rpc.epoch
    )
    topic = _EpochRequest.OffsetForLeaderTopic(topic=name, partitions=(part,))
    request = _EpochRequest.OffsetForLeaderEpochRequest(replica_id=rpc.replica_id, topics=(topic,))
    return ApiKey.OFFSET_FOR_LEADER_EPOCH, EPOCH_END_VERSION, request


def decode_reply(rpc: OffsetRpc, message: Any) -> OffsetReply:
    """Raises WireError when it does not answer what was asked."""
    found = [part for topic in message.topics for part in topic.partitions]
    if len(found) != 1:
        raise WireError(f"answer about {rpc.group} has {len(found)} partitions")
    (part,) = found
    offset = part.offset if isinstance(rpc, LocalStartRpc) else part.end_offset
    position = OffsetAndEpoch(Offset(offset), Epoch(part.leader_epoch))
    return OffsetReply(error=error_code(part.error_code), position=position)
