"""ReadOffset between nodes: what is asked and answered arrives as it was said; who asks decides whether it is passed on."""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId, ReadOffsetReply, ReadOffsetResult, ReadOffsetRpc
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.runtime.peers import reads as peer_reads
from raftlake.wire.read_offset import ReadOffsetPartitionResult, ReadOffsetResponse, ReadOffsetTopicResult

GROUPS = (GroupId("a", 0, b"a" * 16), GroupId("a", 1, b"a" * 16), GroupId("b", 0, b"b" * 16))
RPC = ReadOffsetRpc(cluster_id="c", read_timestamp_ms=7, groups=GROUPS, replica_id=NodeId(2))


def resolve(topic: str, partition: int) -> GroupId:
    return GroupId(topic, partition, topic.encode() * 16)


def test_a_question_arrives_as_it_was_asked() -> None:
    message = peer_reads.encode_request(RPC)
    assert [topic.name for topic in message.topics] == ["a", "b"], "one entry for each topic"
    assert peer_reads.decode_request(message, NodeId(2), resolve) == RPC


def test_a_clients_question_has_no_node() -> None:
    assert peer_reads.decode_request(peer_reads.encode_request(RPC), None, resolve).replica_id == -1


def test_an_answer_arrives_as_it_was_given() -> None:
    results = tuple(
        ReadOffsetResult(
            group=group, error=ErrorCode.NONE, applied_offset=Offset(5 + at), leader_id=NodeId(1), leader_epoch=Epoch(3)
        )
        for at, group in enumerate(GROUPS)
    )
    reply = ReadOffsetReply(error=ErrorCode.NONE, results=results)
    assert peer_reads.decode_reply(RPC, peer_reads.encode_reply(RPC, reply)) == reply


def test_what_was_not_asked_is_left_out_of_an_answer() -> None:
    stray = ReadOffsetPartitionResult(9, ErrorCode.NONE, 1, 1, 1)
    answer = ReadOffsetResponse("c", ErrorCode.NONE, [ReadOffsetTopicResult("a", [stray])])
    assert peer_reads.decode_reply(RPC, answer) == ReadOffsetReply(error=ErrorCode.NONE)
