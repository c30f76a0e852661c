"""Sessions of the Spark that tests share, with the quorum as the place of checkpoints and of state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raftlake import LocalQuorum

QUORUM_PROVIDER = "io.raftlake.spark.QuorumStateStoreProvider"
STOCK_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def rare(*values: object) -> pytest.ParameterSet:
    """Values of a test that takes a minute with each: `make test-cluster` runs these, and CI runs the test with others."""
    return pytest.param(*values, marks=pytest.mark.cluster)


def session_at(spark: SparkSession, quorum: LocalQuorum, provider: str = QUORUM_PROVIDER, **settings: str) -> SparkSession:
    """A session of its own: checkpoints at `raftlake://` are those of this quorum, and queries keep state by this provider.
    Names in `settings` have `__` for a dot."""
    session = spark.newSession()
    chosen = {
        "raftlake.http.servers": quorum.http_servers,
        "raftlake.bootstrap.servers": quorum.bootstrap_servers,
        "spark.sql.streaming.checkpointFileManagerClass": "io.raftlake.spark.QuorumCheckpointFileManager",
        "spark.sql.streaming.stateStore.providerClass": provider,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    for name, value in chosen.items():
        session.conf.set(name, value)
    return session
