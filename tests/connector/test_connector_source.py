"""The data source that Spark loads by name: schemas, what crosses to executors, the session helper, one client per process."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, GreaterThan, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import pyspark_raftlake
from connector.fakekeys import FakeKeys
from connector.fakelog import FakeQuorum
from pyspark_raftlake import connections, session, source
from pyspark_raftlake.errors import InvalidSchema
from pyspark_raftlake.option_names import SERVERS_ENVIRONMENT
from pyspark_raftlake.options import Quorum, parse_source_options
from pyspark_raftlake.pushdown import PUSHING_PROGRAM
from pyspark_raftlake.query_position import write_first
from pyspark_raftlake.schema import require_source_schema, sink_columns, source_schema
from pyspark_raftlake.source import DefaultSource, StreamReader
from raftlake.client.query_positions import decode, position_key
from raftlake.errors import ConfigError

OPTIONS = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "startingoffsets": "earliest"}
PLAIN = "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"


@pytest.fixture
def quorum(monkeypatch: pytest.MonkeyPatch) -> FakeQuorum:
    made = FakeQuorum(t=2)
    made.set_bounds("t", (0, 10), (0, 20))
    monkeypatch.setattr(source, "client_of", lambda _: made)
    return made


def test_spark_finds_it_by_the_packages_name() -> None:
    assert pyspark_raftlake.DefaultSource is DefaultSource
    assert DefaultSource.name() == "raftlake"


def test_looking_the_format_up_loads_neither_client_nor_codec() -> None:
    """Every Python process of Spark imports the package."""
    code = "import sys, pyspark_raftlake; print([m for m in ('numba', 'kio', 'raftlake.wire', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout


@pytest.mark.usefixtures("quorum")
def test_the_row_is_that_of_the_kafka_connector() -> None:
    assert DefaultSource(OPTIONS).schema().simpleString() == PLAIN
    with_headers = DefaultSource({**OPTIONS, "includeHeaders": "true"}).schema()
    assert with_headers.simpleString() == PLAIN[:-1] + ",headers:array<struct<key:string,value:binary>>>"


@pytest.mark.usefixtures("quorum")
def test_load_refuses_what_cannot_run() -> None:
    with pytest.raises(ConfigError, match="Unknown option 'topics'"):
        DefaultSource({**OPTIONS, "topics": "t"}).schema()
    with pytest.raises(ConfigError, match="Topic 'nope' does not exist; existing topics: t"):
        DefaultSource({**OPTIONS, "subscribe": "nope"}).schema()


def test_a_schema_of_the_users_own() -> None:
    own = StructType().add("value", StringType())
    with pytest.raises(InvalidSchema, match="fixed schema"):
        DefaultSource(OPTIONS).reader(own)
    with pytest.raises(InvalidSchema, match="fixed schema"):
        DefaultSource(OPTIONS).streamReader(own).initialOffset()
    with pytest.raises(InvalidSchema, match="fixed schema"):
        require_source_schema(source_schema(include_headers=True), include_headers=False)
    not_null = StructType([StructField(f.name, f.dataType, nullable=False) for f in source_schema(include_headers=False)])
    require_source_schema(not_null, include_headers=False)


QUESTIONS: dict[str, Callable[[StreamReader], object]] = {
    "initialOffset": lambda reader: reader.initialOffset(),
    "getDefaultReadLimit": lambda reader: reader.getDefaultReadLimit(),
    "prepareForTriggerAvailableNow": lambda reader: reader.prepareForTriggerAvailableNow(),
    "latestOffset": lambda reader: reader.latestOffset({}, ReadMaxRows(1)),
    "reportLatestOffset": lambda reader: reader.reportLatestOffset(),
    "partitions": lambda reader: reader.partitions({}, {"t": {"0": 1}}),
}


@pytest.mark.usefixtures("quorum")
@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_a_streams_wrong_options_are_named_with_the_first_question(ask: Callable[[StreamReader], object]) -> None:
    """Spark's runner fails with `local variable 'reader'` when there is no reader."""
    schema = source_schema(include_headers=False)
    for option, words in (
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"endingTimestamp": "1"}, "ending timestamp not valid in streaming queries"),
        ({"minPartitions": "many"}, "Option 'minPartitions' is 'many'"),
    ):
        reader = DefaultSource({**OPTIONS, **option}).streamReader(schema)
        assert isinstance(reader, StreamReader)
        with pytest.raises(ConfigError, match=words):
            ask(reader)


