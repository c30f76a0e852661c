"""What a node asks about its own vote, between the wire and `ports`: the requests of KIP-853 travel as they are."""

from __future__ import annotations

import datetime
import importlib
import uuid
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import VoterReply, VoterRpc
from raftlake.replica.apis.answers import Answers, kafka_error
from raftlake.runtime.peers.codec import PeerCodec, peer_client_id, source_of
from raftlake.wire.api import ApiKey, decode_request, decode_response, encode_request, encode_response
from runtime_fakes import FakeNode


def codec(node_id: int) -> PeerCodec:
    made = PeerCodec(node_id=node_id, peers={})  # type: ignore[arg-type]
    made.attach(FakeNode())
    return made


def voter_requests() -> list[Any]:
    """What a node asks about its own vote."""
    add: Any = importlib.import_module("kio.schema.add_raft_voter.v1.request")
    remove: Any = importlib.import_module("kio.schema.remove_raft_voter.v0.request")
    update: Any = importlib.import_module("kio.schema.update_raft_voter.v0.request")
    common = {"cluster_id": "c", "voter_id": 4, "voter_directory_id": uuid.UUID(int=7)}
    return [
        add.AddRaftVoterRequest(
            timeout=datetime.timedelta(seconds=2), listeners=(add.Listener(name="CONTROLLER", host="h", port=9),),
            ack_when_committed=False, **common,
        ),
        remove.RemoveRaftVoterRequest(**common),
        update.UpdateRaftVoterRequest(
            current_leader_epoch=3, listeners=(update.Listener(name="CONTROLLER", host="h", port=9),),
            k_raft_version_feature=update.KRaftVersionFeature(min_supported_version=0, max_supported_version=1), **common,
        ),
    ]  # fmt: skip


@pytest.mark.parametrize("request_", voter_requests(), ids=lambda request: type(request).__name__)
def test_what_a_node_asks_about_its_own_vote(request_: Any) -> None:
    rpc = VoterRpc(request=request_)
    api_key, version, message = codec(1).encode_request(2, rpc)  # type: ignore[arg-type]
    frame = b"".join(encode_request(api_key, version, 5, peer_client_id(1), message))  # type: ignore[arg-type]
    header, arrived = decode_request(bytearray(frame[4:]))
    assert codec(2).decode_request(header, arrived) == rpc
    name = type(request_).__name__.replace("Request", "Response")
    answers, fields = Answers(request_), dict[str, Any]()
    if header.api_key is ApiKey.UPDATE_RAFT_VOTER:
        fields["current_leader"] = answers.make("CurrentLeader", leader_id=1, leader_epoch=3, host="h", port=9)
    else:
        fields["error_message"] = "why not"
    reply = VoterReply(response=answers.make(name, error_code=kafka_error(ErrorCode.VOTER_NOT_FOUND), **fields))
    answer = b"".join(encode_response(header, codec(2).encode_reply(header, rpc, reply)))
    _, response = decode_response(api_key, version, answer[4:])
    assert codec(1).decode_reply(rpc, response) == reply
    assert source_of(rpc) is None


def test_a_clients_change_of_voters_is_no_nodes() -> None:
    for request in voter_requests():
        api_key, version = ApiKey(int(request.__api_key__)), int(request.__version__)
        frame = b"".join(encode_request(api_key, version, 5, "adminclient-1", request))
        assert codec(2).decode_request(*decode_request(bytearray(frame[4:]))) is None
