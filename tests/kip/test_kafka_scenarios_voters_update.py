"""Kafka's own scenarios of UpdateRaftVoter (KIP-853), each under the name of its test in KafkaRaftClientReconfigTest."""

from __future__ import annotations

from typing import Any

import pytest

from raftkit.replica import Replica, key
from raftkit.voters import ELSEWHERE, EPOCH, add, disk_key, error_of, fetch, leader, static_leader, update
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import FetchRpc, PeerRpc, VoterRpc
from raftlake.raft import actions as do
from raftlake.raft.config import RaftConfig
from raftlake.raft.messages import UpdateVoter
from raftlake.raft.types import Epoch, NodeId, ReplicaKey
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.wire.ids import id_from_kio
from replica_cluster import Cluster


def test_update_voter() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoter: the new address goes into the log; the answer does not wait for that."""
    replica = leader(1, 2, 3)
    assert error_of(replica.change_voters(update(disk_key(2)))) is ErrorCode.NONE
    (append,) = replica.took(do.AppendVoters)
    assert append.voters.endpoints[NodeId(2)] == ELSEWHERE and append.kraft_version is None
    assert error_of(replica.change_voters(update(disk_key(3)))) is ErrorCode.REQUEST_TIMED_OUT


def test_leader_updates_voter() -> None:
    """KafkaRaftClientReconfigTest.testLeaderUpdatesVoter."""
    replica = leader(1, 2, 3)
    assert error_of(replica.change_voters(update(disk_key(1)))) is ErrorCode.NONE
    assert replica.core.voters.endpoints[NodeId(1)] == ELSEWHERE


@pytest.mark.parametrize("versions", [(-1, 1), (2, 1), (0, 0), (2, 3)])
def test_invalid_update_voter(versions: tuple[int, int]) -> None:
    """KafkaRaftClientReconfigTest.testInvalidUpdateVoter."""
    answer = leader(1, 2, 3).change_voters(update(disk_key(2), versions=versions))
    assert error_of(answer) is ErrorCode.INVALID_REQUEST


def test_update_voter_without_an_endpoint() -> None:
    """KafkaRaftClientReconfigTest.testInvalidUpdateVoter."""
    answer = leader(1, 2, 3).change_voters(UpdateVoter(voter=disk_key(2), endpoints=(), leader_epoch=Epoch(EPOCH)))
    assert error_of(answer) is ErrorCode.INVALID_REQUEST


def test_update_voter_old_epoch() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterOldEpoch."""
    answer = leader(1, 2, 3).change_voters(update(disk_key(2), epoch=EPOCH - 1))
    assert error_of(answer) is ErrorCode.FENCED_LEADER_EPOCH


def test_update_voter_new_epoch() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterNewEpoch."""
    answer = leader(1, 2, 3).change_voters(update(disk_key(2), epoch=EPOCH + 1))
    assert error_of(answer) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_update_voter_to_not_leader() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterToNotLeader."""
    answer = Replica.follower(epoch=EPOCH).change_voters(update(disk_key(2)))
    assert error_of(answer) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_update_voter_without_fenced_previous_leaders() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterWithoutFencedPreviousLeaders."""
    answer = leader(1, 2, 3, commits=False).change_voters(update(disk_key(2)))
    assert error_of(answer) is ErrorCode.REQUEST_TIMED_OUT


def test_update_voter_with_kraft_version_0() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterWithKraftVersion0: Nothing is written, but the voter's directory and address
    are remembered for the day when voters go into the log."""
    replica = static_leader()
    fetch(replica, 2)
    assert error_of(replica.change_voters(update(disk_key(3)))) is ErrorCode.NONE
    (append,) = replica.took(do.AppendVoters)
    assert append.voters.voters[NodeId(3)] == disk_key(3) and append.voters.endpoints[NodeId(3)] == ELSEWHERE


