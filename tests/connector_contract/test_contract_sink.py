"""Writes: the same records, the same words and the same keys from both connectors, and queries that change between both."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectorkit import JAVA, PYTHON, QUERY_TIMEOUT_S, Connector
from pyspark_raftlake import foreach_batch
from pyspark_raftlake.ledger import Ledger
from raftlake.client import NewRecord
from raftlake.client import sink_keys as keys
from raftlake.client.partitioner import murmur2
from sparkkit import STOCK_PROVIDER
from waitkit import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from pyspark_raftlake.foreach import Batch
    from raftlake import Client

pytestmark = pytest.mark.spark
Topic = Callable[[int], str]
OTHER = {PYTHON: JAVA, JAVA: PYTHON}
#: Characters of an error that whoever has written the query reads.
BEGINNING = 300


@pytest.fixture
def topic(client: Client) -> Topic:
    """Makes topics of so many partitions."""

    def make(partitions: int) -> str:
        name = f"contract-sink-{uuid.uuid4().hex[:8]}"
        client.create_topic(name, partitions)
        return name

    return make


def save(connector: Connector, frame: DataFrame, topic: str | None, /, **options: str) -> None:
    """A batch write. Names of options have `__` for a dot."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    chosen = {} if topic is None else {"topic": topic}
    writer = frame.write.format(connector.format).options(**{"kafka.bootstrap.servers": connector.servers, **chosen, **named})
    writer.mode("append").save()


def values(connector: Connector, topic: str) -> list[str]:
    return sorted(row[0].decode() for row in connector.rows(topic))


def frame_of(connector: Connector, count: int, first: int = 0) -> DataFrame:
    """Rows with keys and values that are numbers."""
    numbers = connector.spark.range(first, first + count)
    return numbers.selectExpr("cast(id as string) as key", "cast(id as string) as value")


def test_a_record_has_all_that_its_row_had(connector: Connector, topic: Topic) -> None:
    name = topic(2)
    connector.spark.sql(
        "select cast('v' as binary) as value, 'k' as key, 1 as partition, current_date() as other, "
        "array(named_struct('key', 'h', 'value', cast('x' as binary)), named_struct('key', 'n', 'value', null)) as headers "
        "union all select null, null, 0, current_date(), null"
    ).createOrReplaceTempView("everything")
    save(connector, connector.spark.table("everything"), name)
    found = connector.rows(name, "key", "value", "partition", "headers", includeHeaders="true")
    assert found == [(None, None, 0, None), (b"k", b"v", 1, [("h", b"x"), ("n", None)])]


def test_keys_go_where_kafkas_clients_put_them(connector: Connector, topic: Topic) -> None:
    name = topic(3)
    save(connector, frame_of(connector, 500), name)
    found = connector.rows(name, "key", "partition")
    assert len(found) == 500
    assert all((murmur2(key) & 0x7FFFFFFF) % 3 == partition for key, partition in found)


def test_rows_name_their_topics(connector: Connector, topic: Topic) -> None:
    names = [topic(1), topic(1)]
    rows = connector.spark.createDataFrame([(name, f"v{n}") for name in names for n in range(3)], "topic string, value string")
    save(connector, rows, None)
    assert [values(connector, name) for name in names] == [["v0", "v1", "v2"]] * 2


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_is_compressed_is_read_again(connector: Connector, topic: Topic, codec: str) -> None:
    name = topic(1)
    save(connector, frame_of(connector, 2000), name, kafka__compression__type=codec)
    assert values(connector, name) == sorted(str(number) for number in range(2000))


