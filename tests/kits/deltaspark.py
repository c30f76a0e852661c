"""Spark with Delta's classes, in a process of its own, which reads one table of the tier."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CACHE = Path(__file__).resolve().parents[2] / ".cache"
#: Directories of jars.
DELTA = ("spark-delta-4.4.0",)

#: A JVM gets its jars when it starts, and that of the other tests has none of Delta: this session has a process of its own.
#: It answers each line of its input, the name of a function, with a line of JSON.
SESSION = """
import json, os, sys
from raftlake.tier.verify_sql import checks_sql
from pyspark.sql import SparkSession, functions as F

jars, uri, more = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
    .config("spark.jars", jars).config(map=json.loads(more))
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "2")
    .config("spark.databricks.delta.snapshotPartitions", "2")
    # VACUUM lists by as many tasks, 10,000 by default: a minute for the few files of a test.
    .config("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
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

def stream_on(name, **options):
    # All that is new since the last run of this name: how many rows, or the error that stops the stream.
    table = spark.readStream.format("delta").options(**options).load(uri)
    rows = []
    query = (
        table.writeStream.foreachBatch(lambda batch, _: rows.append(batch.count()))
        .option("checkpointLocation", uri + "-checkpoints/" + name).trigger(availableNow=True).start()
    )
    try:
        query.awaitTermination()
    except Exception as error:
        return str(error)
    return sum(rows)

def plain():
    return stream_on("plain")

def ignoring():
    return stream_on("ignoring", ignoreDeletes="true")

def skipping():
    return stream_on("skipping", skipChangeCommits="true")

def texts(rows):
    return [row[0].decode() for row in rows.orderBy("offset").select("value").collect()]

def shown():
    return texts(spark.read.format("delta").load(uri))

def superseded():
    return texts(spark.read.parquet(uri + "/_raftlake/superseded/0").where("partition = 2"))

def vacuum():
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM delta.`{uri}` RETAIN 0 HOURS")
    return spark.read.format("delta").load(uri).count()

def optimize():
    return spark.sql(f"OPTIMIZE delta.`{uri}`").collect()[0].metrics.numFilesRemoved

def sql():
    counts = []
    for statement in checks_sql(uri).split(";"):
        if statement.strip():
            counts.append(spark.sql(statement).count())
    return counts[1:]

for line in sys.stdin:
    answer = globals()[line.strip()]()
    print("answer", json.dumps(answer), flush=True)
"""


class Session:
    """Spark with Delta, in a process of its own."""

    def __init__(
        self, uri: str, config: Mapping[str, str] | None = None, directories: Sequence[str] = ("spark-delta-4.4.0",)
    ) -> None:
        """`directories` of the cache have the jars."""
        for directory in directories:
            assert (CACHE / directory / "complete").exists(), f"{directory} is missing: run tools/fetch-kafka"
        jars = ",".join(str(jar) for directory in directories for jar in sorted((CACHE / directory).glob("*.jar")))
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [sys.executable, "-c", SESSION, jars, uri, json.dumps(dict(config or {}))]
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
