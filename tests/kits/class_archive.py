"""An archive of the classes of Spark's JVM (JEP 350), which spares each driver of a test their reading and verification.

`python tests/kits/class_archive.py` makes the archive in a minute, unless it is there and of this Java and this Spark. With it
a driver of two small queries takes 10.7 s instead of 15.7 s. `sparkfixtures` names it to the drivers of tests. A JVM that it
does not fit goes on without it, and says nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHIVE = HERE.parent.parent / ".cache" / "classes" / "spark.jsa"
STAMP = ARCHIVE.with_suffix(".of")
#: Five times what it takes on a slow machine.
LIMIT_S = 300
#: What does not fit an archive is no matter for the output of a test.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
#: For JVMs that live for minutes. On two processors the optimising compiler takes a quarter of the time of the Spark tests
#: (222 s against 159 s), and never earns it back.
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def options() -> str:
    """For each JVM of a test."""
    return f"{LIGHT} {QUIET} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else LIGHT


def stamp() -> str:
    """What the archive is of: the JVM compares the jars by their times and sizes."""
    import pyspark

    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    jars = sorted((Path(pyspark.__file__).parent / "jars").iterdir())
    return java + "".join(f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}\n" for jar in jars)


def make() -> str | None:
    """Run a driver that does what the drivers of tests do, and keep its classes. Returns why there are none."""
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    ARCHIVE.unlink(missing_ok=True)
    fresh = ARCHIVE.with_suffix(".tmp")
    fresh.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        environment = {
            "SPARK_SUBMIT_OPTS": f"{LIGHT} {QUIET} -XX:ArchiveClassesAtExit={fresh}",
            "PYSPARK_PYTHON": sys.executable,
        }
        try:
            ran = subprocess.run(
                [sys.executable, "-c", f"from class_archive import drive; drive({directory!r})"],
                cwd=HERE, env=os.environ | environment, capture_output=True, text=True, timeout=LIMIT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            return str(late)
    if ran.returncode or not fresh.exists():
        return f"{ran.stdout}\n{ran.stderr}"
    fresh.rename(ARCHIVE)
    return None


def drive(directory: str) -> None:
    """The driver: files and rows, Python workers, a stateful query in RocksDB and a join that keeps state."""
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    spark.range(1000).withColumn("key", F.expr("id % 7")).write.parquet(f"{directory}/rows")
    twice = F.udf(lambda value: value * 2, LongType())
    rows = spark.read.parquet(f"{directory}/rows")
    assert rows.groupBy("key").agg(F.sum(twice("id"))).orderBy("key").count() == 7
    assert rows.toPandas().shape == (1000, 2)
    assert len(spark.createDataFrame([("a", b"1")], "key string, value binary").collect()) == 1
    stream = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 40).load().withWatermark("timestamp", "1 minute")
    )
    counted = stream.groupBy(F.window("timestamp", "1 minute"), F.expr("value % 7 AS key")).count()
    other = stream.select(F.col("value").alias("other"), F.col("timestamp").alias("at"))
    joined = stream.join(other, F.expr("value = other AND at >= timestamp AND at <= timestamp"))

    def count(batch: DataFrame, _: int) -> None:
        batch.count()

    for name, result, mode in [("counted", counted, "update"), ("joined", joined, "append")]:
        query = (
            result.writeStream.outputMode(mode).foreachBatch(count).option("checkpointLocation", f"{directory}/{name}").start()
        )
        while query.isActive and (query.lastProgress or {}).get("batchId", 0) < 3:
            query.awaitTermination(0.1)
        assert query.exception() is None, query.exception()
        query.stop()
    spark.stop()


def main() -> None:
    now = stamp()
    if not (ARCHIVE.exists() and STAMP.exists() and STAMP.read_text() == now):
        print("archiving the classes of Spark's JVM", flush=True)
        why = make()
        if why is None:
            STAMP.write_text(now)
        else:
            print(f"{why}\nThe driver that was to tell the classes of Spark failed: the tests take a third longer")


if __name__ == "__main__":
    main()