def test_no_rows_are_no_error(connector: Connector, topic: Topic) -> None:
    name = topic(1)
    save(connector, frame_of(connector, 0), name)
    assert values(connector, name) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topicc": "t"}, "Unknown option 'topicc' for raftlake; did you mean 'topic'?"),
        ({"kafka.compression.type": "brotli"}, "Option 'kafka.compression.type' is 'brotli', expected one of none, gzip"),
        ({"txnAppId": "a"}, "Options 'txnAppId' and 'txnVersion' go together: who writes, and a rising number"),
        ({"kafka.transactional.id": "x"}, "Option 'kafka.transactional.id' is not supported: the sink names the transactions"),
        ({"topic": "contract-sink-none"}, "Topic 'contract-sink-none' does not exist; existing topics: "),
        ({"topic": ""}, "Option 'topic' is '', expected the name of a topic"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, dict) else "",
)
def test_options_that_cannot_be_used_are_named(connector: Connector, topic: Topic, options: dict[str, str], words: str) -> None:
    chosen = {"topic": topic(1), **options}
    with pytest.raises(Exception) as raised:
        save(connector, frame_of(connector, 1), None, **chosen)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            "cast(id as string) as valeu",
            "not found; did you mean 'valeu'? The columns of the rows: valeu. Those of the sink: topic, key, value, headers",
        ),
        ("id as value", "value attribute unsupported type bigint. value must be a(n) string or binary"),
        ("cast(id as string) as value, id as partition", "partition attribute unsupported type bigint"),
    ],
)
def test_columns_that_cannot_be_written_are_named(connector: Connector, topic: Topic, columns: str, words: str) -> None:
    rows = connector.spark.range(1).selectExpr(*columns.split(", "))
    with pytest.raises(Exception) as raised:
        save(connector, rows, topic(1))
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("if(id = 700, 9, 0) as partition", "column partition: partition 9 does not exist: the topic has 2 partitions"),
        ("if(id = 700, null, '{topic}') as topic", "column topic: null topic present in the data. Use the topic option for"),
        ("if(id = 700, 'contract-sink-none', '{topic}') as topic", "column topic: Topic 'contract-sink-none' does not exist"),
    ],
    ids=["partition", "null topic", "missing topic"],
)
def test_nothing_of_a_write_with_a_poisoned_row_is_visible(connector: Connector, topic: Topic, column: str, words: str) -> None:
    name = topic(2)
    rows = connector.spark.range(1000).selectExpr("cast(id as string) as value", column.format(topic=name))
    with pytest.raises(Exception) as raised:
        save(connector, rows, None if "topic" in column else name)
    assert words in str(raised.value)[: BEGINNING if connector.format == PYTHON else None]
    assert values(connector, name) == []


def test_a_write_that_failed_beside_busy_tasks_leaves_nothing_open(connector: Connector, client: Client, topic: Topic) -> None:
    """Spark kills the other tasks of the write, which tell nobody of their transactions."""
    name = topic(4)
    poisoned = f"if(id = 100, 'contract-sink-none', '{name}') as topic"
    rows = connector.spark.range(0, 200_000, 1, 2).selectExpr("cast(id as string) as value", poisoned)
    for _ in range(3):
        with pytest.raises(Exception, match="Topic 'contract-sink-none' does not exist"):
            save(connector, rows, None)
    save(connector, frame_of(connector, 1), name)
    assert not client.open_transactions("raftlake-sink.j.")
    assert values(connector, name) == ["0"]


def test_a_write_of_an_app_happens_once_by_either_connector(
    connector: Connector, both: dict[str, Connector], topic: Topic
) -> None:
    name, app = topic(1), f"app {uuid.uuid4().hex}/x"
    save(connector, frame_of(connector, 10), name, txnAppId=app, txnVersion="1")
    save(both[OTHER[connector.format]], frame_of(connector, 10, 10), name, txnAppId=app, txnVersion="1")
    assert values(connector, name) == sorted(str(number) for number in range(10))
    save(both[OTHER[connector.format]], frame_of(connector, 5, 10), name, txnAppId=app, txnVersion="2")
    assert values(connector, name) == sorted(str(number) for number in range(15))


# --- streams -------------------------------------------------------------------------------------------------------------


