"""`configure`: what a Spark session needs to move raftlake's rows fast.

There is nothing else to set: Spark finds the format by itself, and the connector has no jars.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark_raftlake.option_names import SERVERS_ENVIRONMENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Rows of one Arrow batch between Spark and the sink. Spark's default of 10,000 costs about a third of the throughput.
ARROW_ROWS = 100_000


def configure(builder: SparkSession.Builder, quorum: str | None = None) -> SparkSession.Builder:
    """Settings for a session that works with raftlake; returns the builder, before `getOrCreate()`.

    `quorum` is `"host:port,host:port"`: the default of `kafka.bootstrap.servers`. It reaches Spark's Python processes through
    the environment of the driver that this process starts, so it has no effect on a session that already runs, nor on a
    driver on another machine.
    """
    if quorum is not None:
        from raftlake.client.types import parse_servers

        parse_servers(quorum)
        os.environ[SERVERS_ENVIRONMENT] = quorum
    return builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_ROWS))
