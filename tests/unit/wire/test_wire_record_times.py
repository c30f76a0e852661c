"""Times of the records of a batch, looked at a few at a time."""

from __future__ import annotations

import pytest

from raftlake.errors import WireError
from raftlake.wire.batches import HEADER_BYTES, Record, build_batch, parse_header
from raftlake.wire.record_times import RecordTimes, TimedRecord


def times_of(*times: int, log_append_time: bool = False) -> RecordTimes:
    records = [Record(offset=0, timestamp_ms=each, key=b"k", value=bytes(200), headers=(("h", b"v"),)) for each in times]
    batch = build_batch(records, base_offset=40, timestamp_ms=777, log_append_time=log_append_time)
    return RecordTimes(parse_header(batch), bytes(batch[HEADER_BYTES:]))


def test_the_first_of_a_time_or_later_is_found_however_few_are_looked_at_together() -> None:
    written = (500, 400, 600, 600, 300, 900)
    for wanted in (*written, 0, 401, 501, 601):
        expected = next(TimedRecord(40 + index, each) for index, each in enumerate(written) if each >= wanted)
        for count in (1, 2, 6, 100):
            times = times_of(*written)
            found = None
            while found is None:
                assert not times.is_over
                found = times.find(wanted, count)
            assert found == expected


def test_all_were_looked_at_where_none_is_so_late() -> None:
    times = times_of(500, 400, 600)
    assert [times.find(601, 2), times.is_over, times.find(601, 2), times.is_over] == [None, False, None, True]


def test_in_the_time_of_the_log_all_are_of_the_time_of_the_batch() -> None:
    times = times_of(1, 2, log_append_time=True)
    assert times.find(777, 1) == TimedRecord(40, 777)
    times = times_of(1, 2, log_append_time=True)
    assert (times.find(778, 1), times.is_over) == (None, True)


@pytest.mark.parametrize("payload", [b"", b"\x09", b"\x10\x00", b"\x01\x00\x00\x00", b"\xff" * 12])
def test_what_is_no_record_is_said(payload: bytes) -> None:
    header = parse_header(build_batch([Record(value=b"x")] * 3, timestamp_ms=5))
    with pytest.raises(WireError):
        RecordTimes(header, payload).find(10**9, 3)
