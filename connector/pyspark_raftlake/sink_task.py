"""One task of a write, on an executor: its rows under a transaction of its own.

A task of an app first makes its run the owner, or is told that another one is. A batch that is visible already is not written
again. A streaming query reads its rows all the same: state commits at their end. An attempt that fails aborts its transaction.
One that is killed cannot, and leaves that to the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from pyspark_raftlake.connections import client_of
from pyspark_raftlake.errors import InvalidRow, SinkFailed
from pyspark_raftlake.ledger import JobNumber, Ledger, Standing
from pyspark_raftlake.option_names import BATCH_ID, FOREACH_RUN, QUERY_ID, RUN_ID
from pyspark_raftlake.worker_memory import settle
from pyspark_raftlake.writer import Written, write_rows
from raftlake.client import sink_keys as keys
from raftlake.client.sink_keys import Driver
from raftlake.errors import RaftlakeError

if TYPE_CHECKING:
    from pyspark_raftlake.options import SinkOptions
    from raftlake.client import Client
    from raftlake.client.sync import TransactionalProducer

_log = logging.getLogger(__name__)

#: An abort that does not come through in this time is left to the driver, ms.
ABORT_MS_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which batch of which app a task writes, and for whom."""

    app: str
    run: str
    query: str
    batch: int


def stream_place() -> Place:
    """Of a task of a streaming query."""
    query, batch, run = (_told(name) for name in (QUERY_ID, BATCH_ID, RUN_ID))
    if not query or not batch or not run:
        raise SinkFailed(f"Spark has not told this task its query, batch and run: {query!r}, {batch!r}, {run!r}")
    return Place(app=query, run=run, query=query, batch=int(batch))


def batch_place(options: SinkOptions, run: str) -> Place:
    """Of a task of a batch write with an app. Within foreachBatch the run is that of the streaming query."""
    query = _told(QUERY_ID) or ""
    of_stream = _told(FOREACH_RUN) or _told(RUN_ID) if query else None
    return Place(app=options.app or "", run=of_stream or run, query=query, batch=options.app_version)


def write_app_task(
    options: SinkOptions, columns: Sequence[str], batches: Iterator[Any], place: Place, driver: Driver
) -> Written:
    """The rows of one task, or nothing where their batch is visible already."""
    client = client_of(options.quorum)
    settle()
    standing = Ledger(client, options.quorum.patience.total_ms).enter(place.app, place.run, place.query, driver)
    if standing.last_batch >= place.batch:
        if place.query:
            for _ in batches:
                pass
        return Written(standing=standing)
    partition, attempt = _task()
    name = keys.app_transactional_id(place.app, standing.generation, partition, attempt)
    try:
        return _write(client, options, columns, batches, name, standing)
    except InvalidRow as wrong:
        raise InvalidRow(f"batch {place.batch}: {wrong}") from wrong


def write_job_task(options: SinkOptions, columns: Sequence[str], batches: Iterator[Any], job: JobNumber) -> Written:
    """The rows of one task of a write without an app."""
    client = client_of(options.quorum)
    settle()
    Ledger(client, options.quorum.patience.total_ms).require_job(job)
    return _write(client, options, columns, batches, keys.job_transactional_id(job.number, *_task()), None)


def _write(
    client: Client,
    options: SinkOptions,
    columns: Sequence[str],
    batches: Iterator[Any],
    transactional_id: str,
    standing: Standing | None,
) -> Written:
    made: list[TransactionalProducer] = []

    def make() -> TransactionalProducer:
        made.append(client.transactional_producer(transactional_id, transaction_timeout_ms=options.transaction_ms_max))
        return made[0]

    partition, _ = _task()
    try:
        partitions, producer = write_rows(
            client,
            batches,
            topic=options.topic,
            columns=columns,
            make_producer=make,
            compression=options.compression,
            turn=partition,
            delivery_ms_max=options.delivery_ms_max,
        )
        end = None if producer is None else producer.end(commit=True)
        name = "" if end is None else transactional_id
        return Written(partitions=partitions, end=end, standing=standing, transaction=name)
    except BaseException:
        for producer in made:
            _quietly(lambda producer=producer: producer.abort(ABORT_MS_MAX), transactional_id)  # type: ignore[misc]
        raise
    finally:
        for producer in made:
            producer.close()


def _quietly(abort: Callable[[], None], transactional_id: str) -> None:
    """The error that made the task fail is told; what is left open the driver ends."""
    try:
        abort()
    except RaftlakeError as error:
        _log.warning("the transaction %s is left to the driver: %s", transactional_id, error)


def _task() -> tuple[int, int]:
    """The partition and the attempt of this task."""
    context = TaskContext.get()
    return (0, 0) if context is None else (context.partitionId(), context.attemptNumber())


def _told(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)
