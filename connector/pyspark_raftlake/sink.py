"""Driver: the writers that Spark hands to its tasks, for batch and streaming queries.

A writer is small and frozen: options, columns, nothing that is open. What was appended stays appended when a query
aborts, because a log only grows; then Spark runs the batch again (at least once).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_raftlake.connections import client_of
from pyspark_raftlake.errors import UnsupportedMode
from pyspark_raftlake.options import SinkOptions
from pyspark_raftlake.schema import sink_columns
from pyspark_raftlake.worker_memory import settle

_log = logging.getLogger(__name__)

Messages = list[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise UnsupportedMode(
                "Save mode overwrite not allowed for raftlake. Allowed save mode is append: a log cannot be overwritten"
            )
        self._options = options
        self._columns = sink_columns(schema, options.topic)
        require_topic(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_task(self._options, self._columns, iterator)

    def commit(self, messages: Messages) -> None:
        _log.info("appended %d rows", count_rows(messages))

    def abort(self, messages: Messages) -> None:
        _log.warning("the query failed; %d rows that its tasks had appended stay in the log", count_rows(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Append mode appends the new rows of each batch. Complete mode appends the whole result of each batch, as Spark's Kafka
    sink does. Update mode is refused by Spark for sources written in Python."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = sink_columns(schema, options.topic)
        require_topic(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_task(self._options, self._columns, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        _log.info("batch %d: appended %d rows", batchId, count_rows(messages))

    def abort(self, messages: Messages, batchId: int) -> None:
        rows = count_rows(messages)
        _log.warning("batch %d failed; %d rows that its tasks had appended stay in the log", batchId, rows)


def write_task(options: SinkOptions, columns: Sequence[str], batches: Iterator[Any]) -> WriterCommitMessage:
    """One task on an executor."""
    from pyspark import TaskContext

    from pyspark_raftlake.writer import write_rows

    client = client_of(options.quorum)
    settle()
    context = TaskContext.get()
    return write_rows(
        client,
        batches,
        topic=options.topic,
        columns=columns,
        compression=options.compression,
        turn=context.partitionId() if context is not None else 0,
    )


def require_topic(options: SinkOptions) -> None:
    """ConfigError when the topic of the options does not exist: before any task runs. What the client knows is good enough,
    because Spark makes a writer twice per batch."""
    from pyspark_raftlake.writer import count_partitions

    if options.topic is not None:
        count_partitions(client_of(options.quorum), options.topic)


def count_rows(messages: Messages) -> int:
    """Rows that the tasks reported; a failed task reports nothing (None)."""
    from pyspark_raftlake.writer import Written

    return sum(message.rows for message in messages if isinstance(message, Written))
