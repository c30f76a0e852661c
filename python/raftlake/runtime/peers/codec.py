"""What nodes say to each other, between the wire and `ports`: one codec for both sides of every peer RPC.

Owns which messages are a peer's: Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot, Fetch with a replica id, WriteMarkers,
ReadOffset (a client may ask it too), and, from a connection that says it is a node's, a Produce to the metadata log and a
DescribeQuorum that it passes on. Everything else is a client's and none of this module's business. Cluster ids are passed
through; the node checks them. Log bytes are never copied.

The asking side learns topic names from what it sends: a group found on disk fetches before its topic's key is applied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, assert_never

from raftlake.errors import ErrorCode, InvariantViolation, WireError
from raftlake.ports.peer_rpcs import (
    ControlReply,
    ControlRpc,
    DescribeReply,
    DescribeRpc,
    EpochEndRpc,
    FetchReply,
    FetchRpc,
    FetchSnapshotReply,
    FetchSnapshotRpc,
    GroupId,
    LocalStartRpc,
    MarkersReply,
    MarkersRpc,
    OffsetReply,
    PeerMessage,
    PeerReply,
    PeerRpc,
    ProposeReply,
    ProposeRpc,
    ReadOffsetReply,
    ReadOffsetRpc,
    VoterReply,
    VoterRpc,
)
from raftlake.raft.messages import FetchedBatch, FetchRequest, FetchResponse, VoteRequest
from raftlake.raft.types import UNKNOWN_OFFSET, DirectoryId, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.replica.config import METADATA_GROUP, METADATA_TOPIC, Endpoint
from raftlake.runtime.peers import control as peer_control
from raftlake.runtime.peers import markers as peer_markers
from raftlake.runtime.peers import offsets as peer_offsets
from raftlake.runtime.peers import reads as peer_reads
from raftlake.runtime.peers import snapshot as peer_snapshot
from raftlake.wire import fetch, produce
from raftlake.wire.api import ApiKey, RequestHeader
from raftlake.wire.common import LeaderAndEpoch, NodeEndpoint
from raftlake.wire.primitives import BytesLike

FETCH_VERSION = 18
READ_OFFSET_VERSION = 0
#: The newest version that names topics by name.
PROPOSE_VERSION = 12
VOTER_KEYS = frozenset({ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER})
_CLIENT_ID_PREFIX = "raftlake-node-"
_ID_DIGITS_MAX = 10


class Directory(Protocol):
    """How a node knows topics: `Names`."""

    def resolve_topic(self, topic_id: bytes) -> str | None: ...

    def resolve_group(self, topic: str, partition: int) -> GroupId: ...


def peer_client_id(node_id: NodeId) -> str:
    """The client id by which a node's own connections are known. It keeps a client's Produce from being taken for a
    proposal by accident; there is no authentication on this listener."""
    return f"{_CLIENT_ID_PREFIX}{node_id}"


def parse_peer_client_id(client_id: str | None) -> NodeId | None:
    if client_id is None or not client_id.startswith(_CLIENT_ID_PREFIX):
        return None
    # Each Fetch of a peer asks: a regular expression takes four times as long.
    number = client_id[len(_CLIENT_ID_PREFIX) :]
    return NodeId(int(number)) if number.isdecimal() and number.isascii() and len(number) <= _ID_DIGITS_MAX else None


def is_from_replica(message: object) -> bool:
    """Whether a Fetch is a replica's and not a consumer's."""
    return isinstance(message, fetch.FetchRequest) and message.replica_id >= 0


class PeerCodec:
    """`peers` are the addresses at which nodes reach each other (quorum.voters), `quorum_group` the log that they vote on."""

    def __init__(self, *, node_id: NodeId, peers: Mapping[NodeId, Endpoint], quorum_group: GroupId = METADATA_GROUP) -> None:
        self._peers = peers
        self._me = peers.get(node_id)
        self._directory: Directory | None = None
        self._quorum_topic = quorum_group.topic
        self._names: dict[bytes, str] = {quorum_group.topic_id: quorum_group.topic}

    def attach(self, directory: Directory, peers: Mapping[NodeId, Endpoint] | None = None) -> None:
        """The node exists now; requests may be decoded from here on. `peers` are the addresses as they become known."""
        self._directory = directory
        if peers is not None:
            self._peers = peers

    # --- the answering side ---

    def decode_request(self, header: RequestHeader, message: Any, *, from_peers: bool = True) -> PeerRpc | None:
        """The RPC that a request is, or None for a client's request. Without `from_peers` the request came where peers do not
        ask, and a node's client id says nothing there."""
        assert self._directory is not None
        asking = parse_peer_client_id(header.client_id) if from_peers else None
        if header.api_key == ApiKey.PRODUCE:
            # The commonest request by far.
            return None if asking is None else _decode_propose(message, asking)
        if header.api_key == ApiKey.FETCH:
            return self._decode_fetch(message) if message.replica_id >= 0 else None
        if header.api_key in peer_control.CONTROL_KEYS:
            resolve = self._directory.resolve_group
            return peer_control.decode_request(ApiKey(header.api_key), header.api_version, message, resolve)
        if header.api_key == ApiKey.FETCH_SNAPSHOT:
            return peer_snapshot.decode_request(message, self._directory.resolve_group)
        if header.api_key == ApiKey.READ_OFFSET:
            return peer_reads.decode_request(message, asking, self._directory.resolve_group)
        if header.api_key == ApiKey.DESCRIBE_QUORUM and asking is not None:
            return DescribeRpc(request=message)
        if (header.api_key, header.api_version) in peer_offsets.SPOKEN and asking is not None:
            # None for a node that asks like a client.
            return peer_offsets.decode_request(ApiKey(header.api_key), message, self._directory.resolve_group)
        if header.api_key in VOTER_KEYS and asking is not None:
            return VoterRpc(request=message)
        if header.api_key == ApiKey.WRITE_MARKERS:
            if asking is None:
                raise WireError("nodes alone ask for markers")
            return peer_markers.decode_request(message, asking, self._directory.resolve_group)
        return None

    def encode_reply(self, header: RequestHeader, rpc: PeerRpc, reply: PeerReply) -> object:
        """The response message to a request that was decoded to `rpc`."""
        match reply:
            case FetchReply():
                return self._encode_fetch_reply(header.api_version, reply)
            case ControlReply():
                key = ApiKey(header.api_key)
                return peer_control.encode_reply(key, header.api_version, reply, self._peers.get, self._quorum_topic)
            case FetchSnapshotReply():
                return peer_snapshot.encode_reply(reply, self._peers.get, self._quorum_topic)
            case ReadOffsetReply():
                assert isinstance(rpc, ReadOffsetRpc)
                return peer_reads.encode_reply(rpc, reply)
            case ProposeReply():
                text = reply.message or None
                result = produce.ProducePartitionResult(0, reply.error, reply.base_offset, error_message=text)
                return produce.ProduceResponse([produce.ProduceTopicResult(METADATA_TOPIC, None, [result])])
            case OffsetReply():
                return peer_offsets.encode_reply(rpc, reply, self._quorum_topic)
            case MarkersReply():
                return peer_markers.encode_reply(reply)
            case DescribeReply() | VoterReply():
                return reply.response
            case _:
                assert_never(reply)

    def _decode_fetch(self, message: fetch.FetchRequest) -> FetchRpc:
        replica_id = NodeId(message.replica_id)
        parts = [
            PeerMessage(
                self._group(topic.name, topic.topic_id, part.index),
                FetchRequest(
                    replica=ReplicaKey(replica_id, DirectoryId(bytes(part.replica_directory_id))),
                    leader_epoch=Epoch(part.current_leader_epoch),
                    fetch_offset=Offset(part.fetch_offset),
                    last_fetched_epoch=Epoch(part.last_fetched_epoch),
                    high_watermark=Offset(part.high_watermark),
                    log_start_offset=Offset(part.log_start_offset),
                ),
            )
            for topic in message.topics
            for part in topic.partitions
        ]
        forgotten = [
            self._group(topic.name, topic.topic_id, index) for topic in message.forgotten for index in topic.partitions
        ]
        return FetchRpc(
            cluster_id=message.cluster_id,
            replica_id=replica_id,
            session_id=message.session_id,
            session_epoch=message.session_epoch,
            wait_ms_max=message.wait_ms_max,
            size_max=max(message.bytes_max, 1),
            messages=tuple(parts),
            forgotten=tuple(forgotten),
            disk_is_low=message.disk_is_low,
        )

    def _group(self, name: str | None, topic_id: bytes | None, partition: int) -> GroupId:
        """The group that a request names; one that is unknown keeps what the request said, so that the answer can say it."""
        assert self._directory is not None
        if topic_id is None:
            return self._directory.resolve_group(name or "", partition)
        topic_id = bytes(topic_id)
        return GroupId(self._directory.resolve_topic(topic_id) or "", partition, topic_id)

    def _encode_fetch_reply(self, version: int, reply: FetchReply) -> fetch.FetchResponse:
        topics: list[fetch.FetchTopicResult] = []
        last: tuple[str, bytes] | None = None
        # Nodes of ours, which are those with sessions, need no address of the leader that they fetch from, and are told where
        # its log ends.
        has_news_of_leaders = reply.session_id == 0
        for message in reply.messages:
            group = message.group
            if last != (group.topic, group.topic_id):
                last = (group.topic, group.topic_id)
                name, topic_id = (None, group.topic_id) if version >= 13 else (group.topic, None)
                topics.append(fetch.FetchTopicResult(name, topic_id, []))
            assert isinstance(message.body, FetchResponse)
            has_news_of_leaders = has_news_of_leaders or message.body.error is not ErrorCode.NONE
            result = _encode_fetched(group.partition, message.body)
            if reply.session_id != 0:
                result.last_stable_offset = message.body.leader_log_end
            topics[-1].partitions.append(result)
        leaders: list[tuple[NodeId, Endpoint]] = []
        if has_news_of_leaders:
            leaders = peer_control.leader_endpoints((message.body for message in reply.messages), self._peers.get)
        return fetch.FetchResponse(
            topics,
            error=reply.error,
            session_id=reply.session_id,
            node_endpoints=[NodeEndpoint(node_id, at.host, at.port) for node_id, at in leaders],
            sync_report=reply.sync_report,
        )

    # --- the asking side ---

    def encode_request(self, peer: NodeId, rpc: PeerRpc) -> tuple[ApiKey, int, object]:
        """The API, the version and the message that say `rpc` to `peer`."""
        match rpc:
            case FetchRpc():
                return ApiKey.FETCH, FETCH_VERSION, self._encode_fetch(rpc)
            case ControlRpc():
                return peer_control.encode_request(rpc, peer, self._me, self._quorum_topic)
            case FetchSnapshotRpc():
                message = peer_snapshot.encode_request(rpc, self._quorum_topic)
                return ApiKey.FETCH_SNAPSHOT, peer_snapshot.FETCH_SNAPSHOT_VERSION, message
            case ReadOffsetRpc():
                return ApiKey.READ_OFFSET, READ_OFFSET_VERSION, peer_reads.encode_request(rpc)
            case ProposeRpc():
                topic = produce.ProduceTopic(METADATA_TOPIC, None, [produce.ProducePartition(0, rpc.batch)])
                return ApiKey.PRODUCE, PROPOSE_VERSION, produce.ProduceRequest(-1, 0, None, [topic])
            case LocalStartRpc() | EpochEndRpc():
                return peer_offsets.encode_request(rpc, self._quorum_topic)
            case MarkersRpc():
                written = peer_markers.encode_request(rpc, self._quorum_topic)
                return ApiKey.WRITE_MARKERS, peer_markers.WRITE_MARKERS_VERSION, written
            case DescribeRpc() | VoterRpc():
                request: Any = rpc.request
                return ApiKey(int(type(request).__api_key__)), int(type(request).__version__), request
            case _:
                assert_never(rpc)

    def decode_reply(self, rpc: PeerRpc, message: Any) -> PeerReply:
        """The answer to `rpc`. Raises WireError when it does not answer what was asked."""
        match rpc:
            case FetchRpc():
                return self._decode_fetch_reply(message)
            case ControlRpc():
                return peer_control.decode_reply(rpc, message, self._quorum_topic)
            case FetchSnapshotRpc():
                return peer_snapshot.decode_reply(rpc, message, self._quorum_topic)
            case ReadOffsetRpc():
                return peer_reads.decode_reply(rpc, message)
            case ProposeRpc():
                results = [result for topic in message.topics for result in topic.partitions]
                if len(results) != 1:
                    raise WireError(f"answer to a proposal has {len(results)} partitions")
                (told,) = results
                return ProposeReply(error=told.error, base_offset=Offset(told.base_offset), message=told.error_message or "")
            case LocalStartRpc() | EpochEndRpc():
                return peer_offsets.decode_reply(rpc, message)
            case MarkersRpc():
                return peer_markers.decode_reply(rpc, message)
            case DescribeRpc():
                return DescribeReply(response=message)
            case VoterRpc():
                return VoterReply(response=message)
            case _:
                assert_never(rpc)

    def _encode_fetch(self, rpc: FetchRpc) -> fetch.FetchRequest:
        topics: list[fetch.FetchTopic] = []
        for message in rpc.messages:
            group, body = message.group, message.body
            assert isinstance(body, FetchRequest)
            if not topics or topics[-1].topic_id != group.topic_id:
                self._names[group.topic_id] = group.topic
                topics.append(fetch.FetchTopic(None, group.topic_id, []))
            topics[-1].partitions.append(
                fetch.FetchPartition(
                    index=group.partition,
                    current_leader_epoch=body.leader_epoch,
                    fetch_offset=body.fetch_offset,
                    last_fetched_epoch=body.last_fetched_epoch,
                    log_start_offset=body.log_start_offset,
                    bytes_max=rpc.size_max,
                    replica_directory_id=bytes(body.replica.directory_id),
                    high_watermark=body.high_watermark,
                )
            )
        return fetch.FetchRequest(
            wait_ms_max=rpc.wait_ms_max,
            bytes_min=0,
            bytes_max=rpc.size_max,
            session_id=rpc.session_id,
            session_epoch=rpc.session_epoch,
            cluster_id=rpc.cluster_id,
            replica_id=rpc.replica_id,
            topics=topics,
            forgotten=_forgotten(rpc.forgotten),
            disk_is_low=rpc.disk_is_low,
        )

    def _decode_fetch_reply(self, message: fetch.FetchResponse) -> FetchReply:
        parts: list[PeerMessage] = []
        for topic in message.topics:
            topic_id = bytes(topic.topic_id or b"")
            name = self._names.get(topic_id)
            if name is None:
                # Nothing of that topic was asked for on this node.
                continue
            parts += [
                PeerMessage(GroupId(name, result.index, topic_id), _decode_fetched(result, message.session_id))
                for result in topic.partitions
            ]
        return FetchReply(
            error=message.error, session_id=message.session_id, messages=tuple(parts), sync_report=message.sync_report
        )


