"""The state of a running query as a table, and its history as a table of the tier."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import waitkit
from pyspark_raftlake import state
from raftlake.client import LATEST_TIERED
from sparkkit import session_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from raftlake import Client, LocalQuorum


#: A trailer, which has no key, ends the changes of a version. Keys and values are rows of Spark behind one byte: 8 bytes of
#: flags, then 8 for each field; of a text these say place and length, and its letters follow.
HISTORY_OF_A = """
    with versions as (
        select partition, offset as last, from_json(cast(value as string), 'version int, changes int') as trailer
        from changes where kind = 0 and key is null
    )
    select trailer.version, cast(conv(hex(substring(c.value, 10, 1)), 16, 10) as int) as count
    from changes c join versions v on c.partition = v.partition and c.offset >= last - trailer.changes and c.offset < last
    where cast(substring(c.key, 18, 1) as string) = 'a'
    order by 1
"""
#: What Spark takes; the query's own texts and bytes are views.
COLUMNS = {"partition": pa.int32(), "offset": pa.int64(), "kind": pa.int8(), "key": pa.binary(), "value": pa.binary()}
wait_until = partial(waitkit.wait_until, seconds=90)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory, tables: Path) -> Iterator[LocalQuorum]:
    """A quorum whose records are in their tables within a second."""
    from raftlake import LocalQuorum

    settings = {"tier.uri": str(tables), "tier.target.lag.ms": "1000"}
    with LocalQuorum(3, data_dir=tmp_path_factory.mktemp("quorum"), settings=settings) as started:
        yield started


@pytest.fixture(scope="module")
def client(quorum: LocalQuorum) -> Iterator[Client]:
    from raftlake import Client

    with Client(quorum.bootstrap_servers) as made:
        yield made


class Counting:
    """A query that counts words, and the words that it was given."""

    def __init__(self, session: SparkSession, directory: Path, checkpoint: str) -> None:
        self.directory = directory
        self.checkpoint = checkpoint
        self.files = 0
        directory.mkdir()
        words = session.readStream.text(str(directory)).groupBy("value").count()
        writer = words.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
        self.query: StreamingQuery = writer.start()

    def process(self, words: str) -> None:
        """One batch over these words."""
        file = self.directory / f".{self.files}"
        file.write_text("\n".join(words.split()) + "\n", encoding="utf-8")
        file.rename(self.directory / f"{self.files}.txt")
        self.files += 1
        self.query.processAllAvailable()


def counts(session: SparkSession, checkpoint: str, batch: int | None = None) -> dict[str, int]:
    rows = state(session, checkpoint, batch=batch).select("key.value", "value.count").collect()
    found = {row["value"]: row["count"] for row in rows}
    assert len(found) == len(rows), "a key lies in one partition"
    return found


@pytest.mark.spark
def test_a_running_query_is_read_at_its_newest_batch(
    spark: SparkSession, quorum: LocalQuorum, client: Client, tmp_path: Path
) -> None:
    session = session_at(spark, quorum)
    # Another session shares nothing with the query but the quorum.
    reader = session_at(spark, quorum)
    counting = Counting(session, tmp_path / "words", "raftlake://live/main")
    try:
        counting.process("a b a")
        owner = client.kv.get("/fs-owner/live/main")
        state(reader, counting.checkpoint).createOrReplaceTempView("live")
        for more in range(1, 4):
            counting.process("a c")
            assert counts(reader, counting.checkpoint) == {"a": 2 + more, "b": 1, "c": more}
            (row,) = reader.sql("select value.count as n from live where key.value = 'a'").collect()
            assert row["n"] == 2 + more, "a view looks anew each time"
        assert counts(reader, counting.checkpoint, batch=0) == {"a": 2, "b": 1}
        assert client.kv.get("/fs-owner/live/main") == owner, "the run still owns the checkpoint"
        assert counting.query.isActive
    finally:
        counting.query.stop()


#: Of a session that has run no stream.
READER = """
import sys
from pyspark.sql import SparkSession
from pyspark_raftlake import configure, state
bootstrap, http, checkpoint = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", 2)
spark = configure(builder, bootstrap, http=http).getOrCreate()
print({row["value"]: row["count"] for row in state(spark, checkpoint).select("key.value", "value.count").collect()})
"""


@pytest.mark.spark
def test_a_new_session_reads_snapshots(spark: SparkSession, quorum: LocalQuorum, tmp_path: Path) -> None:
    # Each version is a snapshot.
    snapshots = {"spark__sql__streaming__stateStore__rocksdb__changelogCheckpointing__enabled": "false"}
    session = session_at(spark, quorum, **snapshots)
    counting = Counting(session, tmp_path / "words", "raftlake://live/snapshots")
    try:
        counting.process("a b a")
        counting.process("a")
    finally:
        counting.query.stop()
    command = [sys.executable, "-c", READER, quorum.bootstrap_servers, quorum.http_servers, counting.checkpoint]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert ast.literal_eval(done.stdout.strip().splitlines()[-1]) == {"a": 3, "b": 1}


@pytest.mark.cluster
def test_the_tables_of_the_tier_hold_the_history_of_a_key(
    spark: SparkSession, quorum: LocalQuorum, client: Client, tables: Path, tmp_path: Path
) -> None:
    counting = Counting(session_at(spark, quorum), tmp_path / "words", "raftlake://history/main")
    try:
        for words in ("a b", "a a", "b", "a c"):
            counting.process(words)
    finally:
        counting.query.stop()
    entry = client.kv.get("/fs-state/history/main")
    assert entry is not None and entry.value is not None
    topic = f"__raftlake-state-{json.loads(entry.value)['id']}-0-default"
    ends = client.read_offset(topic)

    def is_copied() -> bool:
        last = client.list_offsets(topic, dict.fromkeys(ends, LATEST_TIERED))
        return all(last[number] + 1 >= end for number, end in ends.items())

    wait_until(is_copied, f"a table of all of {topic}")
    (table,) = [place for place in tables.iterdir() if place.name.startswith(f"{topic}-")]
    # Spark's reader of Delta is a jar that this session has not: delta-rs reads the table.
    found = QueryBuilder().register("t", DeltaTable(str(table))).execute('SELECT partition, "offset", kind, key, value FROM t')
    rows = pa.table(found.read_all()).cast(pa.schema(COLUMNS))
    spark.createDataFrame(rows).createOrReplaceTempView("changes")
    history = [(row["version"], row["count"]) for row in spark.sql(HISTORY_OF_A).collect()]
    assert history == [(1, 1), (2, 3), (4, 4)], "batch N makes version N + 1, and the third batch had no `a`"
