"""Batches and markers of transactions, and what a plain reading of them says: the truth that partitions are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.batches import BatchHeader, EndMarker, Record, build_batch, end_marker_batch


def data_batch(
    producer_id: int,
    sequence: int,
    *,
    epoch: int = 0,
    count: int = 1,
    transactional: bool = True,
    base_offset: int = 0,
    leader_epoch: int = 1,
    size: int = 10,
) -> bytearray:
    """A batch of an idempotent producer, within a transaction unless told otherwise."""
    return build_batch(
        [Record(value=bytes(size))] * count,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def end_marker(producer_id: int, *, commit: bool = False, epoch: int = 0, coordinator_epoch: int = 3) -> EndMarker:
    return EndMarker(producer_id=producer_id, epoch=epoch, commit=commit, coordinator_epoch=coordinator_epoch)


def marker_batch(
    producer_id: int, *, commit: bool = False, epoch: int = 0, base_offset: int = 0, leader_epoch: int = 1
) -> bytearray:
    marker = end_marker(producer_id, commit=commit, epoch=epoch)
    return end_marker_batch(marker, 1, base_offset=base_offset, leader_epoch=leader_epoch)


class Said(NamedTuple):
    """One batch of a log, and the marker that it holds."""

    header: BatchHeader
    marker: EndMarker | None

    @property
    def offset(self) -> int:
        return self.header.base_offset

    @property
    def end_offset(self) -> int:
        return self.header.end_offset

    @property
    def producer_id(self) -> int:
        return self.header.producer_id


class Reading:
    """A plain reading of a log from its first batch on."""

    def __init__(self, batches: Sequence[Said], log_start: int = 0) -> None:
        self.batches = batches
        self.log_start = log_start

    def open(self, end: int) -> dict[int, int]:
        """The open transactions as the batches below `end` say."""
        found: dict[int, int] = {}
        for batch in self.batches:
            if batch.end_offset <= end:
                if batch.marker is not None:
                    found.pop(batch.producer_id, None)
                elif batch.header.is_transactional:
                    found.setdefault(batch.producer_id, batch.offset)
        return found

    def last_stable_offset(self, high_watermark: int) -> int:
        """What a reader of committed transactions may see where the log is committed below `high_watermark`."""
        earliest = min(self.open(high_watermark).values(), default=high_watermark)
        return min(max(self.log_start, earliest), high_watermark)

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of [start, end) leaves out."""
        found = []
        for batch in self.batches:
            if batch.marker is not None and not batch.marker.commit and batch.offset >= start:
                first = self.open(batch.offset).get(batch.producer_id)
                if first is not None and first < end:
                    stable = min(self.open(batch.end_offset).values(), default=batch.end_offset)
                    found.append(AbortedTransaction(batch.producer_id, first, batch.offset, stable))
        return found
