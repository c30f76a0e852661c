"""Which batches of a Fetch answer are of aborted transactions, as Kafka's consumers find it out.

The answer names each aborted transaction that has records in it: its producer, and where it began. It reaches from there to the
producer's next ABORT marker. Batches are looked at in the order of their offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

from raftlake.wire.batches import BatchHeader, read_end_marker
from raftlake.wire.fetch_response import AbortedTransaction


class AbortedBatches:
    __slots__ = ("_aborted", "_waiting")

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        #: Those that begin later, the last one first.
        self._waiting = sorted(transactions, key=lambda each: each.first_offset, reverse=True)
        #: The producers whose transaction is an aborted one here.
        self._aborted: set[int] = set()

    def holds(self, data: memoryview, header: BatchHeader) -> bool:
        """Whether the next batch, whose header this is, is of an aborted transaction. Raises CorruptBatch for a marker that
        cannot be read."""
        if not self._waiting and not self._aborted:
            return False
        while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
            self._aborted.add(self._waiting.pop().producer_id)
        if header.producer_id not in self._aborted or not header.is_transactional:
            return False
        if not header.is_control:
            return True
        marker = read_end_marker(data[header.position : header.end_position])
        if marker is not None and not marker.commit:
            self._aborted.discard(header.producer_id)
        return False
