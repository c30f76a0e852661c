"""What nodes tell each other through the key-value space: the cluster's id and where each node is reached.

A node says too which transaction.version it knows. What older nodes do not understand is used once all nodes know it.

`/raftlake/cluster` is written once, by the first leader (KIP-595 "Cluster Bootstrapping"): the id that its nodes were formatted
with, or a new one. Nodes that were formatted without an id learn it there. `/raftlake/nodes/<id>` is written by each node when
its addresses are new or its key is gone. The leader deletes the keys of nodes that neither vote nor fetch any more, so that no
client is sent to them.
"""

from __future__ import annotations

import json

from raftlake.kv.commands import Compare, Delete, Put, Txn
from raftlake.kv.history import Compacted
from raftlake.kv.keys import CLUSTER_KEY, NODES_PREFIX, node_key
from raftlake.kv.strict_json import Refused
from raftlake.raft.roles import Leader
from raftlake.raft.types import NO_LEADER, NodeId
from raftlake.replica.config import Endpoint, NodeConfig
from raftlake.replica.engine import Engine
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.kv.service import KvService
from raftlake.replica.quorum import Quorum
from raftlake.replica.replication.fetch_server import FetchServer
from raftlake.replica.reserved import NodeAddresses, decode_cluster, decode_node
from raftlake.replica.voters.cluster_identity import ClusterIdentity

RETRY_INTERVAL_MS = 2_000
#: The transaction.versions that this release knows: 2 is KIP-890 part 2.
TRANSACTION_VERSION_MIN, TRANSACTION_VERSION_MAX = 0, 2
#: So long a leader leaves it to others to mend the key of the cluster: each node that knows the id has tried twice.
SPOILT_WAIT_MS = 2 * RETRY_INTERVAL_MS
#: How often a leader looks for nodes that are gone.
LOOK_INTERVAL_MS = 10_000
#: Keys that one transaction of the leader deletes at most.
DELETED_AT_ONCE = 100


def addresses_value(config: NodeConfig) -> bytes:
    """What a node writes under its own key."""
    http = config.http_listener
    fields: dict[str, object] = {"host": config.listener.host, "port": config.listener.port}
    fields["transaction_version"] = TRANSACTION_VERSION_MAX
    if http is not None:
        fields |= {"http_host": http.host, "http_port": http.port}
    return json.dumps(fields, sort_keys=True).encode()


def cluster_value(cluster_id: str) -> bytes:
    """What stands under the key of the cluster."""
    return json.dumps({"cluster_id": cluster_id}).encode()


