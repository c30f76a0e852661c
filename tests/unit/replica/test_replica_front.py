"""What a peer asks goes to the service that it is for, and what comes from another cluster goes nowhere."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import (
    ControlReply,
    ControlRpc,
    FetchReply,
    FetchRpc,
    FetchSnapshotReply,
    FetchSnapshotRpc,
    PeerReply,
    PeerRpc,
    ProposeReply,
    ProposeRpc,
    ReadOffsetReply,
    ReadOffsetRpc,
)
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from replica_cluster import Cluster

TWO = NodeId(2)


def rpcs(cluster_id: str | None) -> list[tuple[PeerRpc, type]]:
    fetch = FetchRpc(
        cluster_id=cluster_id, replica_id=TWO, session_id=0, session_epoch=0, wait_ms_max=0, size_max=1, messages=()
    )
    snapshot = FetchSnapshotRpc(cluster_id=cluster_id, replica_id=TWO, size_max=1, messages=())
    read = ReadOffsetRpc(cluster_id=cluster_id, read_timestamp_ms=1, groups=(METADATA_GROUP,), replica_id=TWO)
    return [
        (ControlRpc(cluster_id=cluster_id, messages=()), ControlReply),
        (fetch, FetchReply),
        (snapshot, FetchSnapshotReply),
        (read, ReadOffsetReply),
    ]


def asked(cluster: Cluster, rpc: PeerRpc) -> PeerReply:
    replies: list[PeerReply] = []
    cluster.leader().front.receive(PeerConnection(), rpc, replies.append)
    cluster.run(20_000, until=lambda: bool(replies))
    cluster.run(100)
    assert len(replies) == 1
    return replies[0]


@pytest.mark.parametrize("index", range(4))
def test_each_kind_gets_an_answer_of_its_kind(index: int) -> None:
    cluster = Cluster()
    rpc, reply = rpcs(cluster.leader().cluster_id)[index]
    assert type(asked(cluster, rpc)) is reply


@pytest.mark.parametrize("index", range(4))
def test_another_cluster_is_told_so(index: int) -> None:
    cluster = Cluster(cluster_id="ours")
    rpc, _ = rpcs("theirs")[index]
    assert asked(cluster, rpc).error is ErrorCode.INCONSISTENT_CLUSTER_ID  # type: ignore[union-attr]


def test_a_proposal_names_no_cluster() -> None:
    reply = asked(Cluster(), ProposeRpc(batch=b"no batch"))
    assert isinstance(reply, ProposeReply) and reply.error is ErrorCode.INVALID_RECORD