def start(connector: Connector, source: str, target: str, checkpoint: Path, per_batch: int = 20) -> StreamingQuery:
    """Copies one topic to another, to the end of what is there."""
    reader = connector.spark.readStream.format(connector.format).option("kafka.bootstrap.servers", connector.servers)
    reader = reader.option("subscribe", source).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", per_batch)
    writer = reader.load().select("key", "value").writeStream.format(connector.format).option("topic", target)
    writer = writer.option("kafka.bootstrap.servers", connector.servers).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def copy(connector: Connector, source: str, target: str, checkpoint: Path) -> str:
    """The id of the query."""
    query = start(connector, source, target, checkpoint)
    assert query.awaitTermination(QUERY_TIMEOUT_S), "the query has not ended"
    return str(query.id)


def test_a_query_changes_between_both_connectors(
    connector: Connector, both: dict[str, Connector], client: Client, topic: Topic, tmp_path: Path
) -> None:
    """Batch numbers go on, the owner's key follows, and the run that was replaced is told so by its own connector."""
    source, target, checkpoint = topic(2), topic(2), tmp_path / "checkpoint"
    expected: list[str] = []
    last = -1
    for turn, each in enumerate([connector, both[OTHER[connector.format]], connector]):
        more = [f"{turn}-{number:03}" for number in range(50)]
        client.append_many(source, [(value, value) for value in more])
        expected += more
        query = copy(each, source, target, checkpoint)
        assert values(each, target) == expected
        batch = client.kv.get(keys.batch_key(query))
        owner = client.kv.get(keys.owner_key(query))
        assert batch is not None and owner is not None
        committed = keys.decode_batch(batch.value)
        assert committed.batch > last
        assert committed.topics == {target: committed.rows}
        assert keys.decode_owner(owner.value).generation == turn + 1
        last = committed.batch
    assert not client.open_transactions("raftlake-sink.a.")


def test_a_producer_is_asked_for_once_a_batch_and_before_it(
    both: dict[str, Connector], client: Client, topic: Topic, tmp_path: Path
) -> None:
    """Each question for a producer raises the epoch, by one. So a task that asked again would show."""
    connector, source, target = both[JAVA], topic(1), topic(1)
    client.append_many(source, [(None, f"v{number:03}") for number in range(100)])
    query = copy(connector, source, target, tmp_path / "checkpoint")
    assert len(values(connector, target)) == 100
    batch, owner = client.kv.get(keys.batch_key(query)), client.kv.get(keys.owner_key(query))
    assert batch is not None and owner is not None
    batches = keys.decode_batch(batch.value).batch + 1
    assert batches >= 5
    name = f"{keys.TRANSACTIONS}a.{query}.{keys.decode_owner(owner.value).generation}.0.0"

    def epoch() -> int:
        return client.describe_transaction(name).epoch

    # From 0 on; the last one is for a batch that does not come. Where an answer gets lost the same question comes again.
    wait_until(lambda: epoch() >= batches, f"the question behind batch {batches - 1}", QUERY_TIMEOUT_S)
    assert epoch() < batches + batches // 2, "a task that asks, too, makes it twice as many"


def test_a_transaction_that_began_before_a_task_without_rows_is_aborted(
    both: dict[str, Connector], client: Client, topic: Topic, tmp_path: Path
) -> None:
    """Behind a short batch transactions begin with the next one. Only such a one can be left open by a task without rows."""
    connector, source, target = both[JAVA], topic(1), topic(1)
    client.append(source, b"row")
    reader = connector.spark.readStream.format(JAVA).option("kafka.bootstrap.servers", connector.servers)
    rows = (
        reader.option("subscribe", source).option("startingOffsets", "earliest").load().where("value = cast('row' as binary)")
    )
    writer = rows.select("value").writeStream.format(JAVA).option("kafka.bootstrap.servers", connector.servers)
    query = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        owner = client.kv.get(keys.owner_key(str(query.id)))
        assert owner is not None
        name = f"{keys.TRANSACTIONS}a.{query.id}.{keys.decode_owner(owner.value).generation}.0.0"
        written = 1

        def has_begun_early() -> bool:
            nonlocal written
            for value in (b"row", b"no row"):
                client.append(source, value)
                query.processAllAvailable()
            written += 1
            wait_until(lambda: not client.open_transactions(name), "the end of all transactions", QUERY_TIMEOUT_S)
            return client.describe_transaction(name).state == "CompleteAbort"

        # The first batches take longer than a second.
        wait_until(has_begun_early, "a transaction that begins before its task", QUERY_TIMEOUT_S)
    finally:
        query.stop()
    assert values(connector, target) == ["row"] * written


