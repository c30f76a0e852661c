"""Batch queries and sinks against a real quorum: what was written is read back, whole and in order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from leaderkit import record_offsets
from raftlake.client import NewRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.spark

Topic = Callable[..., str]
Load = Callable[..., "DataFrame"]
Save = Callable[..., None]


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return (f"batch-{number}" for number in itertools.count(1))


@pytest.fixture
def topic(client: Client, names: Iterator[str]) -> Topic:
    return lambda partitions=1: client.create_topic(next(names), partitions).name


@pytest.fixture
def load(spark: SparkSession, quorum: LocalQuorum) -> Load:
    def read(topic: str, **options: str) -> DataFrame:
        reader = spark.read.format("raftlake").option("kafka.bootstrap.servers", quorum.bootstrap_servers)
        return reader.option("subscribe", topic).options(**options).load()

    return read


@pytest.fixture
def save(quorum: LocalQuorum) -> Save:
    def write(frame: DataFrame, topic: str | None = None, **options: str) -> None:
        writer = frame.write.format("raftlake").option("bootstrap.servers", quorum.bootstrap_servers).options(**options)
        (writer if topic is None else writer.option("topic", topic)).mode("append").save()

    return write


def of(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    rows = frame.orderBy("topic", "partition", "offset").select(*columns).collect()
    return [tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in rows]


# --- reading -----------------------------------------------------------------------------------------------------------------


def test_the_row_of_the_kafka_connector(client: Client, topic: Topic, load: Load) -> None:
    name = topic()
    result = client.append(name, b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp_ms=1_700_000_000_123)
    client.append(name, b"w")
    plain = load(name)
    assert plain.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    (row, _) = plain.orderBy("offset").collect()
    assert (bytes(row.key), bytes(row.value), row.topic, row.partition) == (b"k", b"v", name, 0)
    assert (row.offset, row.timestampType) == (result.offset, 0)
    assert row.timestamp.isoformat() == "2023-11-14T22:13:20.123000"
    (row, other) = load(name, includeHeaders="true").orderBy("offset").collect()
    assert [(header.key, header.value and bytes(header.value)) for header in row.headers] == [("h", b"1"), ("n", None)]
    assert (other.key, other.headers) == (None, None)


def test_a_range_of_offsets_and_of_times(client: Client, topic: Topic, load: Load) -> None:
    name = topic()
    offsets = [client.append(name, b"%d" % number, timestamp_ms=1_000 * (number + 1)).offset for number in range(6)]
    start, end = f'{{"{name}":{{"0":{offsets[1]}}}}}', f'{{"{name}":{{"0":{offsets[4]}}}}}'
    assert of(load(name, startingOffsets=start, endingOffsets=end), "value") == [(b"1",), (b"2",), (b"3",)]
    assert of(load(name, startingTimestamp="3000", endingTimestamp="5000"), "value") == [(b"2",), (b"3",)]
    assert load(name, startingOffsets=start, endingOffsets=start).count() == 0


def test_a_large_partition_is_read_by_several_tasks_from_several_nodes(
    spark: SparkSession, client: Client, topic: Topic, load: Load, save: Save
) -> None:
    name = topic()
    save(spark.range(0, 30_000, 1, 2).selectExpr("cast(id % 100 as string) as key", "cast(id as string) as value"), name)
    frame = load(name, minPartitions="6")
    assert frame.rdd.getNumPartitions() == 6
    summary = frame.selectExpr(
        "count(*)", "count(distinct value)", "count(distinct offset)", "max(offset) - min(offset)"
    ).first()
    # In a row, but for the control record of a leader that comes in between.
    offsets = record_offsets(client, name)
    assert tuple(summary or ()) == (30_000, 30_000, 30_000, offsets[-1] - offsets[0])
    assert frame.selectExpr("sum(cast(cast(value as string) as long))").first() == (30_000 * 29_999 // 2,)


def test_a_frame_keeps_the_offsets_that_its_first_action_planned(client: Client, topic: Topic, load: Load) -> None:
    """Spark plans a source written in Python once per `load()`; the READMEs say so."""
    name = topic()
    client.append(name, b"1")
    frame = load(name)
    client.append(name, b"2")
    assert of(frame, "value") == [(b"1",), (b"2",)], "it is not load() that plans"
    client.append(name, b"3")
    assert frame.count() == frame.where("value is not null").count() == 2
    assert load(name).count() == 3


@pytest.mark.parametrize("fail", ["true", "false"])
def test_partitions_of_a_topic_that_was_created_again(client: Client, topic: Topic, load: Load, fail: str) -> None:
    name = topic(2)
    client.append_many(name, [NewRecord(value=b"old", partition=number) for number in (0, 1)])
    assert load(name).count() == load(name).count() == 2, "Spark's workers know the topic"
    client.delete_topic(name)
    client.create_topic(name, 4)
    client.append_many(name, [NewRecord(value=b"%d" % number, partition=number) for number in range(4)])
    frame = load(name, failOnDataLoss=fail)
    assert of(frame, "partition", "value") == [(number, b"%d" % number) for number in range(4)]


def test_an_empty_topic(topic: Topic, load: Load) -> None:
    assert load(topic(3)).count() == 0


# --- writing -----------------------------------------------------------------------------------------------------------------


def test_a_round_trip_with_everything_a_record_can_have(spark: SparkSession, topic: Topic, load: Load, save: Save) -> None:
    source, target = topic(3), topic(3)
    schema = "key binary, value binary, partition int, headers array<struct<key:string,value:binary>>"
    large = b"x" * 3_000_000
    rows = [
        (b"k", b"v", 0, [("h", b"1"), ("n", None)]),
        (None, b"no key", 1, None),
        (b"no value", None, 1, []),
        (b"", b"", 2, None),
        (b"large", large, 2, [("big", b"y" * 10_000)]),
    ]
    # One task: the order of rows that two tasks write into one partition is nobody's promise.
    save(spark.createDataFrame(rows, schema).coalesce(1), source)
    expected = [(k, v, p, [tuple(h) for h in headers] if headers else None) for k, v, p, headers in rows]

    def found(name: str) -> list[tuple[Any, ...]]:
        frame = load(name, includeHeaders="true")
        return [
            (k, v, p, headers and [(header.key, header.value and bytes(header.value)) for header in headers])
            for k, v, p, headers in of(frame, "key", "value", "partition", "headers")
        ]

    assert found(source) == expected
    # What was read can be written back as it is; the topic option goes before the topic column.
    save(load(source, includeHeaders="true"), target)
    assert found(target) == expected


def test_keys_are_put_where_kafka_clients_put_them(
    spark: SparkSession, quorum: LocalQuorum, topic: Topic, load: Load, save: Save
) -> None:
    from confluent_kafka import Producer

    ours, theirs = topic(5), topic(5)
    save(spark.range(200).selectExpr("concat('key-', id) as key", "'x' as value"), ours)
    producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "partitioner": "murmur2_random"})
    for number in range(200):
        producer.produce(theirs, key=f"key-{number}", value="x")
    assert producer.flush(30) == 0
    assert sorted(of(load(ours), "key", "partition")) == sorted(of(load(theirs), "key", "partition"))


def test_rows_that_name_their_topics(spark: SparkSession, topic: Topic, load: Load, save: Save) -> None:
    one, two = topic(), topic()
    save(spark.createDataFrame([(one, "1"), (two, "2"), (one, "3")], "topic string, value string").coalesce(1))
    # Spark orders by name, in which a tenth topic comes before a ninth.
    assert of(load(f"{one},{two}"), "topic", "value") == sorted([(one, b"1"), (one, b"3"), (two, b"2")])


def test_compressed(spark: SparkSession, topic: Topic, load: Load, save: Save) -> None:
    name = topic()
    save(spark.range(5_000).selectExpr("concat('value ', id) as value"), name, **{"kafka.compression.type": "zstd"})
    assert load(name).selectExpr("count(distinct value)").first() == (5_000,)


def test_a_streaming_sink(
    spark: SparkSession, quorum: LocalQuorum, client: Client, topic: Topic, load: Load, tmp_path: Path
) -> None:
    """From one topic through a query into another, restarted in between; then complete mode, as Spark's Kafka sink has it."""
    source, target, counts = topic(2), topic(2), topic()

    def run(sink: str, *, complete: bool) -> None:
        frame = spark.readStream.format("raftlake").option("kafka.bootstrap.servers", quorum.bootstrap_servers)
        rows = frame.option("subscribe", source).option("startingOffsets", "earliest").load()
        if complete:
            rows = rows.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
        writer = rows.writeStream.format("raftlake").option("kafka.bootstrap.servers", quorum.bootstrap_servers)
        writer = writer.option("topic", sink).option("checkpointLocation", str(tmp_path / sink)).trigger(availableNow=True)
        query = writer.outputMode("complete" if complete else "append").start()
        assert query.awaitTermination(90)

    for round_ in range(2):
        client.append_many(source, [(f"k{number % 3}", f"{round_}-{number}") for number in range(10)])
        run(target, complete=False)
    assert sorted(of(load(target), "key", "value")) == sorted(of(load(source), "key", "value"))
    run(counts, complete=True)
    assert sorted(of(load(counts), "key", "value")) == [(b"k0", b"8"), (b"k1", b"6"), (b"k2", b"6")]
