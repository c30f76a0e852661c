"""Running totals whose checkpoint and state are in the quorum:
python examples/stateful_pipeline.py 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094

Each run appends four orders, one of them twice, and prints the totals that changed. Nothing is kept on this machine: a second
run goes on from the totals of the first one, on whichever host it is started. Orders that came twice are counted once.
"""

from __future__ import annotations

import os
import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_raftlake import configure
from raftlake import Client

servers = sys.argv[1]
#: The name of the pipeline, then a path of one's own choice.
checkpoint = "raftlake://orders/totals"

with Client(servers) as client:
    client.create_topic("incoming", partitions=2, exist_ok=True)
    number = time.time_ns()
    for order, customer, amount in ((0, "alice", "12.50"), (1, "bob", "3.00"), (2, "alice", "7.50"), (2, "alice", "7.50")):
        client.append("incoming", f"{number + order} {amount}", key=customer, partition=0)

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", "2")
spark = configure(builder, servers).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

source = spark.readStream.format("raftlake").options(subscribe="incoming", startingOffsets="earliest")
words = F.split(F.col("value").cast("string"), " ")
orders = source.load().select(F.col("key").cast("string").alias("customer"), words[0].alias("order"), words[1].alias("amount"))
once = orders.dropDuplicates(["customer", "order"])
total = F.sum(F.col("amount").cast("decimal(12, 2)")).alias("total")
totals = once.groupBy("customer").agg(F.count("*").alias("orders"), total)


def show(changed: DataFrame, batch_id: int) -> None:
    for row in changed.orderBy("customer").collect():
        print(f"batch {batch_id}: {row.customer} has {row.orders} orders for {row.total}", flush=True)


query = totals.writeStream.outputMode("update").foreachBatch(show).option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
spark.stop()