def _decode_propose(message: produce.ProduceRequest, source: NodeId) -> ProposeRpc | None:
    """The proposal in a node's Produce; None when it is about any other topic."""
    if len(message.topics) != 1 or message.topics[0].name != METADATA_TOPIC:
        return None
    parts = message.topics[0].partitions
    if len(parts) != 1 or parts[0].index != 0 or parts[0].records is None:
        raise WireError("a proposal is one batch for partition 0 of the metadata log")
    return ProposeRpc(batch=bytes(parts[0].records), source=source)


def _encode_fetched(index: int, body: FetchResponse) -> fetch.FetchPartitionResult:
    diverging, snapshot_id = body.diverging, body.snapshot_id
    return fetch.FetchPartitionResult(
        index,
        body.error,
        high_watermark=body.high_watermark,
        log_start_offset=body.log_start_offset,
        records=_records(body.batches),
        diverging_epoch=None if diverging is None else fetch.EpochEndOffset(diverging.epoch, diverging.offset),
        current_leader=LeaderAndEpoch(body.leader_id, body.leader_epoch),
        snapshot_id=None if snapshot_id is None else fetch.SnapshotId(snapshot_id.offset, snapshot_id.epoch),
    )


def _records(batches: Sequence[FetchedBatch]) -> BytesLike:
    """The log bytes to send. The driver reads them as one piece, so nothing is copied."""
    if not batches:
        return b""
    if len(batches) == 1:
        payload = batches[0].payload
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise InvariantViolation(f"fetched bytes are {type(payload).__name__}")
        return payload
    return b"".join(batch.payload for batch in batches)


