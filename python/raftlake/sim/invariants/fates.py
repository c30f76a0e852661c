"""Which transaction a batch belongs to, and how it ended: what the markers of one committed log say.

The markers of the committed log count, whatever a node has of them. So it does not matter what compaction removed anywhere.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from raftlake.sim.disk.log_image import StoredBatch
from raftlake.wire.batches import BatchHeader, EndMarker, parse_header, read_end_marker


@dataclass(slots=True)
class _Producer:
    """What one producer has in the log."""

    #: Where the markers stand, ascending, and what they say.
    offsets: list[int] = field(default_factory=list)
    markers: list[EndMarker] = field(default_factory=list)
    #: The last offset and the epoch of the newest batch of records, -1 for none.
    last_offset: int = -1
    epoch: int = -1


class Fates:
    """Reads on in the committed batches whenever it is asked."""

    def __init__(self, batches: Sequence[StoredBatch]) -> None:
        self._batches = batches
        self._count = 0
        self._producers: dict[int, _Producer] = {}

    def marker_of(self, header: BatchHeader) -> EndMarker | None:
        """The marker that ends the transaction of a batch; None where the batch is in none, or no marker is committed."""
        producer = self._producer(header.producer_id)
        if not header.is_transactional or producer is None:
            return None
        index = bisect_right(producer.offsets, header.base_offset)
        return producer.markers[index] if index < len(producer.markers) else None

    def is_aborted(self, header: BatchHeader) -> bool:
        marker = self.marker_of(header)
        return marker is not None and not marker.commit

    def begin_of(self, marker_offset: int, producer_id: int) -> int:
        """No batch of the transaction that the marker ends lies below."""
        producer = self._producer(producer_id)
        index = 0 if producer is None else bisect_left(producer.offsets, marker_offset)
        return 0 if producer is None or not index else producer.offsets[index - 1] + 1

    def is_newest(self, header: BatchHeader) -> bool:
        """Whether a batch is what nodes have to know of its producer. It is the newest batch of records, unless a marker came
        that fences it. Then it is that marker."""
        producer = self._producer(header.producer_id)
        if producer is None:
            return False
        is_fenced = bool(producer.markers) and producer.markers[-1].epoch > producer.epoch
        return header.last_offset == (producer.offsets[-1] if is_fenced else producer.last_offset)

    def _producer(self, producer_id: int) -> _Producer | None:
        for batch in self._batches[self._count :]:
            self._take(batch)
        self._count = len(self._batches)
        return self._producers.get(producer_id)

    def _take(self, batch: StoredBatch) -> None:
        header = parse_header(batch.data)
        if header.producer_id < 0:
            return
        producer = self._producers.setdefault(header.producer_id, _Producer())
        marker = read_end_marker(batch.data)
        if marker is not None:
            producer.offsets.append(header.base_offset)
            producer.markers.append(marker)
        else:
            producer.last_offset, producer.epoch = header.last_offset, header.producer_epoch
