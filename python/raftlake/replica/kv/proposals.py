"""Who may propose what: the gate in front of the metadata log.

Decides by who asks. A client writes users' keys. Another node forwards what nodes of its kind write: its own addresses, a
topic that is created, changed or deleted, the next block of producer ids, the cluster's id where that was spoilt, what it
copies to the tier, where the records of partitions begin; or a client's command, which may end transactions. Of the keys of
transactions a node forwards one change: a partition that it leads becomes part of one. All else the leader of the metadata log
writes alone. The node itself is not asked. Knows nothing of connections; `ports.Origin` says who asks, and a claimed number
which node.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from raftlake.errors import CorruptBatch
from raftlake.kv.commands import ABSENT, Delete, Put, Txn, decode
from raftlake.kv.keys import (
    CLUSTER_KEY,
    NODES_PREFIX,
    PRODUCERS_NEXT_KEY,
    STARTS_PREFIX,
    TIER_PREFIX,
    TOPICS_PREFIX,
    TRANSACTIONS_PREFIX,
    is_reserved,
)
from raftlake.kv.strict_json import Refused
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import ProposeRpc
from raftlake.raft.types import NodeId
from raftlake.replica.engine import Engine
from raftlake.replica.kv.state import KvState
from raftlake.replica.kv.tier_gate import refusal_of_tier
from raftlake.replica.names import Names
from raftlake.replica.reserved import (
    PRODUCER_IDS_BLOCK,
    Topic,
    decode_cluster,
    decode_node,
    decode_producers_next,
    decode_start,
    decode_topic,
    first_free_producer_id,
    recovery_of,
    start_group,
)
from raftlake.replica.reserved_rules import PARTITIONS_MAX
from raftlake.replica.transaction_entry import decode as decode_transaction
from raftlake.wire.batches import decode_records, validate

logger = logging.getLogger("raftlake.proposals")

#: Refusals that are logged one by one; further ones are only counted.
TOLD_MAX = 100


def command_of(rpc: ProposeRpc) -> Txn:
    """The command that came in a batch. Raises WireError for a batch that nodes do not make."""
    headers = validate(rpc.batch)
    if len(headers) != 1 or headers[0].is_control or headers[0].is_compressed or headers[0].record_count != 1:
        raise CorruptBatch("a forwarded command is one batch with one record, and not compressed")
    (record,) = decode_records(rpc.batch)
    return decode(record.value or b"")


class ProposalGate:
    """`count` is the number of proposals that were refused since the start."""

    def __init__(self, engine: Engine, state: KvState, names: Names) -> None:
        self._engine = engine
        self._state = state
        self._names = names
        self.count = 0

    def refusal(self, txn: Txn, origin: Origin, source: NodeId) -> str | None:
        """Why this transaction may not be proposed; None where it may."""
        if origin is Origin.SELF or not _changes_reserved(txn):
            return None
        if origin is Origin.CLIENT:
            reason: str | None = "reserved keys are written by nodes alone"
        elif txn.endings:
            reason = "a node ends transactions of clients, and changes no reserved key beside"
        elif txn.has_ranges:
            reason = "a node speaks of ranges of clients' keys, and changes no reserved key beside"
        else:
            reason = self._refusal_of_peer(txn, source)
        if reason is not None:
            self.count += 1
            if self.count <= TOLD_MAX:
                keys = [change.key[:100] for change in txn.changes[:3]]
                logger.warning("refused a proposal of %s %d for %r: %s", origin.value, source, keys, ascii(reason))
        return reason

    def _refusal_of_peer(self, txn: Txn, source: NodeId) -> str | None:
        changes = txn.changes
        if changes[0].key.startswith(TIER_PREFIX):
            return refusal_of_tier(txn, source, self._state.machine)
        if changes[0].key.startswith(STARTS_PREFIX):
            return self._refusal_of_starts(txn)
        if len(changes) != 1 or [compare.key for compare in txn.key_compares] != [changes[0].key]:
            return "a node changes one reserved key at a time, under a condition on that key"
        operation, version = changes[0], txn.key_compares[0].version
        key = operation.key
        if key.startswith(TOPICS_PREFIX):
            return self._refusal_of_topic(operation, version)
        if isinstance(operation, Delete):
            return "nodes delete no reserved keys but topics"
        if key.startswith(NODES_PREFIX):
            found = decode_node(key, operation.value)
            if isinstance(found, Refused):
                return found.reason
            return None if found.node_id == source else f"node {source} may not speak for node {found.node_id}"
        if key == PRODUCERS_NEXT_KEY:
            return self._refusal_of_block(operation, version)
        if key == CLUSTER_KEY:
            return self._refusal_of_cluster(operation)
        if key.startswith(TRANSACTIONS_PREFIX):
            return self._refusal_of_addition(operation, version)
        return "nodes write no such key"

    def _refusal_of_starts(self, txn: Txn) -> str | None:
        """That no start goes back the rules see to (`reserved_rules`)."""
        recovery = recovery_of(self._state.machine)
        for operation in txn.changes:
            if not isinstance(operation, Put) or start_group(operation.key) is None:
                return "a node says where the records of partitions begin, and changes nothing else with it"
            found = decode_start(operation.value)
            if isinstance(found, Refused):
                return found.reason
            if found.recovery != recovery:
                return "records are deleted as of the last recovery of the quorum"
        return None

    def _refusal_of_topic(self, operation: Put | Delete, version: int) -> str | None:
        if version < ABSENT or (version == ABSENT and isinstance(operation, Delete)):
            return "a topic is created where there is none, and changed or deleted at its version"
        if isinstance(operation, Delete):
            return None
        # Whether there is room for its partitions is asked as for all that is proposed (`room`).
        topic = decode_topic(operation.key.removeprefix(TOPICS_PREFIX), operation.value, PARTITIONS_MAX)
        if isinstance(topic, Refused):
            return topic.reason
        if version != ABSENT:
            return self._refusal_of_change(operation, topic, version)
        return None if self._names.by_id(topic.topic_id) is None else "the id is another topic's"

    def _refusal_of_change(self, operation: Put, topic: Topic, version: int) -> str | None:
        """More partitions, or other configs. One that was changed meanwhile its condition refuses."""
        entry, standing = self._state.machine.get(operation.key), self._state.topics.get(topic.name)
        if entry is None or standing is None or standing.topic_id != topic.topic_id:
            return "a topic that stands gets more partitions or other configs"
        if entry.version != version:
            return None
        told = replace(topic, partitions=standing.partitions, grown=standing.grown, configs=standing.configs)
        if told != standing:
            return "a topic that changes stays what it is"
        is_same_size = (topic.partitions, topic.grown) == (standing.partitions, standing.grown)
        if topic.configs != standing.configs:
            return None if is_same_size else "a topic grows or gets other configs, one of the two at a time"
        return None if topic.partitions > standing.partitions else "a topic that grows gets more partitions"

    def _refusal_of_block(self, operation: Put, version: int) -> str | None:
        partition = self._engine.partitions[self._engine.config.quorum_group]
        wanted = decode_producers_next(operation.value, partition.core.log_end)
        if isinstance(wanted, Refused):
            return wanted.reason
        entry = self._state.machine.get(PRODUCERS_NEXT_KEY)
        known = first_free_producer_id(entry)
        applied = ABSENT if entry is None else entry.version
        if version == applied:
            is_next = wanted == known + PRODUCER_IDS_BLOCK
            return None if is_next else f"the next block of producer ids ends at {known + PRODUCER_IDS_BLOCK}"
        # A block that was taken meanwhile the condition refuses. One that is being taken is not applied yet.
        return None if version < applied or wanted > known else f"producer ids below {known} are given out already"

    def _refusal_of_addition(self, operation: Put, version: int) -> str | None:
        """Which partitions an ongoing transaction may lose or keep the rules see to (`transaction_index`)."""
        found = decode_transaction(operation.key, operation.value)
        if isinstance(found, Refused):
            return found.reason
        entry, standing = self._state.machine.get(operation.key), self._state.transactions.by_key.get(operation.key)
        if version == ABSENT or not found.is_ongoing:
            return "a node adds partitions to a transaction, and changes nothing else of it"
        if entry is None or standing is None or entry.version != version:
            # The condition refuses it, or holds once this node has applied what the other one has.
            return None
        told = replace(
            found,
            state=standing.state,
            partitions=standing.partitions,
            is_raised=standing.is_raised,
            started_ms=standing.started_ms,
            updated_ms=standing.updated_ms,
        )
        return None if told == standing else "a node adds partitions to a transaction, and changes nothing else of it"

    def _refusal_of_cluster(self, operation: Put) -> str | None:
        found = decode_cluster(operation.value)
        if isinstance(found, Refused):
            return found.reason
        return None if found == self._engine.cluster_id else "this is another cluster"


def _changes_reserved(txn: Txn) -> bool:
    # Each put asks: a loop costs less than a generator.
    for change in txn.changes:  # noqa: SIM110
        if is_reserved(change.key):
            return True
    return False
