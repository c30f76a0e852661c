"""Cold read of history by Spark: `format("raftlake")` with tier=auto in Java and in Python, the bare Delta table, and Spark's
Kafka connector reading the same rows from Kafka.

The rows are produced once to each side. The reads alternate, in one session, to a sink that drops them. Each read has the
columns that Spark's Kafka source has. The nodes of ours are asked where the table is, and give nothing of the history.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from connectorkit import JAVA, PYTHON, register_python
from kafka_nodes import KafkaQuorum
from measure import Peer, Result
from our_nodes import our_quorum
from processes import wait_until
from pyspark_raftlake.jvm import require_jar
from raftlake.client import LATEST_TIERED, Client

if TYPE_CHECKING:
    from raftlake import LocalQuorum

ROWS = 10_000_000
ROUNDS = 3
PARTITIONS = 4
TOPIC = "history"
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
CACHE = Path(__file__).resolve().parents[2] / ".cache"
JARS = ("spark-delta-4.4.0", "spark-kafka-4.2.0")
SETTINGS = {"tier.target.lag.ms": "2000", "log.segment.bytes": str(64 << 20), "tier.flush.bytes": str(64 << 20)}
COPY_SECONDS = 600.0


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = [str(require_jar()), *(str(jar) for name in JARS for jar in sorted((CACHE / name).glob("*.jar")))]
    if not all((CACHE / name / "complete").exists() for name in JARS):
        raise RuntimeError("the jars of Delta and of Spark's Kafka connector are not there: run tools/fetch-kafka")
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.jars", ",".join(jars))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.python.filterPushdown.enabled", "true")
    )
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def measure(directory: Path) -> Iterator[Result]:
    spark = session()
    try:
        settings = {"tier.uri": str(directory / "tables"), **SETTINGS}
        with our_quorum(directory / "raftlake", settings) as quorum:
            fill_ours(spark, quorum)
            yield from against_delta(spark, quorum)
            with KafkaQuorum(directory / "kafka") as kafka:
                kafka.create_topic(TOPIC, PARTITIONS)
                rows(spark).write.format("kafka").options(**at(kafka.bootstrap_servers), topic=TOPIC).save()
                yield from against_kafka(spark, quorum, kafka)
    finally:
        spark.stop()


def rows(spark: SparkSession) -> DataFrame:
    """Keys of 8 bytes; values of 100 bytes, most of which no codec makes smaller."""
    text = F.col("id").cast("string")
    value = F.rpad(F.sha2(text, 256), 100, "x").cast("binary")
    return spark.range(0, ROWS, numPartitions=4).select(F.lpad(text, 8, "0").alias("key"), value.alias("value"))


def at(servers: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers}


def fill_ours(spark: SparkSession, quorum: LocalQuorum) -> None:
    """Produce the rows, and wait until all are in the table."""
    with Client(quorum.bootstrap_servers) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
        written = rows(spark).write.format("raftlake").options(**at(quorum.bootstrap_servers), topic=TOPIC)
        written.mode("append").save()
        ends = client.read_offset(TOPIC)

        def all_is_copied() -> bool:
            copied = client.list_offsets(TOPIC, dict.fromkeys(ends, LATEST_TIERED))
            return all(copied[partition] + 1 >= end for partition, end in ends.items())

        wait_until(all_is_copied, "a table with all rows", COPY_SECONDS, poll_s=1.0)


def seconds_of(frame: Callable[[], DataFrame]) -> float:
    began = time.perf_counter()
    frame().select(*COLUMNS).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def ours(spark: SparkSession, quorum: LocalQuorum, name: str = JAVA) -> Callable[[], DataFrame]:
    return lambda: spark.read.format(name).options(**at(quorum.bootstrap_servers), subscribe=TOPIC).load()


def compared(mine: Callable[[], DataFrame], other: Callable[[], DataFrame], name: str, at_least: float) -> Result:
    """The median rate of ours, and of neighbouring ratios, after a warm-up of both."""
    assert mine().count() == other().count() == ROWS
    rounds = [(ROWS / seconds_of(mine), ROWS / seconds_of(other)) for _ in range(ROUNDS)]
    peer = Peer(
        name=name,
        value=statistics.median(rate for _, rate in rounds),
        ratio=statistics.median(rate / theirs for rate, theirs in rounds),
        at_least=at_least,
    )
    return Result(
        name=f"Spark batch read of history, against {name}",
        value=statistics.median(rate for rate, _ in rounds),
        unit="rows/s",
        method=f"local[2], {ROWS / 1e6:g} M rows of 8 B key and 100 B value, {PARTITIONS} partitions, all in the table, "
        f"tier=auto, to noop; median of {ROUNDS} alternating rounds",
        peer=peer,
        details={"rounds": rounds},
    )


def against_delta(spark: SparkSession, quorum: LocalQuorum) -> Iterator[Result]:
    with Client(quorum.bootstrap_servers) as client:
        uri = client.topic_configs(TOPIC)["raftlake.tier.table.uri"]

    def bare() -> DataFrame:
        return spark.read.format("delta").load(uri).where("kind = 0")

    yield compared(ours(spark, quorum), bare, "bare Delta table", 0.8)
    register_python(spark)
    yield compared(ours(spark, quorum, PYTHON), bare, "bare Delta table, in Python", 0.8)


def against_kafka(spark: SparkSession, quorum: LocalQuorum, kafka: KafkaQuorum) -> Iterator[Result]:
    options = {**at(kafka.bootstrap_servers), "subscribe": TOPIC, "startingOffsets": "earliest"}

    def from_kafka() -> DataFrame:
        return spark.read.format("kafka").options(**options).load()

    yield compared(ours(spark, quorum), from_kafka, "Spark's Kafka connector", 3.0)
