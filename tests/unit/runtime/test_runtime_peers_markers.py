"""Markers that one node asks another for: between the wire and `ports`, with topics named by name and id."""

from __future__ import annotations

from typing import Any

import pytest

from raftlake.errors import ErrorCode, WireError
from raftlake.ports.driver import ListenerUse
from raftlake.ports.peer_rpcs import AskedMarker, GroupId, MarkersReply, MarkersRpc
from raftlake.raft.types import NodeId, Offset
from raftlake.runtime.listener.apis import listed, require_for_peers
from raftlake.runtime.peers.codec import PeerCodec, peer_client_id, source_of
from raftlake.wire.api import ApiKey, RequestHeader, decode_request, decode_response, encode_request, encode_response
from raftlake.wire.control import EndMarker
from runtime_fakes import FakeNode

ME = NodeId(2)
GROUPS = [GroupId("flights", 3, b"not the one now."), GroupId("flights", 4, b"not the one now."), GroupId("t", 0, b"t" * 16)]
RPC = MarkersRpc(
    cluster_id="c",
    replica_id=ME,
    markers=tuple(
        AskedMarker(
            group=group,
            marker=EndMarker(producer_id=2**40 + number, epoch=32_767, commit=number % 2 == 0, coordinator_epoch=7),
            decided_at=Offset(2**50),
        )
        for number, group in enumerate(GROUPS)
    ),
)
E = ErrorCode


def codec(node_id: int) -> PeerCodec:
    made = PeerCodec(node_id=node_id, peers={})  # type: ignore[arg-type]
    made.attach(FakeNode())
    return made


def asked(client_id: str) -> tuple[RequestHeader, Any]:
    api_key, version, message = codec(2).encode_request(NodeId(1), RPC)
    return decode_request(bytearray(b"".join(encode_request(api_key, version, 5, client_id, message))[4:]))


@pytest.mark.parametrize(
    "reply",
    [
        MarkersReply(error=E.NONE, errors=(E.NONE, E.NOT_LEADER_OR_FOLLOWER, E.REQUEST_TIMED_OUT)),
        MarkersReply(error=E.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_a_question_and_its_answer_arrive_as_they_were_sent(reply: MarkersReply) -> None:
    header, message = asked(peer_client_id(ME))
    assert header.api_key == ApiKey.WRITE_MARKERS
    assert codec(1).decode_request(header, message) == RPC
    answer = b"".join(encode_response(header, codec(1).encode_reply(header, RPC, reply)))
    _, response = decode_response(ApiKey.WRITE_MARKERS, 0, answer[4:])
    assert codec(2).decode_reply(RPC, response) == reply
    assert source_of(RPC) == ME


def test_who_asks_is_the_node_that_the_connection_is_of() -> None:
    header, message = asked(peer_client_id(NodeId(3)))
    found = codec(1).decode_request(header, message)
    assert isinstance(found, MarkersRpc)
    assert found.replica_id == 3


def test_a_client_is_not_served() -> None:
    for header, message in (asked("consumer-1"), asked("")):
        with pytest.raises(WireError, match="nodes alone"):
            codec(1).decode_request(header, message)
    header, message = asked(peer_client_id(ME))
    with pytest.raises(WireError, match="nodes alone"):
        codec(1).decode_request(header, message, from_peers=False)
    with pytest.raises(WireError):
        require_for_peers(ListenerUse.CLIENTS, header, message)
    assert all(api.key is not ApiKey.WRITE_MARKERS for use in ListenerUse for api in listed(use))


def test_an_answer_about_more_or_less_than_was_asked_for_is_refused() -> None:
    header, _ = asked(peer_client_id(ME))
    short = codec(1).encode_reply(header, RPC, MarkersReply(error=E.NONE, errors=(E.NONE,)))
    with pytest.raises(WireError, match="answer to 3 markers has 1 errors"):
        codec(2).decode_reply(RPC, short)
