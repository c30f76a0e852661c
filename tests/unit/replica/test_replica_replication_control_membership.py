"""Control RPCs between nodes (batched, answered in order) and the cluster id that they check."""

from __future__ import annotations

from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import (
    ControlReply,
    ControlRpc,
    FetchSnapshotReply,
    FetchSnapshotRpc,
    GroupId,
    PeerMessage,
    PeerRpc,
    ReadOffsetReply,
    ReadOffsetRpc,
)
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    VoteRequest,
    VoteResponse,
)
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode
from raftlake.replica.replication.control import refuse
from replica_cluster import Cluster


def _vote(epoch: int = 1) -> VoteRequest:
    return VoteRequest(
        candidate=ReplicaKey(NodeId(2)), epoch=Epoch(epoch), log_end=OffsetAndEpoch(Offset(0), Epoch(0)), pre_vote=True
    )


def _receive(cluster: Cluster, node: ReplicaNode, rpc: PeerRpc) -> Any:
    replies: list[Any] = []
    node.receive(PeerConnection(), rpc, replies.append)
    cluster.run(10, until=lambda: bool(replies))
    return replies[0]


def test_the_votes_of_many_groups_travel_in_one_rpc() -> None:
    cluster = Cluster()
    cluster.create_topic("many", 9)
    cluster.run(500)
    sent: list[int] = []

    def spy(source: NodeId, peer: NodeId, rpc: object) -> None:
        if isinstance(rpc, ControlRpc):
            sent.append(len(rpc.messages))

    cluster.overhear(spy)
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in cluster.voters:
        cluster.start(node_id)
    cluster.run(3000)
    assert max(sent) >= 3


def test_each_group_of_an_rpc_is_answered_in_the_order_asked_also_those_that_are_not_hosted() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    unknown = GroupId("unknown", 0, bytes(15) + b"\x09")
    messages = tuple(PeerMessage(asked, _vote()) for asked in (unknown, group, METADATA_GROUP))
    reply = _receive(cluster, cluster.leader(), ControlRpc(cluster_id=None, messages=messages))
    assert [message.group for message in reply.messages] == [unknown, group, METADATA_GROUP]
    first = reply.messages[0].body
    assert isinstance(first, VoteResponse)
    assert first.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_empty_rpc_is_answered() -> None:
    cluster = Cluster()
    assert _receive(cluster, cluster.leader(), ControlRpc(cluster_id=None, messages=())) == ControlReply(error=ErrorCode.NONE)


def test_a_foreign_cluster_id_is_refused_before_any_epoch_moves_and_null_is_allowed() -> None:
    cluster = Cluster()
    cluster.run(3000)
    leader = cluster.leader()
    epoch = leader.partitions[METADATA_GROUP].core.epoch
    messages = (PeerMessage(METADATA_GROUP, _vote(epoch + 5)),)
    for foreign in ("", "another"):
        reply = _receive(cluster, leader, ControlRpc(cluster_id=foreign, messages=messages))
        assert reply.error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert leader.partitions[METADATA_GROUP].core.epoch == epoch
    own = _receive(cluster, leader, ControlRpc(cluster_id=leader.cluster_id, messages=(PeerMessage(METADATA_GROUP, _vote()),)))
    assert own.error is ErrorCode.NONE


def test_a_foreign_cluster_id_is_refused_in_reads_and_snapshots_too() -> None:
    """A client of another cluster must not take our offsets for its own, nor a replica our snapshot."""
    cluster = Cluster()
    cluster.run(3000)
    leader = cluster.leader()
    assert leader.cluster_id is not None
    core, asking = leader.partitions[METADATA_GROUP].core, cluster.followers()[0].config.node_id
    piece = FetchSnapshotRequest(
        replica=ReplicaKey(asking), leader_epoch=core.epoch, snapshot_id=OffsetAndEpoch(Offset(1), Epoch(1)), position=0
    )
    for claimed in ("", "another", None, leader.cluster_id):
        read = ReadOffsetRpc(cluster_id=claimed, read_timestamp_ms=0, groups=(METADATA_GROUP,))
        snapshot = FetchSnapshotRpc(
            cluster_id=claimed, replica_id=asking, size_max=100, messages=(PeerMessage(METADATA_GROUP, piece),)
        )
        offsets, pieces = _receive(cluster, leader, read), _receive(cluster, leader, snapshot)
        if claimed in (None, leader.cluster_id):
            assert offsets.error is ErrorCode.NONE and offsets.results[0].applied_offset > 0
            assert pieces.error is ErrorCode.NONE and pieces.messages[0].body.error is ErrorCode.SNAPSHOT_NOT_FOUND
        else:
            assert offsets == ReadOffsetReply(error=ErrorCode.INCONSISTENT_CLUSTER_ID)
            assert pieces == FetchSnapshotReply(error=ErrorCode.INCONSISTENT_CLUSTER_ID)


