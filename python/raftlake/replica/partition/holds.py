"""Transactional batches that wait at their partition until it is known whether they may begin a transaction.

The batches of one producer keep their order: what comes behind one that waits, waits too. Owns nothing but the waiting; who may
begin a transaction is for the `Gate`, which stands above the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from raftlake.errors import ErrorCode

if TYPE_CHECKING:
    from raftlake.replica.partition.partition import Partition, PendingAppend


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
