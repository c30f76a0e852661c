"""The vectorised partitioner against the client's scalar one, which follows Kafka's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_raftlake.errors import InvalidRow
from pyspark_raftlake.partitioner import RUN_ROWS_MIN, hash_keys, in_turn, partitions_of_rows
from raftlake.client.partitioner import murmur2, partition_for_key

KEYS = st.lists(st.binary(max_size=40), max_size=200)


@given(KEYS, st.integers(0, 3))
def test_every_key_hashes_as_the_scalar_does(keys: list[bytes], offset: int) -> None:
    array = pa.array([b"before"] * offset + keys, pa.binary()).slice(offset)
    assert hash_keys(array).tolist() == [murmur2(key) for key in keys]


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 7, 8, 9, 100, 101, 102, 103])
def test_long_columns_of_one_length(length: int) -> None:
    rng = np.random.default_rng(length)
    keys = [rng.bytes(length) for _ in range(500)]
    assert hash_keys(pa.array(keys, pa.binary())).tolist() == [murmur2(key) for key in keys]


def test_lengths_that_are_mixed_and_keys_that_do_not_lie_together() -> None:
    rng = np.random.default_rng(7)
    keys = [rng.bytes(4 + index % 3) for index in range(600)]
    assert hash_keys(pa.array(keys, pa.binary())).tolist() == [murmur2(key) for key in keys]


def test_keys_larger_than_a_block() -> None:
    rng = np.random.default_rng(8)
    keys = [rng.bytes(200_000) for _ in range(40)]
    assert hash_keys(pa.array(keys, pa.binary())).tolist() == [murmur2(key) for key in keys]


def test_keys_go_where_kafka_puts_them() -> None:
    """Values from org.apache.kafka.common.utils.UtilsTest.testMurmur2."""
    keys = [b"21", b"foobar", b"a-little-bit-long-string", b"a-little-bit-longer-string", b"abc"]
    expected = [-973932308, -790332482, -985981536, -1486304829, 479470107]
    assert hash_keys(pa.array(keys, pa.binary())).view(np.int32).tolist() == expected


def test_partition_column_before_key_before_turn() -> None:
    key = pa.array([b"a", b"b", None, None], pa.binary())
    partition = pa.array([2, None, 1, None], pa.int32())
    chosen = partitions_of_rows(4, key, partition, 3, turn=4)
    assert chosen.tolist() == [2, partition_for_key(b"b", 3), 1, 1]


def test_columns_that_are_not_there() -> None:
    assert partitions_of_rows(3, None, None, 5, turn=7).tolist() == [2, 2, 2]
    assert partitions_of_rows(2, pa.array([None, None], pa.binary()), None, 1, turn=0).tolist() == [0, 0]
    assert partitions_of_rows(0, None, None, 5, turn=0).tolist() == []


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_partition_that_does_not_exist(wrong: int) -> None:
    with pytest.raises(InvalidRow, match=f"partition {wrong} does not exist: the topic has 3 partitions"):
        partitions_of_rows(2, None, pa.array([0, wrong], pa.int32()), 3, turn=0)


def test_rows_in_turn_stay_together_and_spread_evenly() -> None:
    assert set(in_turn(RUN_ROWS_MIN, 4, 3).tolist()) == {3}
    many = in_turn(4 * RUN_ROWS_MIN, 4, 1)
    assert np.bincount(many).tolist() == [RUN_ROWS_MIN] * 4
    assert np.count_nonzero(np.diff(many)) == 3
