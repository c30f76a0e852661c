"""The sparse indexes: Kafka's layout on disk, lookups that never go past what is asked for."""

from __future__ import annotations

import struct

import pytest

from raftlake.storage.index import INDEX_INTERVAL, SegmentIndex, load, parse_offset_index, parse_time_index

BATCH = 1_000
BASE = 5_000_000_000


def filled(batches: int = 50) -> SegmentIndex:
    """Batches of 2 records and 1000 bytes from BASE on, timestamps 0, 10, 20, ..."""
    index = SegmentIndex(BASE)
    for number in range(batches):
        index.note(BASE + 2 * number + 2, number * BATCH, BATCH, number * 10)
    return index


def test_one_entry_for_each_interval_of_bytes() -> None:
    index = filled()
    gaps = [one - other for one, other in zip(index.positions, [0, *index.positions], strict=False)]
    assert set(gaps) == {5 * BATCH}
    assert 5 * BATCH > INDEX_INTERVAL >= 4 * BATCH


def test_the_files_have_kafkas_layout() -> None:
    offsets, times = filled(12).encode()
    # An entry is the last offset of a batch, relative to the segment, and where that batch begins.
    assert list(struct.iter_unpack(">ii", offsets)) == [(11, 5_000), (21, 10_000)]
    assert list(struct.iter_unpack(">qi", times)) == [(50, 11), (100, 21), (110, 23)]


def test_what_is_written_is_loaded() -> None:
    index = filled()
    again = load(*index.encode(), BASE, BASE + 100, 50 * BATCH)
    assert (again.last_offsets, again.positions) == (index.last_offsets, index.positions)
    assert (again.times, again.time_offsets) == (index.times, index.time_offsets)
    assert (again.timestamp_ms_max, again.timestamp_offset) == (490, BASE + 99)


def test_a_lookup_never_lands_behind_the_batch() -> None:
    index = filled()
    for offset in range(BASE, BASE + 100):
        batch_position = (offset - BASE) // 2 * BATCH
        assert batch_position - 5 * BATCH - BATCH < index.position_for(offset) <= batch_position


def test_a_boundary_lies_within_both_limits() -> None:
    index = filled()
    for limit in range(BASE, BASE + 101, 3):
        for position_max in range(0, 50 * BATCH, 777):
            position = index.boundary_within(limit, position_max)
            assert position <= position_max
            assert BASE + position // BATCH * 2 <= limit


def test_everything_up_to_a_timestamps_offset_is_older() -> None:
    index = filled()
    for timestamp in range(-1, 500):
        last_older, position = index.before_timestamp(timestamp)
        first = BASE + -(-max(timestamp, 0) // 10) * 2
        assert BASE - 1 <= last_older < first or last_older == BASE - 1
        assert position is None or last_older == BASE + position // BATCH * 2 + 1


def test_truncation_forgets_what_lies_behind() -> None:
    index = filled()
    index.truncate(BASE + 40, 20 * BATCH)
    index.note_timestamp(BASE + 40, 190)
    fresh = filled(20)
    assert index.encode() == fresh.encode()
    for each in (index, fresh):
        for number in range(20, 40):
            each.note(BASE + 2 * number + 2, number * BATCH, BATCH, number * 10)
    assert index.encode() == fresh.encode()


def test_batches_without_timestamps_have_no_time_entries() -> None:
    index = SegmentIndex(0)
    for number in range(50):
        index.note(number + 1, number * BATCH, BATCH, -1)
    assert index.encode()[1] == b""
    assert index.timestamp_ms_max == -1


@pytest.mark.parametrize(
    "data",
    [
        b"123",
        struct.pack(">iiii", 5, 100, 5, 200),
        struct.pack(">iiii", 5, 100, 6, 100),
        struct.pack(">ii", 5, 0),
        struct.pack(">ii", 3, -8),
        struct.pack(">ii", 7, 100) + bytes(8),
    ],
    ids=["cut", "offset twice", "position twice", "at the start", "negative", "zero tail"],
)
def test_what_cannot_be_an_offset_index_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_offset_index(data, 0)


@pytest.mark.parametrize(
    "data",
    [b"123", struct.pack(">qiqi", 5, 1, 5, 2), struct.pack(">qi", -5, 1), struct.pack(">qiqi", 5, 2, 6, 1)],
    ids=["cut", "time twice", "negative", "offsets go back"],
)
def test_what_cannot_be_a_time_index_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_time_index(data, 0)


@pytest.mark.parametrize(("end", "size"), [(BASE + 90, 50 * BATCH), (BASE + 100, 45 * BATCH)])
def test_an_index_of_another_segment_is_refused(end: int, size: int) -> None:
    with pytest.raises(ValueError):
        load(*filled().encode(), BASE, end, size)
