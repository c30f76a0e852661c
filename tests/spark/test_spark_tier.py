"""Spark reads, without a node, the Delta table that the tier wrote: rows, headers, times, filters, streams; and OPTIMIZE."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from contract.tier_contract import GROUP, LINEAGE, data_batch, request_for, segment
from raftlake.ports.tier import Lineage, LineageEnd, RemoteSegment
from raftlake.raft.types import Epoch
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.reader import TopicHistory
from raftlake.tier.schema import table_uri
from raftlake.tier.verify import verify_table
from raftlake.tier.verify_sql import CHECKS
from raftlake.wire.control import leader_change_batch
from tierkit import local_settings

pytestmark = pytest.mark.spark

JARS = Path(__file__).resolve().parents[2] / ".cache" / "spark-delta-4.4.0"

#: A JVM gets its jars when it starts, and that of the other tests has none of Delta: this session has a process of its own.
#: It answers each line of its input, the name of a function, with a line of JSON.
SESSION = """
import json, os, sys
from raftlake.tier.verify_sql import checks_sql
from pyspark.sql import SparkSession, functions as F

jars, uri = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
    .config("spark.jars", ",".join(os.path.join(jars, name) for name in os.listdir(jars) if name.endswith(".jar")))
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")

def partitions():
    table = spark.read.format("delta").load(uri)
    ends = table.groupBy("partition").agg(F.count("*"), F.min("offset"), F.max("offset")).orderBy("partition")
    return [list(row) for row in ends.collect()]

def read():
    table = spark.read.format("delta").load(uri)
    row = table.where("partition = 2 and offset = 5").collect()[0]
    some = table.where("partition = 2 and offset between 7 and 8").select("offset")
    return {
        "schema": table.schema.simpleString(),
        "row": [row.value.decode(), row.timestamp.isoformat(), row.timestampType, row.kind, row.leader_epoch],
        "headers": [[header.key, None if header.value is None else header.value.decode()] for header in row.headers],
        "control": [list(row) for row in table.where("kind = 1").select("partition", "offset").collect()],
        "by time": table.where("partition = 2 and timestamp >= timestamp'2023-11-14 22:13:20.010'").count(),
        "filtered": [sorted(row.offset for row in some.collect()), len(some.inputFiles())],
    }

def stream():
    query = spark.readStream.format("delta").load(uri).writeStream.format("memory").queryName("shown").outputMode("append")
    query.trigger(availableNow=True).start().awaitTermination()
    return spark.table("shown").count()

def optimize():
    return spark.sql(f"OPTIMIZE delta.`{uri}`").collect()[0].metrics.numFilesRemoved

def sql():
    counts = []
    for statement in checks_sql(uri).split(";"):
        if statement.strip():
            counts.append(spark.sql(statement).count())
    return counts[1:]

for line in sys.stdin:
    answer = {"partitions": partitions, "read": read, "stream": stream, "optimize": optimize, "sql": sql}[line.strip()]()
    print("answer", json.dumps(answer), flush=True)
"""


class Session:
    """Spark with Delta, in a process of its own."""

    def __init__(self, uri: str) -> None:
        assert (JARS / "complete").exists(), "run tools/fetch-kafka"
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [sys.executable, "-c", SESSION, str(JARS), uri]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, name: str) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        raise AssertionError(f"Spark ended without an answer to {name}: its standard error says why")

    def close(self) -> None:
        self._process.communicate()


def test_spark_reads_filters_streams_and_optimizes_what_the_tier_wrote(tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    tier = DeltaTier(settings)
    control = leader_change_batch(0, 5, 1_700_000_000_000, 1, (1, 2, 3), (1, 2))
    first = request_for(control + data_batch(1, 5) + data_batch(4, 5, compression="zstd"), "a")
    other = Lineage(GROUP._replace(partition=0), 0)
    for request in (first, segment(7, "b"), segment(0, "c", lineage=other)):
        assert isinstance(tier.copy(request), RemoteSegment)
    session = Session(table_uri(settings.uri, GROUP))
    try:
        check(session, tier)
    finally:
        session.close()


def check(session: Session, tier: DeltaTier) -> None:
    assert session.ask("partitions") == [[0, 6, 0, 5], [2, 13, 0, 12]]
    assert session.ask("read") == {
        "schema": (
            "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
            "headers:array<struct<key:string,value:binary>>,kind:tinyint,leader_epoch:int,batch_base_offset:bigint,"
            "batch_crc:int,batch_attributes:int,producer_id:bigint,producer_epoch:int,base_sequence:int,segment_id:string,"
            "incarnation:int>"
        ),
        "row": ["v5", "2023-11-14T22:13:20.005000", 0, 0, 5],
        "headers": [["h", "1"], ["n", None]],
        "control": [[2, 0]],
        "by time": 3,
        "filtered": [[7, 8], 1],
    }
    assert session.ask("stream") == 19
    before = tier.claim(LINEAGE, Epoch(5))
    history = TopicHistory(table_uri(tier._settings.uri, GROUP))
    assert verify_table(history).findings == () and session.ask("sql") == [0] * len(CHECKS)
    assert session.ask("optimize") == 2
    history = TopicHistory(history.uri)
    assert len(history.files(2)) == 1 and verify_table(history).findings == ()
    after = tier.claim(LINEAGE, Epoch(5))
    assert isinstance(before, LineageEnd) and isinstance(after, LineageEnd) and before.last and after.last
    assert (after.last.segment_id, after.last.end_offset, after.last.epochs) == ("b", 13, before.last.epochs)
    assert after.last.file != before.last.file
    assert isinstance(tier.copy(segment(13, "d")), RemoteSegment)
    assert session.ask("partitions") == [[0, 6, 0, 5], [2, 19, 0, 18]]
    # OPTIMIZE changes no data: a stream reads each row once.
    assert session.ask("stream") == 25
    assert verify_table(TopicHistory(history.uri)).findings == ()
    DeltaTable(history.uri).delete('"partition" = 2 and "offset" = 9')
    assert [finding.offset for finding in verify_table(TopicHistory(history.uri)).findings] == [9]
    assert session.ask("sql") == [1, 1, 0, 0, 0]
