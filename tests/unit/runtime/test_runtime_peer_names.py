"""How control RPCs name groups: `peer_control.name_of`."""

from __future__ import annotations

from typing import Any

import pytest

from raftlake.ports.peer_rpcs import ControlRpc, GroupId, PeerMessage
from raftlake.raft.messages import BeginQuorumEpochRequest
from raftlake.raft.types import Epoch, NodeId
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.runtime.peers.codec import PeerCodec
from raftlake.wire.ids import id_to_text
from runtime_fakes import TOPIC_ID

FLIGHTS = GroupId("flights", 0, TOPIC_ID)


@pytest.mark.parametrize(("quorum_group", "name"), [(FLIGHTS, "flights"), (METADATA_GROUP, f"flights:{id_to_text(TOPIC_ID)}")])
def test_only_the_quorums_own_log_goes_by_its_plain_name(quorum_group: GroupId, name: str) -> None:
    """Kafka's Raft knows one topic by name; every other group's name says which incarnation it is of."""
    voters = {NodeId(1): Endpoint("one", 9001), NodeId(2): Endpoint("two", 9002)}
    codec = PeerCodec(node_id=NodeId(1), peers=voters, quorum_group=quorum_group)
    begin = BeginQuorumEpochRequest(leader_id=NodeId(1), leader_epoch=Epoch(3), voter_id=NodeId(2))
    rpc = ControlRpc(cluster_id=None, messages=(PeerMessage(FLIGHTS, begin),))
    message: Any = codec.encode_request(NodeId(2), rpc)[2]
    assert [topic.topic_name for topic in message.topics] == [name]
