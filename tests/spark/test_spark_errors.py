"""What a user sees who asks for what cannot be: an error that says so, before the query starts where that is possible."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

    from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def topic(client: Client) -> str:
    client.create_topic("errors", 2)
    for value in (b"0", b"1", b"2"):
        client.append("errors", value, partition=0)
    return "errors"


@pytest.fixture
def reader(spark: SparkSession, quorum: LocalQuorum, topic: str) -> DataFrameReader:
    return spark.read.format("raftlake").option("kafka.bootstrap.servers", quorum.bootstrap_servers).option("subscribe", topic)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "earliest"}, "Unknown option 'startingoffset' for raftlake; did you mean 'startingOffsets'?"),
        ({"subscribe": "nope"}, "Topic 'nope' does not exist; existing topics: "),
        ({"startingOffsets": '{"errors":{"0":0,"7":0}}'}, "names partitions that do not exist: errors-7"),
        ({"tier": "cold"}, "Option 'tier' is 'cold', expected "),
        ({"assign": '{"errors":[0]}'}, "Only one of the following options can be specified"),
    ],
)
def test_load_says_what_is_wrong(reader: DataFrameReader, options: dict[str, str], words: str) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as raised:
        reader.options(**options).load()
    assert words in str(raised.value)


def test_no_reachable_node(spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=r"no reachable node among 127\.0\.0\.1:9"):
        spark.read.format("raftlake").option("kafka.bootstrap.servers", "127.0.0.1:9").option("subscribe", "t").load()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"startingOffsets": '{"errors":{"0":999,"1":0}}'}, "startingOffsets for errors-0 is 999, but the log holds"),
        ({"startingOffsets": '{"errors":{"0":0}}'}, "you must specify all TopicPartitions"),
        ({"startingTimestamp": "99999999999999"}, "No offset matched from request of topic-partition errors-0"),
    ],
)
def test_planning_says_what_is_wrong(reader: DataFrameReader, options: dict[str, str], words: str) -> None:
    frame = reader.options(**options).load()
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as raised:
        frame.count()
    assert words in str(raised.value)


def test_a_schema_of_the_users_own(reader: DataFrameReader) -> None:
    with pytest.raises(Exception, match="fixed schema and cannot be set with a custom one"):
        reader.schema("value string").load().count()


@pytest.mark.parametrize(
    ("columns", "mode", "options", "words"),
    [
        ("id", "append", {"topic": "errors"}, "Required attribute 'value' not found"),
        ("id as value", "append", {"topic": "errors"}, "value attribute unsupported type bigint"),
        ("'v' as value", "append", {}, "topic option required when no 'topic' attribute is present"),
        ("'v' as value", "append", {"topic": "nope"}, "Topic 'nope' does not exist"),
        ("'v' as value", "append", {"topic": "errors", "kafka.ack": "all"}, "did you mean 'kafka.acks'?"),
        ("'v' as value", "overwrite", {"topic": "errors"}, "Save mode overwrite not allowed for raftlake"),
    ],
)
def test_the_sink_says_what_is_wrong(
    spark: SparkSession, quorum: LocalQuorum, columns: str, mode: str, options: dict[str, str], words: str
) -> None:
    writer = spark.range(1).selectExpr(columns).write.format("raftlake").options(**options)
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as raised:
        writer.option("kafka.bootstrap.servers", quorum.bootstrap_servers).mode(mode).save()
    assert words in str(raised.value)


def test_a_partition_that_does_not_exist_fails_the_write(spark: SparkSession, quorum: LocalQuorum, topic: str) -> None:
    writer = spark.range(1).selectExpr("'v' as value", "9 as partition").write.format("raftlake").option("topic", topic)
    with pytest.raises(Exception, match="partition 9 does not exist: the topic has 2 partitions"):
        writer.option("kafka.bootstrap.servers", quorum.bootstrap_servers).mode("append").save()


def test_a_streaming_query_says_it_with_its_first_batch(
    spark: SparkSession, quorum: LocalQuorum, topic: str, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    writer = rows.writeStream.format("raftlake").option("kafka.bootstrap.servers", quorum.bootstrap_servers)
    query = writer.option("topic", "nope").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match="Topic 'nope' does not exist"):
        query.awaitTermination(90)


@pytest.mark.parametrize(
    ("options", "schema", "words"),
    [
        ({"endingOffsets": "latest"}, None, "ending offset not valid in streaming queries"),
        ({"endingTimestamp": "1700000000000"}, None, "ending timestamp not valid in streaming queries"),
        ({}, "value string", "raftlake source has a fixed schema and cannot be set with a custom one"),
    ],
)
@pytest.mark.parametrize(
    "trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}], ids=["availableNow", "continuous"]
)
def test_a_stream_says_last_what_is_wrong_with_its_options(
    spark: SparkSession,
    quorum: LocalQuorum,
    topic: str,
    tmp_path: Path,
    options: dict[str, str],
    schema: str | None,
    words: str,
    trigger: dict[str, Any],
) -> None:
    from pyspark.errors import StreamingQueryException

    reader = spark.readStream.format("raftlake").option("kafka.bootstrap.servers", quorum.bootstrap_servers)
    reader = reader.options(subscribe=topic, **options)
    frame = (reader if schema is None else reader.schema(schema)).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(**trigger).start()
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(90)
    assert "UnboundLocalError" not in str(raised.value)
    said = [line for line in str(raised.value).splitlines() if line.strip() and not line.startswith("===")]
    kind = "raftlake.errors.ConfigError: " if schema is None else "pyspark_raftlake.errors.InvalidSchema: "
    errors = [line for line in said if "Error" in line or line.startswith(kind)]
    assert errors[-1].startswith(kind) and words in errors[-1], said


def test_update_mode_is_refused_by_spark_itself(spark: SparkSession, quorum: LocalQuorum, topic: str, tmp_path: Path) -> None:
    """Spark offers update mode to sinks on the JVM only; the connector's README says so."""
    from pyspark.errors import StreamingQueryException

    rows = spark.readStream.format("rate").load().groupBy("value").count().selectExpr("cast(value as string) as value")
    writer = rows.writeStream.format("raftlake").option("kafka.bootstrap.servers", quorum.bootstrap_servers)
    query = writer.option("topic", topic).option("checkpointLocation", str(tmp_path)).outputMode("update").start()
    with pytest.raises(StreamingQueryException, match="raftlake does not support Update mode"):
        query.awaitTermination(60)
