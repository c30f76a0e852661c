"""What a piece of the remote tier says of transactions: whose records are in it, and where markers end them. Pure.

It is made once, aside, when the piece comes. Asking costs a search, and a step for each transactional batch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from raftlake.wire.batches import BatchHeader, read_end_marker


class Ended(NamedTuple):
    """How a transaction of a producer has ended, and where its marker stands."""

    marker_offset: int
    is_aborted: bool


class PieceTransactions:
    __slots__ = ("_markers", "_offsets", "_producers")

    def __init__(self, data: bytes, headers: Iterable[BatchHeader]) -> None:
        """Raises CorruptBatch for a marker that cannot be read."""
        #: The transactional batches with records: their base offsets and producers.
        self._offsets = array("q")
        self._producers = array("q")
        #: By producer, ascending.
        self._markers: dict[int, list[Ended]] = {}
        for header in headers:
            if not header.is_transactional:
                continue
            if not header.is_control:
                if header.record_count > 0:
                    self._offsets.append(header.base_offset)
                    self._producers.append(header.producer_id)
                continue
            marker = read_end_marker(memoryview(data)[header.position : header.end_position])
            if marker is not None:
                ended = Ended(header.base_offset, not marker.commit)
                self._markers.setdefault(marker.producer_id, []).append(ended)

    def between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Base offset and producer of each transactional batch that begins in [start, end)."""
        for index in range(bisect_left(self._offsets, start), bisect_left(self._offsets, end)):
            yield self._offsets[index], self._producers[index]

    def end_of(self, producer_id: int, offset: int) -> Ended | None:
        """The first marker of a producer at `offset` or behind it; None where the piece has none."""
        markers = self._markers.get(producer_id, [])
        index = bisect_left(markers, (offset,))
        return markers[index] if index < len(markers) else None
