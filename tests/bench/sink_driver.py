"""A driver of `bench_spark_sink`: micro-batches from topic to topic with the settings of `configure`; what they took, as JSON.

Arguments: bootstrap servers, HTTP servers, the checkpoint.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from bench_spark_sink import micro_batches
from connectorkit import JAVA
from pyspark_raftlake import configure

bootstrap, http, checkpoint = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "3g")
builder = configure(builder.config("spark.ui.showConsoleProgress", "false"), bootstrap, http=http)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
print(json.dumps({"batches": micro_batches(spark, JAVA, {"kafka.bootstrap.servers": bootstrap}, checkpoint)}))
spark.stop()
