"""Who answers what a peer asks: each RPC goes to the service that it is for, unless it comes from another cluster.

Owns nothing. The invariant: `reply` is called exactly once, now or later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import (
    ControlRpc,
    DescribeRpc,
    FetchRpc,
    FetchSnapshotRpc,
    PeerReply,
    PeerRpc,
    ProposeRpc,
    ReadOffsetRpc,
    VoterRpc,
)
from raftlake.replica.apis.cluster import describe_for_peer
from raftlake.replica.apis.voters import change_for_peer
from raftlake.replica.replication.control import FOREIGN

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode


def answer_peer(node: ReplicaNode, connection: PeerConnection, rpc: PeerRpc, reply: Callable[[PeerReply], None]) -> None:
    """Hand the RPC on."""
    claimed = None if isinstance(rpc, ProposeRpc | DescribeRpc | VoterRpc) else rpc.cluster_id
    if claimed is not None and node.cluster_id not in (None, claimed):
        reply(FOREIGN[type(rpc)])
        return
    match rpc:
        case ControlRpc():
            node.control.receive(rpc, reply)
        case FetchRpc():
            node.fetch_server.receive(connection, rpc, reply)
        case FetchSnapshotRpc():
            node.snapshot_transfer.receive(rpc, reply)
        case ReadOffsetRpc():
            node.reads.receive(rpc, reply)
        case ProposeRpc():
            node.kv.receive(rpc, connection.origin, reply)
        case DescribeRpc():
            describe_for_peer(node, rpc, reply)
        case VoterRpc():
            change_for_peer(node, rpc, reply)
        case _:
            assert_never(rpc)
