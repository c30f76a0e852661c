"""The connector in Python and the one in Java, each under a name that is its own: queries of both for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_raftlake import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Names of formats. `raftlake` is the one in Java, since the sessions of tests have the jar.
PYTHON, JAVA = "raftlake_python", "raftlake"
QUERY_TIMEOUT_S = 90


def register_python(spark: SparkSession) -> None:
    """The connector in Python under its own name. The class is said to be of the main program, so that it crosses to Spark's
    workers whole: they do not know this module."""
    named = {"name": classmethod(lambda cls: PYTHON), "__module__": "__main__"}
    spark.dataSource.register(type("PythonSource", (DefaultSource,), named))


@dataclass(frozen=True)
class Connector:
    spark: SparkSession
    servers: str
    format: str

    def read(self, subscribe: str | None = None, schema: str | None = None, **options: str) -> DataFrame:
        """A batch query. Names of options have `__` for a dot."""
        reader = self.spark.read.format(self.format).options(**self._options(subscribe, options))
        return (reader if schema is None else reader.schema(schema)).load()

    def rows(self, subscribe: str | None = None, *columns: str, **options: str) -> list[tuple[Any, ...]]:
        """Columns of all rows, in the order of their offsets; values as bytes."""
        frame = self.read(subscribe, **options).orderBy("topic", "partition", "offset").select(*columns or ("value",))
        return [tuple(plain(value) for value in row) for row in frame.collect()]

    def batches(self, checkpoint: Path, subscribe: str | None = None, **options: str) -> dict[int, list[str]]:
        """What a stream reads that has a checkpoint, by batch, until it has all that is there."""
        reader = self.spark.readStream.format(self.format).options(**self._options(subscribe, options))
        found: dict[int, list[str]] = {}

        def keep(rows: DataFrame, batch: int) -> None:
            found[batch] = sorted(row.value for row in rows.selectExpr("cast(value as string) as value").collect())

        writer = reader.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(QUERY_TIMEOUT_S), "the query has not ended"
        finally:
            query.stop()
        return {batch: values for batch, values in found.items() if values}

    def _options(self, subscribe: str | None, options: Mapping[str, str]) -> dict[str, str]:
        named = {name.replace("__", "."): value for name, value in options.items()}
        chosen = {} if subscribe is None else {"subscribe": subscribe}
        return {"kafka.bootstrap.servers": self.servers} | chosen | named


def plain(value: Any) -> Any:
    """A value of a row: bytes for a bytearray, tuples for structs."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [tuple(plain(part) for part in each) for each in value]
    return value