def test_a_query_that_is_stopped_amid_a_batch_leaves_no_transaction_open(
    both: dict[str, Connector], client: Client, topic: Topic, tmp_path: Path
) -> None:
    """Spark interrupts its threads then, and its tasks end later."""
    connector, source, target = both[JAVA], topic(2), topic(1)

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if "last" in batch.column("value").to_pylist():
                threading.Event().wait(QUERY_TIMEOUT_S)

    reader = connector.spark.readStream.format(JAVA).option("kafka.bootstrap.servers", connector.servers)
    lines = reader.option("subscribe", source).load().selectExpr("cast(value as string) as value")
    writer = lines.mapInArrow(hold, lines.schema).writeStream.format(JAVA)
    writer = writer.option("kafka.bootstrap.servers", connector.servers).option("topic", target)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(lambda: query.status["message"].startswith("Waiting"), "the query waits for rows", QUERY_TIMEOUT_S)
        for value in ["first", *("again" for _ in range(4)), "last"]:
            client.append_many(source, [NewRecord(value=value.encode(), partition=partition) for partition in (0, 1)])
            if value != "last":
                query.processAllAvailable()
        name = f"{keys.TRANSACTIONS}a.{query.id}."
        wait_until(lambda: bool(client.open_transactions(name)), "transactions of the last batch", QUERY_TIMEOUT_S)
    finally:
        query.stop()
    wait_until(lambda: not client.open_transactions(name), "the end of all transactions", QUERY_TIMEOUT_S)
    assert values(connector, target) == ["again"] * 8 + ["first"] * 2


