"""The markers that end transactions (KIP-98), written at the leader of a partition.

Owns when a marker is written, and when it is answered. A marker of the coordinator may come twice, late, and from a coordinator
that was replaced. So it is judged where batches are, in the order of the log: it is written where it is due by the quorum's
keys, as applied here, and where it ends or fences something. Else there is nothing to write, and the answer is the same. Either
answer leaves once all that it relies on is committed and this node is proven to lead.

A marker that a client asks for (WriteTxnMarkers, as `kafka-transactions --abort` sends it) ends a transaction that hangs: one
that the keys do not know, or know as ended. Kafka lets an operator end any transaction so. Here one that the keys know as open
keeps its one outcome in all of its partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.replica.engine import Engine
from raftlake.replica.partition.holds import is_needed
from raftlake.replica.partition.partition import Partition, Prove
from raftlake.replica.partition.pending import NOT_WRITTEN, PendingAppend
from raftlake.replica.transactions.verification import Keys, Verification
from raftlake.wire.batches import EndMarker, end_marker_batch, iterate_headers

Done = Callable[[ErrorCode], None]


class Markers:
    def __init__(self, engine: Engine, *, keys: Keys, verification: Verification, prove: Prove) -> None:
        self._engine = engine
        self._keys = keys
        self._verification = verification
        self._prove = prove

    def write(self, group: GroupId, marker: EndMarker, decided_at: Offset, done: Done) -> None:
        """End a transaction of a partition that this node leads, as a command below `decided_at` of the quorum's log decides.

        `done` is called once: NONE when the partition has no open transaction of the producer with the marker's epoch or an
        older one, for good. NOT_LEADER_OR_FOLLOWER, LEADER_NOT_AVAILABLE and REQUEST_TIMED_OUT: ask again.
        """
        stale = partial(self._why_not_due, marker)
        self._with_keys(group, decided_at, done, lambda partition: self._append(partition, marker, stale, done))

    def write_for_client(self, group: GroupId, marker: EndMarker, done: Done) -> None:
        """End a hanging transaction of a partition.

        Errors besides those of `write`: INVALID_PRODUCER_EPOCH for an epoch below the producer's.
        TRANSACTION_COORDINATOR_FENCED for an older coordinator. INVALID_TXN_STATE for a transaction that the keys know to be
        open, or to end in the other way. NOT_ENOUGH_REPLICAS where one more producer would have to be remembered, and the
        quorum remembers as many as it may.
        """

        def append(partition: Partition) -> None:
            self._append(partition, marker, partial(self._why_not_hanging, partition, marker), done)

        # What the keys say of the transaction: as of now.
        self._with_keys(group, None, done, append)

    def _with_keys(self, group: GroupId, known_to: Offset | None, done: Done, go_on: Callable[[Partition], None]) -> None:
        """Go on once this node, which leads the group, has applied the keys up to `known_to` (None: all that are committed by
        now), and has looked at them in this leadership."""
        partition = self._engine.partitions.get(group)
        if partition is None or not partition.core.is_leader:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        is_fresh = known_to is not None and self._keys.machine.applied_offset >= known_to
        if is_fresh and partition.keys_known_in == partition.core.epoch:
            go_on(partition)
            return

        def on_looked_up(is_known: bool) -> None:
            if is_known and not partition.deleted:
                go_on(partition)
            else:
                is_leader = partition.core.is_leader and not partition.deleted
                done(ErrorCode.LEADER_NOT_AVAILABLE if is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER)

        self._verification.keys_as_of_now(partition, on_looked_up)

    def _append(self, partition: Partition, marker: EndMarker, stale: Callable[[], ErrorCode | None], done: Done) -> None:
        engine = self._engine
        batch = end_marker_batch(marker, engine.clock.wall_ms())
        deadline_ms = engine.now_ms + engine.config.propose_timeout_ms
        pending = PendingAppend(
            batch,
            tuple(iterate_headers(batch)),
            deadline_ms,
            partial(self._on_appended, partition, done),
            # Whoever asked may ask again.
            idempotent=True,
            marker=marker,
            stale=stale,
        )
        partition.appending.append(pending)
        engine.mark_appending(partition)

    def _on_appended(self, partition: Partition, done: Done, error: ErrorCode, base_offset: int) -> None:
        if error is not ErrorCode.NONE or base_offset != NOT_WRITTEN:
            done(error)
        elif partition.deleted or not partition.core.is_leader:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            # A leader that was replaced without knowing it lacks what its successor has appended.
            self._prove(partition.group, lambda leads: done(ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # --- what may not be written ---

    def _why_not_due(self, marker: EndMarker) -> ErrorCode | None:
        """It is a repetition of one that was written, where it is not due any more."""
        return None if self._verification.is_due(marker) else ErrorCode.NONE

    def _why_not_hanging(self, partition: Partition, marker: EndMarker) -> ErrorCode | None:
        known = partition.producers.last_row(marker.producer_id)
        if known is not None and known.epoch > marker.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if known is not None and known.coordinator_epoch > marker.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if not self._verification.is_hanging(partition.group, marker):
            return ErrorCode.INVALID_TXN_STATE
        if not partition.producers.has_room_for(marker.producer_id) and is_needed(partition.producers, marker):
            # As a batch of such a producer.
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return None
