"""Real-time mode, from an append to a reader of what is committed in the sink's topic: our connector and Spark's Kafka
connector, one after the other, on the same nodes.

A row holds the time of its append. One event loop of this process appends and reads, so both times are of one clock. Each query
runs in one long batch, so no batch ends while it is measured.
"""

from __future__ import annotations

import asyncio
import math
import os
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from connectorkit import JAVA
from measure import Peer, Result, percentile
from our_nodes import our_quorum
from pyspark_raftlake.jvm import REAL_TIME_SINKS_SETTING, require_jar
from raftlake.client import AsyncClient, Client
from raftlake.wire.batches import Record, build_batch

PARTITIONS = 2
ROWS_A_SECOND = 1_000
#: Rows are appended so often, as those of a producer with linger.ms=5: a batch for each partition.
TICK_S = 0.005
SECONDS = 30
#: Classes are loaded and compiled meanwhile, and nothing is counted.
WARM_SECONDS = 20
#: For the first row of a query.
FIRST_ROW_S = 60
#: For the last ones.
DRAIN_S = 10
ROW = struct.Struct(">qi88x")
P50_MS, P99_MS = 10, 30
#: The edges of the histogram, as multiples of the one before: five columns for each doubling.
STEP = 2**0.2
KAFKA_JARS = Path(__file__).resolve().parents[2] / ".cache" / "spark-kafka-4.2.0"
NAMES = {JAVA: "raftlake", "kafka": "Spark's Kafka connector on the same nodes"}


def measure(directory: Path) -> Iterator[Result]:
    spark = session()
    try:
        with our_quorum(directory / "raftlake") as quorum:
            options = {"kafka.bootstrap.servers": quorum.bootstrap_servers}
            took = {name: latencies_ms(spark, name, options, directory) for name in NAMES}
    finally:
        spark.stop()
    shown = {NAMES[name]: histogram(values) for name, values in took.items()}
    for percent, at_most in ((50, P50_MS), (99, P99_MS)):
        ours, theirs = (percentile(took[name], percent) for name in NAMES)
        yield Result(
            name=f"real-time mode, {ROWS_A_SECOND:,} rows/s, append to sink, p{percent}",
            value=ours,
            unit="ms",
            method=f"topic to topic, {PARTITIONS} partitions each, local[{PARTITIONS}], 3 nodes; {len(took[JAVA]):,} rows, "
            "from the append to a read_committed reader",
            at_most=at_most,
            peer=Peer(name=NAMES["kafka"], value=theirs, ratio=ours / theirs),
            details={"histogram": shown, "at_most_ms": {"p50": P50_MS, "p99": P99_MS}} if percent == 50 else {},
        )


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not (KAFKA_JARS / "complete").exists():
        raise RuntimeError("the jars of Spark's Kafka connector are not there: run tools/fetch-kafka")
    jars = [str(require_jar()), *map(str, sorted(KAFKA_JARS.glob("*.jar")))]
    builder = SparkSession.builder.master(f"local[{PARTITIONS}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.jars", ",".join(jars))
    made = builder.config(REAL_TIME_SINKS_SETTING, "false").getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def latencies_ms(spark: SparkSession, name: str, options: Mapping[str, str], directory: Path) -> list[float]:
    number = list(NAMES).index(name)
    source, sink = f"in-{number}", f"out-{number}"
    with Client(options["kafka.bootstrap.servers"]) as client:
        for topic in (source, sink):
            client.create_topic(topic, partitions=PARTITIONS)
    reader = spark.readStream.format(name).options(**options).option("subscribe", source).option("startingOffsets", "earliest")
    writer = reader.load().select("value").writeStream.format(name).options(**options).option("topic", sink)
    writer = writer.option("checkpointLocation", str(directory / f"checkpoint-{number}")).outputMode("update")
    query = writer.trigger(realTime="30 minutes").start()
    try:
        return asyncio.run(load(options["kafka.bootstrap.servers"], source, sink))
    finally:
        query.stop()


@dataclass(slots=True)
class Seen:
    """What readers of the sink's topic have met: when each counted row came behind its append."""

    numbers: set[int] = field(default_factory=set)
    took_ms: list[float] = field(default_factory=list)


async def load(servers: str, source: str, sink: str) -> list[float]:
    """Latencies of all rows that were appended behind the warm-up. RuntimeError where one of them did not come."""
    warm, all_rows = WARM_SECONDS * ROWS_A_SECOND, (WARM_SECONDS + SECONDS) * ROWS_A_SECOND
    seen = Seen()
    async with AsyncClient(servers) as client:
        readers = [asyncio.create_task(read(client, sink, partition, seen, warm)) for partition in range(PARTITIONS)]
        try:
            await append(client, source, 0, 1)
            await wait_for(seen, 1, FIRST_ROW_S)
            await append(client, source, 1, all_rows)
            await wait_for(seen, all_rows, DRAIN_S)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
    return seen.took_ms


async def append(client: AsyncClient, topic: str, first: int, end: int) -> None:
    """Rows of these numbers, at the rate; a tick that is late appends what is due by then."""
    producer = client.producer()
    await client.describe_topic(topic)
    began = time.monotonic()
    number = first
    sent = []
    while number < end:
        due = min(end, first + 1 + int((time.monotonic() - began) * ROWS_A_SECOND))
        now_ns = time.monotonic_ns()
        for partition in range(PARTITIONS):
            rows = [ROW.pack(now_ns, each) for each in range(number, due) if each % PARTITIONS == partition]
            if rows:
                records = [Record(offset, -1, None, row, ()) for offset, row in enumerate(rows)]
                sent += producer.submit_batches(topic, partition, [build_batch(records, timestamp_ms=int(time.time() * 1000))])
        number = due
        await asyncio.sleep(TICK_S)
    await asyncio.gather(*sent)


async def read(client: AsyncClient, topic: str, partition: int, seen: Seen, warm: int) -> None:
    offset = 0
    while True:
        records = await client.read(topic, partition, offset)
        now_ns = time.monotonic_ns()
        for record in records:
            appended_ns, number = ROW.unpack(record.value or b"")
            if number not in seen.numbers and number >= warm:
                seen.took_ms.append((now_ns - appended_ns) / 1e6)
            seen.numbers.add(number)
            offset = record.offset + 1


async def wait_for(seen: Seen, count: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while len(seen.numbers) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{count - len(seen.numbers)} of {count} rows did not come within {seconds} s")
        await asyncio.sleep(0.01)


def histogram(values_ms: list[float]) -> dict[str, list[float]]:
    """How many values lie in each column, and where columns begin, in ms; the last one ends where another one would begin."""
    columns = [math.floor(math.log(max(value, 1e-3), STEP)) for value in values_ms]
    first, last = min(columns), max(columns)
    counts = [0.0] * (last - first + 1)
    for column in columns:
        counts[column - first] += 1
    return {"from_ms": [STEP**column for column in range(first, last + 2)], "rows": counts}