def test_a_stream_reader_speaks_sparks_protocol(quorum: FakeQuorum) -> None:
    reader = DefaultSource({**OPTIONS, "maxOffsetsPerTrigger": "6"}).streamReader(source_schema(include_headers=False))
    assert isinstance(reader, StreamReader)
    start = reader.initialOffset()
    assert start == {"t": {"0": 0, "1": 0}}
    assert reader.reportLatestOffset() is None
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(6)
    end = reader.latestOffset(start, limit)
    assert end == {"t": {"0": 2, "1": 4}}
    assert reader.reportLatestOffset() == {"t": {"0": 10, "1": 20}}
    assert [str(task.range) for task in reader.partitions(start, end)] == ["[0, 2) of t-0", "[0, 4) of t-1"]  # type: ignore[attr-defined]
    reader.prepareForTriggerAvailableNow()
    quorum.set_bounds("t", (0, 99), (0, 99))
    reader.latestOffset(end, limit)
    assert reader.reportLatestOffset() == {"t": {"0": 10, "1": 20}}


@pytest.mark.usefixtures("quorum")
def test_one_task_tells_the_driver_its_query_and_the_driver_writes_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    space = FakeKeys()
    monkeypatch.setattr(FakeQuorum, "kv", space)
    properties = {"sql.streaming.queryId": "q", "spark.jobGroup.id": "run-1"}
    reader = DefaultSource(OPTIONS).streamReader(source_schema(include_headers=False))
    assert isinstance(reader, StreamReader)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    tasks = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    (first,) = [task.first for task in tasks if task.first is not None]
    assert first.offsets == {"t": {0: 0, 1: 0}}
    assert all(task.first is None for task in reader.partitions(start, end)), "it was asked a moment ago"
    write_first(space, first, properties.get)
    # The batch has ended, and there is nothing more to read.
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    [(key, (value, _))] = space.entries.items()
    position = decode(value)
    assert position is not None and key == position_key("q", "subscribe t")
    assert (position.offsets, position.writer, position.generation) == ({"t": {0: 10, 1: 20}}, first.writer, 1)


@pytest.mark.usefixtures("quorum")
def test_without_an_interval_no_task_is_asked() -> None:
    reader = DefaultSource({**OPTIONS, "positionIntervalMs": "0"}).streamReader(source_schema(include_headers=False))
    assert isinstance(reader, StreamReader)
    assert all(task.first is None for task in reader.partitions({}, {"t": {"0": 0, "1": 20}}))  # type: ignore[attr-defined]


@pytest.mark.usefixtures("quorum")
def test_readers_cross_to_executors() -> None:
    schema = source_schema(include_headers=False)
    batch = pickle.loads(pickle.dumps(DefaultSource(OPTIONS).reader(schema)))
    stream = pickle.loads(pickle.dumps(DefaultSource(OPTIONS).streamReader(schema)))
    assert len(batch.partitions()) == 2
    for reader in (batch, stream):
        # Spark makes a task of its own when a batch query has none.
        assert list(reader.read(InputPartition(None))) == []


# --- the sink's schema -------------------------------------------------------------------------------------------------------


TEXT, BYTES, INT, LONG, TIME = StringType(), BinaryType(), IntegerType(), LongType(), TimestampType()


def schema_of(**columns: DataType) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in columns.items()])


def test_the_sinks_columns() -> None:
    written_back = schema_of(key=BYTES, value=BYTES, topic=TEXT, partition=INT, offset=LONG, timestamp=TIME)
    assert sink_columns(written_back, None) == ("topic", "key", "value", "partition")
    assert sink_columns(written_back, "out") == ("key", "value", "partition")
    not_null = ArrayType(StructType([StructField("key", TEXT, False), StructField("value", BYTES, False)]), False)
    assert sink_columns(schema_of(value=TEXT, headers=not_null), "out") == ("value", "headers")


