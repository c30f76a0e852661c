"""A session that has no jar as it begins, run by tests/spark/test_spark_attach.py: a write before `attach`, all else behind it.

Arguments: bootstrap servers, a topic, a second topic, a directory for Spark's own files. What it prints last is JSON: the
values of the first topic as a table of the catalog, the values that a stream has copied to the second topic, and what update
mode of the connector before and after `attach` ended with.
"""

from __future__ import annotations

import json
import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_raftlake import attach

bootstrap, topic, copied, own = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", f"{own}/warehouse")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={own}")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")


def update(checkpoint: str) -> str:
    """How a query in update mode ends, which Spark refuses to a sink in Python."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    counts = rows.groupBy("value").count().selectExpr("cast(value as string) as value")
    writer = counts.writeStream.format("raftlake").option("kafka.bootstrap.servers", bootstrap).option("topic", "updates")
    query = writer.option("checkpointLocation", f"{own}/{checkpoint}").outputMode("update").trigger(availableNow=True).start()
    try:
        query.awaitTermination(120)
        return "ended"
    except StreamingQueryException as error:
        return "refused" if "does not support Update mode" in str(error) else str(error)


before = update("before")
rows = spark.range(20).selectExpr("cast(id as string) as value")
rows.write.format("raftlake").option("bootstrap.servers", bootstrap).option("topic", topic).mode("append").save()
attach(spark, bootstrap)
stream = spark.readStream.format("raftlake").option("subscribe", topic).option("startingOffsets", "earliest").load()
writer = stream.select("value").writeStream.format("raftlake").option("topic", copied)
query = writer.option("checkpointLocation", "raftlake://attached/main").trigger(availableNow=True).start()
query.awaitTermination()
found = {
    name: sorted(int(row.value) for row in spark.sql(f"SELECT cast(value AS string) AS value FROM raftlake.{name}").collect())
    for name in (topic, copied)
}
print(json.dumps({"found": found, "before": before, "after": update("after")}))
spark.stop()
