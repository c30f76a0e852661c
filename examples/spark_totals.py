"""A streaming total per customer, raftlake to raftlake:
python examples/spark_totals.py 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094 CHECKPOINT_DIR

Writes a few orders with a batch job, totals them with a streaming query that ends when it has read everything, and reads the
totals back.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from raftlake import Client

servers, checkpoint = sys.argv[1], sys.argv[2]
with Client(servers) as client:
    client.create_topic("orders", partitions=4, exist_ok=True)
    client.create_topic("totals", partitions=1, exist_ok=True)

# Spark's workers are to run with this Python, also where its environment is not activated.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
# Spark's default of 200 tasks and state stores for each grouping is meant for a cluster.
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
at = {"kafka.bootstrap.servers": servers}

orders = spark.createDataFrame([("alice", "12.50"), ("bob", "3.00"), ("alice", "7.50")], "key string, value string")
orders.write.format("raftlake").options(**at, topic="orders").mode("append").save()

source = spark.readStream.format("raftlake").options(
    **at, subscribe="orders", startingOffsets="earliest", consistency="linearizable"
)
amount = F.col("value").cast("string").cast("decimal(12, 2)")
totals = source.load().groupBy(F.col("key").cast("string").alias("key")).agg(F.sum(amount).cast("string").alias("value"))


def write(changed: DataFrame, batch_id: int) -> None:
    """Spark refuses update mode to sinks written in Python; each micro-batch is an ordinary batch write instead."""
    del batch_id
    changed.write.format("raftlake").options(**at, topic="totals").mode("append").save()


sink = totals.writeStream.outputMode("update").foreachBatch(write).option("checkpointLocation", checkpoint)
sink.trigger(availableNow=True).start().awaitTermination()

result = spark.read.format("raftlake").options(**at, subscribe="totals").load()
for row in result.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").orderBy("key").collect():
    print(f"{row.key}: {row.value}")
spark.stop()
