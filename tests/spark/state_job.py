"""A stateful query over text files until they are read, run by tests/spark/test_spark_state.py in a process of its own.

Arguments: bootstrap servers, HTTP servers, a directory, the shape of the query. The directory has the input in `left` and
`right`, lines of "word number"; this process leaves `results.json` there. The query runs twice over the same input: with the
state store provider that `configure` sets and a checkpoint at `raftlake://`, and with Spark's own and a local checkpoint. The
results are JSON, by kind of provider: the rows of each batch, what the state reader reads, and the change feed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, split
from pyspark.sql.functions import sum as total
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from pyspark_raftlake import configure

bootstrap, http, own, shape = sys.argv[1:]
directory = Path(own)
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

spark = (
    configure(SparkSession.builder.master("local[2]"), bootstrap, http=http)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", f"{own}/warehouse")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={own}")
    .config("spark.sql.streaming.stateStore.minDeltasForSnapshot", "2")
    .config("spark.sql.streaming.stateStore.maintenanceInterval", "1s")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
OURS = spark.conf.get(PROVIDER)
assert OURS == "io.raftlake.spark.QuorumStateStoreProvider", OURS


def lines(side: str) -> DataFrame:
    read = spark.readStream.option("maxFilesPerTrigger", 1).text(str(directory / side))
    parts = split(col("value"), " ")
    return read.select(parts[0].alias("word"), parts[1].cast("int").alias("number"))


def aggregation() -> DataFrame:
    return lines("left").groupBy("word").agg(count("*").alias("count"), total("number").alias("sum"))


def duplicates() -> DataFrame:
    return lines("left").dropDuplicates(["word"])


def join() -> DataFrame:
    right = lines("right").withColumnRenamed("number", "other")
    return lines("left").join(right, "word")


def groups() -> DataFrame:
    def running(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        seen = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((seen,))
        yield pd.DataFrame({"word": [key[0]], "seen": [seen]})

    return (
        lines("left")
        .groupBy("word")
        .applyInPandasWithState(running, "word string, seen int", "seen int", "update", GroupStateTimeout.NoTimeout)
    )


SHAPES: dict[str, tuple[Callable[[], DataFrame], str]] = {
    "aggregation": (aggregation, "update"),
    "duplicates": (duplicates, "append"),
    "join": (join, "append"),
    "groups": (groups, "update"),
}


def rows_of(frame: DataFrame) -> list[str]:
    return sorted(str(row.asDict(recursive=True)) for row in frame.collect())


def run(provider: str, location: str) -> dict[str, Any]:
    make, mode = SHAPES[shape]
    batches: dict[int, list[str]] = {}

    def note(batch: DataFrame, number: int) -> None:
        batches[number] = rows_of(batch)

    spark.conf.set(PROVIDER, provider)
    started = make().writeStream.outputMode(mode).foreachBatch(note).option("checkpointLocation", location)
    started.trigger(availableNow=True).start().awaitTermination()
    last = max(batches)
    feed = {"readChangeFeed": "true", "changeStartBatchId": str(max(0, last - 1))}
    return {
        "batches": batches,
        "state": read_state(location),
        "before": [] if shape == "join" else read_state(location, batchId=str(last - 1)),
        "feed": [] if shape == "join" else read_state(location, **feed),
    }


def read_state(location: str, **options: str) -> list[str]:
    """Without the number of the partition; of a join the rows of one side."""
    side = {"joinSide": "left"} if shape == "join" else {}
    return rows_of(spark.read.format("statestore").options(**side, **options).load(location).drop("partition_id"))


results = {"ours": run(OURS, f"raftlake://state/{shape}"), "stock": run(STOCK, str(directory / "checkpoints" / shape))}
(directory / "results.json").write_text(json.dumps(results), encoding="utf-8")
spark.stop()
