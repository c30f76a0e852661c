"""Where everything from outside comes in: each request and each RPC goes to the service that it is for.

A peer's RPC is refused when it is of another cluster. Owns nothing. Invariant: `reply` is called exactly once, now or later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import assert_never

from raftlake.errors import ErrorCode, InvariantViolation, StorageError
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import (
    ControlRpc,
    DescribeRpc,
    EpochEndRpc,
    FetchRpc,
    FetchSnapshotRpc,
    LocalStartRpc,
    MarkersRpc,
    PeerReply,
    PeerRpc,
    ProposeReply,
    ProposeRpc,
    ReadOffsetRpc,
    VoterRpc,
)
from raftlake.raft.events import PeerUnreachable
from raftlake.raft.types import NodeId
from raftlake.replica.apis import Apis
from raftlake.replica.config import ClientContext
from raftlake.replica.engine import Engine
from raftlake.replica.kv.service import KvService
from raftlake.replica.replication.control import FOREIGN, ControlPlane
from raftlake.replica.replication.fetch_server import FetchServer
from raftlake.replica.replication.fetcher import Fetchers
from raftlake.replica.replication.reads import ReadService
from raftlake.replica.snapshots.transfer import SnapshotTransfer
from raftlake.replica.transactions.desk import MarkerDesk
from raftlake.replica.voters.cluster_identity import ClusterIdentity
from raftlake.wire.api import RequestHeader


class Front:
    def __init__(
        self,
        engine: Engine,
        *,
        apis: Apis,
        control: ControlPlane,
        fetch_server: FetchServer,
        fetchers: Fetchers,
        identity: ClusterIdentity,
        kv: KvService,
        marker_desk: MarkerDesk,
        reads: ReadService,
        snapshot_transfer: SnapshotTransfer,
    ) -> None:
        self._engine = engine
        self._apis = apis
        self._control = control
        self._fetch_server = fetch_server
        self._fetchers = fetchers
        self._identity = identity
        self._kv = kv
        self._marker_desk = marker_desk
        self._reads = reads
        self._snapshot_transfer = snapshot_transfer

    def receive(self, connection: PeerConnection, rpc: PeerRpc, reply: Callable[[PeerReply], None]) -> None:
        """An RPC of a peer (or a ReadOffset of a client)."""
        self._engine.begin_input()
        if self._identity.refuses(connection, rpc):
            reply(FOREIGN[type(rpc)])
            return
        match rpc:
            case ControlRpc():
                self._control.receive(rpc, reply)
            case FetchRpc():
                self._fetch_server.receive(connection, rpc, reply)
            case FetchSnapshotRpc():
                self._snapshot_transfer.receive(rpc, reply)
            case ReadOffsetRpc():
                self._reads.receive(rpc, reply)
            case ProposeRpc():
                self._kv.receive(rpc, connection.origin, partial(self._proposed, rpc, reply))
            case DescribeRpc():
                self._apis.describe_for_peer(rpc, reply)
            case LocalStartRpc() | EpochEndRpc():
                self._apis.offset_for_peer(rpc, reply)
            case MarkersRpc():
                self._marker_desk.receive(rpc, reply)
            case VoterRpc():
                self._apis.change_for_peer(rpc, reply)
            case _:
                assert_never(rpc)

    def _proposed(self, rpc: ProposeRpc, reply: Callable[[PeerReply], None], answer: PeerReply) -> None:
        """The node that proposed waits until it has applied the command."""
        reply(answer)
        if isinstance(answer, ProposeReply) and answer.error is ErrorCode.NONE:
            self._fetch_server.hasten(self._engine.config.quorum_group, rpc.source)

    def handle(self, header: RequestHeader, message: object, client: ClientContext, reply: Callable[[object], None]) -> None:
        """A client's request; the answer is None where there is none to send (acks=0)."""
        self._engine.begin_input()
        self._apis.handle(header, message, client, reply)

    def peer_unreachable(self, peer: NodeId) -> None:
        """An established connection to `peer` was closed by it, or a new one refused. Its followers and leaders mind."""
        self._engine.begin_input()
        for partition in list(self._engine.partitions.values()):
            if partition.core.is_leader or partition.core.leader_id == peer:
                self._engine.step(partition, PeerUnreachable(peer=peer))
            if partition.core.leader_id == peer:
                self._fetchers.lose(peer, partition.group)

    def on_deadline(self) -> None:
        """The time has come for which `TimerQueue.next_ms` asked."""
        self._engine.begin_input()
        try:
            self._engine.timers.run_due(self._engine.now_ms)
        except (StorageError, InvariantViolation) as error:
            self._engine.fail(error)