def _decode_fetched(result: fetch.FetchPartitionResult, session_id: int) -> FetchResponse:
    """One group's part of an answer. Its log bytes stay one unchecked piece: the driver cuts and checks them, because what is
    damaged must be cut off, not refused with the rest of the answer."""
    leader, diverging, snapshot_id = result.current_leader, result.diverging_epoch, result.snapshot_id
    batches: tuple[FetchedBatch, ...] = ()
    if result.records:
        whole = FetchedBatch(base_offset=Offset(0), end_offset=Offset(0), epoch=Epoch(0), payload=result.records)
        batches = (whole,)
    return FetchResponse(
        error=result.error,
        leader_id=NodeId(-1 if leader is None else leader.leader_id),
        leader_epoch=Epoch(-1 if leader is None else leader.leader_epoch),
        high_watermark=Offset(result.high_watermark),
        log_start_offset=Offset(result.log_start_offset),
        diverging=None if diverging is None else OffsetAndEpoch(Offset(diverging.end_offset), Epoch(diverging.epoch)),
        snapshot_id=None if snapshot_id is None else OffsetAndEpoch(Offset(snapshot_id.end_offset), Epoch(snapshot_id.epoch)),
        batches=batches,
        leader_log_end=Offset(result.last_stable_offset) if session_id != 0 else UNKNOWN_OFFSET,
    )


def _forgotten(groups: Sequence[GroupId]) -> list[fetch.ForgottenTopic]:
    by_id: dict[bytes, list[int]] = {}
    for group in groups:
        by_id.setdefault(group.topic_id, []).append(group.partition)
    return [fetch.ForgottenTopic(None, topic_id, indexes) for topic_id, indexes in by_id.items()]


def source_of(rpc: PeerRpc) -> NodeId | None:
    """The node that sent an RPC, where it says so."""
    match rpc:
        case FetchRpc() | FetchSnapshotRpc() | ReadOffsetRpc() | LocalStartRpc() | EpochEndRpc() | MarkersRpc():
            return rpc.replica_id
        case ControlRpc():
            body = rpc.messages[0].body if rpc.messages else None
            if isinstance(body, VoteRequest):
                return body.candidate.id
            return getattr(body, "leader_id", None)
        case ProposeRpc() | DescribeRpc() | VoterRpc():
            return None
        case _:
            assert_never(rpc)
