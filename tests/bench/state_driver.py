"""A driver of `bench_state`: a stateful query over Parquet files, one a batch; what it took, as JSON.

Arguments: where the checkpoint is (quorum, default, slow), what is done (`batches`, `fill` or `restore`), the checkpoint, the
directory of the input, bootstrap servers, HTTP servers, the jar with SlowFileSystem.

- `batches`: counts by key, all files; the median duration of a batch behind the first ones, in ms.
- `fill`: drops duplicates, all files there are; ends when the checkpoint has a snapshot of the state behind the last one.
- `grow`: all files there are, without a further snapshot.
- `restore`: the file that came since, in a process that has no state yet; how long its task took to load the state, in ms.

An aggregation loads its store twice in one task, to read and to write, and Spark's metrics are those of the second load, which
finds the state in memory. A query that drops duplicates loads its store once.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator

from pyspark.sql import SparkSession

from processes import wait_until
from pyspark_raftlake import configure

WARM = 110
SNAPSHOT_LIMIT_S = 120
STORE = "spark.sql.streaming.stateStore"
PEER = {
    f"{STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{STORE}.checkpointFormatVersion": "2",
}


def snapshots() -> Iterator[int]:
    """The versions of the store's snapshots, as their files say."""
    path = spark._jvm.org.apache.hadoop.fs.Path(f"{location}/state/0/0")
    for status in path.getFileSystem(spark._jsc.hadoopConfiguration()).listStatus(path):
        name = status.getPath().getName()
        if name.endswith(".zip"):
            yield int(name.removesuffix(".zip").split("_")[0])


def await_snapshot(version: int) -> None:
    """Spark's maintenance makes snapshots in its own time."""
    wait_until(lambda: version in snapshots(), f"a snapshot of version {version} at {location}", SNAPSHOT_LIMIT_S, 0.2)


kind, what, location, source, bootstrap, http, slow_jar = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "2g")
builder = builder.config("spark.ui.showConsoleProgress", "false")
if kind == "quorum":
    builder = configure(builder, bootstrap, http=http)
else:
    for name, value in PEER.items():
        builder = builder.config(name, value)
if kind == "slow":
    builder = builder.config("spark.hadoop.fs.slow.impl", "io.raftlake.bench.SlowFileSystem").config("spark.jars", slow_jar)
builder = builder.config("spark.sql.shuffle.partitions", "2" if what == "batches" else "1")
if what == "fill":
    builder = builder.config(f"{STORE}.maintenanceInterval", "1s").config(f"{STORE}.minDeltasForSnapshot", "1")
spark = builder.config("spark.sql.streaming.numRecentProgressUpdates", "1000").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
rows = spark.readStream.schema("key long").option("maxFilesPerTrigger", 1).parquet(source)
if what == "batches":
    writer = rows.groupBy("key").count().writeStream.outputMode("update")
else:
    writer = rows.dropDuplicates(["key"]).writeStream.outputMode("append")
query = writer.format("noop").option("checkpointLocation", location).trigger(availableNow=True).start()
query.awaitTermination()
progress = query.recentProgress
operator = [each["stateOperators"][0] for each in progress]
if what == "batches":
    durations = [each["durationMs"] for each in progress[WARM:]]
    found = {"median_ms": statistics.median(each["triggerExecution"] for each in durations)}
    found |= {name: statistics.median(each.get(name, 0) for each in durations) for name in durations[0]}
    found |= {name: statistics.median(each[name] for each in operator[WARM:]) for name in ("allUpdatesTimeMs", "commitTimeMs")}
else:
    metrics = operator[-1]["customMetrics"]
    found = {"load_ms": metrics["rocksdbLoadLatencyMs"], "batch_ms": progress[-1]["durationMs"]["addBatch"]}
    found |= {"replay_ms": metrics["rocksdbReplayChangeLogLatencyMs"], "replayed": metrics["rocksdbNumReplayChangelogFiles"]}
    found |= {"rows": operator[-1]["numRowsTotal"], "files_copied": metrics["rocksdbFilesCopied"]}
print(json.dumps(found))
if what == "fill":
    await_snapshot(progress[-1]["batchId"] + 1)
spark.stop()
