"""Addresses that nodes give to clients, where peers reach the nodes at listeners of their own."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Delete, Txn
from raftlake.kv.keys import node_key
from raftlake.ports.driver import Origin
from raftlake.raft.types import NO_LEADER, NodeId
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.node import ReplicaNode
from raftlake.replica.turn.housekeeping import INTERVAL_MS
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster

#: What lies between the port for peers and the port for clients of the same node.
APART = 10_000


def split_cluster() -> Cluster:
    """Three new nodes, each with a port for clients that is not the one which its peers use."""
    cluster = Cluster()
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
        cluster.wipe(node_id)
    for node_id, at in cluster.voters.items():
        cluster.move(node_id, Endpoint(at.host, at.port + APART))
        cluster.start(node_id)
    return cluster


def metadata(cluster: Cluster, node: ReplicaNode) -> Any:
    schema = importlib.import_module("kio.schema.metadata.v12.request")
    request = schema.MetadataRequest(topics=None, include_topic_authorized_operations=False)
    return cluster.ask(node, ApiKey.METADATA, request, version=12)


def test_no_client_is_ever_sent_to_a_port_for_peers_not_even_before_the_nodes_have_told_their_addresses() -> None:
    """A client that asked early was sent to a port which takes no Produce, and its append failed for good."""
    cluster = split_cluster()

    def is_told_by_all() -> bool:
        named = [{broker.node_id: broker.port for broker in metadata(cluster, node).brokers} for node in cluster.nodes.values()]
        for ports in named:
            assert ports.items() <= {node_id: at.port for node_id, at in cluster.listeners.items()}.items()
        return all(len(ports) == 3 for ports in named)

    assert not is_told_by_all()
    cluster.leader()
    cluster.run(INTERVAL_MS // 4, until=is_told_by_all)


def test_a_leader_that_clients_cannot_be_sent_to_is_not_available_until_it_has_told_its_address() -> None:
    cluster = split_cluster()
    groups = cluster.create_topic("t", 6)
    cluster.run(1_000)
    asked = cluster.leader()
    leader_id = next(leads for group in groups if (leads := cluster.leader(group).config.node_id) != asked.config.node_id)
    told = metadata(cluster, asked)
    assert all(part.leader_id != NO_LEADER for topic in told.topics for part in topic.partitions)
    cluster.pause(leader_id)
    asked.kv.propose(Txn((), (Delete(node_key(leader_id)),)), lambda outcome: None, Origin.SELF)
    cluster.run(100, until=lambda: asked.membership.endpoint(leader_id) is None)
    missing = metadata(cluster, asked)
    assert leader_id not in [broker.node_id for broker in missing.brokers]
    (before,), (after,) = told.topics, missing.topics
    for was, part in zip(before.partitions, after.partitions, strict=True):
        expected = (
            (ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER) if was.leader_id == leader_id else (ErrorCode.NONE, was.leader_id)
        )
        assert (int(part.error_code), part.leader_id) == expected
    cluster.resume(leader_id, timers_first=False)
    cluster.run(5_000, until=lambda: asked.membership.endpoint(leader_id) == cluster.listeners[leader_id])
    assert metadata(cluster, asked).topics == told.topics


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_a_description_of_the_quorum_names_the_listeners_of_its_voters(node_id: int) -> None:
    """Kafka's DescribeQuorum tells the endpoints of the voter set. The clients' port stood there as `CONTROLLER`."""
    cluster = split_cluster()
    cluster.leader()
    cluster.run(5_000, until=lambda: all(len(node.membership.nodes()) == 3 for node in cluster.nodes.values()))
    node = cluster.nodes[NodeId(node_id)]
    described = node.describer.of(node.partitions[METADATA_GROUP])
    assert described.listeners == {voter: (f"CONTROLLER://{at}",) for voter, at in cluster.voters.items()}
    schema = importlib.import_module("kio.schema.describe_quorum.v2.request")
    asked = schema.TopicData(topic_name="__cluster_metadata", partitions=(schema.PartitionData(partition_index=0),))
    answer = cluster.ask(node, ApiKey.DESCRIBE_QUORUM, schema.DescribeQuorumRequest(topics=(asked,)), version=2)
    assert {told.node_id: told.listeners[0].port for told in answer.nodes} == {
        voter: at.port for voter, at in cluster.voters.items()
    }
