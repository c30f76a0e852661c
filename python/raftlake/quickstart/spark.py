"""The Spark side of the quickstart: one job that writes the flights through the raftlake sink, one streaming query that
reads them back through the raftlake source, one batch job that counts what the topic holds.

Everything goes through `format("raftlake")` with the options that a user would write. Knows nothing of the quorum but its
bootstrap servers.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, FinalizerWorker
from pyspark import java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from raftlake.errors import RaftlakeError
from raftlake.quickstart.data import DELAYED_FROM_MINUTES, FIELDS, GROUP, MEASURES
from raftlake.quickstart.stop import Stop

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

TEXT_FIELDS = ("carrier", "tailnum", "origin", "dest")
RESULT = "delays"
JVM_END_SECONDS = 10

LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}}: %m%n%ex
"""


class SparkFailed(RaftlakeError):
    """Spark did not start; the message says why, and where more is said."""


@contextlib.contextmanager
def no_jvm_left(output: Path, stop: Stop) -> Iterator[None]:
    """End every JVM that pyspark starts in here, also one whose start was interrupted: pyspark forgets those, and they stay.
    What they and their Python workers print goes to a file: they do so when they are ended, too."""
    started: list[subprocess.Popen[bytes]] = []
    namespace = vars(java_gateway)
    popen = namespace["Popen"]

    with output.open("ab") as file:

        def recorded(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
            stop.check()
            # Out of the terminal's group: Spark's Python workers would print a trace for each Ctrl-C.
            apart = {"start_new_session": True, "stdout": file, "stderr": file}
            process: subprocess.Popen[bytes] = popen(*arguments, **{**options, **apart})
            started.append(process)
            stop.on_request(process.terminate)
            return process

        namespace["Popen"] = recorded
        try:
            yield
        finally:
            namespace["Popen"] = popen
            for process in started:
                process.terminate()
            for process in started:
                try:
                    process.wait(timeout=JVM_END_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def session_builder(work_dir: Path) -> SparkSession.Builder:
    """Of a local Spark of two threads that logs to `work_dir/spark.log`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log4j = work_dir / "log4j2.properties"
    log4j.write_text(LOGGING.format(path=work_dir / "spark.log"))
    return (
        SparkSession.builder.master("local[2]")
        .appName("raftlake quickstart")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile=file:{log4j} -Dderby.system.home={work_dir}")
        .config("spark.local.dir", str(work_dir / "local"))
        .config("spark.sql.warehouse.dir", str(work_dir / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )


@contextlib.contextmanager
def spark_session(work_dir: Path, stop: Stop) -> Iterator[SparkSession]:
    """A local Spark of two threads that logs to `work_dir/spark.log`; its JVM has ended when this returns."""
    builder = session_builder(work_dir)
    output = work_dir / "spark.out"
    with no_jvm_left(output, stop):
        try:
            session = builder.getOrCreate()
        except PySparkRuntimeError as error:
            words = output.read_text(errors="replace").strip().splitlines() or [str(error)]
            raise SparkFailed(f"Spark did not start: {words[-1]} (all of it: {output})") from error
        try:
            yield session
        finally:
            # Else the JVM is ended with whatever it does.
            if not stop.is_requested:
                try:
                    session.stop()
                finally:
                    disconnect(session)


def disconnect(session: SparkSession) -> None:
    """Send the JVM nothing more. A thread of py4j tells it of every object that Python drops, at any time; when the JVM ends
    under such a call, py4j prints a traceback."""
    gateway: Any = session.sparkContext._gateway
    client = gateway._gateway_client
    client.is_connected = False
    for thread in threading.enumerate():
        if isinstance(thread, FinalizerWorker) and thread.deque is client.finalizer_deque:
            # It ends after the call that is under way.
            client.finalizer_deque.append(SHUTDOWN_FINALIZER_WORKER)
            thread.join(JVM_END_SECONDS)


def record_schema() -> StructType:
    types = {name: StringType() for name in TEXT_FIELDS} | {"id": LongType()}
    return StructType([StructField(name, types.get(name, IntegerType())) for name in FIELDS])


def write_flights(spark: SparkSession, source: Path, bootstrap_servers: str, topic: str) -> None:
    """One JSON record per flight, keyed by carrier; the flights of a carrier are appended in order of departure."""
    flights = spark.read.parquet(str(source)).repartition(4, "carrier").sortWithinPartitions("id")
    records = flights.select(F.col("carrier").alias("key"), F.to_json(F.struct(*FIELDS)).alias("value"))
    records.write.format("raftlake").option("kafka.bootstrap.servers", bootstrap_servers).option("topic", topic).mode(
        "append"
    ).save()


def flights_of(records: DataFrame) -> DataFrame:
    flight = F.from_json(F.col("value").cast("string"), record_schema()).alias("flight")
    return records.select("partition", "offset", flight).select("partition", "offset", "flight.*")


def start_statistics(
    spark: SparkSession, bootstrap_servers: str, topic: str, *, offsets_per_trigger: int, checkpoint: Path | str
) -> StreamingQuery:
    """The streaming query: delay statistics per carrier and hour, kept in the in-memory table `delays`."""
    records = (
        spark.readStream.format("raftlake")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", offsets_per_trigger)
        .option("consistency", "linearizable")
        .load()
    )
    statistics = (
        flights_of(records)
        .groupBy(*GROUP)
        .agg(
            F.count("id").alias("flights"),
            F.count("dep_time").alias("departed"),
            F.count_if(F.col("dep_delay") >= DELAYED_FROM_MINUTES).alias("delayed"),
            F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("dep_delay_sum"),
            F.coalesce(F.sum("arr_delay"), F.lit(0)).alias("arr_delay_sum"),
            F.sum("distance").alias("distance_sum"),
        )
    )
    writer = statistics.writeStream.format("memory").queryName(RESULT).outputMode("complete")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def statistics_of(spark: SparkSession) -> pandas.DataFrame:
    """What the streaming query has computed so far, sorted by group."""
    import pandas

    columns = [*GROUP, *MEASURES]
    rows = spark.table(RESULT).select(*columns).orderBy(*GROUP).collect()
    frame = pandas.DataFrame([tuple(row) for row in rows], columns=columns)
    return frame.astype(dict.fromkeys(columns[1:], "int64"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCount:
    """What a batch read of the whole topic found."""

    rows: int
    offsets: int
    ids: int
    id_min: int
    id_max: int
    carriers_out_of_order: int


def count_topic(spark: SparkSession, bootstrap_servers: str, topic: str) -> TopicCount:
    """Read the whole topic as a batch; count its rows, its distinct offsets and flight ids, and the carriers whose flights
    do not lie in order of departure."""
    reader = spark.read.format("raftlake").option("kafka.bootstrap.servers", bootstrap_servers).option("subscribe", topic)
    flights = flights_of(reader.load()).select("partition", "offset", "carrier", "id").cache()
    try:
        found = flights.agg(
            F.count("*").alias("rows"),
            F.count_distinct("partition", "offset").alias("offsets"),
            F.count_distinct("id").alias("ids"),
            F.min("id").alias("id_min"),
            F.max("id").alias("id_max"),
        ).first()
        assert found is not None
        by_offset = F.expr("transform(sort_array(collect_list(struct(partition, offset, id))), row -> row.id)")
        by_id = F.expr("sort_array(collect_list(id))")
        unordered = (
            flights.groupBy("carrier").agg(by_offset.alias("by_offset"), by_id.alias("by_id")).where("by_offset != by_id")
        )
        return TopicCount(**found.asDict(), carriers_out_of_order=unordered.count())
    finally:
        flights.unpersist()
