"""KIP-595, sentence by sentence: what holds for all of its requests and responses. Each docstring quotes the sentence.

Where Kafka itself moved on from the text, the docstring says "Kafka:" and the test shows Kafka's behaviour.
"""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest

from raftkit.replica import Replica, position
from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import ControlReply, ControlRpc, FetchReply, FetchRpc, PeerMessage
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    Request,
    VoteRequest,
)
from raftlake.raft.types import Epoch, NodeId, Offset, ReplicaKey
from raftlake.replica.config import METADATA_GROUP
from replica_cluster import Cluster


def requests_of_epoch(epoch: int, sender: int = 2) -> list[Request]:
    """One of each kind, as node `sender` would send it."""
    return [
        VoteRequest(candidate=ReplicaKey(NodeId(sender)), epoch=Epoch(epoch), log_end=position(99, 0), pre_vote=False),
        BeginQuorumEpochRequest(leader_id=NodeId(sender), leader_epoch=Epoch(epoch)),
        EndQuorumEpochRequest(leader_id=NodeId(sender), leader_epoch=Epoch(epoch), preferred_candidates=()),
        FetchRequest(
            replica=ReplicaKey(NodeId(sender)), leader_epoch=Epoch(epoch), fetch_offset=Offset(0), last_fetched_epoch=Epoch(0)
        ),
    ]


@pytest.mark.parametrize("kind", range(4), ids=["Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "Fetch"])
def test_a_request_of_another_cluster_changes_nothing(kind: int) -> None:
    """“The core requests have a field for the clusterId. This is validated when a request is received to ensure that
    misconfigured brokers will not cause any harm to the cluster.”
    """
    cluster = Cluster()
    cluster.run(3_000)
    leader = cluster.leader()
    core = leader.partitions[METADATA_GROUP].core
    epoch = core.epoch
    message = PeerMessage(METADATA_GROUP, requests_of_epoch(epoch + 5)[kind])
    replies: list[ControlReply | FetchReply] = []
    for foreign in ("another", ""):
        if isinstance(message.body, FetchRequest):
            rpc: ControlRpc | FetchRpc = FetchRpc(
                cluster_id=foreign,
                replica_id=NodeId(2),
                session_id=0,
                session_epoch=-1,
                wait_ms_max=0,
                size_max=1,
                messages=(message,),
            )
        else:
            rpc = ControlRpc(cluster_id=foreign, messages=(message,))
        leader.receive(PeerConnection(), rpc, replies.append)  # type: ignore[arg-type]
    assert [reply.error for reply in replies] == [ErrorCode.INCONSISTENT_CLUSTER_ID] * 2
    assert (core.epoch, core.is_leader) == (epoch, True)


def test_only_vote_names_no_leader_epoch() -> None:
    """“All requests save Vote have a field for the leader epoch.” Vote carries the candidate's."""
    kinds = get_args(Request)
    without = [kind for kind in kinds if "leader_epoch" not in {field.name for field in fields(kind)}]
    assert without == [VoteRequest]
    assert len(kinds) >= 4


def test_request_epochs_are_consistent() -> None:
    """“Voters and leaders are always expected to ensure that the request epoch is consistent with its own and return an
    error if it is not.”
    """
    leader = Replica.leader(epoch=6)
    older, newer = leader.fetch(2, 0, 0, epoch=5), leader.fetch(2, 0, 0, epoch=7)
    assert older is not None
    assert newer is not None
    assert (older.error, newer.error) == (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
    voter = Replica.unattached(epoch=6)
    assert voter.begin(2, 5).error is ErrorCode.FENCED_LEADER_EPOCH
    assert voter.end(2, 5).error is ErrorCode.FENCED_LEADER_EPOCH


def test_leader_and_epoch_ride_on_all_responses() -> None:
    """“We piggyback current leader and epoch information on all responses. This reduces latency to discover a leader
    change.”
    """
    follower = Replica.follower(epoch=6, leader=2)
    fetch = follower.fetch(3, 0, 0)
    assert fetch is not None
    for answer in (
        follower.vote(3, 6),
        follower.vote(3, 5),
        follower.begin(2, 6),
        follower.begin(3, 5),
        follower.end(3, 5),
        fetch,
    ):
        assert (answer.leader_id, answer.leader_epoch) == (2, 6)


def test_every_response_says_that_no_leader_is_known() -> None:
    """“The ID of the current leader or -1 if the leader is unknown.”"""
    replica = Replica.unattached(epoch=6)
    fetch = replica.fetch(3, 0, 0)
    assert fetch is not None
    for answer in (replica.vote(3, 6), replica.begin(3, 5), replica.end(3, 5), fetch):
        assert answer.leader_id == -1


def test_one_rpc_carries_several_groups() -> None:
    """“So all the core RPCs will be designed as "batch" API accommodate this need from the beginning, but only be used in a
    single Raft quorum of the metadata topic.” Here every partition is a quorum, and the batches are used.
    """
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    node = cluster.leader()
    asked = (group, METADATA_GROUP)
    for index in range(3):
        epochs = [node.partitions[of].core.epoch for of in asked]
        messages = [PeerMessage(of, requests_of_epoch(epoch)[index]) for of, epoch in zip(asked, epochs, strict=True)]
        replies: list[ControlReply] = []
        rpc = ControlRpc(cluster_id=None, messages=tuple(messages))
        node.receive(PeerConnection(), rpc, replies.append)  # type: ignore[arg-type]
        cluster.run(5, until=lambda replies=replies: bool(replies))  # type: ignore[misc]
        assert [message.group for message in replies[0].messages] == list(asked)


def test_the_protocol_does_not_know_what_it_replicates() -> None:
    """“Note that this protocol is only concerned with leader election and log replication. It does not specify what log
    entries are appended to the leader's log nor how they will be received by the leader.”
    """
    replica = Replica.leader(epoch=6)
    payload = object()
    replica.step(on.AppendRequested(record_counts=(1, 2), payload=payload))
    (append,) = replica.took(do.AppendRecords)
    assert append.payload is payload
    assert (append.base_offset, append.end_offset) == (1, 4)