@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        (
            {"key": TEXT},
            "t",
            "Required attribute 'value' not found. The columns of the rows: key. Those of the sink: topic, key, value",
        ),
        (
            {"VALEU": TEXT} | {f"c{number}": TEXT for number in range(11)},
            "t",
            "not found; did you mean 'VALEU'? The columns of the rows: VALEU, c0, c1, c2, c3, c4, c5, c6, c7, c8 and 2 more",
        ),
        ({"value": TEXT}, None, "topic option required when no 'topic' attribute is present"),
        ({"value": INT}, "t", "value attribute unsupported type int. value must be a"),
        ({"value": TEXT, "key": LONG}, "t", "key attribute unsupported type bigint"),
        ({"value": TEXT, "partition": LONG}, "t", "partition attribute unsupported type bigint"),
        ({"value": TEXT, "topic": BYTES}, None, "topic attribute unsupported type binary"),
        ({"value": TEXT, "headers": MapType(TEXT, BYTES)}, "t", "headers attribute unsupported type map<string,binary>"),
    ],
)
def test_columns_that_cannot_be_written(columns: dict[str, DataType], topic: str | None, words: str) -> None:
    with pytest.raises(ConfigError if "option" in words else InvalidSchema, match=re.escape(words)):
        sink_columns(schema_of(**columns), topic)


@pytest.mark.usefixtures("quorum")
def test_filters_are_taken_where_spark_offers_them_and_applied_again_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = source_schema(include_headers=False)
    monkeypatch.delitem(sys.modules, PUSHING_PROGRAM, raising=False)
    plain = DefaultSource(OPTIONS).reader(schema)
    # Spark compares just this, and refuses a reader with a method of its own while its setting is off.
    assert getattr(plain.pushFilters, "__func__", None) is DataSourceReader.pushFilters
    monkeypatch.setitem(sys.modules, PUSHING_PROGRAM, sys)
    pushed = DefaultSource(OPTIONS).reader(schema)
    filters: list[Filter] = [EqualTo(("partition",), 1), GreaterThan(("offset",), 4), EqualTo(("value",), b"x")]
    assert list(pushed.pushFilters(filters)) == filters
    (task,) = pushed.partitions()
    assert str(task.range) == "[5, 20) of t-1"  # type: ignore[attr-defined]


# --- the session and the client ----------------------------------------------------------------------------------------------


class Builder:
    """Of a Spark session: what was set."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self._options: dict[str, str] = {}

    def config(self, name: str, value: str) -> Builder:
        self.settings[name] = value
        return self


def test_configure_names_the_default_quorum_and_lets_filters_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVERS_ENVIRONMENT, "")
    monkeypatch.setenv("PYSPARK_PYTHON", "/some/python")
    monkeypatch.setattr(session, "find_jar", lambda: None)
    builder: Any = Builder()
    assert session.configure(builder, "h:1,h:2") is builder
    assert builder.settings == {"spark.sql.python.filterPushdown.enabled": "true"}
    assert parse_source_options({"subscribe": "t"}).quorum.bootstrap_servers == "h:1,h:2"
    with pytest.raises(ConfigError, match="is not host:port"):
        session.configure(builder, "nonsense")


def test_configure_names_the_python_of_the_workers_where_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVERS_ENVIRONMENT, "")
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.setattr(session, "find_jar", lambda: None)
    builder: Any = Builder()
    session.configure(builder, "h:1")
    assert builder.settings["spark.pyspark.python"] == sys.executable
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    # Somebody has: in the environment, or for the session.
    for environment, setting in (("/their/python", None), ("", "/their/python")):
        monkeypatch.setenv("PYSPARK_PYTHON", environment)
        builder = Builder()
        builder._options = {} if setting is None else {"spark.pyspark.python": setting}
        session.configure(builder, "h:1")
        assert "spark.pyspark.python" not in builder.settings
        assert os.environ["PYSPARK_PYTHON"] == environment


def test_one_client_per_process_and_quorum() -> None:
    one, other = Quorum(bootstrap_servers="a:1", client_id="x"), Quorum(bootstrap_servers="a:1", client_id="y")
    assert connections.client_of(one) is connections.client_of(Quorum(bootstrap_servers="a:1", client_id="x"))
    assert connections.client_of(one) is not connections.client_of(other)
    assert connections.client_of(other).config.client_id == "y"
