"""What a batch query of either connector reads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from connectorkit import JAVA, PYTHON, Connector
from leaderkit import record_offsets
from raftlake.client import NewRecord

if TYPE_CHECKING:
    from raftlake import Client

pytestmark = pytest.mark.spark

Topic = Callable[..., str]
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


@pytest.fixture(scope="session")
def names() -> Iterator[str]:
    return (f"contract-{number}" for number in itertools.count(1))


@pytest.fixture
def topic(client: Client, names: Iterator[str]) -> Topic:
    return lambda partitions=1: client.create_topic(next(names), partitions).name


@pytest.fixture(scope="module")
def timed(client: Client) -> tuple[str, list[int]]:
    """A topic of six records, a second apart, and their offsets."""
    client.create_topic("contract-timed", 1)
    values = range(6)
    return "contract-timed", [
        client.append("contract-timed", b"%d" % each, timestamp_ms=1_000 * (each + 1)).offset for each in values
    ]


def test_rows_are_equal(client: Client, topic: Topic, both: dict[str, Connector]) -> None:
    name = topic(3)
    headers = [("h", b"1"), ("n", None), ("é", b"")]
    client.append(name, b"v", key=b"k", headers=headers, timestamp_ms=1_700_000_000_123, partition=0)
    client.append(name, b"", key=b"", partition=1)
    client.append(name, None, key=b"deleted", partition=1)
    client.append(name, b"x" * 3_000_000, partition=2)
    client.append(name, b"last", headers=[("big", b"y" * 10_000)], partition=2)
    python, java = (
        [tuple(row) for row in both[each].read(name, includeHeaders="true").orderBy("partition", "offset").collect()]
        for each in (PYTHON, JAVA)
    )
    assert len(python) == 5
    assert java == python


def test_the_columns(client: Client, topic: Topic, connector: Connector) -> None:
    name = topic()
    client.append(name, b"v", headers=[("h", b"1")])
    assert connector.read(name).columns == COLUMNS
    assert connector.read(name, includeHeaders="true").columns == [*COLUMNS, "headers"]
    (row,) = connector.rows(name, "topic", "partition", "timestampType", "key")
    assert row == (name, 0, 0, None)
    assert connector.read(name).count() == 1
    given = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    assert connector.read(name, schema=given).count() == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(client: Client, topic: Topic, connector: Connector, codec: str) -> None:
    from raftlake import Client as OtherClient

    name = topic()
    with OtherClient(connector.servers, compression=codec) as writer:
        writer.append_many(name, [NewRecord(value=b"%d" % number) for number in range(2_000)])
    assert connector.read(name).selectExpr("count(distinct value)", "sum(cast(cast(value as string) as int))").first() == (
        2_000,
        1_999_000,
    )
    (middle,) = connector.rows(name, "offset")[1_500]
    assert connector.read(name).where(f"offset >= {middle}").count() == 500


def test_ranges_of_offsets_and_of_times(timed: tuple[str, list[int]], connector: Connector) -> None:
    name, offsets = timed
    start, end = f'{{"{name}":{{"0":{offsets[1]}}}}}', f'{{"{name}":{{"0":{offsets[4]}}}}}'
    assert connector.rows(name, startingOffsets=start, endingOffsets=end) == [(b"1",), (b"2",), (b"3",)]
    assert connector.rows(name, startingTimestamp="3000", endingTimestamp="5000") == [(b"2",), (b"3",)]
    by_time = {
        "startingOffsetsByTimestamp": f'{{"{name}":{{"0":4001}}}}',
        "endingOffsetsByTimestamp": f'{{"{name}":{{"0":9000}}}}',
    }
    assert connector.rows(name, **by_time) == [(b"4",), (b"5",)]
    assert connector.rows(name, startingOffsets=start, endingOffsets=start) == []
    late = {"startingTimestamp": "99000", "startingOffsetsByTimestampStrategy": "latest"}
    assert connector.rows(name, **late) == []


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        ("offset = {2}", [b"2"]),
        ("offset in ({1}, {4})", [b"1", b"4"]),
        ("offset > {1} and offset <= {3}", [b"2", b"3"]),
        ("offset < {2} or offset > {4}", [b"0", b"1", b"5"]),
        ("timestamp >= timestamp_millis(4000)", [b"3", b"4", b"5"]),
        ("timestamp > timestamp_millis(4000) and timestamp < timestamp_micros(6000001)", [b"4", b"5"]),
        ("timestamp = timestamp_micros(4000001)", []),
        ("partition = 0 and topic = 'contract-timed' and value = '3'", [b"3"]),
        ("partition = 1", []),
        ("topic in ('a', 'b')", []),
        ("partition <=> null", []),
    ],
)
def test_filters(timed: tuple[str, list[int]], connector: Connector, condition: str, values: list[bytes]) -> None:
    name, offsets = timed
    rows = connector.read(name).where(condition.format(*offsets)).select("value").collect()
    assert sorted(bytes(row.value) for row in rows) == values


def test_limits_and_pruned_columns(client: Client, topic: Topic, connector: Connector) -> None:
    name = topic(2)
    client.append_many(name, [NewRecord(value=b"%d" % number, partition=number % 2) for number in range(400)])
    frame = connector.read(name)
    assert len(frame.limit(7).collect()) == 7
    assert frame.limit(0).collect() == [] and frame.limit(1_000).count() == 400
    assert frame.select("partition").distinct().count() == 2
    assert frame.selectExpr("count(distinct offset)", "count(timestamp)").first() == (
        len({row.offset for row in frame.select("offset").collect()}),
        400,
    )
    assert frame.selectExpr("max(length(value))").first() == (3,)


@pytest.fixture(scope="module")
def alike(client: Client) -> list[str]:
    """Topics with alike names, of two partitions with a record each; raftlake keeps the last one for itself."""
    topics = ["contract-pattern-a", "contract-pattern-b", "other-contract-pattern-a", "__raftlake-contract-pattern-a"]
    for name in topics:
        client.create_topic(name, 2)
        client.append_many(name, [NewRecord(value=f"{name}{number}".encode(), partition=number) for number in (0, 1)])
    return topics


def test_partitions_and_patterns(alike: list[str], connector: Connector) -> None:
    one, two, other, own = alike
    assert connector.rows(None, "topic", "partition", assign=f'{{"{two}":[1],"{one}":[0]}}') == [(one, 0), (two, 1)]
    by_pattern = connector.rows(None, "topic", "partition", subscribePattern="contract-pattern-.*")
    assert by_pattern == [(name, number) for name in (one, two) for number in (0, 1)]
    by_pattern = connector.rows(None, "topic", subscribePattern=".*contract-pattern-a")
    assert by_pattern == [(name,) for name in (one, one, other, other)]
    by_pattern = connector.rows(None, "topic", subscribePattern="__raftlake-contract-.*")
    assert by_pattern == [(own,), (own,)]


@pytest.mark.parametrize(
    ("options", "tasks"),
    [({}, 2), ({"minPartitions": "7"}, 7), ({"maxRecordsPerPartition": "1000"}, 5), ({"minPartitions": "1"}, 2)],
)
def test_tasks(client: Client, connector: Connector, options: dict[str, str], tasks: int) -> None:
    name = "contract-tasks"
    if not client.topics([name]):
        client.create_topic(name, 2)
        client.append_many(name, [NewRecord(value=b"%d" % number, partition=0) for number in range(3_900)])
        client.append_many(name, [NewRecord(value=b"%d" % number, partition=1) for number in range(3_900, 4_000)])
    frame = connector.read(name, **options)
    assert frame.rdd.getNumPartitions() == tasks
    assert frame.selectExpr("count(*)", "count(distinct value)").first() == (4_000, 4_000)


def test_a_large_partition_is_read_by_several_tasks_from_several_nodes(
    client: Client, topic: Topic, connector: Connector
) -> None:
    name = topic()
    rows = connector.spark.range(0, 30_000, 1, 2).selectExpr("cast(id % 100 as string) as key", "cast(id as string) as value")
    writer = rows.write.format(connector.format).option("bootstrap.servers", connector.servers)
    writer.option("topic", name).mode("append").save()
    frame = connector.read(name, minPartitions="6")
    assert frame.rdd.getNumPartitions() == 6
    assert frame.selectExpr("count(*)", "count(distinct value)", "count(distinct offset)").first() == (30_000,) * 3
    # Offsets are in a row, but for the control records of leaders and transactions.
    offsets = record_offsets(client, name)
    assert frame.selectExpr("min(offset)", "max(offset)").first() == (offsets[0], offsets[-1])
    assert frame.selectExpr("sum(cast(cast(value as string) as long))").first() == (30_000 * 29_999 // 2,)


def test_what_a_frame_reads_a_second_time(client: Client, topic: Topic, connector: Connector) -> None:
    """Spark plans a source written in Python once per `load()`, and one written in Java for each query; the README says so."""
    name = topic()
    client.append(name, b"1")
    frame = connector.read(name)
    client.append(name, b"2")
    assert frame.count() == 2, "it is not load() that plans"
    client.append(name, b"3")
    assert frame.where("value is not null").count() == (3 if connector.format == JAVA else 2)
    assert connector.read(name).count() == 3


def test_transactions(client: Client, topic: Topic, connector: Connector) -> None:
    """Read committed: no aborted records, and nothing from the first open transaction on."""
    from confluent_kafka import Producer

    name = topic()
    producer = Producer({"bootstrap.servers": connector.servers, "transactional.id": f"{name}-{connector.format}"})
    producer.init_transactions()

    def write(value: bytes) -> None:
        producer.begin_transaction()
        producer.produce(name, value)
        assert producer.flush(30) == 0

    write(b"committed")
    producer.commit_transaction()
    write(b"aborted")
    producer.abort_transaction()
    client.append(name, b"plain")
    assert connector.rows(name) == [(b"committed",), (b"plain",)]
    assert connector.rows(name, kafka__isolation__level="read_uncommitted") == [(b"committed",), (b"aborted",), (b"plain",)]
    write(b"open")
    client.append(name, b"behind")
    for consistency in ("committed", "linearizable"):
        assert connector.rows(name, consistency=consistency) == [(b"committed",), (b"plain",)]
    assert len(connector.rows(name, kafka__isolation__level="read_uncommitted", consistency="linearizable")) == 5
    producer.abort_transaction()
    assert connector.rows(name, consistency="linearizable") == [(b"committed",), (b"plain",), (b"behind",)]


def test_a_linearizable_read_has_what_was_acknowledged(client: Client, topic: Topic, connector: Connector) -> None:
    name = topic()
    for count in range(1, 6):
        client.append(name, b"%d" % count)
        assert connector.read(name, consistency="linearizable").count() == count


def test_records_that_were_deleted(client: Client, topic: Topic, connector: Connector) -> None:
    name = topic()
    offsets = [client.append(name, b"%d" % number).offset for number in range(4)]
    client.delete_records(name, {0: offsets[2]})
    assert connector.rows(name) == [(b"2",), (b"3",)]
    start = f'{{"{name}":{{"0":{offsets[0]}}}}}'
    assert connector.rows(name, startingOffsets=start, failOnDataLoss="false") == [(b"2",), (b"3",)]
    with pytest.raises(Exception, match=f"startingOffsets for {name}-0 is {offsets[0]}, but the log holds"):
        connector.read(name, startingOffsets=start).count()


def test_a_topic_that_was_created_again(client: Client, topic: Topic, connector: Connector) -> None:
    name = topic(2)
    client.append_many(name, [NewRecord(value=b"old", partition=number) for number in (0, 1)])
    assert connector.read(name).count() == 2, "the client knows the topic"
    client.delete_topic(name)
    client.create_topic(name, 3)
    client.append_many(name, [NewRecord(value=b"%d" % number, partition=number) for number in range(3)])
    assert connector.rows(name) == [(b"0",), (b"1",), (b"2",)]
    assert connector.rows(topic(3)) == [], "of an empty topic"
