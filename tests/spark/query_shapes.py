"""Streaming queries of many shapes over two small streams, as tests/spark/test_spark_query_shapes.py runs them.

Events are a key `k`, a number `v` and a time `t`; clicks a key `c`, a number `w` and a time `u`. A shape makes a query of them.
Files are read one a batch, and the third one after a restart. They hold rows that come late, rows that come twice, and in the
end a row by which every window before it is closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState

EVENTS = (
    ("a,1,00:00:00", "b,2,00:00:03", "a,3,00:00:07", "c,4,00:00:12", "a,1,00:00:00"),
    ("a,5,00:00:11", "b,6,00:00:14", "d,7,00:00:31", "a,1,00:00:00"),
    ("c,8,00:00:35", "a,9,00:00:02", "b,2,00:00:43", "a,1,00:00:33", "e,1,00:03:00"),
)
CLICKS = (
    ("a,10,00:00:02", "b,20,00:00:04", "x,30,00:00:06", "a,11,00:00:09"),
    ("a,50,00:00:12", "c,60,00:00:15", "y,61,00:00:32"),
    ("d,70,00:00:33", "b,80,00:00:44", "z,90,00:03:00"),
)
#: In seconds after the epoch: the times of files, by which Spark orders them.
FIRST_FILE_S = 1_700_000_000


def write_files(directory: Path, numbers: range) -> None:
    """Write the files of these numbers of both streams, below directories `events` and `clicks`."""
    for name, files in (("events", EVENTS), ("clicks", CLICKS)):
        place = directory / name
        place.mkdir(parents=True, exist_ok=True)
        for number in numbers:
            lines = [line.rsplit(",", 1) for line in files[number]]
            file = place / f".{number}.csv"
            file.write_text("".join(f"{start},2026-01-01 {time}\n" for start, time in lines), encoding="utf-8")
            os.utime(file, (FIRST_FILE_S + number, FIRST_FILE_S + number))
            file.rename(place / f"{number}.csv")


@dataclass(frozen=True)
class Streams:
    """The two streams as a session reads them from a directory."""

    spark: SparkSession
    directory: Path

    def _read(self, name: str, schema: str) -> DataFrame:
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.option("timestampFormat", "yyyy-MM-dd HH:mm:ss").csv(str(self.directory / name))

    def events(self, watermark: str | None = None) -> DataFrame:
        read = self._read("events", "k string, v int, t timestamp")
        return read if watermark is None else read.withWatermark("t", watermark)

    def clicks(self, watermark: str | None = None) -> DataFrame:
        read = self._read("clicks", "c string, w int, u timestamp")
        return read if watermark is None else read.withWatermark("u", watermark)

    def names(self) -> DataFrame:
        """A table: a name for some keys."""
        return self.spark.createDataFrame([("a", "Anna"), ("b", "Bob"), ("d", "Dora")], "k string, name string")


@dataclass(frozen=True)
class Shape:
    name: str
    mode: str
    make: Callable[[Streams], DataFrame]
    #: SQL settings of the query, beside those that all have.
    settings: dict[str, str] = field(default_factory=dict)
    #: Spark takes its own class only, which keeps its files in the quorum.
    is_stock: bool = False


def _on_keys_near_in_time(kind: str) -> Callable[[Streams], DataFrame]:
    from pyspark.sql.functions import expr

    near = expr("k = c and u >= t - interval 5 seconds and u <= t + interval 5 seconds")
    return lambda streams: streams.events("10 seconds").join(streams.clicks("10 seconds"), near, kind)


def _self_join(streams: Streams) -> DataFrame:
    from pyspark.sql.functions import col

    left = streams.events("10 seconds").alias("left")
    right = streams.events("10 seconds").alias("right")
    near = (col("left.k") == col("right.k")) & (col("left.t") == col("right.t")) & (col("left.v") <= col("right.v"))
    return left.join(right, near).select("left.k", "left.v", "right.v")


# What runs in Spark's Python processes stands in the functions below: those processes cannot import this module.


def _in_pandas(streams: Streams) -> DataFrame:
    def count_while_pending(key: tuple[Any, ...], frames: Iterator[Any], state: GroupState) -> Iterator[Any]:
        """Sums by key; a key without rows for 10 seconds of event time is told and forgotten."""
        import pandas as pd

        if state.hasTimedOut:
            (total,) = state.get
            state.remove()
            yield pd.DataFrame({"k": [key[0]], "total": [total], "over": [True]})
            return
        total = (state.get[0] if state.exists else 0) + sum(int(frame["v"].sum()) for frame in frames)
        state.update((total,))
        state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 10_000)
        yield pd.DataFrame({"k": [key[0]], "total": [total], "over": [False]})

    grouped = streams.events("10 seconds").groupBy("k")
    schema = "k string, total long, over boolean"
    return grouped.applyInPandasWithState(count_while_pending, schema, "total long", "update", "EventTimeTimeout")


def _in_pandas_appended(streams: Streams) -> DataFrame:
    def sum_without_end(key: tuple[Any, ...], frames: Iterator[Any], state: GroupState) -> Iterator[Any]:
        import pandas as pd

        total = (state.get[0] if state.exists else 0) + sum(int(frame["v"].sum()) for frame in frames)
        state.update((total,))
        yield pd.DataFrame({"k": [key[0]], "total": [total]})

    grouped = streams.events().groupBy("k")
    return grouped.applyInPandasWithState(sum_without_end, "k string, total long", "total long", "append", "NoTimeout")


def _with_processor(streams: Streams) -> DataFrame:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Totals(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", "total long")
            self.seen = handle.getMapState("seen", "v int", "times long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            total = self.total.get()[0] if self.total.exists() else 0
            for frame in rows:
                for value in frame["v"]:
                    number = int(value)
                    total += number
                    before = self.seen.getValue((number,))[0] if self.seen.containsKey((number,)) else 0
                    self.seen.updateValue((number,), (before + 1,))
            self.total.update((total,))
            times = max(row[0] for row in self.seen.values())
            yield pd.DataFrame({"k": [key[0]], "total": [total], "most": [times]})

        def close(self) -> None:
            pass

    grouped = streams.events().groupBy("k")
    return grouped.transformWithStateInPandas(Totals(), "k string, total long, most long", "update", "None")


def shapes() -> tuple[Shape, ...]:
    from pyspark.sql import functions as F

    def windowed(window: Any) -> Callable[[Streams], DataFrame]:
        return lambda streams: streams.events("10 seconds").groupBy(window, "k").agg(F.count("*"), F.sum("v"))

    def chained(streams: Streams) -> DataFrame:
        first = streams.events("10 seconds").groupBy(F.window("t", "10 seconds"), "k").agg(F.sum("v").alias("s"))
        return first.groupBy(F.window(F.window_time("window"), "20 seconds")).agg(F.max("s"), F.count("*"))

    def joined_then_counted(streams: Streams) -> DataFrame:
        joined = _on_keys_near_in_time("inner")(streams)
        return joined.groupBy(F.window("t", "10 seconds"), "k").agg(F.sum("w"), F.count("*"))

    def cleaned_then_counted(streams: Streams) -> DataFrame:
        once = streams.events("10 seconds").dropDuplicates(["k", "v", "t"])
        return once.groupBy(F.window("t", "10 seconds")).agg(F.count("*"), F.sum("v"))

    tumbling, sliding = F.window("t", "10 seconds"), F.window("t", "10 seconds", "5 seconds")
    gap = F.when(F.col("k") == "a", "3 seconds").otherwise("8 seconds")
    two_in_one = F.collect_list("v"), F.approx_count_distinct("v"), F.sort_array(F.collect_set("v"))
    in_one_store = {"spark.sql.streaming.join.stateFormatVersion": "3"}
    return (
        Shape("count-complete", "complete", lambda s: s.events().groupBy("k").count()),
        Shape("count-update", "update", lambda s: s.events().groupBy("k").count()),
        Shape(
            "sum-avg-min-max", "update", lambda s: s.events().groupBy("k").agg(F.sum("v"), F.avg("v"), F.min("v"), F.max("v"))
        ),
        Shape("no-key", "complete", lambda s: s.events().agg(F.count("*"), F.sum("v"), F.min("t"))),
        Shape("having", "update", lambda s: s.events().groupBy("k").agg(F.sum("v").alias("s")).where("s > 5")),
        Shape("collected", "update", lambda s: s.events().groupBy("k").agg(*two_in_one)),
        Shape("distinct", "update", lambda s: s.events().select("k", "v").distinct()),
        Shape(
            "sorted-and-limited", "complete", lambda s: s.events().groupBy("k").count().orderBy(F.desc("count"), "k").limit(2)
        ),
        Shape("limit", "append", lambda s: s.events().select("k", "v").limit(11)),
        Shape("rollup", "complete", lambda s: s.events().rollup("k", "v").agg(F.count("*"))),
        Shape("cube", "update", lambda s: s.events().cube("k", "v").agg(F.count("*"))),
        Shape("union", "update", lambda s: s.events().union(s.clicks()).groupBy("k").agg(F.sum("v"))),
        Shape("static-join", "update", lambda s: s.events().join(s.names(), "k", "left").groupBy("name").agg(F.sum("v"))),
        Shape("tumbling-append", "append", windowed(tumbling)),
        Shape("tumbling-update", "update", windowed(tumbling)),
        Shape("tumbling-complete", "complete", windowed(tumbling)),
        Shape("sliding-append", "append", windowed(sliding)),
        Shape("session-append", "append", windowed(F.session_window("t", "5 seconds"))),
        Shape("session-gap", "append", windowed(F.session_window("t", gap))),
        Shape("chained-windows", "append", chained),
        Shape("duplicates", "append", lambda s: s.events().dropDuplicates(["k", "v"])),
        Shape("duplicates-by-time", "append", lambda s: s.events("10 seconds").dropDuplicates(["k", "t"])),
        Shape("duplicates-within", "append", lambda s: s.events("10 seconds").dropDuplicatesWithinWatermark(["k", "v"])),
        Shape("duplicates-then-windows", "append", cleaned_then_counted),
        Shape("join-inner", "append", _on_keys_near_in_time("inner")),
        Shape("join-left", "append", _on_keys_near_in_time("left_outer")),
        Shape("join-right", "append", _on_keys_near_in_time("right_outer")),
        Shape("join-full", "append", _on_keys_near_in_time("full_outer")),
        Shape("join-semi", "append", _on_keys_near_in_time("left_semi")),
        Shape("join-self", "append", _self_join),
        Shape("join-in-one-store", "append", _on_keys_near_in_time("left_outer"), in_one_store),
        Shape("join-then-windows", "append", joined_then_counted),
        Shape("pandas-with-timeout", "update", _in_pandas),
        Shape("pandas-append", "append", _in_pandas_appended),
        Shape("processor", "update", _with_processor, is_stock=True),
    )
