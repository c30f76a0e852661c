"""Batches that compaction has left: fewer records than offsets, or none. Whoever reads batches takes them as they are."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from compactkit import NOW_MS, Asked, LogInTheMaking, compact, header_of
from raftlake.arrow.decode import decode_to_arrow
from raftlake.arrow.segment import SegmentDecoder
from raftlake.client.reader import _cut, records_from
from raftlake.errors import CorruptBatch, ErrorCode
from raftlake.wire.batch_header import CRC_START, HEADER_BYTES, UnreadableBatch, validate
from raftlake.wire.batches import Record, parse_header
from raftlake.wire.compression import decompress
from raftlake.wire.fetch_response import FetchPartitionResult
from raftlake.wire.record_times import RecordTimes, TimedRecord
from raftlake.wire.shown import end_of_empty

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def compacted_log(codec: str = "none", **fields: object) -> list[bytes]:
    """Offsets 0 to 3 empty, 4 to 8 sparse (5 and 7 are left), 9 a tombstone with its horizon, 10 to 13 whole."""
    log = LogInTheMaking()
    log.data(("a", "1"), ("b", "1"), compression=codec)
    log.data(("c", "1"), ("d", "1"), compression=codec)
    keys = (b"a", b"x", b"b", b"y", b"c")
    records = [Record(key=key, value=b"v", timestamp_ms=NOW_MS + number) for number, key in enumerate(keys)]
    log.data(*records, compression=codec, **fields)
    log.data(("gone", None), compression=codec)
    log.data(("a", "2"), ("b", "2"), ("c", "2"), ("d", "2"), compression=codec)
    batches = compact(log.batches, Asked(until=log.end)).batches
    assert [header_of(each).record_count for each in batches] == [0, 2, 1, 4]
    return batches


LEFT = [5, 7, 9, 10, 11, 12, 13]


@pytest.mark.parametrize("codec", CODECS)
def test_replicas_take_what_producers_may_not_send(codec: str) -> None:
    batches = compacted_log(codec)
    data = b"".join(batches)
    assert [header.end_offset for header in validate(data, is_from_log=True)] == [4, 9, 10, 14]
    for batch in batches[:2]:
        with pytest.raises(UnreadableBatch):
            validate(batch)


@pytest.mark.parametrize(("records", "delta"), [(3, 1), (-1, 0), (0, -1), (1, -1)])
def test_nobody_takes_more_records_than_offsets(records: int, delta: int) -> None:
    batch = bytearray(compacted_log()[0])
    struct.pack_into(">i", batch, 23, delta)
    struct.pack_into(">i", batch, 57, records)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[CRC_START:])))
    with pytest.raises(UnreadableBatch):
        validate(batch, is_from_log=True)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("compiled", [True, False])
def test_arrow_has_the_offsets_of_the_records(codec: str, compiled: bool) -> None:
    data = b"".join(compacted_log(codec))
    loader = None if compiled else _Plain()
    options = {} if loader is None else {"loader": loader}
    rows = decode_to_arrow([data], topic="t", partition=0, include_headers=True, **options)  # type: ignore[arg-type]
    assert rows.column("offset").to_pylist() == LEFT
    times = [NOW_MS + 1, NOW_MS + 3, NOW_MS, NOW_MS, NOW_MS, NOW_MS, NOW_MS]
    assert rows.column("timestamp").cast("int64").to_pylist() == [1000 * time for time in times]
    part = decode_to_arrow([data], topic="t", partition=0, start_offset=6, end_offset=11, **options)  # type: ignore[arg-type]
    assert part.column("offset").to_pylist() == [7, 9, 10]


class _Plain:
    def kernels_for(self, records: int) -> None:
        return None


def test_a_client_goes_on_behind_what_is_empty() -> None:
    batches = compacted_log()
    result = FetchPartitionResult(index=0, error=ErrorCode.NONE, high_watermark=14, records=b"".join(batches))
    for offset in range(14):
        fetched = _cut(result, offset, None, 1)
        assert [each.offset for each in records_from(fetched, "t", 0, offset)] == [each for each in LEFT if each >= offset]
        assert fetched.next_offset == 14
    alone = FetchPartitionResult(index=0, error=ErrorCode.NONE, high_watermark=14, records=batches[0])
    fetched = _cut(alone, 2, None, 1)
    assert fetched.next_offset == 4 and not list(records_from(fetched, "t", 0, 2))


def test_empty_batches_are_known_by_where_they_end() -> None:
    batches = compacted_log()
    assert end_of_empty(batches[0]) == 4
    assert end_of_empty(b"".join(batches[:2])) is None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("append_time", [True, False])
def test_a_time_is_that_of_a_record_that_is_left(codec: str, append_time: bool) -> None:
    batch = compacted_log(codec, log_append_time=append_time)[1]
    header = parse_header(batch)
    content = decompress(header.compression, batch[HEADER_BYTES:])
    newest = header.timestamp_ms_max
    first, second = (newest, newest) if append_time else (NOW_MS + 1, NOW_MS + 3)

    def found(time_ms: int, start: int = 0) -> TimedRecord | None:
        return RecordTimes(header, content, start).find(time_ms, 10)

    assert found(0) == found(first) == TimedRecord(5, first)
    assert found(0, 6) == found(second, 6) == TimedRecord(7, second)
    assert found(0, 8) is None
    assert found(newest + 1) is None


@pytest.mark.parametrize("append_time", [True, False])
def test_a_batch_without_records_has_no_time(append_time: bool) -> None:
    log = LogInTheMaking()
    log.data(("a", "1"), producer_id=3, producer_epoch=0, base_sequence=0, log_append_time=append_time)
    log.data(("a", "2"))
    batch = compact(log.batches, Asked(until=log.end, last_batches=frozenset({0}))).batches[0]
    times = RecordTimes(parse_header(batch), b"")
    assert times.find(-1, 10) is None and times.is_over


def test_a_table_says_why_it_takes_no_compacted_batch() -> None:
    for batch in compacted_log()[:2]:
        base = header_of(batch).base_offset
        decoder = SegmentDecoder(topic="t", partition=0, segment_id="s", incarnation=0, base_offset=base)
        with pytest.raises(CorruptBatch, match="compaction has removed records"):
            list(decoder.decode(batch))
