"""The markers of decided transactions, on their way to the leaders of the partitions, until every partition has one.

Owns what is still to be written of each transaction in Prepare*, and tells (`on_marked`) when nothing is. A partition that is
deleted has nothing to end. What cannot be written is tried again: the partition may have no leader, or another one, or the node
of its leader may be down. A marker may be sent again after any crash, since a partition writes none that has nothing to end.

Bounded: `SENT_MAX` markers are under way at a time; the others wait in a line. Only the coordinator delivers (`drop_all` is
called where a node is it no longer).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import AskedMarker, GroupId, MarkersReply, MarkersRpc, PeerReply
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NO_LEADER, NodeId, Offset
from raftlake.replica.engine import Engine
from raftlake.replica.kv.state import KvState
from raftlake.replica.names import Names
from raftlake.replica.transaction_entry import Outcome, Transaction
from raftlake.wire.control import EndMarker

RETRY_MS_MIN = 50
RETRY_MS_MAX = 1_000
#: Markers under way, and in one request.
SENT_MAX = 10_000
SENT_TOGETHER = 1_000

#: A topic id and an index.
PartitionId = tuple[bytes, int]


class MarkerWriter(Protocol):
    """The partitions that this node leads."""

    def write(self, group: GroupId, marker: EndMarker, decided_at: Offset, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` with NONE once the marker is committed, or there is nothing for it to end. `decided_at` is the end of the
        decision in the metadata log."""
        ...


@dataclass(slots=True, eq=False)
class _Delivery:
    """One decided transaction."""

    key: str
    version: int
    marker: EndMarker
    #: Partitions without a marker, and those of them whose next try has its time.
    missing: set[PartitionId]
    failed: list[PartitionId] = field(default_factory=list)
    retry_ms: int = RETRY_MS_MIN


_Unit = tuple[_Delivery, PartitionId]


