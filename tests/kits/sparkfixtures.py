"""One Spark session for all Spark tests: two threads, no UI, quiet; its JVM ends with the session.

Two fixtures of this kind, as two conftest.py would make them, would share one JVM, and the second to end would find it gone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from class_archive import options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raftlake import Client, LocalQuorum

#: Of every driver that a test starts.
os.environ.setdefault("SPARK_SUBMIT_OPTS", options())

FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from pyspark_raftlake.jvm import checkpoint_settings, find_jar

    assert SparkContext._active_spark_context is None, "there is a Spark session already: name this fixture once"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    directory = tmp_path_factory.mktemp("spark")
    jar = find_jar()
    # What is not of the JVM is set for the session that a test makes (tests/kits/sparkkit.py).
    settings = {} if jar is None else checkpoint_settings(jar, "", "")
    of_the_jvm: dict[str, bool | float | int | str | None] = {
        name: settings[name] for name in settings if name.startswith(("spark.jars", "spark.hadoop.fs."))
    }
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("raftlake tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={directory}")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # Hadoop's local file system starts some twenty processes for each micro-batch (chmod, readlink).
        .config("spark.hadoop.fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
        .config("spark.sql.streaming.checkpointFileManagerClass", FILE_MANAGER)
        .config(map=of_the_jvm)
    )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    gateway = session.sparkContext._gateway
    assert gateway is not None
    process = gateway.proc  # type: ignore[attr-defined]
    yield session
    session.stop()
    gateway.shutdown()
    process.stdin.close()
    process.wait(timeout=30)


@pytest.fixture(scope="session")
def client(quorum: LocalQuorum) -> Iterator[Client]:
    from raftlake import Client

    with Client(quorum.bootstrap_servers) as made:
        yield made
