"""What transactions ask of the appends of a leader: which batches go on, which wait, and which markers are of use.

A batch that may begin a transaction waits at its partition until that is known. The batches of one producer keep their order:
what comes behind one that waits, waits too. Who may begin a transaction is for the `Gate`, which stands above the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from raftlake.errors import ErrorCode
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.partition.producer_state import NO_PRODUCER, ProducerStates
from raftlake.wire.batches import BatchHeader, EndMarker

if TYPE_CHECKING:
    from raftlake.replica.partition.partition import Partition


class Gate(Protocol):
    """Judges the transactions of a node's partitions (`replica.transactions.verification`)."""

    def judge(self, partition: Partition, pending: PendingAppend) -> ErrorCode | None:
        """Whether a batch may begin a transaction: NONE, or why not; None where that has to be looked up."""

    def look_up(self, partition: Partition, pending: PendingAppend) -> None:
        """Call `Partition.end_hold` or `Partition.refuse_held` for the producer of a batch, now or later."""


class NoTransactions:
    """Where no keys tell of transactions none begins."""

    def judge(self, partition: Partition, pending: PendingAppend) -> ErrorCode | None:
        return ErrorCode.INVALID_TXN_STATE

    def look_up(self, partition: Partition, pending: PendingAppend) -> None:
        partition.refuse_held(pending.headers[0].producer_id)


NO_TRANSACTIONS = NoTransactions()


def may_append(producers: ProducerStates, header: BatchHeader) -> ErrorCode | None:
    """Whether a batch that is the next one of its producer goes on with its transaction, or has none: NONE, or why it may not be
    appended. None where it would begin a transaction."""
    if header.producer_id == NO_PRODUCER:
        return ErrorCode.NONE
    is_open = producers.open_transaction(header.producer_id) is not None
    if not header.is_transactional:
        return ErrorCode.INVALID_TXN_STATE if is_open else ErrorCode.NONE
    known = producers.last_row(header.producer_id)
    return ErrorCode.NONE if is_open and known is not None and known.epoch == header.producer_epoch else None


def is_needed(producers: ProducerStates, marker: EndMarker) -> bool:
    """Whether a marker changes anything in a partition: it ends an open transaction of its epoch or an older one, or it fences a
    producer that has written here."""
    known = producers.last_row(marker.producer_id)
    if known is None or known.epoch > marker.epoch:
        return False
    return known.epoch < marker.epoch or producers.open_transaction(marker.producer_id) is not None


class Holds:
    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, list[PendingAppend]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._by_producer

    def add(self, pending: PendingAppend) -> None:
        self._by_producer.setdefault(pending.headers[0].producer_id, []).append(pending)

    def take(self, producer_id: int) -> list[PendingAppend]:
        """What waits of a producer, oldest first; it waits no more."""
        return self._by_producer.pop(producer_id, [])

    def take_all(self) -> Iterator[PendingAppend]:
        while self._by_producer:
            yield from self._by_producer.pop(next(iter(self._by_producer)))
