"""A query in real-time mode from topic to topic, run by spark-submit. tests/spark/test_spark_realtime_once.py kills it.

Its argument is JSON: `before` and `after` (the topics), `checkpoint`, `lasts` (of a batch), and what the kit adds. How the
query ended is written to `ended` in the job's own directory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

facts = json.loads(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("WARN")
at = {"kafka.bootstrap.servers": facts["bootstrap"]}
rows = spark.readStream.format("raftlake").options(**at, subscribe=facts["before"], startingOffsets="earliest").load()
writer = rows.select("key", "value").writeStream.format("raftlake").options(**at, topic=facts["after"]).outputMode("update")
query = writer.option("checkpointLocation", facts["checkpoint"]).trigger(realTime=facts["lasts"]).start()
error = ""
try:
    query.awaitTermination()
except StreamingQueryException as failed:
    error = str(failed)
own = Path(facts["directory"])
(own / "ended.part").write_text(error, encoding="utf-8")
(own / "ended.part").rename(own / "ended")
spark.stop()
