"""Where a time begins in a segment: by its time index, whose entries are believed only as far as their batches agree.

A segment may hold a million small batches of one time, so the walk begins at the last offset entry before which nothing can
have the time, some KiB ahead of what is looked for.
"""

from __future__ import annotations

from raftlake.storage.index import SegmentIndex
from raftlake.storage.scan import BatchAt
from raftlake.storage.segment import Segment


def find_timestamp(segment: Segment, timestamp_ms: int) -> BatchAt | None:
    """The first batch whose largest timestamp is at or above `timestamp_ms`. Raises StorageError."""
    if segment.timestamp_ms_max < timestamp_ms or segment.size == 0:
        return None
    found = _before(segment, segment.loaded_index(), timestamp_ms)
    if found is None:
        # An entry that leads there tells something else than its batch: a file is damaged.
        found = _before(segment, segment.rebuild_index(), timestamp_ms)
    position = 0 if found is None else found.position
    return next((each for each in segment.walk_from(position) if each.timestamp_ms_max >= timestamp_ms), None)


def _before(segment: Segment, known: SegmentIndex, timestamp_ms: int) -> BatchAt | None:
    """A batch before which all are older than `timestamp_ms`; None where an entry that says so is not that of its batch."""
    for offset, time_ms in known.times_around(timestamp_ms):
        batch = _ending_at(segment, offset)
        if batch is None or batch.timestamp_ms_max != time_ms:
            return None
    offset, position = known.before_timestamp(timestamp_ms)
    if offset < segment.base_offset:
        return segment.locate(segment.base_offset)
    found = _ending_at(segment, offset)
    return found if found is not None and position in (None, found.position) else None


def _ending_at(segment: Segment, last_offset: int) -> BatchAt | None:
    """The batch whose last offset this is."""
    if not segment.base_offset <= last_offset < segment.end_offset:
        return None
    batch = segment.locate(last_offset)
    return batch if batch.end_offset == last_offset + 1 else None
