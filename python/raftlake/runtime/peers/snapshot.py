"""FetchSnapshot: the wire's messages to the values of `ports` and back.

Topics are named as in Vote and BeginQuorumEpoch: `name:id` between our nodes, the plain name of the quorum's own log.
Spoken when asking: version 1; answered: both. The bytes of a snapshot are passed on as they are.
"""

from __future__ import annotations

from raftlake.errors import WireError
from raftlake.ports.peer_rpcs import FetchSnapshotReply, FetchSnapshotRpc, PeerMessage
from raftlake.raft.messages import FetchSnapshotRequest, FetchSnapshotResponse
from raftlake.raft.types import DirectoryId, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.runtime.peers.control import FindEndpoint, ResolveGroup, by_topic, group_named, leader_endpoints, name_of
from raftlake.wire import fetch_snapshot as wire
from raftlake.wire.common import LeaderAndEpoch, NodeEndpoint

FETCH_SNAPSHOT_VERSION = 1


# --- the answering side ------------------------------------------------------------------------------------------------


def decode_request(message: wire.FetchSnapshotRequest, resolve: ResolveGroup) -> FetchSnapshotRpc:
    parts = [
        PeerMessage(
            group_named(topic.name, part.index, resolve),
            FetchSnapshotRequest(
                replica=ReplicaKey(NodeId(message.replica_id), DirectoryId(part.directory_id)),
                leader_epoch=Epoch(part.current_leader_epoch),
                snapshot_id=OffsetAndEpoch(Offset(part.end_offset), Epoch(part.epoch)),
                position=part.position,
            ),
        )
        for topic in message.topics
        for part in topic.partitions
    ]
    return FetchSnapshotRpc(
        cluster_id=message.cluster_id,
        replica_id=NodeId(message.replica_id),
        size_max=max(message.bytes_max, 1),
        messages=tuple(parts),
    )


def encode_reply(reply: FetchSnapshotReply, find_endpoint: FindEndpoint, quorum_topic: str) -> wire.FetchSnapshotResponse:
    """The response; it names the address of every leader that it names."""
    topics: list[wire.SnapshotTopicResult] = []
    for name, parts in by_topic(reply.messages, quorum_topic):
        results = []
        for group, body in parts:
            assert isinstance(body, FetchSnapshotResponse)
            results.append(
                wire.SnapshotPartitionResult(
                    index=group.partition,
                    error=body.error,
                    end_offset=body.snapshot_id.offset,
                    epoch=body.snapshot_id.epoch,
                    current_leader=LeaderAndEpoch(body.leader_id, body.leader_epoch),
                    size=body.size,
                    position=body.position,
                    data=body.data,
                )
            )
        topics.append(wire.SnapshotTopicResult(name, results))
    leaders = leader_endpoints((message.body for message in reply.messages), find_endpoint)
    endpoints = [NodeEndpoint(node_id, at.host, at.port) for node_id, at in leaders]
    return wire.FetchSnapshotResponse(reply.error, topics, node_endpoints=endpoints)


# --- the asking side ---------------------------------------------------------------------------------------------------


def encode_request(rpc: FetchSnapshotRpc, quorum_topic: str) -> wire.FetchSnapshotRequest:
    topics: list[wire.SnapshotTopic] = []
    for name, parts in by_topic(rpc.messages, quorum_topic):
        asked = []
        for group, body in parts:
            assert isinstance(body, FetchSnapshotRequest)
            asked.append(
                wire.SnapshotPartition(
                    index=group.partition,
                    current_leader_epoch=body.leader_epoch,
                    end_offset=body.snapshot_id.offset,
                    epoch=body.snapshot_id.epoch,
                    position=body.position,
                    directory_id=bytes(body.replica.directory_id),
                )
            )
        topics.append(wire.SnapshotTopic(name, asked))
    return wire.FetchSnapshotRequest(rpc.cluster_id, rpc.replica_id, rpc.size_max, topics)


def decode_reply(rpc: FetchSnapshotRpc, message: wire.FetchSnapshotResponse, quorum_topic: str) -> FetchSnapshotReply:
    """The answer to `rpc`. Raises WireError when it does not answer each group that was asked about, once."""
    results = {(topic.name, part.index): part for topic in message.topics for part in topic.partitions}
    if message.error:
        return FetchSnapshotReply(error=message.error)
    parts: list[PeerMessage] = []
    for sent in rpc.messages:
        result = results.get((name_of(sent.group, quorum_topic), sent.group.partition))
        if result is None:
            raise WireError(f"answer to FetchSnapshot leaves {sent.group} out")
        parts.append(PeerMessage(sent.group, _decode_result(result)))
    return FetchSnapshotReply(error=message.error, messages=tuple(parts))


def _decode_result(result: wire.SnapshotPartitionResult) -> FetchSnapshotResponse:
    leader = result.current_leader
    return FetchSnapshotResponse(
        error=result.error,
        leader_id=NodeId(-1 if leader is None else leader.leader_id),
        leader_epoch=Epoch(-1 if leader is None else leader.leader_epoch),
        snapshot_id=OffsetAndEpoch(Offset(result.end_offset), Epoch(result.epoch)),
        size=result.size,
        position=result.position,
        data=result.data,
    )
