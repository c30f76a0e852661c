"""FetchSnapshot and ReadOffset between the wire and the driver: groups by name, addresses of leaders, gaps in answers."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode, WireError
from raftlake.ports.peer_rpcs import FetchSnapshotReply, FetchSnapshotRpc, GroupId, PeerMessage, ReadOffsetRpc
from raftlake.raft.messages import FetchSnapshotRequest, FetchSnapshotResponse
from raftlake.raft.types import DirectoryId, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.replica.config import METADATA_GROUP, METADATA_TOPIC, Endpoint
from raftlake.runtime.peers import reads as peer_reads
from raftlake.runtime.peers import snapshot as peer_snapshot
from raftlake.wire.fetch_snapshot import FetchSnapshotResponse as WireResponse

TOPIC = GroupId("flights", 2, bytes(range(16)))
WANTED = OffsetAndEpoch(Offset(50), Epoch(3))


def rpc(*groups: GroupId) -> FetchSnapshotRpc:
    body = FetchSnapshotRequest(
        replica=ReplicaKey(NodeId(2), DirectoryId(bytes(range(16, 32)))), leader_epoch=Epoch(4), snapshot_id=WANTED, position=7
    )
    messages = tuple(PeerMessage(group, body) for group in groups)
    return FetchSnapshotRpc(cluster_id="c", replica_id=NodeId(2), size_max=100, messages=messages)


def answer(error: ErrorCode = ErrorCode.NONE) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(
        error=error, leader_id=NodeId(1), leader_epoch=Epoch(4), snapshot_id=WANTED, size=20, position=7, data=b"piece"
    )


def test_a_request_says_what_was_meant() -> None:
    asked = rpc(METADATA_GROUP, TOPIC)

    def resolve(topic: str, partition: int) -> GroupId:
        assert topic == METADATA_GROUP.topic, "other topics carry their id with their name"
        return METADATA_GROUP

    assert peer_snapshot.decode_request(peer_snapshot.encode_request(asked, METADATA_TOPIC), resolve) == asked


def test_a_reply_says_what_was_meant_and_where_the_leader_is() -> None:
    asked = rpc(METADATA_GROUP, TOPIC)
    reply = FetchSnapshotReply(
        error=ErrorCode.NONE,
        messages=(PeerMessage(METADATA_GROUP, answer()), PeerMessage(TOPIC, answer(ErrorCode.SNAPSHOT_NOT_FOUND))),
    )
    message = peer_snapshot.encode_reply(reply, {NodeId(1): Endpoint("one", 9001)}.get, METADATA_TOPIC)
    assert [tuple(each) for each in message.node_endpoints] == [(1, "one", 9001)]
    assert peer_snapshot.decode_reply(asked, message, METADATA_TOPIC) == reply


def test_a_reply_that_leaves_a_group_out_is_none() -> None:
    with pytest.raises(WireError, match="leaves flights-2 out"):
        peer_snapshot.decode_reply(rpc(TOPIC), WireResponse(ErrorCode.NONE, []), METADATA_TOPIC)


def test_an_error_at_the_top_stands_for_all() -> None:
    message = WireResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, [])
    assert peer_snapshot.decode_reply(rpc(TOPIC), message, METADATA_TOPIC) == FetchSnapshotReply(
        error=ErrorCode.INCONSISTENT_CLUSTER_ID
    )


def test_read_offset_gathers_neighbours_of_one_topic() -> None:
    groups = tuple(GroupId(topic, index) for topic, index in (("a", 0), ("a", 1), ("b", 0), ("a", 2)))
    message = peer_reads.encode_request(ReadOffsetRpc(cluster_id=None, read_timestamp_ms=5, groups=groups))
    assert [(topic.name, topic.partitions) for topic in message.topics] == [("a", [0, 1]), ("b", [0]), ("a", [2])]