def test_a_refusal_exists_for_every_control_request() -> None:
    leader, epoch = NodeId(1), Epoch(1)
    requests = (
        _vote(),
        BeginQuorumEpochRequest(leader_id=leader, leader_epoch=epoch),
        EndQuorumEpochRequest(leader_id=leader, leader_epoch=epoch, preferred_candidates=()),
    )
    for request in requests:
        assert refuse(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nodes_tell_each_other_where_they_are_reached() -> None:
    cluster = Cluster()
    cluster.run(3000)
    for node in cluster.nodes.values():
        assert node.membership.nodes() == cluster.voters
        keys, _ = node.kv.machine.list("/raftlake/nodes/", None, 10)
        assert [key for key, _ in keys] == [f"/raftlake/nodes/{voter}" for voter in cluster.voters]


def test_the_address_of_a_node_that_is_gone_is_forgotten_and_told_again_when_it_comes_back() -> None:
    """Clients were sent to nodes that had been removed, for ever."""
    cluster = Cluster(directories=True, node_expiration_ms=5_000)
    cluster.leader()
    cluster.wipe(4)
    cluster.start(4)
    four = NodeId(4)
    cluster.run(5_000, until=lambda: all(four in node.membership.nodes() for node in cluster.nodes.values()))
    cluster.run(40_000)
    assert four in cluster.leader().membership.nodes(), "it fetches, though it has nothing to do"
    cluster.stop(four)
    voter = cluster.followers()[0].config.node_id
    cluster.stop(voter)
    cluster.run(40_000, until=lambda: all(four not in node.membership.nodes() for node in cluster.nodes.values()))
    keys, _ = cluster.leader().kv.machine.list("/raftlake/nodes/", None, 10)
    assert [key for key, _ in keys] == [f"/raftlake/nodes/{node_id}" for node_id in (1, 2, 3)], "a voter is not forgotten"
    cluster.start(four)
    cluster.run(5_000, until=lambda: four in cluster.leader().membership.nodes())


def test_a_new_leader_forgets_nobody_who_has_not_had_time_to_fetch_from_it() -> None:
    cluster = Cluster(directories=True, node_expiration_ms=5_000)
    cluster.leader()
    cluster.wipe(4)
    cluster.start(4)
    cluster.run(20_000, until=lambda: NodeId(4) in cluster.leader().membership.nodes())
    cluster.run(20_000)
    changes = len(cluster.leader().kv.machine.list("/raftlake/nodes/", None, 10)[0])
    version = cluster.leader().kv.machine.get("/raftlake/nodes/4").version  # type: ignore[union-attr]
    cluster.leader().resign()
    cluster.run(20_000)
    entry = cluster.leader().kv.machine.get("/raftlake/nodes/4")
    assert entry is not None and entry.version == version and changes == 4


def test_a_graceful_stop_hands_every_group_over_within_a_fraction_of_a_second() -> None:
    cluster = Cluster()
    groups = cluster.create_topic("many", 6)
    cluster.run(1000)
    leader = cluster.leader()
    leader.resign()
    cluster.run(300, until=leader.handover.is_drained)
    assert all(cluster.leader(group) is not leader for group in [METADATA_GROUP, *groups])


def test_a_peer_that_gave_up_leading_is_remembered_and_a_stranger_is_not() -> None:
    cluster = Cluster()
    leader = cluster.leader()
    follower = next(node for node in cluster.nodes.values() if node is not leader)
    began_ms = follower.engine.now_ms
    assert follower.control.resigned_since(0) == []
    leader.resign()
    cluster.run(20)
    assert follower.control.resigned_since(began_ms) == [leader.config.node_id]
    assert follower.control.resigned_since(follower.engine.now_ms + 1) == []
    end = EndQuorumEpochRequest(leader_id=NodeId(99), leader_epoch=Epoch(1), preferred_candidates=())
    _receive(cluster, follower, ControlRpc(cluster_id=None, messages=(PeerMessage(METADATA_GROUP, end),)))
    assert follower.control.resigned_since(0) == [leader.config.node_id]
