"""`state`: the state of a streaming query as a table, while the query runs.

The jar has the source, `format("raftlake-state")`; this call spells its options. The table has the columns of Spark: `key` and
`value` as structs, and `partition_id`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "raftlake-state"


def state(
    spark: SparkSession,
    checkpoint: str,
    *,
    operator: int = 0,
    store: str | None = None,
    join_side: str | None = None,
    batch: int | None = None,
) -> DataFrame:
    """The state of the query with this checkpoint, `"raftlake://orders/main"`, at the end of the newest committed batch.

    Each query that Spark plans over the result looks for the newest batch anew; `batch` names one. `operator` counts the
    stateful operators of the query from 0, `store` names one of several stores of an operator, `join_side` is "left" or "right"
    for a join of streams. Spark raises its own errors where a checkpoint, an operator or a batch is not there.
    """
    reader = spark.read.format(FORMAT).option("operatorId", operator)
    options = {"storeName": store, "joinSide": join_side, "batchId": batch}
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, value)
    return reader.load(checkpoint)
