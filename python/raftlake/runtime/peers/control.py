"""Vote, BeginQuorumEpoch and EndQuorumEpoch: the wire's messages to the values of `ports` and back.

The wire batches these RPCs by topic and partition; each partition is one group's part. Spoken when asking: Vote v2, Begin v1,
End v1 (Kafka 4.3.1 has them all); answered: every version of the API table. The kio classes are used untyped: each integer
would otherwise have to be wrapped in a class of its own, several for each partition of each RPC.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, assert_never

from raftlake.errors import InvariantViolation, WireError
from raftlake.ports.peer_rpcs import ControlReply, ControlRpc, GroupId, PeerMessage
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from raftlake.raft.types import DirectoryId, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.replica.config import Endpoint
from raftlake.wire.api import ApiKey
from raftlake.wire.ids import KioId, id_from_kio, id_from_text, id_to_kio, id_to_text
from raftlake.wire.primitives import error_code

ResolveGroup = Callable[[str, int], GroupId]
FindEndpoint = Callable[[NodeId], Endpoint | None]

#: The name of the peers' listener: Kafka's own nodes look for the endpoint of their CONTROLLER listener.
LISTENER_NAME = "CONTROLLER"
CONTROL_KEYS = frozenset({ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH})
_SPOKEN = {
    VoteRequest: (ApiKey.VOTE, 2),
    BeginQuorumEpochRequest: (ApiKey.BEGIN_QUORUM_EPOCH, 1),
    EndQuorumEpochRequest: (ApiKey.END_QUORUM_EPOCH, 1),
}
_MODULE_OF = {ApiKey.VOTE: "vote", ApiKey.BEGIN_QUORUM_EPOCH: "begin_quorum_epoch", ApiKey.END_QUORUM_EPOCH: "end_quorum_epoch"}
_CLASS_OF = {ApiKey.VOTE: "Vote", ApiKey.BEGIN_QUORUM_EPOCH: "BeginQuorumEpoch", ApiKey.END_QUORUM_EPOCH: "EndQuorumEpoch"}


def _schema(api_key: ApiKey, version: int, kind: str) -> Any:
    return importlib.import_module(f"kio.schema.{_MODULE_OF[api_key]}.v{version}.{kind}")


# --- the answering side ------------------------------------------------------------------------------------------------


def decode_request(api_key: ApiKey, version: int, message: Any, resolve: ResolveGroup) -> ControlRpc:
    """The RPC of a peer; a topic that is not known here gets a group with a zero id."""
    voter_id = NodeId(getattr(message, "voter_id", -1))
    parts = [
        PeerMessage(group_named(topic.topic_name, part.partition_index, resolve), _decode_part(api_key, part, voter_id))
        for topic in message.topics
        for part in topic.partitions
    ]
    return ControlRpc(cluster_id=message.cluster_id, messages=tuple(parts))


def _decode_part(api_key: ApiKey, part: Any, voter_id: NodeId) -> Request:
    if api_key == ApiKey.VOTE:
        return VoteRequest(
            candidate=ReplicaKey(NodeId(part.replica_id), _directory(getattr(part, "replica_directory_id", None))),
            epoch=Epoch(part.replica_epoch),
            log_end=OffsetAndEpoch(Offset(part.last_offset), Epoch(part.last_offset_epoch)),
            pre_vote=getattr(part, "pre_vote", False),
            voter_directory_id=_directory(getattr(part, "voter_directory_id", None)),
            voter_id=voter_id,
        )
    if api_key == ApiKey.BEGIN_QUORUM_EPOCH:
        return BeginQuorumEpochRequest(
            leader_id=NodeId(part.leader_id),
            leader_epoch=Epoch(part.leader_epoch),
            voter_directory_id=_directory(getattr(part, "voter_directory_id", None)),
            voter_id=voter_id,
        )
    return EndQuorumEpochRequest(
        leader_id=NodeId(part.leader_id), leader_epoch=Epoch(part.leader_epoch), preferred_candidates=_decode_candidates(part)
    )


def _decode_candidates(part: Any) -> tuple[ReplicaKey, ...]:
    candidates = getattr(part, "preferred_candidates", None)
    if candidates is None:
        return tuple(ReplicaKey(NodeId(node_id)) for node_id in part.preferred_successors)
    return tuple(ReplicaKey(NodeId(each.candidate_id), _directory(each.candidate_directory_id)) for each in candidates)


def encode_reply(api_key: ApiKey, version: int, reply: ControlReply, find_endpoint: FindEndpoint, quorum_topic: str) -> object:
    """The response; it names the address of every leader that it names (Kafka's own nodes need it)."""
    schema = _schema(api_key, version, "response")
    topics = tuple(
        schema.TopicData(
            topic_name=name, partitions=tuple(_encode_answer(schema, group.partition, body) for group, body in parts)
        )
        for name, parts in by_topic(reply.messages, quorum_topic)
    )
    response = getattr(schema, _CLASS_OF[api_key] + "Response")
    if not hasattr(schema, "NodeEndpoint"):
        return response(error_code=reply.error, topics=topics)
    leaders = leader_endpoints((message.body for message in reply.messages), find_endpoint)
    endpoints = tuple(schema.NodeEndpoint(node_id=node_id, host=at.host, port=at.port) for node_id, at in leaders)
    return response(error_code=reply.error, topics=topics, node_endpoints=endpoints)


def _encode_answer(schema: Any, index: int, body: Request | Response) -> object:
    if isinstance(body, VoteResponse):
        return schema.PartitionData(
            partition_index=index,
            error_code=body.error,
            leader_id=body.leader_id,
            leader_epoch=body.leader_epoch,
            vote_granted=body.vote_granted,
        )
    if isinstance(body, BeginQuorumEpochResponse | EndQuorumEpochResponse):
        return schema.PartitionData(
            partition_index=index, error_code=body.error, leader_id=body.leader_id, leader_epoch=body.leader_epoch
        )
    raise InvariantViolation(f"{type(body).__name__} is no answer to a Vote, Begin or EndQuorumEpoch")


def leader_endpoints(bodies: Iterable[Request | Response], find_endpoint: FindEndpoint) -> list[tuple[NodeId, Endpoint]]:
    """The address of each leader that the answers name, once each, by node id."""
    ids = {
        body.leader_id
        for body in bodies
        if not isinstance(body, VoteRequest | FetchRequest | FetchSnapshotRequest) and body.leader_id >= 0
    }
    found = ((node_id, find_endpoint(node_id)) for node_id in sorted(ids))
    return [(node_id, endpoint) for node_id, endpoint in found if endpoint is not None]


def name_of(group: GroupId, quorum_topic: str) -> str:
    """How these RPCs, which have no field for topic ids, name a group: `topic:id`, since a vote for a topic that was deleted
    and created again must not be taken for one of its successor. A topic's own name has no colon. The quorum's own log is
    never created again and goes by its plain name: Kafka's own nodes know no other group."""
    if group.topic == quorum_topic or not any(group.topic_id):
        return group.topic
    return f"{group.topic}:{id_to_text(group.topic_id)}"


def group_named(name: str, partition: int, resolve: ResolveGroup) -> GroupId:
    """The group that `name_of` named, or the one that a plain name stands for here."""
    topic, colon, text = name.partition(":")
    if not colon:
        return resolve(name, partition)
    try:
        return GroupId(topic, partition, id_from_text(text))
    except WireError:
        return GroupId(name, partition)


def by_topic(messages: Sequence[PeerMessage], quorum_topic: str) -> list[tuple[str, list[tuple[GroupId, Request | Response]]]]:
    """Neighbours of one topic together, in the order given."""
    topics: list[tuple[str, list[tuple[GroupId, Request | Response]]]] = []
    for message in messages:
        name = name_of(message.group, quorum_topic)
        if not topics or topics[-1][0] != name:
            topics.append((name, []))
        topics[-1][1].append((message.group, message.body))
    return topics


# --- the asking side ---------------------------------------------------------------------------------------------------


def encode_request(rpc: ControlRpc, peer: NodeId, me: Endpoint | None, quorum_topic: str) -> tuple[ApiKey, int, object]:
    """The request to `peer`; `me` is the address that a new leader is reached at."""
    first = rpc.messages[0].body
    assert isinstance(first, VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest)
    api_key, version = _SPOKEN[type(first)]
    schema = _schema(api_key, version, "request")
    topics = tuple(
        schema.TopicData(
            topic_name=name, partitions=tuple(_encode_part(schema, group.partition, body) for group, body in parts)
        )
        for name, parts in by_topic(rpc.messages, quorum_topic)
    )
    request = getattr(schema, _CLASS_OF[api_key] + "Request")
    if api_key == ApiKey.VOTE:
        return api_key, version, request(cluster_id=rpc.cluster_id, voter_id=peer, topics=topics)
    endpoints = () if me is None else (schema.LeaderEndpoint(name=LISTENER_NAME, host=me.host, port=me.port),)
    if api_key == ApiKey.BEGIN_QUORUM_EPOCH:
        message = request(cluster_id=rpc.cluster_id, voter_id=peer, topics=topics, leader_endpoints=endpoints)
    else:
        message = request(cluster_id=rpc.cluster_id, topics=topics, leader_endpoints=endpoints)
    return api_key, version, message


def _encode_part(schema: Any, index: int, body: Request | Response) -> object:
    match body:
        case VoteRequest():
            return schema.PartitionData(
                partition_index=index,
                replica_epoch=body.epoch,
                replica_id=body.candidate.id,
                replica_directory_id=id_to_kio(body.candidate.directory_id),
                voter_directory_id=id_to_kio(body.voter_directory_id),
                last_offset_epoch=body.log_end.epoch,
                last_offset=body.log_end.offset,
                pre_vote=body.pre_vote,
            )
        case BeginQuorumEpochRequest():
            return schema.PartitionData(
                partition_index=index,
                voter_directory_id=id_to_kio(body.voter_directory_id),
                leader_id=body.leader_id,
                leader_epoch=body.leader_epoch,
            )
        case EndQuorumEpochRequest():
            candidates = tuple(
                schema.ReplicaInfo(candidate_id=key.id, candidate_directory_id=id_to_kio(key.directory_id))
                for key in body.preferred_candidates
            )
            return schema.PartitionData(
                partition_index=index,
                leader_id=body.leader_id,
                leader_epoch=body.leader_epoch,
                preferred_candidates=candidates,
            )
        case FetchRequest() | FetchSnapshotRequest() | VoteResponse() | BeginQuorumEpochResponse() | EndQuorumEpochResponse():
            raise InvariantViolation(f"{type(body).__name__} is no control request")
        case FetchResponse() | FetchSnapshotResponse():
            raise InvariantViolation(f"{type(body).__name__} is no control request")
        case _:
            assert_never(body)


def decode_reply(rpc: ControlRpc, message: Any, quorum_topic: str) -> ControlReply:
    """The answer to `rpc`, for the groups that it asked about; a partition that was not asked about is left out."""
    groups = {(name_of(sent.group, quorum_topic), sent.group.partition): sent for sent in rpc.messages}
    parts: list[PeerMessage] = []
    for topic in message.topics:
        for part in topic.partitions:
            sent = groups.get((topic.topic_name, part.partition_index))
            if sent is not None:
                parts.append(PeerMessage(sent.group, _decode_answer(sent.body, part)))
    return ControlReply(error=error_code(int(message.error_code)), messages=tuple(parts))


def _decode_answer(asked: Request | Response, part: Any) -> Response:
    error = error_code(int(part.error_code))
    leader_id, leader_epoch = NodeId(part.leader_id), Epoch(part.leader_epoch)
    if isinstance(asked, VoteRequest):
        granted = part.vote_granted
        return VoteResponse(error=error, leader_id=leader_id, leader_epoch=leader_epoch, vote_granted=granted)
    if isinstance(asked, BeginQuorumEpochRequest):
        return BeginQuorumEpochResponse(error=error, leader_id=leader_id, leader_epoch=leader_epoch)
    return EndQuorumEpochResponse(error=error, leader_id=leader_id, leader_epoch=leader_epoch)


def _directory(value: KioId | None) -> DirectoryId:
    return DirectoryId(id_from_kio(value))