def test_a_batch_that_spark_repeats_is_not_written_again(
    connector: Connector, client: Client, topic: Topic, tmp_path: Path
) -> None:
    """Its commit is not noted down in the checkpoint, as after a driver that was killed behind the commit of the sink."""
    source, target, checkpoint = topic(1), topic(1), tmp_path / "checkpoint"
    client.append_many(source, [(None, f"v{number:02}") for number in range(40)])
    copy(connector, source, target, checkpoint)
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    commits[-1].unlink()
    (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    query = copy(connector, source, target, checkpoint)
    assert values(connector, target) == [f"v{number:02}" for number in range(40)]
    # A run in real-time mode has come in between, and Spark has planned the batch anew, perhaps with other rows.
    (checkpoint / "commits" / commits[-1].name).unlink()
    (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    batch = client.kv.get(keys.batch_key(query))
    assert batch is not None and batch.value is not None
    client.kv.put(keys.batch_key(query), json.dumps({**json.loads(batch.value), "is_replanned": True}).encode())
    with pytest.raises(Exception, match=rf"is visible already, and Spark writes it anew .*raftlake sinks forget {query}"):
        copy(connector, source, target, checkpoint)


@pytest.fixture
def ids_of_state(connector: Connector) -> Iterator[None]:
    """The commit log names the state of each batch, as in a session of `configure`."""
    settings = {
        "providerClass": STOCK_PROVIDER,
        "rocksdb.changelogCheckpointing.enabled": "true",
        "checkpointFormatVersion": "2",
    }
    conf = connector.spark.conf
    for name, value in settings.items():
        conf.set(f"spark.sql.streaming.stateStore.{name}", value)
    yield
    for name in settings:
        conf.unset(f"spark.sql.streaming.stateStore.{name}")


@pytest.mark.parametrize("shape", ["duplicates", "foreachBatch"])
def test_a_batch_that_spark_repeats_brings_its_state_along(
    connector: Connector, ids_of_state: None, topic: Topic, tmp_path: Path, shape: str
) -> None:
    """Spark ends a query whose state is not committed. State commits at the end of its rows, which a sink that has the batch
    does not need."""
    target = topic(1)
    lines = tmp_path / "lines"
    lines.mkdir()

    def run() -> None:
        rows = connector.spark.readStream.text(str(lines)).dropDuplicates(["value"])
        if shape == "foreachBatch":
            writer = rows.writeStream.foreachBatch(foreach_batch(once, connector.servers))
        else:
            writer = rows.writeStream.format(connector.format).option("topic", target)
            writer = writer.option("kafka.bootstrap.servers", connector.servers)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query has not ended"

    def once(rows: DataFrame, _: int, batch: Batch) -> None:
        """As a sink that reads no row of a batch that it has, Delta's for one."""
        with batch.once("sink") as is_first:
            if is_first:
                save(connector, rows, target)

    (lines / "0").write_text("a\nb\n")
    run()
    more = [str(number) for number in range(100)]
    (lines / "1").write_text("".join(f"{line}\n" for line in ["b", "c", *more]))
    run()
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    run()
    (lines / "2").write_text("c\nd\n")
    run()
    assert values(connector, target) == sorted(["a", "b", "c", "d", *more])


def test_a_function_of_foreach_batch_may_choose_a_job_group(connector: Connector, topic: Topic, tmp_path: Path) -> None:
    """Spark has the id of the run there, until somebody chooses another group. The group stays for the batches behind."""
    target = topic(1)
    lines = tmp_path / "lines"
    lines.mkdir()

    def function(rows: DataFrame, _: int, batch: Batch) -> None:
        rows.sparkSession.sparkContext.setJobGroup("nightly totals", "what an operator sees")
        save(connector, rows, target, **batch.txn_options())

    expected: list[str] = []
    for _ in range(2):
        for _ in range(3):
            expected.append(f"line {len(expected)}")
            (lines / str(len(expected))).write_text(f"{expected[-1]}\n")
        rows = connector.spark.readStream.option("maxFilesPerTrigger", 1).text(str(lines))
        writer = rows.writeStream.foreachBatch(foreach_batch(function, connector.servers))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query has not ended"
    assert values(connector, target) == expected


def test_a_stream_that_was_replaced_is_told_by_whom(connector: Connector, client: Client, topic: Topic, tmp_path: Path) -> None:
    source, target, checkpoint = topic(1), topic(1), tmp_path / "checkpoint"
    client.append(source, b"first")
    reader = connector.spark.readStream.format(connector.format).option("kafka.bootstrap.servers", connector.servers)
    rows = reader.option("subscribe", source).option("startingOffsets", "earliest").load().select("value")
    writer = rows.writeStream.format(connector.format).option("kafka.bootstrap.servers", connector.servers)
    query = writer.option("topic", target).option("checkpointLocation", str(checkpoint)).start()
    try:
        wait_until(lambda: client.kv.get(keys.batch_key(str(query.id))) is not None, "the first batch", QUERY_TIMEOUT_S)
        Ledger(client, 60_000).enter(str(query.id), "another-run", str(query.id), keys.Driver(host="elsewhere", pid=7))
        client.append(source, b"second")
        wait_until(lambda: query.exception() is not None, "the end of the query", QUERY_TIMEOUT_S)
        told = str(query.exception())
        assert f"run {query.runId} no longer owns the sink of {query.id}" in told
        assert "The owner is run another-run on host elsewhere (process 7, since " in told
        assert values(connector, target) == ["first"]
    finally:
        query.stop()


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_results_of_aggregates_are_appended(both: dict[str, Connector], topic: Topic, tmp_path: Path, mode: str) -> None:
    """Update mode takes the jar: Spark refuses it to sinks written in Python. The sink tells of its last batch."""
    connector, name, source = both[JAVA], topic(1), topic(1)
    save(connector, frame_of(connector, 10), source)
    reader = connector.spark.readStream.format(JAVA).option("kafka.bootstrap.servers", connector.servers)
    rows = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
    counts = rows.groupBy("topic").count().selectExpr("topic as key", "cast(count as string) as value")
    writer = counts.writeStream.format(JAVA).option("kafka.bootstrap.servers", connector.servers).option("topic", name)
    writer = writer.outputMode(mode).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_TIMEOUT_S), "the query has not ended"
    assert values(connector, name) == ["10"]
    assert query.lastProgress["sink"]["description"] == f"raftlake[topic {name}]"
    told = query.lastProgress["sink"]["metrics"]
    assert told["rows"] == "1" and {"batch", "commitMs", "settleMs", "tasks"} <= set(told)


def test_update_mode_is_refused_to_python_by_spark_itself(both: dict[str, Connector], topic: Topic, tmp_path: Path) -> None:
    """Spark offers update mode to sinks on the JVM only; the connector's README says so."""
    counts = both[PYTHON].spark.readStream.format("rate").load().groupBy("value").count()
    writer = counts.selectExpr("cast(value as string) as value").writeStream.format(PYTHON).option("topic", topic(1))
    writer = writer.option("kafka.bootstrap.servers", both[PYTHON].servers).option("checkpointLocation", str(tmp_path))
    query = writer.outputMode("update").start()
    with pytest.raises(Exception, match="raftlake_python does not support Update mode"):
        query.awaitTermination(QUERY_TIMEOUT_S)


@pytest.mark.parametrize("mode", ["overwrite", "ignore", "error"])
def test_a_batch_write_only_appends(connector: Connector, topic: Topic, mode: str) -> None:
    writer = frame_of(connector, 1).write.format(connector.format).option("topic", topic(1)).mode(mode)
    refusal = r'overwrite not allowed for raftlake|cannot be written in the "(Ignore|ErrorIfExists)" mode'
    with pytest.raises(Exception, match=refusal):
        writer.option("kafka.bootstrap.servers", connector.servers).save()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("value", "InvalidSchema: value attribute unsupported type bigint"),
        ("string(value) as valeu", "InvalidSchema: Required attribute 'value' not found"),
        ("string(value) as value, string(null) as topic", "InvalidRow: batch 1: column topic: null topic present in the data."),
        ("string(value) as value, 'nope' as topic", "InvalidRow: batch 1: column topic: Topic 'nope' does not exist"),
        (
            "'v' as value, 9 as partition, '{topic}' as topic",
            "InvalidRow: batch 1: column partition: partition 9 does not exist",
        ),
    ],
    ids=["type", "no value", "null topic", "missing topic", "partition"],
)
def test_an_error_of_a_stream_begins_with_the_cause(
    both: dict[str, Connector], topic: Topic, tmp_path: Path, columns: str, words: str
) -> None:
    """The ids of the query and of its run take 130 characters. The first batch of such a source is empty."""
    name = topic(1)
    rows = both[PYTHON].spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    written = rows.selectExpr(*columns.format(topic=name).split(", "))
    writer = written.writeStream.format(PYTHON).option("kafka.bootstrap.servers", both[PYTHON].servers)
    if "topic" not in columns:
        writer = writer.option("topic", name)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="terminated with exception") as raised:
        query.awaitTermination(QUERY_TIMEOUT_S)
    told = str(raised.value)
    assert words in told[:BEGINNING], told[:1000]
    assert "Traceback (most recent call last)" in told


def test_a_streaming_write_names_a_topic_that_is_not_there(connector: Connector, tmp_path: Path) -> None:
    rows = connector.spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    writer = rows.writeStream.format(connector.format).option("kafka.bootstrap.servers", connector.servers)
    query = writer.option("topic", "nope").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="Topic 'nope' does not exist"):
        query.awaitTermination(QUERY_TIMEOUT_S)