class MarkerDelivery:
    def __init__(
        self,
        engine: Engine,
        *,
        state: KvState,
        names: Names,
        markers: MarkerWriter,
        on_marked: Callable[[str, int], None],
    ) -> None:
        self._engine = engine
        self._state = state
        self._names = names
        self._markers = markers
        self._on_marked = on_marked
        self._deliveries: dict[str, _Delivery] = {}
        self._line: deque[_Unit] = deque()
        self._sent = 0
        self._outbox: dict[NodeId, list[_Unit]] = {}

    def __len__(self) -> int:
        """Transactions that are decided and not known to be complete."""
        return len(self._deliveries)

    @property
    def keys(self) -> Collection[str]:
        """Of these transactions."""
        return self._deliveries.keys()

    def missing(self, key: str, transaction: Transaction) -> frozenset[PartitionId]:
        """Of its partitions those that have no marker, as far as is known here."""
        delivery = self._deliveries.get(key)
        return transaction.partitions if delivery is None else frozenset(delivery.missing)

    # --- what is to be delivered ---

    def look(self, key: str, version: int, transaction: Transaction | None, coordinator_epoch: int) -> None:
        """The key of a transaction stands at this version. Begins to deliver a decision, or ends it."""
        delivery = self._deliveries.get(key)
        if transaction is None or not transaction.is_prepared:
            if delivery is not None:
                del self._deliveries[key]
            return
        if delivery is not None and delivery.version == version:
            if not delivery.missing:
                # That it is complete was not committed: it is told again.
                self._on_marked(key, version)
            return
        marker = EndMarker(
            producer_id=transaction.producer_id,
            epoch=transaction.epoch,
            commit=transaction.decision is Outcome.COMMIT,
            coordinator_epoch=coordinator_epoch,
        )
        delivery = self._deliveries[key] = _Delivery(key, version, marker, set(transaction.partitions))
        if not delivery.missing:
            self._on_marked(key, version)
            return
        self._line.extend((delivery, part) for part in sorted(delivery.missing))

    def drop_all(self) -> None:
        """This node is not the coordinator any more. What is under way is heard of, and says nothing."""
        self._deliveries.clear()
        self._line.clear()

    # --- sending ---

    def pump(self) -> None:
        """Send what waits, as far as so many may be under way."""
        while self._line and self._sent < SENT_MAX:
            unit = self._line.popleft()
            delivery, part = unit
            if self._deliveries.get(delivery.key) is delivery and part in delivery.missing:
                self._send(unit)
        outbox, self._outbox = self._outbox, {}
        for peer, units in outbox.items():
            for first in range(0, len(units), SENT_TOGETHER):
                self._send_together(peer, units[first : first + SENT_TOGETHER])

    def _send(self, unit: _Unit) -> None:
        delivery, (topic_id, index) = unit
        group = self._group(topic_id, index)
        if group is None:
            self._put(unit, ErrorCode.NONE)
            return
        partition = self._engine.partitions.get(group)
        leader = NO_LEADER if partition is None else partition.core.leader_id
        if partition is not None and partition.core.is_leader:
            self._sent += 1
            self._markers.write(group, delivery.marker, Offset(delivery.version + 1), partial(self._on_written, unit))
        elif leader in (NO_LEADER, self._engine.config.node_id):
            self._put(unit, ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            self._sent += 1
            self._outbox.setdefault(leader, []).append(unit)

    def _group(self, topic_id: bytes, index: int) -> GroupId | None:
        """None where the partition is deleted."""
        if topic_id not in self._state.topic_ids:
            return None
        name = self._names.resolve_topic(topic_id) or ""
        return GroupId(name, index, topic_id)

    def _send_together(self, peer: NodeId, units: list[_Unit]) -> None:
        asked = tuple(
            AskedMarker(
                group=self._group(*part) or GroupId("", part[1], part[0]),
                marker=delivery.marker,
                decided_at=Offset(delivery.version + 1),
            )
            for delivery, part in units
        )
        rpc = MarkersRpc(cluster_id=self._engine.cluster_id, replica_id=self._engine.config.node_id, markers=asked)
        self._engine.network.send(peer, rpc, partial(self._on_reply, units))

    # --- answers ---

    def _on_written(self, unit: _Unit, error: ErrorCode) -> None:
        self._sent -= 1
        self._put(unit, error)
        self.pump_later()

    def _on_reply(self, units: list[_Unit], reply: PeerReply | FailureReason) -> None:
        self._engine.begin_input()
        self._sent -= len(units)
        errors = [ErrorCode.NETWORK_EXCEPTION] * len(units)
        if isinstance(reply, MarkersReply) and len(reply.errors) == len(units):
            errors = list(reply.errors)
        for unit, error in zip(units, errors, strict=True):
            self._put(unit, error)
        self.pump_later()

    def pump_later(self) -> None:
        """In this turn, but not within the call that brings an answer."""
        if self._line:
            self._engine.timers.schedule(self._engine.now_ms, self.pump)

    def _put(self, unit: _Unit, error: ErrorCode) -> None:
        delivery, part = unit
        if self._deliveries.get(delivery.key) is not delivery or part not in delivery.missing:
            return
        if error is not ErrorCode.NONE and self._group(*part) is not None:
            self._try_again(delivery, part)
            return
        delivery.missing.discard(part)
        if not delivery.missing:
            self._on_marked(delivery.key, delivery.version)

    def _try_again(self, delivery: _Delivery, part: PartitionId) -> None:
        """All that failed of a transaction meanwhile goes together."""
        delivery.failed.append(part)
        if len(delivery.failed) == 1:
            self._engine.timers.schedule(self._engine.now_ms + delivery.retry_ms, partial(self._retry, delivery))
            delivery.retry_ms = min(2 * delivery.retry_ms, RETRY_MS_MAX)

    def _retry(self, delivery: _Delivery) -> None:
        failed, delivery.failed = delivery.failed, []
        if self._deliveries.get(delivery.key) is delivery:
            self._line.extend((delivery, part) for part in failed)
            self.pump()
