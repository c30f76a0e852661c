"""A query with `transformWithState` in a session that had no jar when it began: run by tests/spark/test_spark_cluster.py.

Its argument is JSON: `bootstrap`, `topic`, `checkpoint`, `results` (a file). The query reads the topic to its end, and counts
and sums by key in a state of its own, as Python on pandas. The results are JSON: the last row of each key, and the batches.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_raftlake import attach

STATE = "spark.sql.streaming.stateStore"


class Totals(StatefulProcessor):
    """Rows and their sum, by key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        fields = [StructField("rows", LongType()), StructField("total", LongType())]
        self._totals = handle.getValueState("totals", StructType(fields))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        count, total = self._totals.get() if self._totals.exists() else (0, 0)
        for some in rows:
            count += len(some)
            total += int(some["amount"].sum())
        self._totals.update((count, total))
        yield pd.DataFrame({"key": [key[0]], "rows": [count], "total": [total]})

    def close(self) -> None:
        pass


facts = json.loads(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("WARN")
attach(spark, facts["bootstrap"])
spark.conf.set(f"{STATE}.providerClass", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")

found: dict[str, list[int]] = {}
batches: list[int] = []


def note(batch: DataFrame, number: int) -> None:
    batches.append(number)
    found.update({row.key: [row.rows, row.total] for row in batch.collect()})


records = (
    spark.readStream.format("raftlake")
    .options(subscribe=facts["topic"], startingOffsets="earliest", maxOffsetsPerTrigger="4000")
    .option("kafka.bootstrap.servers", facts["bootstrap"])
    .load()
    .select(F.col("key").cast("string").alias("key"), F.col("value").cast("string").cast("long").alias("amount"))
)
columns = StructType([StructField("key", StringType()), StructField("rows", LongType()), StructField("total", LongType())])
totals = records.groupBy("key").transformWithStateInPandas(Totals(), columns, "Update", "None")
writer = totals.writeStream.outputMode("update").foreachBatch(note).option("checkpointLocation", facts["checkpoint"])
writer.trigger(availableNow=True).start().awaitTermination()
Path(facts["results"]).write_text(json.dumps({"found": found, "batches": batches}), encoding="utf-8")
spark.stop()
