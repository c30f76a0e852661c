"""The exactly-once sink in Java against Spark's Kafka sink on Kafka and against the sink in Python: bulk writes of the same
rows, and tiny micro-batches from topic to topic.

Writes alternate, in one session. Spark's Kafka sink is at-least-once, with acks=all, and tuned: batches of 512 KiB that wait
10 ms for more rows. Micro-batches have 40 rows each, and Spark's default checkpoint on a local disk. A driver of its own
(`sink_driver`) measures those with a checkpoint in the quorum.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from connectorkit import JAVA, PYTHON, register_python
from kafka_nodes import KafkaQuorum
from measure import Peer, Result
from our_nodes import our_quorum
from processes import wait_until
from pyspark_raftlake.jvm import require_jar
from raftlake.client import Client
from spark_drivers import run_driver

if TYPE_CHECKING:
    from raftlake import LocalQuorum

DRIVER = Path(__file__).with_name("sink_driver.py")
ROWS = 3_000_000
ROUNDS = 3
PARTITIONS = 4
SMALL_ROWS = 40
SMALL_BATCHES = 25
#: The first batches load classes, and are not counted.
WARM_BATCHES = 5
#: Of a query that runs for long: the JVM's compiler competes with it for some thousand batches.
LONG_BATCHES, LONG_WARM_BATCHES = 300, 2_000
KAFKA_JARS = Path(__file__).resolve().parents[2] / ".cache" / "spark-kafka-4.2.0"
TUNED = {"kafka.batch.size": str(512 << 10), "kafka.linger.ms": "10", "kafka.buffer.memory": str(64 << 20)}
NAMES = (JAVA, PYTHON, "kafka")
#: What the sink in Java is measured against: what to call it, and the least ratio of rates.
PEERS = (("kafka", "Spark's Kafka sink, tuned", 1.5), (PYTHON, "the sink in Python", None))

Options = Mapping[str, str]


def measure(directory: Path) -> Iterator[Result]:
    spark = session()
    try:
        with our_quorum(directory / "raftlake") as quorum, KafkaQuorum(directory / "kafka") as kafka:
            with Client(quorum.bootstrap_servers) as client:
                for name in ("bulk", "in", *(f"out-{number}" for number in range(len(NAMES)))):
                    client.create_topic(name, partitions=PARTITIONS)
            for name in ("bulk", "in", f"out-{NAMES.index('kafka')}"):
                kafka.create_topic(name, PARTITIONS)
            ours = {"kafka.bootstrap.servers": quorum.bootstrap_servers}
            theirs = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
            sides: dict[str, Options] = {JAVA: ours, PYTHON: ours, "kafka": theirs}
            yield from compared_writes(spark, sides)
            yield from compared_batches(spark, sides, directory)
            spark.stop()
            # The budget is that of one task. Four of them share two processors.
            yield configured_batches(quorum, 1, at_most=40)
            yield configured_batches(quorum, PARTITIONS)
    finally:
        spark.stop()


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not (KAFKA_JARS / "complete").exists():
        raise RuntimeError("the jars of Spark's Kafka connector are not there: run tools/fetch-kafka")
    jars = [str(require_jar()), *map(str, sorted(KAFKA_JARS.glob("*.jar")))]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "3g")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.jars", ",".join(jars))
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    register_python(made)
    return made


def rows_of(spark: SparkSession, count: int) -> DataFrame:
    text = F.col("id").cast("string")
    value = F.rpad(F.sha2(text, 256), 100, "x").cast("binary")
    return spark.range(0, count, numPartitions=PARTITIONS).select(F.lpad(text, 8, "0").alias("key"), value.alias("value"))


def append(rows: DataFrame, name: str, options: Options, topic: str) -> None:
    tuned = TUNED if name == "kafka" else {}
    rows.write.format(name).options(**options, **tuned, topic=topic).mode("append").save()


def compared_writes(spark: SparkSession, sides: Mapping[str, Options]) -> Iterator[Result]:
    rows = rows_of(spark, ROWS).localCheckpoint()
    for name in NAMES:
        append(rows.limit(ROWS // 10), name, sides[name], "bulk")
    rounds: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        rates: dict[str, float] = {}
        for name in NAMES:
            began = time.perf_counter()
            append(rows, name, sides[name], "bulk")
            rates[name] = ROWS / (time.perf_counter() - began)
        rounds.append(rates)
    for name, told, at_least in PEERS:
        ratio = statistics.median(rates[JAVA] / rates[name] for rates in rounds)
        yield Result(
            name=f"Spark batch write in Java, against {told}",
            value=statistics.median(rates[JAVA] for rates in rounds),
            unit="rows/s",
            method=f"local[2], {ROWS / 1e6:g} M rows of 8 B key and 100 B value, {PARTITIONS} partitions, 3 nodes; median of "
            f"{ROUNDS} alternating rounds",
            peer=Peer(
                name=told,
                value=statistics.median(rates[name] for rates in rounds),
                ratio=ratio,
                at_least=at_least,
            ),
            details={"rounds": rounds},
        )


def configured_batches(quorum: LocalQuorum, partitions: int, at_most: float | None = None) -> Result:
    """With the checkpoint in the quorum, too."""
    source, target = f"small-in-{partitions}", f"small-out-{partitions}"
    count = "one partition each" if partitions == 1 else f"{partitions} partitions each"
    with Client(quorum.bootstrap_servers) as client:
        for topic in (source, target):
            client.create_topic(topic, partitions=partitions)
    checkpoint = f"raftlake://bench/small-{partitions}"
    found = run_driver(DRIVER, quorum.bootstrap_servers, quorum.http_servers, checkpoint, source, target)
    return Result(
        name=f"Spark micro-batch of {SMALL_ROWS} rows, topic to topic, with configure, {count}",
        value=statistics.median(batch["triggerExecution"] for batch in found["batches"]),
        unit="ms",
        method=f"triggerExecution, exactly once, checkpoint at raftlake://, median of {LONG_BATCHES} batches after"
        f" {LONG_WARM_BATCHES}",
        at_most=at_most,
        details=found,
    )


def compared_batches(spark: SparkSession, sides: Mapping[str, Options], directory: Path) -> Iterator[Result]:
    rows = rows_of(spark, SMALL_ROWS).coalesce(1)
    took: dict[str, list[dict[str, int]]] = {}
    for name in NAMES:
        put = partial(append, rows, "kafka" if name == "kafka" else JAVA, sides[name], "in")
        query = small_query(spark, name, sides[name], ("in", f"out-{NAMES.index(name)}"), str(directory / f"to-{name}"))
        took[name] = micro_batches(query, put, WARM_BATCHES, SMALL_BATCHES)
    medians = {name: statistics.median(batch["triggerExecution"] for batch in batches) for name, batches in took.items()}
    for name, told, _ in PEERS:
        yield Result(
            name=f"Spark micro-batch of {SMALL_ROWS} rows, topic to topic, in Java, against {told}",
            value=medians[JAVA],
            unit="ms",
            method=f"triggerExecution, default checkpoint, median of {SMALL_BATCHES} batches",
            peer=Peer(
                name=told,
                value=medians[name],
                ratio=medians[JAVA] / medians[name],
                at_most=0.5 if name == "kafka" else None,
            ),
            details={"batches": took},
        )


def small_query(spark: SparkSession, name: str, options: Options, topics: tuple[str, str], checkpoint: str) -> StreamingQuery:
    """A query from one topic to another."""
    source, target = topics
    reader = spark.readStream.format(name).options(**options).option("subscribe", source).option("startingOffsets", "latest")
    writer = reader.load().select("key", "value").writeStream.format(name).options(**options)
    return writer.option("topic", target).option("checkpointLocation", checkpoint).start()


def micro_batches(query: StreamingQuery, put: Callable[[], object], warm: int, count: int) -> list[dict[str, int]]:
    """The durations of `count` batches in ms, behind the first `warm` ones, as Spark tells them. `put` appends the rows of one.

    Spark is asked once, behind the last batch: its answers cost the JVM as much as a batch. The session has to keep so many.
    The query is stopped.
    """
    try:
        wait_until(lambda: query.status["message"].startswith("Waiting"), "the query waits for rows", poll_s=0.05)
        for _ in range(warm + count):
            put()
            query.processAllAvailable()
        batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
    finally:
        query.stop()
    if len(batches) < count:
        raise RuntimeError(f"Spark tells of {len(batches)} batches with rows, and of {count} it should")
    return [dict(batch["durationMs"]) for batch in batches[-count:]]
