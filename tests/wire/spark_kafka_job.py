"""A Spark program that knows only Spark's own Kafka connector; test_wire_spark_kafka.py runs it against our nodes.

Arguments: bootstrap servers, topic, directory for the checkpoint, directory of the connector's jars. Prints one JSON line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

servers, topic, checkpoint, jars = sys.argv[1:5]
ROWS = 20_000

builder = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
)
spark = builder.config("spark.jars", ",".join(str(jar) for jar in sorted(Path(jars).glob("*.jar")))).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
at = {"kafka.bootstrap.servers": servers}

rows = spark.range(ROWS).select(F.col("id").cast("string").alias("key"), F.sha2(F.col("id").cast("string"), 256).alias("value"))
rows.write.format("kafka").options(**at, topic=topic).save()

batch = spark.read.format("kafka").options(
    **at, subscribe=topic, includeHeaders="true", **{"kafka.isolation.level": "read_committed"}
)
read = batch.load()
wrong = read.where("sha2(CAST(CAST(key AS STRING) AS BINARY), 256) != CAST(value AS STRING)").count()
distinct = read.select(F.count_distinct("partition", "offset"), F.count_distinct("key")).first()

stream = spark.readStream.format("kafka").options(
    **at, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="5000"
)
query = stream.load().groupBy("partition").count().writeStream.format("memory").queryName("counts").outputMode("complete")
started = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
started.awaitTermination()
streamed = spark.table("counts").agg(F.sum("count")).first()

assert distinct is not None
assert streamed is not None
result = {"rows": read.count(), "wrong": wrong, "offsets": distinct[0], "keys": distinct[1], "streamed": streamed[0]}
result |= {"batches": len([report for report in started.recentProgress if report["numInputRows"]]), "expected": ROWS}
print(json.dumps(result))
spark.stop()
