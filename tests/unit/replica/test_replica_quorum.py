"""Who votes, as a node knows it: from its settings, then from the log."""

from __future__ import annotations

import pytest

from enginekit import ORDERS, Ground
from raftkit.replica import key
from raftlake.errors import DiskFull
from raftlake.raft.config import RaftConfig
from raftlake.raft.types import NO_VOTERS, DirectoryId, NodeId, Offset, ReplicaKey, VoterEndpoint, VoterSet
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.quorum import Quorum, address_in, endpoints_of
from replica_cluster import Cluster


def test_static_voters_go_into_the_log_by_themselves() -> None:
    """kraft.version 1: once the leader knows all directory ids, the log says who votes, in every group."""
    cluster = Cluster(3, directories=True)
    (group,) = cluster.create_topic("t")
    cluster.run(5_000, lambda: all(node.quorum.committed is not None for node in cluster.nodes.values()))
    for node in cluster.nodes.values():
        assert node.finalized_kraft_version() == (1, node.partitions[METADATA_GROUP].high_watermark)
        committed = node.quorum.committed
        assert committed is not None and committed == node.quorum.latest
        assert [committed.voters[NodeId(i)].directory_id for i in (1, 2, 3)] == [disk(i) for i in (1, 2, 3)]
        assert node.quorum.addresses() == cluster.voters
    cluster.run(5_000, lambda: cluster.leader(group).partitions[group].core.voter_history.kraft_version == 1)


def test_voters_stay_static_where_that_is_set() -> None:
    cluster = Cluster(3, directories=True, raft=RaftConfig(voters_in_log=False))
    cluster.leader()
    cluster.run(3_000)
    for node in cluster.nodes.values():
        assert node.quorum.committed is None and node.quorum.latest == node.quorum.static
        assert node.partitions[METADATA_GROUP].core.voter_history.kraft_version == 0
        assert node.finalized_kraft_version() == (0, node.partitions[METADATA_GROUP].high_watermark)


def test_a_restarted_node_reads_the_voters_from_its_log() -> None:
    cluster = Cluster(3, directories=True)
    cluster.leader()
    cluster.run(5_000, lambda: all(node.quorum.committed is not None for node in cluster.nodes.values()))
    node_id = cluster.followers()[0].config.node_id
    known = cluster.nodes[node_id].quorum.latest
    cluster.stop(node_id)
    restarted = cluster.start(node_id)
    assert restarted.quorum.latest == known and restarted.finalized_kraft_version()[0] == 1
    del restarted.partitions[METADATA_GROUP]
    assert restarted.finalized_kraft_version() == (0, -1), "the log is not open"


def test_what_the_log_says_of_voters_holds_while_there_is_no_room_to_open_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node went back to its settings meanwhile: to addresses that voters had left, and to no voters at all."""
    cluster = Cluster(3, directories=True)
    cluster.run(5_000, lambda: all(node.quorum.committed is not None for node in cluster.nodes.values()))
    node = cluster.followers()[0]
    known, version, addresses = node.quorum.latest, node.finalized_kraft_version(), node.quorum.addresses()
    assert version[0] == 1 and known != node.quorum.static

    def no_room(group: object) -> None:
        raise DiskFull("no space left")

    with monkeypatch.context() as full:
        full.setattr(node.engine.logs, "open", no_room)
        node.turn._restarts.without_room(node.partitions[METADATA_GROUP])
        cluster.run(3_000)
        assert node.quorum.partition is None and not node.quorum.is_ready()
        assert node.quorum.latest == node.quorum.committed == known and node.quorum.addresses() == addresses
        assert node.finalized_kraft_version()[0] == 1
    cluster.run(3_000)
    assert node.quorum.partition is not None and node.quorum.latest == known


def test_a_closed_data_partition_says_nothing_of_the_quorum() -> None:
    ground = Ground(3)
    partition = ground.host(ORDERS)
    partition.core.voter_history.reset(Offset(0), VoterSet({NodeId(9): ReplicaKey(NodeId(9))}))
    partition.core.use_latest_voters()
    quorum = Quorum(ground.engine)
    quorum.let_go(partition)
    assert quorum.latest == quorum.static and quorum.committed is None


def disk(node_id: int) -> DirectoryId:
    return DirectoryId(node_id.to_bytes(16, "big"))


def test_a_voter_is_reached_at_its_peers_listener_if_it_names_one() -> None:
    places = (VoterEndpoint("PUBLIC", "front", 1), *endpoints_of(Endpoint("back", 2)))
    voters = NO_VOTERS.with_voter(key(1), places).with_voter(key(2), places[:1]).with_voter(key(3), ())
    assert address_in(voters, NodeId(1)) == Endpoint("back", 2)
    assert address_in(voters, NodeId(2)) == Endpoint("front", 1)
    assert address_in(voters, NodeId(3)) is None and address_in(voters, NodeId(4)) is None
