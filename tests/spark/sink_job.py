"""A query from the topic `in` to the topic `out`, run by tests/spark/test_spark_sink_kills.py, which kills it.

Arguments: bootstrap servers, the checkpoint location, the name of the format, a directory for this process. There it leaves
`run` (the run id), `query` (the query id) and, when the query has ended, `error` (why; empty where a file `stop` was found).
The first attempt of a task fails at rows whose value ends with 17, when it may have written others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_raftlake import configure

sys.path.append(str(Path(__file__).parents[1] / "kits"))
from connectorkit import register_python

bootstrap, location, name_of_format, own = sys.argv[1:]
directory = Path(own)

builder = configure(SparkSession.builder.master("local[2,4]"), bootstrap)
spark = (
    builder.config("spark.ui.enabled", "false")
    .config("spark.sql.warehouse.dir", f"{own}/warehouse")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={own}")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
register_python(spark)


def stumble(batches: Iterator[Any]) -> Iterator[Any]:
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        for row in range(len(batch)):
            if context.attemptNumber() == 0 and batch.column("value")[row].as_py().endswith(b"17"):
                raise ValueError("this attempt is to fail")
            yield batch.slice(row, 1)


def note(name: str, text: str) -> None:
    (directory / f"{name}.part").write_text(text, encoding="utf-8")
    (directory / f"{name}.part").rename(directory / name)


source = spark.readStream.format(name_of_format).option("subscribe", "in").option("startingOffsets", "earliest")
rows = source.option("maxOffsetsPerTrigger", 20).load().select("key", "value")
sink = rows.mapInArrow(stumble, rows.schema).writeStream.format(name_of_format).option("topic", "out")
query = sink.option("checkpointLocation", location).trigger(processingTime="50 milliseconds").start()
note("query", str(query.id))
note("run", str(query.runId))
error = ""
try:
    while not query.awaitTermination(1):
        if (directory / "stop").exists():
            query.stop()
except StreamingQueryException as ended:
    error = str(ended)
note("error", error)
spark.stop()
