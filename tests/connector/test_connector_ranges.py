"""Range arithmetic: admission control and splitting, against the rules of Spark's Kafka connector."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_raftlake.offsets import TopicPartition
from pyspark_raftlake.ranges import OffsetRange, count_offsets, limit_offsets, split_ranges


def p(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def r(number: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(topic="t", partition=number, start=start, end=end)


# --- limit_offsets -----------------------------------------------------------------------------------------------------------


def test_the_limit_is_shared_out_in_proportion() -> None:
    start = {p(0): 0, p(1): 0, p(2): 0}
    end = {p(0): 100, p(1): 300, p(2): 600}
    assert limit_offsets(100, start, end) == {p(0): 10, p(1): 30, p(2): 60}


def test_a_small_partition_does_not_starve() -> None:
    assert limit_offsets(10, {p(0): 5, p(1): 0}, {p(0): 6, p(1): 1000}) == {p(0): 6, p(1): 9}


def test_a_limit_above_what_is_waiting_takes_all() -> None:
    end = {p(0): 7, p(1): 9}
    assert limit_offsets(1_000_000, {p(0): 0, p(1): 0}, end) == end


def test_shares_are_exact_where_floating_point_is_not() -> None:
    huge = (1 << 62) + 1
    assert limit_offsets(huge, {p(0): 0}, {p(0): huge}) == {p(0): huge}


def test_partitions_without_news_keep_their_end() -> None:
    assert limit_offsets(5, {p(0): 8, p(1): 0}, {p(0): 8, p(1): 10}) == {p(0): 8, p(1): 5}
    assert limit_offsets(5, {p(0): 8}, {p(0): 8}) == {p(0): 8}


POSITIONS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=8)


@given(POSITIONS, st.integers(1, 20_000))
def test_a_limited_batch_advances_and_never_passes_the_end(bounds: list[tuple[int, int]], limit: int) -> None:
    start = {p(i): begin for i, (begin, _) in enumerate(bounds)}
    end = {p(i): begin + size for i, (begin, size) in enumerate(bounds)}
    limited = limit_offsets(limit, start, end)
    assert all(start[key] <= limited[key] <= end[key] for key in end)
    assert count_offsets(start, limited) <= limit + len(bounds)
    if any(size for _, size in bounds):
        assert count_offsets(start, limited) > 0


# --- split_ranges ------------------------------------------------------------------------------------------------------------


def test_without_a_minimum_each_partition_is_one_task() -> None:
    assert split_ranges([r(0, 0, 10), r(1, 5, 5), r(2, 0, 1)]) == [r(0, 0, 10), r(2, 0, 1)]


def test_with_enough_partitions_nothing_is_split() -> None:
    ranges = [r(0, 0, 10), r(1, 0, 1000)]
    assert split_ranges(ranges, partitions_min=2) == ranges


def test_one_partition_is_split_evenly() -> None:
    assert split_ranges([r(0, 0, 10)], partitions_min=3) == [r(0, 0, 3), r(0, 3, 6), r(0, 6, 10)]


def test_large_ranges_are_split_in_proportion() -> None:
    split = split_ranges([r(0, 0, 100), r(1, 0, 300)], partitions_min=4)
    assert split == [r(0, 0, 100), r(1, 0, 100), r(1, 100, 200), r(1, 200, 300)]


def test_small_ranges_do_not_count_in_the_shares_of_the_large() -> None:
    """SPARK-23541's case: many small partitions beside a large one."""
    small = [r(i, 0, 10) for i in range(3)]
    split = split_ranges([*small, r(3, 0, 1000)], partitions_min=6)
    assert split[:3] == small
    assert [piece.size for piece in split[3:]] == [333, 333, 334]


def test_fewer_offsets_than_tasks() -> None:
    assert split_ranges([r(0, 7, 9)], partitions_min=10) == [r(0, 7, 8), r(0, 8, 9)]
    many = split_ranges([r(0, 0, 40), r(1, 0, 0)], partitions_min=10**18)
    assert many == [r(0, n, n + 1) for n in range(40)], "as much work as there are offsets, not as there were tasks asked for"


def test_no_task_is_longer_than_the_maximum() -> None:
    assert split_ranges([r(0, 0, 10)], records_max=4) == [r(0, 0, 3), r(0, 3, 6), r(0, 6, 10)]


@given(POSITIONS, st.one_of(st.none(), st.integers(1, 40)), st.one_of(st.none(), st.integers(500, 5_000)))
def test_splitting_neither_loses_nor_doubles(
    bounds: list[tuple[int, int]], partitions_min: int | None, records_max: int | None
) -> None:
    ranges = [r(i, begin, begin + size) for i, (begin, size) in enumerate(bounds)]
    split = split_ranges(ranges, partitions_min=partitions_min, records_max=records_max)
    for whole in ranges:
        position = whole.start
        for piece in (piece for piece in split if piece.partition == whole.partition):
            assert piece.start == position
            assert piece.size > 0
            assert records_max is None or piece.size <= records_max
            position = piece.end
        assert position == whole.end