class Membership:
    def __init__(
        self, engine: Engine, quorum: Quorum, kv: KvService, fetch_server: FetchServer, identity: ClusterIdentity
    ) -> None:
        self._engine = engine
        self._identity = identity
        self._quorum = quorum
        self._kv = kv
        self._fetch_server = fetch_server
        #: What the keys say that mean something.
        self._known: dict[str, NodeAddresses] = {}
        self._http: dict[NodeId, Endpoint] = {}
        self._listeners: dict[NodeId, Endpoint] = {}
        self._next_attempt_ms = 0
        self._under_way = False
        kv.listeners.append(self._on_applied)
        self._seen_version = -1
        self._own_key, self._own_value = node_key(engine.config.node_id), addresses_value(engine.config)
        #: The epoch that this node leads or led last, and since when.
        self._led_epoch, self._leads_since_ms = -1, 0
        self._next_look_ms = 0

    # --- what is known ---

    def nodes(self) -> dict[NodeId, Endpoint]:
        """Where clients reach each node that has said so, by ascending id.

        The voter set says where peers reach a voter. That may be a listener which refuses clients, so it is taken for a
        client's address only where nodes cannot say anything (`NodeConfig.is_opaque`).
        """
        config = self._engine.config
        told = self._quorum.addresses() if config.is_opaque else self._listeners
        known = {**told, config.node_id: config.listener}
        return {node_id: known[node_id] for node_id in sorted(known)}

    def endpoint(self, node_id: NodeId) -> Endpoint | None:
        return self.nodes().get(node_id)

    def http_endpoint(self, node_id: NodeId) -> Endpoint | None:
        """Where a node's HTTP front listens; None until it has said so."""
        if node_id == self._engine.config.node_id:
            return self._engine.config.http_listener
        return self._http.get(node_id)

    @property
    def transaction_version(self) -> int:
        """The transaction.version that may be used: what all nodes know, by their keys. 0 before each voter has told."""
        told = {known.node_id: known.transaction_version for known in self._known.values()}
        if self._engine.config.is_opaque or any(voter not in told for voter in self._quorum.latest.ids):
            return 0
        return min([*told.values(), TRANSACTION_VERSION_MAX])

    def _on_applied(self, applied_offset: int) -> None:
        machine = self._kv.machine
        self._learn_cluster_id()
        try:
            while changes := machine.changes_since(NODES_PREFIX, self._seen_version):
                for change in changes:
                    self._seen_version = change.version
                    self._on_change(change.key, change.value)
        except Compacted:
            present = dict(machine.list(NODES_PREFIX, None, 1 << 31)[0])
            for key in [known for known in self._known if known not in present]:
                self._on_change(key, None)
            for key, entry in present.items():
                self._on_change(key, entry.value)
        self._seen_version = max(self._seen_version, applied_offset - 1)
        if not self._has_told():
            # Clients cannot be sent here before: the next round of the house would cost them a quarter of a second.
            self._engine.timers.schedule(self._engine.now_ms, self.tick)

    def _learn_cluster_id(self) -> None:
        if self._engine.cluster_id is not None:
            return
        entry = self._kv.machine.get(CLUSTER_KEY)
        cluster_id = None if entry is None else decode_cluster(entry.value)
        if isinstance(cluster_id, str):
            self._identity.learn(cluster_id)

    def _on_change(self, key: str, value: bytes | None) -> None:
        """A key got a value, or is gone (None). One that means nothing is as good as none."""
        before = self._known.pop(key, None)
        if before is not None:
            del self._listeners[before.node_id]
            self._http.pop(before.node_id, None)
        found = None if value is None else decode_node(key, value)
        if isinstance(found, NodeAddresses):
            self._known[key] = found
            self._listeners[found.node_id] = found.listener
            if found.http is not None:
                self._http[found.node_id] = found.http

    # --- telling ---

    def tick(self) -> None:
        """Called a few times a second: write what is missing, one attempt at a time."""
        engine = self._engine
        partition = self._quorum.partition
        if engine.config.is_opaque:
            return
        if self._under_way or engine.now_ms < self._next_attempt_ms or partition is None:
            return
        # Before the first high watermark this node knows nothing; a view that lags is caught by the compares.
        if partition.core.leader_id == NO_LEADER or partition.high_watermark == 0:
            return
        txn = self._missing() or self._mended_cluster_id() or self._gone()
        if txn is not None:
            self._under_way = True
            self._next_attempt_ms = engine.now_ms + RETRY_INTERVAL_MS
            self._kv.propose_anywhere(txn, self._on_outcome)

    def _has_told(self) -> bool:
        entry = self._kv.machine.get(self._own_key)
        return entry is not None and entry.value == self._own_value

    def _missing(self) -> Txn | None:
        engine = self._engine
        machine = self._kv.machine
        if engine.cluster_id is None:
            return self._first_cluster_id()
        if self._has_told():
            return None
        entry = machine.get(self._own_key)
        return Txn(
            compares=(Compare(self._own_key, 0 if entry is None else entry.version),),
            ops=(Put(self._own_key, self._own_value),),
        )

    def _first_cluster_id(self) -> Txn | None:
        """The leader writes one. Where something that means nothing stands in its place, nodes that know the id may have it
        back first."""
        led_ms, entry = self._led_ms(), self._kv.machine.get(CLUSTER_KEY)
        if led_ms < (0 if entry is None else SPOILT_WAIT_MS):
            return None
        cluster_id = self._identity.choose(led_ms)
        if cluster_id is None:
            return None
        compare = Compare(CLUSTER_KEY, 0 if entry is None else entry.version)
        return Txn(compares=(compare,), ops=(Put(CLUSTER_KEY, cluster_value(cluster_id)),))

    def _led_ms(self) -> int:
        """For how long this node has been seen to lead, all committed and applied; -1: it does not."""
        engine = self._engine
        partition = self._quorum.partition
        if partition is None or not partition.is_serving:
            return -1
        if self._led_epoch != partition.core.epoch:
            self._led_epoch, self._leads_since_ms = partition.core.epoch, engine.now_ms
        return engine.now_ms - self._leads_since_ms

    def _mended_cluster_id(self) -> Txn | None:
        """Write the cluster's id where it does not stand. Only nodes that know the id may. Where nothing stands, or another id,
        the leader does: a majority of the voters fetches from it, so theirs is no other."""
        entry, cluster_id = self._kv.machine.get(CLUSTER_KEY), self._engine.cluster_id
        if cluster_id is None:
            return None
        found, value = None if entry is None else decode_cluster(entry.value), cluster_value(cluster_id)
        if found == cluster_id or isinstance(decode_cluster(value), Refused):
            return None
        if not isinstance(found, Refused) and self._led_ms() < 0:
            return None
        compare = Compare(CLUSTER_KEY, 0 if entry is None else entry.version)
        return Txn(compares=(compare,), ops=(Put(CLUSTER_KEY, value),))

    def _gone(self) -> Txn | None:
        """Delete the keys of nodes that are there no longer, and those that are no node's. A new leader waits until every
        node that is there has fetched from it."""
        engine, now_ms = self._engine, self._engine.now_ms
        partition = self._quorum.partition
        expired_ms = now_ms - engine.config.node_expiration_ms
        if partition is None or self._led_ms() < engine.config.node_expiration_ms or now_ms < self._next_look_ms:
            return None
        core = partition.core
        assert isinstance(core.role, Leader)
        self._next_look_ms = now_ms + LOOK_INTERVAL_MS
        self._fetch_server.confirm(partition.group)
        doomed: list[tuple[str, int]] = []
        for key, entry in self._kv.machine.list(NODES_PREFIX, None, 10_000)[0]:
            known = self._known.get(key)
            is_there = known is not None and (known.node_id == core.local.id or known.node_id in core.voters)
            seen = None if known is None else core.role.observers.get(known.node_id)
            if not is_there and (seen is None or seen.fetched_at_ms <= expired_ms):
                doomed.append((key, entry.version))
        if not doomed:
            return None
        self._next_look_ms = now_ms
        chosen = doomed[:DELETED_AT_ONCE]
        return Txn(
            compares=tuple(Compare(key, version) for key, version in chosen), ops=tuple(Delete(key) for key, _ in chosen)
        )

    def _on_outcome(self, outcome: ProposeOutcome) -> None:
        self._under_way = False
        if outcome.status is ProposeStatus.DONE:
            self._next_attempt_ms = 0
