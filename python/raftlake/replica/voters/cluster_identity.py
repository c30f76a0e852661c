"""Which cluster this node is of: how it learns the id, and what it says of nodes of another cluster.

The id stands in `meta.properties`, or is learned from the key `/raftlake/cluster` and written down then; where the disk has no
room, a little later. A leader without an id takes the one that its voters' Fetches name, lest it give the quorum a second one.

Requests of another cluster are refused at the top, before any group sees them: the cores see no more than a peer that does not
answer. So whoever refuses, and whoever is refused, tells its log and the health check.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.errors import DiskFull
from raftlake.ports.driver import Origin, PeerConnection
from raftlake.ports.peer_rpcs import (
    ControlRpc,
    DescribeRpc,
    FetchRpc,
    FetchSnapshotRpc,
    MarkersRpc,
    OffsetRpc,
    PeerRpc,
    ProposeRpc,
    ReadOffsetRpc,
    VoterRpc,
)
from raftlake.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, VoteRequest
from raftlake.raft.roles import Leader
from raftlake.raft.types import NodeId
from raftlake.replica.config import Endpoint
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.quorum import Quorum
from raftlake.wire.ids import id_to_text, is_cluster_id

#: After a write that found no room the next one is tried so much later.
WRITE_INTERVAL_MS = 2_000
#: So long a new leader waits for the Fetches of voters whose ids it does not know.
CLAIMS_WAIT_MS = 1_000
#: The same is told again after so long. A warning stands for twice as long, lest it come and go while its cause stays.
TELL_INTERVAL_MS = 60_000
WARNING_MS = 2 * TELL_INTERVAL_MS
#: Warnings about nodes without a vote here. Anybody may claim to be a node.
STRANGERS_MAX = 8
_HOW_TO_MEND = (
    "If both belong to one cluster, stop the node that has the wrong id, correct cluster.id in its meta.properties, and start "
    "it. If not, correct the addresses in quorum.voters and quorum.bootstrap.servers"
)


class ClusterIdentity:
    """`writers` are called with an id that was not known at the start, and write it down. `listeners` are told each warning."""

    def __init__(self, engine: Engine, quorum: Quorum, disk: DiskWatch) -> None:
        self._engine = engine
        self._quorum = quorum
        self._disk = disk
        self.writers: list[Callable[[str], None]] = []
        self.listeners: list[Callable[[str], None]] = []
        self._is_written_down = engine.cluster_id is not None
        self._next_write_ms = engine.now_ms
        #: The id that the last Fetch of each voter named, while this node knows none.
        self._claims: dict[NodeId, str] = {}
        #: Each warning by its kind and the node that it is about: when it was told last, and its words.
        self._told: dict[tuple[str, NodeId], tuple[int, str]] = {}

    # --- the own id ---

    def learn(self, cluster_id: str) -> None:
        """It is this node's from now on."""
        self._engine.cluster_id = cluster_id
        self._claims.clear()
        self.tick()

    def tick(self) -> None:
        """Called a few times a second: write down what was learned, until that succeeds."""
        engine = self._engine
        if self._is_written_down or engine.cluster_id is None or engine.now_ms < self._next_write_ms:
            return
        self._next_write_ms = engine.now_ms + WRITE_INTERVAL_MS
        try:
            for write in self.writers:
                write(engine.cluster_id)
        except DiskFull as full:
            self._disk.on_full(full)
        else:
            self._is_written_down = True

    def choose(self, led_ms: int) -> str | None:
        """The id for a quorum without one, at a leader that knows none and has led for so long: what voters name, else a new
        one. None where they name several, and while one that names another may be about to come."""
        partition = self._quorum.partition
        role = None if partition is None else partition.core.role
        if not isinstance(role, Leader):
            return None
        # Whose Fetch does not count in this epoch is not believed.
        present = [voter for voter, progress in role.voters.items() if progress.has_fetched]
        claims = {voter: self._claims[voter] for voter in present if voter in self._claims}
        if len(present) < len(role.voters) and led_ms < CLAIMS_WAIT_MS:
            return None
        ids = set(claims.values())
        if len(ids) > 1:
            named = ", ".join(f"node {voter} is of {cluster_id}" for voter, cluster_id in claims.items())
            what = f"voters of one quorum are of different clusters, so this leader takes no cluster id: {named}"
            self._warn("claims", self._engine.config.node_id, what)
            return None
        return ids.pop() if ids else id_to_text(self._engine.rng.randrange(1 << 128).to_bytes(16, "big"))

    # --- the others' ---

    def refuses(self, connection: PeerConnection, rpc: PeerRpc) -> bool:
        """Whether what a peer asks is of another cluster. Either side may know no id yet."""
        if isinstance(rpc, ProposeRpc | DescribeRpc | VoterRpc | OffsetRpc):
            return False
        own, claimed = self._engine.cluster_id, rpc.cluster_id
        if own is None:
            if isinstance(rpc, FetchRpc) and connection.origin is Origin.PEER:
                self._note_claim(rpc.replica_id, claimed)
            return False
        if claimed is None or claimed == own:
            return False
        sender = _sender(rpc)
        if sender >= 0:
            shown = f"cluster {claimed}" if is_cluster_id(claimed) else "another cluster"
            self._warn("refused", sender, f"node {sender} is of {shown}, this one of {own}: it is answered nothing")
        return True

    def _note_claim(self, voter: NodeId, claimed: str | None) -> None:
        if claimed is None or not is_cluster_id(claimed):
            self._claims.pop(voter, None)
        elif voter in self._quorum.latest:
            self._claims[voter] = claimed

    def refused_by(self, peer: NodeId, address: Endpoint) -> None:
        """A peer has refused what this node asked; its id it does not tell. A number below 0 stands for an address alone."""
        self._engine.begin_input()
        name = f"node {peer} at {address}" if peer >= 0 else f"the node at {address}"
        what = f"{name} is of another cluster, this one of {self._engine.cluster_id}: it answers nothing to this node"
        self._warn("refuses", peer, what)

    # --- telling ---

    def _warn(self, kind: str, node_id: NodeId, what: str) -> None:
        now_ms, key = self._engine.now_ms, (kind, node_id)
        if key in self._told and now_ms < self._told[key][0] + TELL_INTERVAL_MS:
            return
        self._told = {each: told for each, told in self._told.items() if self._stands(told[0])}
        voters = self._quorum.latest
        strangers = sum(about not in voters for _, about in self._told)
        if key not in self._told and node_id not in voters and strangers >= STRANGERS_MAX:
            return
        self._told[key] = now_ms, f"{what}. {_HOW_TO_MEND}"
        for listener in self.listeners:
            listener(self._told[key][1])

    def _stands(self, told_at_ms: int) -> bool:
        return self._engine.now_ms < told_at_ms + WARNING_MS

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong at the moment, for a health check."""
        return tuple(words for told_at_ms, words in self._told.values() if self._stands(told_at_ms))


def _sender(rpc: ControlRpc | FetchRpc | FetchSnapshotRpc | ReadOffsetRpc | MarkersRpc) -> NodeId:
    """The node that an RPC says it is of; -1 for none."""
    if not isinstance(rpc, ControlRpc):
        return rpc.replica_id
    body = rpc.messages[0].body if rpc.messages else None
    if isinstance(body, VoteRequest):
        return body.candidate.id
    return body.leader_id if isinstance(body, BeginQuorumEpochRequest | EndQuorumEpochRequest) else NodeId(-1)
