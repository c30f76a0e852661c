"""A driver of `bench_spark_sink`: micro-batches from topic to topic with the settings of `configure`; what they took, as JSON.

Arguments: bootstrap servers, HTTP servers, the checkpoint, the topics.
"""

from __future__ import annotations

import json
import sys
from functools import partial

from pyspark.sql import SparkSession

from bench_spark_sink import LONG_BATCHES, LONG_WARM_BATCHES, SMALL_ROWS, micro_batches, small_query
from connectorkit import JAVA
from pyspark_raftlake import configure
from raftlake import Client

bootstrap, http, checkpoint, source, target = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "3g")
builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", 2 * LONG_BATCHES)
builder = configure(builder.config("spark.ui.showConsoleProgress", "false"), bootstrap, http=http)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
options = {"kafka.bootstrap.servers": bootstrap}
rows = [(f"key-{number}", bytes(100)) for number in range(SMALL_ROWS)]
with Client(bootstrap) as client:
    query = small_query(spark, JAVA, options, (source, target), checkpoint)
    batches = micro_batches(query, partial(client.append_many, source, rows), LONG_WARM_BATCHES, LONG_BATCHES)
print(json.dumps({"batches": batches}))
spark.stop()
