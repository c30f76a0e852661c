"""A query that drops duplicates on two executors, one of which is taken away. It runs in a process of its own.

Its argument is JSON: `bootstrap`, `http`, `directory`, `standby` (bytes, 0 for none), `keys` (of the first batch), `behind` and
`new` (versions behind the newest snapshot, and the new keys of each), `lose` (a directory that is moved away before the
executor is, or null), and `settings` of Spark. The last batch has five keys that were there and five that are new.

The last line of its output is JSON: `load_ms` (of the partition that moved, as Spark's provider measures it), `replayed`
(versions), `rows` (of the state), `batch_ms`, `copied` (bytes on the disk of the executors before).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from class_archive import options
from pyspark_raftlake import configure
from sparkcluster import environment
from waitkit import wait_until

PARTITIONS = 2
STORE = "spark.sql.streaming.stateStore"
LIMIT_S = 180

facts = json.loads(sys.argv[1])
directory = Path(facts["directory"])
local, source = directory / "local", directory / "input"
checkpoint = f"raftlake://standby/{directory.name}"
source.mkdir(parents=True)
os.environ.update(environment())
builder = configure(SparkSession.builder.master(f"local-cluster[{PARTITIONS},1,1024]"), facts["bootstrap"], http=facts["http"])
settings = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.local.dir": str(local),
    "spark.sql.warehouse.dir": str(directory / "warehouse"),
    "spark.executor.extraJavaOptions": options(),
    # Each of the two executors gets a partition.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    f"{STORE}.maintenanceInterval": "1s",
    f"{STORE}.minDeltasForSnapshot": str(facts["behind"] + 1),
    "spark.hadoop.raftlake.state.standby.bytes": str(facts["standby"]),
    **facts["settings"],
}
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
files = 0


def put(first: int, count: int) -> None:
    """A file with so many keys; the query takes it as one batch."""
    global files
    part = source / f".{files}"
    pq.write_table(pa.table({"key": np.arange(first, first + count, dtype=np.int64)}), part)
    part.rename(source / f"{files:03}.parquet")
    files += 1
    query.processAllAvailable()


def names(path: str) -> dict[str, int]:
    """The files in a directory of the checkpoint, with their bytes."""
    at = spark._jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/state/0/{path}")
    file_system = at.getFileSystem(spark._jsc.hadoopConfiguration())
    statuses = file_system.listStatus(at) if file_system.exists(at) else []
    return {status.getPath().getName(): status.getLen() for status in statuses}


def has_snapshots() -> bool:
    return all(any(name.endswith(".zip") for name in names(str(partition))) for partition in range(PARTITIONS))


def data_files() -> list[int]:
    """The bytes of each data file of the snapshots."""
    return sorted(size for partition in range(PARTITIONS) for size in names(f"{partition}/SSTs").values())


def copied() -> list[int]:
    """The bytes of each copy on this machine."""
    return sorted(file.stat().st_size for file in local.glob("**/raftlake-standby-*/*.copy"))


rows = spark.readStream.schema("key long").option("maxFilesPerTrigger", 1).parquet(str(source))
writer = rows.dropDuplicates(["key"]).writeStream.format("noop").outputMode("append")
query = writer.option("checkpointLocation", checkpoint).start()
put(0, facts["keys"])
next_key = facts["keys"]
for _ in range(facts["behind"]):
    put(0, 1)
wait_until(has_snapshots, "snapshots of all partitions", LIMIT_S)
for _ in range(facts["behind"]):
    put(next_key, facts["new"])
    next_key += facts["new"]
if facts["standby"]:
    wait_until(lambda: copied() == data_files(), "copies of all data files", LIMIT_S)
found = {"copied": sum(copied())}
if facts["lose"] is not None:
    Path(facts["lose"]).rename(f"{facts['lose']}-away")
executors = spark._jsc.sc().getExecutorIds()
assert executors.size() == PARTITIONS, executors.toString()
assert spark._jsc.sc().killExecutor(executors.apply(0)), "the executor was not taken away"
wait_until(lambda: spark._jsc.sc().getExecutorIds().size() == PARTITIONS - 1, "the end of an executor", LIMIT_S)
put(next_key - 5, 10)
progress = query.recentProgress[-1]
operator = progress["stateOperators"][0]
metrics = operator["customMetrics"]
found |= {"load_ms": metrics["rocksdbLoadLatencyMs"], "replayed": metrics["rocksdbNumReplayChangelogFiles"]}
found |= {"rows": operator["numRowsTotal"], "batch_ms": progress["durationMs"]["addBatch"]}
print(json.dumps(found), flush=True)
query.stop()
spark.stop()