def said_by_voters(cluster: Cluster) -> tuple[list[FetchRpc], list[tuple[NodeId, NodeId, Any]]]:
    """From now on: the Fetch rounds, and (source, destination, request) of each request about a voter."""
    rounds: list[FetchRpc] = []
    asked: list[tuple[NodeId, NodeId, Any]] = []

    def listen(source: NodeId, peer: NodeId, rpc: PeerRpc) -> None:
        if isinstance(rpc, FetchRpc):
            rounds.append(rpc)
        elif isinstance(rpc, VoterRpc):
            asked.append((source, peer, rpc.request))

    cluster.overhear(listen)
    return rounds, asked


def test_follower_sends_update_voter_with_kraft_version_0() -> None:
    """KafkaRaftClientReconfigTest.testFollowerSendsUpdateVoterWithKraftVersion0: a static voter tells its leader which
    directory it is. Ours does so with every Fetch and sends no UpdateRaftVoter: its address is in the settings of all."""
    cluster = Cluster(directories=True, raft=RaftConfig(voters_in_log=False))
    rounds, asked = said_by_voters(cluster)
    leader = cluster.leader()
    cluster.run(10_000)
    told = {message.body.replica for rpc in rounds for message in rpc.messages if message.group == METADATA_GROUP}
    voters = {node_id: ReplicaKey(node_id, node.config.directory_id) for node_id, node in cluster.nodes.items()}
    assert {voters[node.config.node_id] for node in cluster.followers()} <= told <= set(voters.values())
    assert not asked and leader.partitions[METADATA_GROUP].core.voter_history.kraft_version == 0


def test_a_voter_that_moved_sends_update_voter_once() -> None:
    """KafkaRaftClientReconfigTest.testFollowerSendsUpdateVoterWithKraftVersion0, for a voter that the log has at another
    address: its key, the leader's epoch, its listener and the versions that it knows; after that it only fetches."""
    cluster = Cluster(directories=True)
    cluster.leader()
    cluster.run(5_000, lambda: all(node.quorum.committed is not None for node in cluster.nodes.values()))
    mover = cluster.followers()[0].config.node_id
    cluster.stop(mover)
    there = Endpoint("127.0.0.1", 9192)
    cluster.move(mover, there)
    cluster.voters = {**cluster.voters, mover: there}
    _, asked = said_by_voters(cluster)
    node = cluster.start(mover)
    cluster.run(20_000)
    core = cluster.leader().partitions[METADATA_GROUP].core
    ((source, destination, request),) = asked
    assert (source, destination, type(request).__name__) == (mover, core.leader_id, "UpdateRaftVoterRequest")
    assert (request.current_leader_epoch, request.voter_id) == (core.epoch, mover)
    assert id_from_kio(request.voter_directory_id) == bytes(node.config.directory_id)
    feature = request.k_raft_version_feature
    assert (feature.min_supported_version, feature.max_supported_version) == (0, 1)
    assert [(place.name, place.host, place.port) for place in request.listeners] == [("CONTROLLER", "127.0.0.1", 9192)]
    assert request.cluster_id == cluster.leader().cluster_id


def test_update_voter_with_none_voter() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterWithNoneVoter."""
    answer = leader(1, 2, 3).change_voters(update(key(2, b"other disk")))
    assert error_of(answer) is ErrorCode.VOTER_NOT_FOUND


def test_update_voter_with_none_voter_id() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterWithNoneVoterId."""
    assert error_of(leader(1, 2, 3).change_voters(update(disk_key(9)))) is ErrorCode.VOTER_NOT_FOUND
    static = static_leader()
    fetch(static, 2)
    assert error_of(static.change_voters(update(disk_key(9)))) is ErrorCode.VOTER_NOT_FOUND


def test_update_voter_with_pending_add_voter() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterWithPendingAddVoter."""
    replica = leader(1, 2)
    fetch(replica, 3)
    replica.change_voters(add(3))
    assert error_of(replica.change_voters(update(disk_key(2)))) is ErrorCode.REQUEST_TIMED_OUT
