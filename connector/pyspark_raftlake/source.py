"""`format("raftlake")`: what Spark loads by name, and the readers that it drives.

Only glue: options become values in `options`, decisions are made in `planning`, bytes are moved in `reader` and `writer`. A
reader crosses to the executors with every task, so it holds nothing but options; what is open is made where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_raftlake.cause_first import cause_first
from pyspark_raftlake.connections import client_of
from pyspark_raftlake.history_view import HistoryView
from pyspark_raftlake.log_view import LogView
from pyspark_raftlake.offsets import document_of, offsets_of
from pyspark_raftlake.option_names import QUERY_ID
from pyspark_raftlake.options import SourceOptions, Tier, parse_sink_options, parse_source_options
from pyspark_raftlake.patience import PatientClient
from pyspark_raftlake.planning import RangePartition, StreamPlanner, check_before_start, plan_batch_query
from pyspark_raftlake.pushdown import ALL_ROWS, spark_pushes_filters, wanted_by
from pyspark_raftlake.query_position import DriverPosition, write_first
from pyspark_raftlake.schema import require_source_schema, source_schema
from pyspark_raftlake.sink import BatchWriter, StreamWriter
from pyspark_raftlake.tables import Tables
from pyspark_raftlake.topic_notes import Note
from pyspark_raftlake.worker_memory import settle

if TYPE_CHECKING:
    from raftlake.client import Client


class DefaultSource(DataSource):
    """Logs of a raftlake quorum as a Spark source and sink, with the options and columns of Spark's Kafka connector."""

    @classmethod
    def name(cls) -> str:
        return "raftlake"

    @cause_first()
    def schema(self) -> StructType:
        """Called by `load()`: what is wrong with the options, the quorum or the topics is said here, before any query runs."""
        options = parse_source_options(self.options)
        # No query runs yet: a wrong address is said soon, and no outage is waited for.
        options = replace(options, quorum=replace(options.quorum, is_running=False))
        check_before_start(_view(options, checks_ids=False)[0], options)
        return source_schema(include_headers=options.include_headers)

    @cause_first()
    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_source_options(self.options).for_batch()
        require_source_schema(schema, include_headers=options.include_headers)
        return PushedReader(options) if spark_pushes_filters() else BatchReader(options)

    @cause_first()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(dict(self.options), schema)

    @cause_first()
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(parse_sink_options(self.options), schema, overwrite)

    @cause_first()
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        writer = StreamWriter(parse_sink_options(self.options), schema)
        # Two workers on the driver are asked for it with every batch.
        settle()
        return writer


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = ALL_ROWS

    @cause_first()
    def partitions(self) -> list[InputPartition]:
        # A wrong id costs the rows of its topic: an error tells of them, unless the query is to go on.
        view, tables = _view(self._options, checks_ids=not self._options.fail_on_data_loss)
        # Spark makes one task without a range of an empty list.
        return list(plan_batch_query(view, self._options, tables, self._wanted))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition)


class PushedReader(BatchReader):
    """A reader that is told the filters of the query. Spark applies them again: they only save reading."""

    @cause_first()
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._wanted = wanted_by(filters)
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What is wrong with the options of a stream is said in answer to the first question: Spark hides what the making of a
    reader raises behind an error of its own."""

    def __init__(self, raw_options: dict[str, str], schema: StructType) -> None:
        self._raw_options = raw_options
        self._schema = schema

    @property
    def _planner(self) -> StreamPlanner:
        return self._made[0]

    @property
    def _position(self) -> DriverPosition:
        return self._made[1]

    @cached_property
    def _made(self) -> tuple[StreamPlanner, DriverPosition]:
        """Made by the first question on the driver; an executor asks none."""
        options = parse_source_options(self._raw_options).for_stream()
        require_source_schema(self._schema, include_headers=options.include_headers)
        view, tables = _view(options, checks_ids=True)
        position = DriverPosition(client_of(options.quorum), options.selection, options.position_interval_ms)
        return StreamPlanner(view, options, tables=tables), position

    @cause_first()
    def initialOffset(self) -> dict[str, Any]:
        return document_of(self._planner.initial_offsets())

    @cause_first()
    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.prepare_available_now()

    @cause_first()
    def getDefaultReadLimit(self) -> ReadLimit:
        return self._planner.default_limit()

    @cause_first()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = offsets_of(start)
        # What lies below is finished, which `commit` says only as the next batch begins.
        self._position.finished(begin)
        end = self._planner.plan_end(begin, limit)
        if self._planner.is_available_now and end == begin:
            # Spark ends the query now. It kills this process instead of asking the reader to stop.
            self._position.flush()
        return document_of(end)

    @cause_first()
    def reportLatestOffset(self) -> dict[str, Any] | None:
        return document_of(self._planner.seen_latest()) or None

    @cause_first()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        tasks = self._planner.plan_tasks(offsets_of(start), offsets_of(end))
        if tasks and (first := self._position.first(offsets_of(start))) is not None:
            tasks[0] = replace(tasks[0], first=first)
        return list(tasks)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition)


def _view(options: SourceOptions, *, checks_ids: bool) -> tuple[LogView, Tables]:
    client = client_of(options.quorum)
    if options.quorum.is_running:
        client = cast("Client", PatientClient(client, options.quorum.patience))
    tables = Tables(client, options.tier)
    if options.tier.mode is Tier.REMOTE:
        return HistoryView(client, options.selection, options.consistency, tables, checks_ids=checks_ids), tables
    view = LogView(
        client,
        options.selection,
        options.consistency,
        is_local=options.tier.mode is Tier.LOCAL,
        reads_committed=options.reads_committed,
        checks_ids=checks_ids,
    )
    return view, tables


@cause_first()
def _read(partition: InputPartition) -> Iterator[Any]:
    if not isinstance(partition, RangePartition):
        return iter(())
    from pyspark import TaskContext

    from pyspark_raftlake.reader import read_range
    from pyspark_raftlake.topic_notes import note_topic

    client = client_of(partition.quorum)
    settle()
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    if partition.note is not Note.NONE and partition.topic_id is not None and query:
        fail = partition.fail_on_data_loss
        note_topic(client.kv, query, partition.range.topic, partition.topic_id, partition.note, fail=fail)
    if partition.first is not None and context is not None:
        write_first(client.kv, partition.first, context.getLocalProperty)
    return _told(read_range(client, partition))


def _told(batches: Iterator[Any]) -> Iterator[Any]:
    with cause_first():
        yield from batches
