"""`configure`: names the quorum once for a whole Spark session.

Spark hands filters to sources written in Python only where a setting says so: filters then leave out files of history. There is
nothing else to set up where Spark's Python has this package: the connector needs no jar, and Spark's default sizes of Arrow
batches are as fast as larger ones.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark_raftlake.option_names import PUSHDOWN_SETTING, SERVERS_ENVIRONMENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def configure(builder: SparkSession.Builder, quorum: str) -> SparkSession.Builder:
    """Make `quorum`, `"host:port,host:port"`, the default of `kafka.bootstrap.servers`, and let filters reach the source;
    returns the builder for `getOrCreate()`. Raises ConfigError when it is not a list of addresses.

    The default reaches Spark's Python processes through the environment of the driver that this process starts. So it has no
    effect on a session that already runs, nor on a driver on another machine: set RAFTLAKE_BOOTSTRAP_SERVERS there.
    """
    from raftlake.client.types import parse_servers

    parse_servers(quorum)
    os.environ[SERVERS_ENVIRONMENT] = quorum
    return builder.config(PUSHDOWN_SETTING, "true")
