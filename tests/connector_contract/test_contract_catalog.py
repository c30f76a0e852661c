"""Topics as tables of a catalog, by the connector in Java: what is created, inserted and dropped, and what is refused."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from connectorkit import JAVA, QUERY_TIMEOUT_S, Connector
from waitkit import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raftlake import Client

pytestmark = pytest.mark.spark


def test_a_table_that_no_topic_can_be_is_refused(both: dict[str, Connector], client: Client) -> None:
    """Nothing of a CREATE is forgotten silently, and what SHOW CREATE TABLE prints makes such a table again."""
    spark = both[JAVA].spark.newSession()
    spark.conf.set("spark.sql.catalog.lake", "io.raftlake.spark.connector.RaftlakeCatalog")
    spark.conf.set("spark.sql.catalog.lake.bootstrap.servers", both[JAVA].servers)
    name = f"contract-create-{uuid.uuid4().hex[:8]}"
    table = f"lake.`{name}`"
    for statement, told in {
        f"CREATE TABLE {table} USING delta": "a table of raftlake is a topic: leave out USING delta",
        f"CREATE TABLE {table} COMMENT 'orders'": "a topic, which keeps no comment: leave out COMMENT",
        f"CREATE TABLE {table} LOCATION '/tmp/x'": "a topic, which keeps no location: leave out LOCATION",
        f"CREATE TABLE {table} TBLPROPERTIES(partitons=3)": "unknown property 'partitons' .*; did you mean 'partitions'?",
        f"CREATE TABLE {table} TBLPROPERTIES(`retention.mss`=3)": "topic config retention.mss is not known here; accepted are ",
        f"CREATE TABLE {table} TBLPROPERTIES(partitions=0)": "the property 'partitions' is '0', expected a whole number above",
        "CREATE TABLE lake.`or ders`": "'or ders' is no name of a topic: .* letters a-z and A-Z, digits, '.', '_' and '-'",
        "CREATE TABLE lake.`..`": "'..' is no name of a topic",
    }.items():
        with pytest.raises(Exception, match=told) as refused:
            spark.sql(statement)
        assert type(refused.value).__name__ == "IllegalArgumentException", refused.value
        assert not spark.catalog.tableExists(table)
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table("lake.`or ders`")
    spark.sql(
        f"CREATE TABLE {table} USING raftlake TBLPROPERTIES(partitions=3, `retention.ms`=86400000, `segment.bytes`=1048576)"
    )
    for column, hint in (("kee", "; did you mean 'key'? Its columns are"), ("amount", ". Its columns are")):
        with pytest.raises(Exception, match=re.escape(f"the table {name} has no column '{column}'{hint}")):
            spark.sql(f"INSERT INTO {table} SELECT 'v' AS value, 'x' AS {column}")
    assert spark.table(table).count() == 0
    spark.table(table).write.insertInto(table)
    (shown,) = spark.sql(f"SHOW CREATE TABLE {table}").collect()
    told = {"'partitions' = '3'", "'retention.ms' = '86400000'", "'segment.bytes' = '1048576'"}
    assert {each for each in told if each in shown.createtab_stmt} == told and "cleanup.policy" not in shown.createtab_stmt
    spark.sql(f"DROP TABLE {table}")
    wait_until(lambda: not spark.catalog.tableExists(table), "the end of the topic", QUERY_TIMEOUT_S)
    spark.sql(shown.createtab_stmt)
    assert client.partitions(name) == [0, 1, 2]
    configs = client.topic_configs(name)
    assert (configs["retention.ms"], configs["segment.bytes"]) == ("86400000", "1048576")


CREATED_FOR_NO_TOPIC = {
    "(value STRING)": "the column 'value' of a table of raftlake is BINARY, and cannot be STRING. Leave out the list",
    "(key BINARY, `partition` BIGINT)": "the column 'partition' of a table of raftlake is INT, and cannot be BIGINT",
    "(topic VARCHAR(10))": "the column 'topic' of a table of raftlake is STRING, and cannot be VARCHAR(10)",
    "(headers ARRAY<STRING>)": "the column 'headers' of a table of raftlake is ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "(value BINARY NOT NULL)": "the column 'value' of a table of raftlake may be null: leave out NOT NULL",
    "(value BINARY COMMENT 'v')": "which keeps no comment: leave out COMMENT of the column 'value'",
    "(valeu BINARY)": "Leave out the column valeu; did you mean 'value'?",
    "(value INT) USING raftlake": "value attribute unsupported type int. value must be a(n) string or binary",
    "(key BINARY) PARTITIONED BY (key)": "leave out PARTITIONED BY, and set TBLPROPERTIES(partitions=N)",
}


@pytest.fixture
def lake(both: dict[str, Connector]) -> SparkSession:
    """A session with the catalog `lake`."""
    spark = both[JAVA].spark.newSession()
    spark.conf.set("spark.sql.catalog.lake", "io.raftlake.spark.connector.RaftlakeCatalog")
    spark.conf.set("spark.sql.catalog.lake.bootstrap.servers", both[JAVA].servers)
    return spark


def test_columns_of_a_create_are_those_of_a_topic_or_refused(lake: SparkSession) -> None:
    name = f"contract-columns-{uuid.uuid4().hex[:8]}"
    for columns, told in CREATED_FOR_NO_TOPIC.items():
        with pytest.raises(Exception, match=re.escape(told)) as refused:
            lake.sql(f"CREATE TABLE lake.`{name}` {columns}")
        assert type(refused.value).__name__ == "IllegalArgumentException", refused.value
        assert not lake.catalog.tableExists(f"lake.`{name}`")
    columns = "KEY BINARY, value BINARY, topic STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    lake.sql(f"CREATE TABLE lake.`{name}` ({columns})")
    assert lake.table(f"lake.`{name}`").columns[:2] == ["key", "value"]


def test_a_table_that_is_created_for_rows_takes_what_the_sink_takes(lake: SparkSession, tmp_path: Path) -> None:
    """A stream whose rows cannot be written leaves no topic behind."""
    selected, streamed = (f"lake.`contract-rows-{uuid.uuid4().hex[:8]}`" for _ in range(2))
    lake.sql(f"CREATE TABLE {selected} AS SELECT 'k' AS KEY, 'v' AS value, 'now' AS timestamp")
    assert [(bytes(row.key), bytes(row.value)) for row in lake.table(selected).collect()] == [(b"k", b"v")]
    numbers = lake.readStream.format("rate").load()
    with pytest.raises(Exception, match="value attribute unsupported type bigint"):
        numbers.writeStream.option("checkpointLocation", str(tmp_path / "refused")).toTable(streamed)
    assert not lake.catalog.tableExists(streamed)
    texts = numbers.selectExpr("cast(value as string) as value")
    query = texts.writeStream.option("checkpointLocation", str(tmp_path / "taken")).toTable(streamed)
    query.stop()
    assert lake.catalog.tableExists(streamed)


def test_rows_of_an_insert_have_the_columns_of_the_table(lake: SparkSession) -> None:
    """As Spark compares names: the case of letters does not count. A column that is misspelt or named twice is no column."""
    name = f"contract-insert-{uuid.uuid4().hex[:8]}"
    lake.sql(f"CREATE TABLE lake.`{name}`")
    lake.sql(f"INSERT INTO lake.`{name}` (KEY, Value) VALUES ('k', 'v')")
    lake.sql("SELECT 'w' AS VALUE, 'l' AS key").write.insertInto(f"lake.`{name}`")
    assert [(bytes(row.key), bytes(row.value)) for row in lake.table(f"lake.`{name}`").orderBy("offset").collect()] == [
        (b"k", b"v"),
        (b"l", b"w"),
    ]
    for rows, told in {
        "'v' AS valeu": f"the table {name} has no column 'valeu'; did you mean 'value'? Its columns are key, value, topic,",
        "'v' AS value, 'k' AS kye": f"the table {name} has no column 'kye'; did you mean 'key'? Its columns are key, value,",
        "'v' AS value, 'w' AS VALUE": f"the rows for the table {name} have two columns 'value'",
    }.items():
        with pytest.raises(Exception, match=re.escape(told)):
            lake.sql(f"INSERT INTO lake.`{name}` SELECT {rows}")
        with pytest.raises(Exception, match=re.escape(told)):
            lake.sql(f"SELECT {rows}").writeTo(f"lake.`{name}`").append()
    assert lake.table(f"lake.`{name}`").count() == 2
    lake.conf.set("spark.sql.caseSensitive", "true")
    with pytest.raises(Exception, match=re.escape(f"the table {name} has no column 'VALUE'; did you mean 'value'?")):
        lake.sql(f"INSERT INTO lake.`{name}` SELECT 'v' AS VALUE")


def test_topics_are_tables_of_a_catalog(both: dict[str, Connector], client: Client, tmp_path: Path) -> None:
    spark = both[JAVA].spark.newSession()
    spark.conf.set("spark.sql.catalog.lake", "io.raftlake.spark.connector.RaftlakeCatalog")
    spark.conf.set("spark.sql.catalog.lake.bootstrap.servers", both[JAVA].servers)
    name, copied = (f"contract-catalog-{uuid.uuid4().hex[:8]}" for _ in range(2))
    spark.sql(f"CREATE TABLE lake.`{name}` TBLPROPERTIES(partitions=3, `retention.ms`=60000)")
    assert client.partitions(name) == [0, 1, 2]
    assert client.topic_configs(name)["retention.ms"] == "60000"
    spark.sql(f"INSERT INTO lake.`{name}` SELECT 'k' AS key, 'v' AS value")
    assert [bytes(row.value) for row in spark.sql(f"SELECT value FROM lake.`{name}`").collect()] == [b"v"]
    stream = spark.readStream.option("startingOffsets", "earliest").table(f"lake.`{name}`").select("key", "value")
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query = writer.toTable(f"lake.`{copied}`")
    assert query.awaitTermination(QUERY_TIMEOUT_S), "the query has not ended"
    assert [bytes(row.value) for row in spark.table(f"lake.`{copied}`").collect()] == [b"v"]
    shown = {row.tableName for row in spark.sql("SHOW TABLES IN lake").collect()}
    assert {name, copied} <= shown
    with pytest.raises(Exception, match=r"a table of raftlake is a topic: its columns are .* Leave out the column amount"):
        spark.sql("CREATE TABLE lake.other (amount INT)")
    for replacing in (f"CREATE OR REPLACE TABLE lake.`{name}`", f"REPLACE TABLE lake.`{name}`"):
        for rows in (" AS SELECT 'w' AS value", " TBLPROPERTIES(partitions=1)"):
            with pytest.raises(Exception, match="a log cannot be overwritten: its records are still there"):
                spark.sql(replacing + rows)
    with pytest.raises(Exception, match="a log cannot be overwritten: its records are still there"):
        spark.range(1).selectExpr("'w' AS value").write.mode("overwrite").saveAsTable(f"lake.`{name}`")
    assert [bytes(row.value) for row in spark.table(f"lake.`{name}`").collect()] == [b"v"]
    made, failed = (f"contract-catalog-{uuid.uuid4().hex[:8]}" for _ in range(2))
    spark.sql(f"CREATE OR REPLACE TABLE lake.`{made}` AS SELECT 'w' AS value")
    assert [bytes(row.value) for row in spark.table(f"lake.`{made}`").collect()] == [b"w"]
    with pytest.raises(Exception, match="partition 9 does not exist"):
        spark.sql(f"CREATE TABLE lake.`{failed}` AS SELECT 'w' AS value, 9 AS partition")
    wait_until(lambda: not spark.catalog.tableExists(f"lake.`{failed}`"), "the end of the topic", QUERY_TIMEOUT_S)
    spark.sql(f"DROP TABLE lake.`{name}`")
    wait_until(lambda: not spark.catalog.tableExists(f"lake.`{name}`"), "the end of the topic", QUERY_TIMEOUT_S)
