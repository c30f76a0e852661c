"""Counts and sums by key over a topic until its end: run by spark-submit for tests/spark/test_spark_cluster.py.

Its argument is JSON: `topic`, `checkpoint`, `batches` (a directory for one file of rows for each batch), `hooks` (a directory
of stops, or null), `per_trigger` (offsets of a batch), and what the kit adds. A batch that Spark runs again must have the same
rows: a file `differs-N` tells where it had others. How the query ended is written to `ended` in the job's own directory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkcluster import reach

facts = json.loads(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("WARN")


def put(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}")
    part.write_text(text, encoding="utf-8")
    part.rename(path)


def note(batch: DataFrame, number: int) -> None:
    rows = json.dumps(sorted([row.key, row.rows, row.total] for row in batch.collect()))
    if facts["hooks"] is not None:
        reach(facts["hooks"], "sink")
    file = Path(facts["batches"], str(number))
    if file.exists() and file.read_text(encoding="utf-8") != rows:
        put(file.with_name(f"differs-{number}"), rows)
    put(file, rows)


records = (
    spark.readStream.format("raftlake")
    .option("kafka.bootstrap.servers", facts["bootstrap"])
    .option("subscribe", facts["topic"])
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", facts["per_trigger"])
    .load()
)
counts = records.groupBy(F.col("key").cast("string").alias("key")).agg(
    F.count("*").alias("rows"), F.sum(F.col("value").cast("string").cast("long")).alias("total")
)
writer = counts.writeStream.outputMode("update").foreachBatch(note).option("checkpointLocation", facts["checkpoint"])
query = writer.trigger(availableNow=True).start()
own = Path(facts["directory"])
put(own / "run", str(query.runId))
try:
    query.awaitTermination()
    put(own / "ended", "")
except StreamingQueryException as error:
    put(own / "ended", str(error))
spark.stop()
