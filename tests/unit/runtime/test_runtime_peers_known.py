"""Which node numbers a listener knows, and where those nodes live."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.runtime.peers.known import KnownPeers
from replica_cluster import Cluster


def known(node: Any, addresses: dict[int, Endpoint] | None = None, reached: dict[int, str] | None = None) -> KnownPeers:
    network: Any = SimpleNamespace(addresses=addresses or {}, reached_at=reached or {})
    return KnownPeers(node, network)


def test_voters_are_known_to_each_node_and_observers_to_the_leader() -> None:
    cluster = Cluster(3, directories=True)
    leader, follower = cluster.leader(), cluster.followers()[0]
    for node in (leader, follower):
        peers = known(node)
        others = [voter for voter in node.config.voters if voter != node.config.node_id]
        assert all(peers.is_voter(voter) for voter in others)
        # A node does not connect to itself: who says it is this one is lying.
        assert not peers.is_voter(node.config.node_id) and not peers.is_voter(NodeId(77))
        assert not peers.is_observer(NodeId(77))
    role: Any = leader.partitions[METADATA_GROUP].core.role
    role.observers[NodeId(77)] = object()
    assert known(leader).is_observer(NodeId(77)) and not known(follower).is_observer(NodeId(77))
    del leader.partitions[METADATA_GROUP]
    assert not known(leader).is_observer(NodeId(77))


def test_a_node_lives_where_it_was_reached_or_where_its_address_says() -> None:
    config = SimpleNamespace(node_id=1)
    addresses = {1: Endpoint("10.0.0.1", 9092), 2: Endpoint("10.0.0.2", 9092), 3: Endpoint("three.example", 9092)}
    peers = known(SimpleNamespace(config=config), addresses, {3: "10.0.0.33", -2: "10.0.0.9"})  # type: ignore[dict-item]
    assert peers.is_home_of(NodeId(2), "10.0.0.2") and peers.is_home_of(NodeId(2), "::ffff:10.0.0.2")
    assert peers.is_home_of(NodeId(3), "10.0.0.33") and not peers.is_home_of(NodeId(3), "10.0.0.2")
    assert [peers.is_home(host) for host in ("10.0.0.2", "10.0.0.33", "10.0.0.1", "10.6.6.6")] == [True, True, False, False]
