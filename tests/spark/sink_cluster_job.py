"""A topic copied to another one until its end: run by spark-submit for tests/spark/test_spark_sink_cluster.py.

Its argument is JSON: `topic`, `checkpoint`, `hooks` (a directory of stops, or null), `per_trigger` (offsets of a batch),
`format`, `slow` (whether the first attempt of a batch's first task is slow), `attempts` (a directory where each later attempt
leaves a file), and what the kit adds. The target is the topic with `-out`. A stop `rows` is between the rows of a task. How
the query ended is written to `ended` in the job's own directory.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from connectorkit import register_python
from sparkcluster import reach

facts = json.loads(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("WARN")
register_python(spark)


def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() > 0:
        Path(facts["attempts"], uuid.uuid4().hex).touch()
    for batch in batches:
        half = len(batch) // 2
        yield batch.slice(0, half)
        if facts["hooks"] is not None:
            reach(facts["hooks"], "rows")
        if facts["slow"] and context.attemptNumber() == 0 and context.partitionId() == 0:
            time.sleep(facts["slow"])
        yield batch.slice(half)


at = {"kafka.bootstrap.servers": facts["bootstrap"]}
source = spark.readStream.format(facts["format"]).options(**at, subscribe=facts["topic"], startingOffsets="earliest")
rows = source.option("maxOffsetsPerTrigger", facts["per_trigger"]).load().select("key", "value")
writer = rows.mapInArrow(pass_on, rows.schema).writeStream.format(facts["format"]).options(**at, topic=f"{facts['topic']}-out")
query = writer.option("checkpointLocation", facts["checkpoint"]).trigger(availableNow=True).start()
error = ""
try:
    query.awaitTermination()
except StreamingQueryException as failed:
    error = str(failed)
own = Path(facts["directory"])
(own / "ended.part").write_text(error, encoding="utf-8")
(own / "ended.part").rename(own / "ended")
spark.stop()
