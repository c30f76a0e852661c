"""Looking for a time in the records of one batch, a few records at a time and without making values of them."""

from __future__ import annotations

from typing import NamedTuple

from raftlake.errors import WireError
from raftlake.wire.batch_header import BatchHeader
from raftlake.wire.primitives import BytesLike, read_varlong

#: No record is older.
_ANY_TIME = -(1 << 64)


class TimedRecord(NamedTuple):
    offset: int
    timestamp_ms: int


class RecordTimes:
    """The times of the records of a batch, whose (uncompressed) payload is `content`. Records below `start` do not count."""

    def __init__(self, header: BatchHeader, content: BytesLike, start: int = 0) -> None:
        self._start = start
        self._header = header
        self._content = content
        self._index = 0
        self._position = 0

    @property
    def is_over(self) -> bool:
        """All records were looked at."""
        return self._index >= self._header.record_count

    def find(self, timestamp_ms: int, count: int) -> TimedRecord | None:
        """The first of the next `count` records that is of this time or later; the next call begins behind it. Raises WireError
        for what is no record."""
        header, content = self._header, self._content
        if header.is_log_append_time:
            # All of them have the time of the batch.
            if header.timestamp_ms_max < timestamp_ms:
                self._index = header.record_count
                return None
            wanted = _ANY_TIME
        else:
            wanted = timestamp_ms - header.base_timestamp_ms
        first, position = self._index, self._position
        self._index = min(first + count, header.record_count)
        for index in range(first, self._index):
            try:
                length, position = read_varlong(content, position)
                delta, behind = read_varlong(content, position + 1)
                offset = header.base_offset + read_varlong(content, behind)[0] if delta >= wanted else -1
            except IndexError as error:
                raise WireError(f"the batch ends amid record {index}") from error
            if length < 0:
                raise WireError(f"record {index} has {length} bytes")
            position += length
            if offset >= self._start:
                self._index, self._position = index + 1, position
                is_append_time = header.is_log_append_time
                return TimedRecord(offset, header.timestamp_ms_max if is_append_time else header.base_timestamp_ms + delta)
        self._position = position
        return None
