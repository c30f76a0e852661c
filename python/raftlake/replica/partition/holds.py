"""What transactions ask of the appends of a leader: which batches go on, which wait, and which markers are of use.

A batch that may begin a transaction waits at its partition until that is known. The batches of one producer keep their order:
what comes behind one that waits, waits too.
"""

from __future__ import annotations

from collections.abc import Iterator

from raftlake.errors import ErrorCode
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.partition.producer_state import NO_PRODUCER, ProducerStates
from raftlake.wire.batches import BatchHeader, EndMarker


def may_append(producers: ProducerStates, header: BatchHeader) -> ErrorCode | None:
    """Of a batch that is the next one of its producer. NONE: it goes on with its transaction, or has none. None: it would begin
    one. Else why it may not be appended."""
    if header.producer_id == NO_PRODUCER:
        return ErrorCode.NONE
    is_open = producers.open_transaction(header.producer_id) is not None
    if not header.is_transactional:
        return ErrorCode.INVALID_TXN_STATE if is_open else ErrorCode.NONE
    known = producers.last_row(header.producer_id)
    return ErrorCode.NONE if is_open and known is not None and known.epoch == header.producer_epoch else None


def is_needed(producers: ProducerStates, marker: EndMarker) -> bool:
    """Whether a marker changes anything in a partition: it ends an open transaction of its epoch or an older one, or fences a
    producer that has written here.

    Where something of the producers was forgotten, another replica may have a transaction open that is not known here. Then the
    marker is written; one too many ends nothing.
    """
    known = producers.last_row(marker.producer_id)
    if known is None:
        return producers.has_forgotten
    if known.epoch != marker.epoch:
        return known.epoch < marker.epoch
    return producers.has_forgotten or producers.open_transaction(marker.producer_id) is not None


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
