"""Where a log begins and an epoch ends, asked by a replica: between the wire and `ports`, in Kafka's own messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raftlake.errors import ErrorCode, WireError
from raftlake.ports.peer_rpcs import EpochEndRpc, GroupId, LocalStartRpc, OffsetReply, OffsetRpc
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch
from raftlake.runtime.peers import offsets
from raftlake.runtime.peers.codec import PeerCodec, peer_client_id, source_of
from raftlake.wire.api import ApiKey, RequestHeader, decode_request, decode_response, encode_request, encode_response
from runtime_fakes import FakeNode

GROUP = GroupId("flights", 3, b"not the one now.")
ME = NodeId(2)
RPCS: list[OffsetRpc] = [
    LocalStartRpc(group=GROUP, replica_id=ME, leader_epoch=Epoch(7), timestamp=-4),
    LocalStartRpc(group=GROUP, replica_id=ME, leader_epoch=Epoch(0), timestamp=-2),
    EpochEndRpc(group=GROUP, replica_id=ME, leader_epoch=Epoch(7), epoch=Epoch(5)),
    EpochEndRpc(group=GROUP, replica_id=ME, leader_epoch=Epoch(7), epoch=Epoch(0)),
]
REPLIES = [
    OffsetReply(error=ErrorCode.NONE, position=OffsetAndEpoch(Offset(2**40), Epoch(6))),
    OffsetReply(error=ErrorCode.NONE, position=OffsetAndEpoch(Offset(0), Epoch(0))),
    OffsetReply(error=ErrorCode.NONE),
    OffsetReply(error=ErrorCode.FENCED_LEADER_EPOCH),
]


def codec(node_id: int) -> PeerCodec:
    made = PeerCodec(node_id=node_id, peers={})  # type: ignore[arg-type]
    made.attach(FakeNode())
    return made


def asked(rpc: OffsetRpc, client_id: str) -> tuple[RequestHeader, Any]:
    api_key, version, message = codec(2).encode_request(NodeId(1), rpc)
    return decode_request(bytearray(b"".join(encode_request(api_key, version, 5, client_id, message))[4:]))


@pytest.mark.parametrize("reply", REPLIES, ids=str)
@pytest.mark.parametrize("rpc", RPCS, ids=str)
def test_a_question_and_its_answer_arrive_as_they_were_sent(rpc: OffsetRpc, reply: OffsetReply) -> None:
    header, message = asked(rpc, peer_client_id(ME))
    is_start = isinstance(rpc, LocalStartRpc)
    assert header.api_key == (ApiKey.LIST_OFFSETS if is_start else ApiKey.OFFSET_FOR_LEADER_EPOCH)
    assert message.replica_id == ME
    assert codec(1).decode_request(header, message) == rpc
    answer = b"".join(encode_response(header, codec(1).encode_reply(header, rpc, reply)))
    _, response = decode_response(ApiKey(header.api_key), header.api_version, answer[4:])
    assert codec(2).decode_reply(rpc, response) == reply
    assert source_of(rpc) == ME


@pytest.mark.parametrize("rpc", RPCS, ids=str)
def test_a_client_that_asks_the_same_is_answered_as_a_client(rpc: OffsetRpc) -> None:
    assert codec(1).decode_request(*asked(rpc, "consumer-1")) is None
    header, message = asked(rpc, peer_client_id(ME))
    assert codec(1).decode_request(header, message, from_peers=False) is None


@pytest.mark.parametrize("rpc", RPCS[::2], ids=str)
def test_a_node_that_asks_for_others_is_answered_as_a_client(rpc: OffsetRpc) -> None:
    header, message = asked(rpc, peer_client_id(ME))
    resolve = FakeNode().resolve_group
    kio: Any = message
    for changed in (
        replace(kio, replica_id=-1),
        replace(kio, topics=kio.topics * 2),
        replace(kio, topics=()),
    ):
        assert offsets.decode_request(ApiKey(header.api_key), changed, resolve) is None


@pytest.mark.parametrize("rpc", RPCS[::2], ids=str)
def test_an_answer_about_more_or_less_than_was_asked_for_is_refused(rpc: OffsetRpc) -> None:
    header, _ = asked(rpc, peer_client_id(ME))
    response: Any = codec(1).encode_reply(header, rpc, REPLIES[0])
    for topics in ((), response.topics * 2):
        with pytest.raises(WireError, match="flights-3"):
            codec(2).decode_reply(rpc, replace(response, topics=topics))
