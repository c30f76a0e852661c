"""What nodes tell each other through the key-value space: the cluster's id and where each node is reached.

`/raftlake/cluster` is written once, by the first leader of a quorum that was formatted without an id (KIP-595 "Cluster
Bootstrapping"); `/raftlake/nodes/<id>` by each node when its addresses are new or its key is gone. The leader deletes the keys
of nodes that neither vote nor fetch any more, so that nobody is sent to them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlake.kv.commands import Compare, Delete, Put, Txn
from raftlake.kv.keys import CLUSTER_KEY, NODES_PREFIX, node_key
from raftlake.raft.roles import Leader
from raftlake.raft.types import NO_LEADER, NodeId
from raftlake.replica.config import Endpoint, NodeConfig
from raftlake.replica.kv_service import ProposeOutcome, ProposeStatus
from raftlake.wire.ids import id_to_text

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode

RETRY_INTERVAL_MS = 2_000
#: How often a leader looks for nodes that are gone.
LOOK_INTERVAL_MS = 10_000


def addresses_value(config: NodeConfig) -> bytes:
    """What a node writes under its own key."""
    http = config.http_listener
    fields: dict[str, object] = {"host": config.listener.host, "port": config.listener.port}
    if http is not None:
        fields |= {"http_host": http.host, "http_port": http.port}
    return json.dumps(fields, sort_keys=True).encode()


def node_id_in(key: str) -> NodeId:
    """Whose address a key under NODES_PREFIX holds."""
    return NodeId(int(key.removeprefix(NODES_PREFIX)))


class Membership:
    def __init__(self, node: ReplicaNode) -> None:
        self._node = node
        self._http: dict[NodeId, Endpoint] = {}
        self._listeners: dict[NodeId, Endpoint] = {}
        self._next_attempt_ms = 0
        self._under_way = False
        #: Called once with the cluster id when it was not known at the start.
        self.cluster_id_listeners: list[Callable[[str], None]] = []
        node.kv.listeners.append(self._on_applied)
        self._seen_version = -1
        self._own_value = addresses_value(node.config)
        #: The epoch that this node leads or led last, and since when.
        self._led_epoch, self._leads_since_ms = -1, 0
        self._next_look_ms = 0

    # --- what is known ---

    def nodes(self) -> dict[NodeId, Endpoint]:
        """Where clients reach each node, by ascending id."""
        known = {**self._node.quorum.addresses(), **self._listeners, self._node.config.node_id: self._node.config.listener}
        return {node_id: known[node_id] for node_id in sorted(known)}

    def endpoint(self, node_id: NodeId) -> Endpoint | None:
        return self.nodes().get(node_id)

    def http_endpoint(self, node_id: NodeId) -> Endpoint | None:
        """Where a node's HTTP front listens; None until it has said so."""
        if node_id == self._node.config.node_id:
            return self._node.config.http_listener
        return self._http.get(node_id)

    def _on_applied(self, applied_offset: int) -> None:
        machine = self._node.kv.machine
        cluster = machine.get(CLUSTER_KEY)
        if cluster is not None and self._node.cluster_id is None:
            cluster_id = str(json.loads(cluster.value)["cluster_id"])
            self._node.cluster_id = cluster_id
            for listener in self.cluster_id_listeners:
                listener(cluster_id)
        listed = {node_id_in(key): entry for key, entry in machine.list(NODES_PREFIX, None, 10_000)[0]}
        for node_id in [each for each in self._listeners if each not in listed]:
            del self._listeners[node_id]
            self._http.pop(node_id, None)
        for node_id, entry in listed.items():
            if entry.version > self._seen_version:
                fields = json.loads(entry.value)
                self._listeners[node_id] = Endpoint(fields["host"], fields["port"])
                if fields.get("http_port"):
                    self._http[node_id] = Endpoint(fields["http_host"], fields["http_port"])
        self._seen_version = applied_offset - 1

    # --- telling ---

    def tick(self) -> None:
        """Called a few times a second: write what is missing, one attempt at a time."""
        node = self._node
        partition = node.partitions.get(node.config.quorum_group)
        if node.config.is_opaque:
            return
        if self._under_way or node.now_ms < self._next_attempt_ms or partition is None:
            return
        # Before the first high watermark this node knows nothing; a view that lags is caught by the compares.
        if partition.core.leader_id == NO_LEADER or partition.high_watermark == 0:
            return
        txn = self._missing() or self._gone()
        if txn is not None:
            self._under_way = True
            self._next_attempt_ms = node.now_ms + RETRY_INTERVAL_MS
            node.kv.propose_anywhere(txn, self._on_outcome)

    def _missing(self) -> Txn | None:
        node = self._node
        machine = node.kv.machine
        if node.cluster_id is None:
            if not node.partitions[node.config.quorum_group].is_serving:
                return None
            cluster_id = id_to_text(node.rng.randrange(1 << 128).to_bytes(16, "big"))
            value = json.dumps({"cluster_id": cluster_id}).encode()
            return Txn(compares=(Compare(CLUSTER_KEY, 0),), ops=(Put(CLUSTER_KEY, value),))
        key, value = node_key(node.config.node_id), self._own_value
        entry = machine.get(key)
        if entry is not None and entry.value == value:
            return None
        return Txn(compares=(Compare(key, 0 if entry is None else entry.version),), ops=(Put(key, value),))

    def _gone(self) -> Txn | None:
        """Delete the key of one node that is there no longer. A new leader waits until whoever is there has fetched from it."""
        node, now_ms = self._node, self._node.now_ms
        partition = node.partitions[node.config.quorum_group]
        core = partition.core
        if not isinstance(core.role, Leader) or not partition.is_serving:
            return None
        if self._led_epoch != core.epoch:
            self._led_epoch, self._leads_since_ms = core.epoch, now_ms
        expired_ms = now_ms - node.config.node_expiration_ms
        if self._leads_since_ms > expired_ms or now_ms < self._next_look_ms:
            return None
        self._next_look_ms = now_ms + LOOK_INTERVAL_MS
        node.fetch_server.confirm(partition.group)
        for key, entry in node.kv.machine.list(NODES_PREFIX, None, 10_000)[0]:
            node_id = node_id_in(key)
            seen = core.role.observers.get(node_id)
            is_there = node_id == core.local.id or node_id in core.voters
            if not is_there and (seen is None or seen.fetched_at_ms <= expired_ms):
                self._next_look_ms = now_ms
                return Txn(compares=(Compare(key, entry.version),), ops=(Delete(key),))
        return None

    def _on_outcome(self, outcome: ProposeOutcome) -> None:
        self._under_way = False
        if outcome.status is ProposeStatus.DONE:
            self._next_attempt_ms = 0
