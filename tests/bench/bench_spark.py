"""Rows per second through `format("raftlake")`: batch write, batch read, streaming read."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from measure import Result
from raftlake.client import Client

if TYPE_CHECKING:
    from raftlake import LocalQuorum

ROWS = 2_000_000
TOPIC = "bench-spark"


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(quorum: LocalQuorum) -> Iterator[Result]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with Client(quorum.bootstrap_servers) as client:
        client.create_topic(TOPIC, partitions=4)
        client.create_topic(f"{TOPIC}-warm", partitions=4)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "2g")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        with tempfile.TemporaryDirectory() as directory:
            yield from measure_in(spark, quorum.bootstrap_servers, Path(directory))
    finally:
        spark.stop()


def measure_in(spark: SparkSession, servers: str, directory: Path) -> Iterator[Result]:
    def write(rows: int, topic: str) -> None:
        key = F.lpad(F.col("id").cast("string"), 8, "0")
        value = F.rpad(F.col("id").cast("string"), 100, "x").cast("binary")
        records = spark.range(0, rows, numPartitions=2).select(key.alias("key"), value.alias("value"))
        records.write.format("raftlake").option("kafka.bootstrap.servers", servers).option("topic", topic).mode("append").save()

    def read(topic: str) -> None:
        records = spark.read.format("raftlake").option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
        records.write.format("noop").mode("overwrite").save()

    def stream(topic: str) -> int:
        records = spark.readStream.format("raftlake").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        source = records.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 500_000).load()
        sink = source.writeStream.format("noop").option("checkpointLocation", str(directory / topic))
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(batch["numInputRows"] for batch in query.recentProgress)

    write(20_000, f"{TOPIC}-warm")
    read(f"{TOPIC}-warm")
    stream(f"{TOPIC}-warm")
    shape = f"local[2], {ROWS / 1e6:g} M rows of 8 B key and 100 B value, 4 partitions, after a warm-up"
    yield Result(name="Spark batch write", value=ROWS / timed(lambda: write(ROWS, TOPIC)), unit="rows/s", method=shape)
    yield Result(name="Spark batch read", value=ROWS / timed(lambda: read(TOPIC)), unit="rows/s", method=f"{shape}, to noop")
    seen: list[int] = []
    seconds = timed(lambda: seen.append(stream(TOPIC)))
    assert seen == [ROWS], f"the stream read {seen} of {ROWS} rows"
    method = f"{shape}, availableNow, 0.5 M rows a batch, to noop"
    yield Result(name="Spark streaming read", value=ROWS / seconds, unit="rows/s", method=method)
