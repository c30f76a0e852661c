"""Offsets JSON: what users, checkpoints and Spark's Kafka connector write, and how we write it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_raftlake.offsets import (
    TopicPartition,
    by_topic,
    document_of,
    offsets_of,
    parse_offsets,
    parse_partitions,
    topics_of,
)
from raftlake.errors import ConfigError

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_offsets_are_read_as_kafka_writes_them() -> None:
    assert parse_offsets('{"t":{"0":23,"1":-2},"u":{"0":-1}}') == {T0: 23, T1: -2, U0: -1}


def test_partitions_are_sorted_by_number_not_by_text() -> None:
    offsets = {TopicPartition("t", number): number for number in (10, 9, 2, 1)} | {TopicPartition("a", 0): 5}
    assert json.dumps(document_of(offsets)) == '{"a": {"0": 5}, "t": {"1": 1, "2": 2, "9": 9, "10": 10}}'


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 2000)), st.integers(0, (1 << 63) - 1)
    )
)
def test_offsets_survive_a_checkpoint(offsets: dict[TopicPartition, int]) -> None:
    assert offsets_of(json.loads(json.dumps(document_of(offsets)))) == offsets


@pytest.mark.parametrize(
    "text",
    [
        "earliest",
        "[]",
        "23",
        '{"t":23}',
        '{"t":[0]}',
        '{"t":{"x":1}}',
        '{"t":{"-1":1}}',
        '{"t":{"0":"1"}}',
        '{"t":{"0":1.5}}',
        '{"t":{"0":true}}',
        '{"t":{"0":-3}}',
        '{"t":{"0":1}',
        '{"t":{"٣":1}}',
    ],
)
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_offsets(text)


def test_assigned_partitions_are_read_sorted_and_once() -> None:
    assert parse_partitions('{"u":[0],"t":[1,0,1]}') == (T0, T1, U0)


@pytest.mark.parametrize("text", ["t", '{"t":0}', '{"t":["0"]}', '{"t":[-1]}', '{"t":[true]}', "[1]"])
def test_other_assignments_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_partitions(text)


def test_partitions_group_by_topic() -> None:
    assert by_topic({U0, T1, T0}) == {"t": [0, 1], "u": [0]}
    assert topics_of([U0, T1, T0]) == ["t", "u"]
