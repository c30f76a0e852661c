"""New orders of a stream, each joined with the history of the same topic:
python examples/spark_history.py 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094 CHECKPOINT_DIR [JAR...]

The nodes need a remote tier (`tier.uri`). Writes some orders and waits until the topic's Delta table shows them. Then a stream
tells of each new order how much its customer ordered before. JARs are those of delta-spark; without any, Spark fetches them.
"""

from __future__ import annotations

import os
import sys
import time

from delta import configure_spark_with_delta_pip
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from raftlake import Client
from raftlake.client import LATEST_TIERED

servers, checkpoint, *jars = sys.argv[1:]
TOPIC = "bookings"
BEFORE, NEW = [("alice", "12.50"), ("bob", "3.00"), ("alice", "7.50")], [("alice", "1.00"), ("carol", "9.00")]

client = Client(servers)
client.create_topic(TOPIC, exist_ok=True)

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
builder = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
)
spark = (builder.config("spark.jars", ",".join(jars)) if jars else configure_spark_with_delta_pip(builder)).getOrCreate()
at = {"kafka.bootstrap.servers": servers}


def write(orders: list[tuple[str, str]]) -> None:
    rows = spark.createDataFrame(orders, "key string, value string").coalesce(1)
    rows.write.format("raftlake").options(**at, topic=TOPIC).mode("append").save()


write(BEFORE)
end = client.read_offset(TOPIC)[0]
deadline = time.monotonic() + 180
while client.list_offsets(TOPIC, {0: LATEST_TIERED})[0] < end - 1:
    if time.monotonic() > deadline:
        sys.exit(f"the table of {TOPIC} does not show offset {end - 1}: see `raftlake tier status`")
    time.sleep(0.2)
write(NEW)

#: Where the table is, as the nodes say.
table = client.topic_configs(TOPIC)["raftlake.tier.table.uri"]
amount = F.col("value").cast("string").cast("decimal(12, 2)")
history = spark.read.format("delta").load(table).where("kind = 0")
before = history.select(F.col("key"), F.col("offset").alias("earlier"), amount.alias("spent"))

stream = spark.readStream.format("raftlake").options(**at, subscribe=TOPIC, startingOffsets=f'{{"{TOPIC}":{{"0":{end}}}}}')
orders = stream.load().select("key", F.col("offset").alias("place"), amount.alias("amount"))


def tell(new: DataFrame, batch_id: int) -> None:
    """The table goes on to grow: an order may be its own history already, so only earlier offsets count."""
    del batch_id
    joined = new.join(before, (new.key == before.key) & (before.earlier < new.place), "left").drop(before.key)
    spent = joined.groupBy("place", "key", "amount").agg(F.coalesce(F.sum("spent"), F.lit(0)).alias("spent"))
    for row in spent.orderBy("place").collect():
        print(f"{bytes(row.key).decode()} orders for {row.amount}, and for {row.spent:.2f} before")


query = orders.writeStream.foreachBatch(tell).option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
client.close()
spark.stop()
