"""A driver of `bench_checkpoints`: runs small micro-batches, and prints how long their checkpoints took, as JSON.

Arguments: the kind of checkpoints (quorum, local, default, fastest, slow), where they are, bootstrap servers, HTTP servers, and
the jar with SlowFileSystem.
"""

from __future__ import annotations

import json
import statistics
import sys

from pyspark.sql import SparkSession

from processes import wait_until
from pyspark_raftlake import configure

#: A query runs for weeks, and the JVM's compiler needs some hundred batches.
BATCHES, WARM = 660, 600
#: Less than `spark_drivers` gives the whole driver.
LIMIT_S = 550
MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing"
FASTEST = {
    "spark.sql.streaming.checkpointFileManagerClass": f"{MANAGERS}.FileSystemBasedCheckpointFileManager",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}

SLOW = {"spark.hadoop.fs.slow.impl": "io.raftlake.bench.SlowFileSystem"}

kind, location, bootstrap, http, slow_jar = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.ui.showConsoleProgress", "false")
builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", 2 * BATCHES)
if kind in ("quorum", "local"):
    builder = configure(builder, bootstrap, http=http)
settings = {"fastest": FASTEST, "slow": {**SLOW, "spark.jars": slow_jar}}
for name, value in settings.get(kind, {}).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
query = rows.writeStream.format("noop").option("checkpointLocation", location).start()
wait_until(lambda: not query.isActive or len(query.recentProgress) >= BATCHES, f"{BATCHES} batches", LIMIT_S, 0.2)
durations = [progress["durationMs"] for progress in query.recentProgress[WARM:BATCHES]]
query.stop()
print(json.dumps({"median_ms": statistics.median(each["walCommit"] + each["commitOffsets"] for each in durations)}))
spark.stop()
