"""Which node numbers are known, and where those nodes live: what a listener goes by when a request says that it is a node's.

A voter stands in the log or in the settings. An observer is who fetches from this node while it leads. A node lives where it
was reached last, or where its address says so without a name to resolve.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from raftlake.raft.roles import Leader
from raftlake.raft.types import NodeId
from raftlake.replica.config import Endpoint
from raftlake.replica.node import ReplicaNode
from raftlake.runtime.admission import plain_address


class Reached(Protocol):
    """What `peers.TcpNetwork` knows of addresses."""

    #: Where each peer is said to be.
    addresses: dict[NodeId, Endpoint]
    #: The address that a connection to it led to last.
    reached_at: dict[NodeId, str]


class KnownPeers:
    def __init__(self, node: ReplicaNode, network: Reached) -> None:
        self._node = node
        self._network = network

    def is_voter(self, node_id: NodeId) -> bool:
        config = self._node.config
        return node_id != config.node_id and (node_id in self._node.quorum.latest or node_id in config.voters)

    def is_observer(self, node_id: NodeId) -> bool:
        partition = self._node.partitions.get(self._node.config.quorum_group)
        role = None if partition is None else partition.core.role
        return isinstance(role, Leader) and node_id in role.observers

    def is_home_of(self, node_id: NodeId, host: str) -> bool:
        host = plain_address(host)
        known: Mapping[NodeId, Endpoint] = self._network.addresses
        return host == self._network.reached_at.get(node_id) or (node_id in known and known[node_id].host == host)

    def is_home(self, host: str) -> bool:
        """Whether some peer lives there."""
        own = self._node.config.node_id
        return any(peer != own and self.is_home_of(peer, host) for peer in self._network.addresses)
