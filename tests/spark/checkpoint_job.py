"""A stateful query over text files until they are read, run by tests/spark/test_spark_checkpoints.py in a process of its own.

Arguments: bootstrap servers, HTTP servers, the provider of state with its checkpoint format, as `RocksDBStateStoreProvider:2`,
a file for the results, the directory of the input, a directory for Spark's own files, then checkpoint locations. Each location
has a query of its own over the same input. The results are JSON: by location, the counts by word after the query has ended, and
the batches that it ran.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from pyspark_raftlake import configure

bootstrap, http, provider, results, source, own, *locations = sys.argv[1:]
provider, _, version = provider.partition(":")
package = "io.raftlake.spark." if provider.startswith("Quorum") else "org.apache.spark.sql.execution.streaming.state."

builder = configure(SparkSession.builder.master("local[2]"), bootstrap, http=http)
spark = (
    builder.config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", f"{own}/warehouse")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={own}")
    .config("spark.sql.streaming.stateStore.providerClass", package + provider)
    .config("spark.sql.streaming.stateStore.checkpointFormatVersion", version)
    .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    .config("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")


def run(location: str) -> dict[str, Any]:
    counts: dict[str, int] = {}
    batches: list[int] = []

    def note(batch: DataFrame, number: int) -> None:
        batches.append(number)
        counts.update({row["value"]: row["count"] for row in batch.collect()})

    words = spark.readStream.option("maxFilesPerTrigger", 1).text(source).groupBy(col("value")).count()
    query = words.writeStream.outputMode("complete").foreachBatch(note).option("checkpointLocation", location)
    query.trigger(availableNow=True).start().awaitTermination()
    return {"counts": counts, "batches": batches}


Path(results).write_text(json.dumps({location: run(location) for location in locations}), encoding="utf-8")
spark.stop()
