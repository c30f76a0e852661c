"""A topic into a Delta table and into another topic, in one function and exactly once in both:
python examples/spark_exactly_once.py 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094 CHECKPOINT_DIR TABLE_DIR [JAR...]

Kill it at any moment and start it again: each payment is in the table once, and each large one in the topic once. JARs are
those of delta-spark; without any, Spark fetches them.
"""

from __future__ import annotations

import sys

from delta import configure_spark_with_delta_pip
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_raftlake import configure, foreach_batch
from pyspark_raftlake.foreach import Batch
from raftlake import Client

servers, checkpoint, table, *jars = sys.argv[1:]
PAYMENTS = 200

with Client(servers) as client:
    client.create_topic("large", exist_ok=True)
    if "payments" not in {topic.name for topic in client.topics()}:
        client.create_topic("payments", 2)
        client.append_many("payments", [(f"p{number:03}", f"{number}.50") for number in range(PAYMENTS)])

builder = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
)
builder = builder.config("spark.jars", ",".join(jars)) if jars else configure_spark_with_delta_pip(builder)
# The last one: `configure` adds its jar to those that are set, and one that is set later takes their place.
spark = configure(builder, servers).getOrCreate()

source = spark.readStream.format("raftlake").options(subscribe="payments", startingOffsets="earliest", maxOffsetsPerTrigger=20)
payments = source.load().select(
    F.col("key").cast("string").alias("id"), F.col("value").cast("string").cast("decimal(12, 2)").alias("amount")
)


def move(rows: DataFrame, batch_id: int, batch: Batch) -> None:
    """Either write, and both, may be repeated: the options say which batch it is."""
    rows.write.format("delta").options(**batch.txn_options()).mode("append").save(table)
    large = rows.where("amount >= 100").selectExpr("id AS key", "CAST(amount AS STRING) AS value")
    large.write.format("raftlake").options(**batch.txn_options(), topic="large").mode("append").save()
    with batch.once("telling") as is_first:
        if is_first:
            print(f"batch {batch_id} has arrived", flush=True)


query = payments.writeStream.foreachBatch(foreach_batch(move)).option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()

stored = spark.read.format("delta").load(table)
print(f"table: {stored.count()} payments, {stored.select('id').distinct().count()} different ones")
shown = spark.read.format("raftlake").option("subscribe", "large").load()
print(f"topic: {shown.count()} large payments, {shown.select('key').distinct().count()} different ones")
spark.stop()
