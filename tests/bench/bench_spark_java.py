"""Rows per second of the source in Java, against Spark's Kafka connector on Kafka and against the source in Python: batch and
stream, of the same rows, in one session.

The rows are produced once to each side. Reads alternate, to a sink that drops them. Spark's Kafka connector is tuned: fetches
of 8 MiB from a partition, and polls of 50,000 records.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from connectorkit import JAVA, PYTHON, register_python
from kafka_nodes import KafkaQuorum
from measure import Peer, Result
from our_nodes import our_quorum
from pyspark_raftlake.jvm import require_jar
from raftlake.client import Client

ROWS = 3_000_000
ROUNDS = 3
PARTITIONS = 4
TOPIC = "bench-java"
ROWS_A_BATCH = 1_000_000
KAFKA_JARS = Path(__file__).resolve().parents[2] / ".cache" / "spark-kafka-4.2.0"
TUNED = {
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(50 << 20),
    "kafka.max.poll.records": "50000",
}
#: Spark's Kafka connector is to be beaten by so much.
AT_LEAST = 2.0


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not (KAFKA_JARS / "complete").exists():
        raise RuntimeError("the jars of Spark's Kafka connector are not there: run tools/fetch-kafka")
    jars = [str(require_jar()), *map(str, sorted(KAFKA_JARS.glob("*.jar")))]
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.jars", ",".join(jars))
    )
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    register_python(made)
    return made


def measure(directory: Path) -> Iterator[Result]:
    spark = session()
    try:
        with our_quorum(directory / "raftlake") as quorum, KafkaQuorum(directory / "kafka") as kafka:
            kafka.create_topic(TOPIC, PARTITIONS)
            with Client(quorum.bootstrap_servers) as client:
                client.create_topic(TOPIC, partitions=PARTITIONS)
            rows = rows_of(spark)
            rows.write.format("kafka").options(**at(kafka.bootstrap_servers), topic=TOPIC).save()
            rows.write.format(PYTHON).options(**at(quorum.bootstrap_servers), topic=TOPIC).mode("append").save()
            sides = {
                JAVA: at(quorum.bootstrap_servers),
                PYTHON: at(quorum.bootstrap_servers),
                "kafka": {**at(kafka.bootstrap_servers), **TUNED},
            }
            yield from compared("batch", lambda name: batch(spark, name, sides[name]))
            yield from compared("streaming", lambda name: stream(spark, name, sides[name], directory))
    finally:
        spark.stop()


def at(servers: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers}


def rows_of(spark: SparkSession) -> DataFrame:
    text = F.col("id").cast("string")
    value = F.rpad(F.sha2(text, 256), 100, "x").cast("binary")
    return spark.range(0, ROWS, numPartitions=PARTITIONS).select(F.lpad(text, 8, "0").alias("key"), value.alias("value"))


def batch(spark: SparkSession, name: str, options: Mapping[str, str]) -> None:
    reader = spark.read.format(name).options(**options).option("subscribe", TOPIC).option("startingOffsets", "earliest")
    reader.load().write.format("noop").mode("overwrite").save()


def stream(spark: SparkSession, name: str, options: Mapping[str, str], directory: Path) -> None:
    reader = spark.readStream.format(name).options(**options).option("subscribe", TOPIC)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROWS_A_BATCH)
    checkpoint = directory / f"checkpoint-{time.monotonic_ns()}"
    writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seen = sum(progress["numInputRows"] for progress in query.recentProgress)
    assert seen == ROWS, f"{name} read {seen} of {ROWS} rows"


def compared(kind: str, read: Callable[[str], None]) -> Iterator[Result]:
    """The median rates of alternating rounds, after a warm-up of each side, and the median of neighbouring ratios."""
    names = (JAVA, PYTHON, "kafka")
    for name in names:
        read(name)
    rounds: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        rates: dict[str, float] = {}
        for name in names:
            began = time.perf_counter()
            read(name)
            rates[name] = ROWS / (time.perf_counter() - began)
        rounds.append(rates)
    for name, told, at_least in (("kafka", "Spark's Kafka connector, tuned", AT_LEAST), (PYTHON, "the source in Python", None)):
        peer = Peer(
            name=told,
            value=statistics.median(rates[name] for rates in rounds),
            ratio=statistics.median(rates[JAVA] / rates[name] for rates in rounds),
            at_least=at_least,
        )
        yield Result(
            name=f"Spark {kind} read in Java, against {told}",
            value=statistics.median(rates[JAVA] for rates in rounds),
            unit="rows/s",
            method=f"local[2], {ROWS / 1e6:g} M rows of 8 B key and 100 B value, {PARTITIONS} partitions, to noop; median of "
            f"{ROUNDS} alternating rounds",
            peer=peer,
            details={"rounds": rounds},
        )
