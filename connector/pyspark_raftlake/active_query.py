"""The streaming query that a function of `foreachBatch` is called for, as Spark has it in the JVM of the driver.

Two things take Spark's own objects. The run: the job group names it only until somebody chooses another group. The state:
Spark's stateful operators commit at the end of their rows, and a function may read none, as Delta's sink with `txnVersion` does
for a batch that it has. Where the ids of state are in the commit log (`checkpointFormatVersion` 2), Spark 4.2 ends such a query
with `assertion failed: CheckpointInfo length`, and again at each restart.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_STATEFUL = "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter"
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


class ActiveQuery:
    """`query` is its id. Classes of Spark that are not for others are asked with care: a release without them may need none."""

    def __init__(self, session: SparkSession, query: str) -> None:
        self._gateway: Any = session.sparkContext._gateway
        self._stream = self._ask(lambda: self._find(session, query))

    def _find(self, session: SparkSession, query: str) -> Any:
        active = session._jsparkSession.sharedState().activeStreamingQueries()
        return active.get(self._gateway.jvm.java.util.UUID.fromString(str(uuid.UUID(query))))

    def run(self) -> str | None:
        """The id of its run; None where Spark does not tell."""
        return None if self._stream is None else self._ask(lambda: str(self._stream.runId()))

    def read_unread(self, rows: DataFrame) -> None:
        """Read the rows of the batch to their end, where state of it is not committed."""
        has_ids = int(rows.sparkSession.conf.get(_FORMAT) or 1) >= 2
        if has_ids and self._stream is not None and self._ask(self._has_unread):
            rows.write.format("noop").mode("append").save()

    def _has_unread(self) -> bool:
        from py4j.java_gateway import is_instance_of

        return any(
            is_instance_of(self._gateway, node, _STATEFUL) and len(_committed(node)) < _partitions(node)
            for node in _nodes(self._stream.lastExecution().executedPlan())
        )

    @staticmethod
    def _ask(question: Any) -> Any:
        from py4j.protocol import Py4JError

        try:
            return question()
        except Py4JError as error:
            _log.debug("Spark does not tell of its query: %s", error)
            return None


def _partitions(operator: Any) -> int:
    """How many have state: one for an aggregation without keys, or a limit, whatever the state is planned for."""
    output = int(operator.outputPartitioning().numPartitions())
    return 1 if output == 1 else int(operator.stateInfo().get().numPartitions())


def _committed(operator: Any) -> set[int]:
    """The partitions whose state is committed. Each read of a partition tells of it."""
    told = operator.checkpointInfoAccumulator().value()
    return {told.get(index).partitionId() for index in range(told.size())}


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for index in range(children.size()):
        yield from _nodes(children.apply(index))
