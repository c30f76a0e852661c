"""A stateful query over text files, run by tests/spark/test_spark_fencing.py in several processes at once.

Arguments: bootstrap servers, HTTP servers, the provider of state, the checkpoint location, the directory of the input, a
directory for this process. There it leaves `run` (the run id), `batches` (a line for each batch: its number, and its counts by
word as JSON) and, when the query has ended, `error` (why; empty where a file `stop` was found).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from pyspark_raftlake import configure

bootstrap, http, provider, location, source, own = sys.argv[1:]
STATE = "io.raftlake.spark." if provider.startswith("Quorum") else "org.apache.spark.sql.execution.streaming.state."
directory = Path(own)

builder = configure(SparkSession.builder.master("local[2]"), bootstrap, http=http)
spark = (
    builder.config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", f"{own}/warehouse")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={own}")
    .config("spark.sql.streaming.stateStore.providerClass", STATE + provider)
    .config("spark.sql.streaming.stateStore.checkpointFormatVersion", "1" if provider.startswith("HDFS") else "2")
    .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")


def note(batch: DataFrame, number: int) -> None:
    counts = {row["value"]: row["count"] for row in batch.collect()}
    with (directory / "batches").open("a", encoding="utf-8") as file:
        file.write(f"{number} {json.dumps(counts)}\n")


words = spark.readStream.option("maxFilesPerTrigger", 1).text(source).groupBy(col("value")).count()
query = words.writeStream.outputMode("complete").foreachBatch(note).option("checkpointLocation", location)
started = query.trigger(processingTime="200 milliseconds").start()
(directory / "run").write_text(str(started.runId), encoding="utf-8")
error = ""
try:
    while not started.awaitTermination(1):
        if (directory / "stop").exists():
            started.stop()
except StreamingQueryException as ended:
    error = str(ended)
(directory / "error.part").write_text(error, encoding="utf-8")
(directory / "error.part").rename(directory / "error")
spark.stop()
