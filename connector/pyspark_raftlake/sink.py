"""The writers that Spark hands to its tasks, for batch and streaming queries: exactly once.

A writer is small and frozen: options, columns, the driver's process, nothing that is open. Tasks write under transactions of
their own (`sink_task`), which nobody sees. The driver makes the rows of the attempts that Spark has accepted visible by one
command of the quorum (`ledger`). What becomes of the other attempts: the driver aborts them after each batch, the next run
when it begins, and the nodes when their time is over.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_raftlake.cause_first import cause_first
from pyspark_raftlake.connections import client_of
from pyspark_raftlake.errors import SinkFailed, UnsupportedMode, unsupported_option
from pyspark_raftlake.option_names import TXN_APP
from pyspark_raftlake.options import SinkOptions
from pyspark_raftlake.schema import sink_columns

if TYPE_CHECKING:
    from pyspark_raftlake.ledger import Ledger, Standing
    from pyspark_raftlake.writer import Written
    from raftlake.client.sink_keys import Driver

_log = logging.getLogger(__name__)

Messages = list[WriterCommitMessage | None]

#: Spark has a write aborted while it still ends the other tasks of the write.
STRAGGLERS_S = 0.5


class StreamWriter(DataSourceStreamArrowWriter):
    """Append mode appends the new rows of each batch. Complete mode appends the whole result of each batch, as Spark's Kafka
    sink does. Update mode is refused by Spark for sources written in Python."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        if options.app is not None:
            raise unsupported_option(TXN_APP, "a stream is known by its query id, and its batches by their numbers")
        self._options = options
        self._columns = sink_columns(schema, options.topic)
        self._driver = this_driver()
        require_topic(options)

    @cause_first()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from pyspark_raftlake.sink_task import stream_place, write_app_task

        place = stream_place()
        return write_app_task(self._options, self._columns, iterator, place, self._driver)

    @cause_first()
    def commit(self, messages: Messages, batchId: int) -> None:
        commit_app(self._options, messages, batchId)

    @cause_first()
    def abort(self, messages: Messages, batchId: int) -> None:
        abort_app(self._options, messages)
        _log.warning("batch %d failed; none of its rows is visible", batchId)


class BatchWriter(DataSourceArrowWriter):
    """A write of its own, or with `txnAppId` and `txnVersion` one of an app, which happens once."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise UnsupportedMode(
                "Save mode overwrite not allowed for raftlake. Allowed save mode is append: a log cannot be overwritten"
            )
        self._options = options
        self._columns = sink_columns(schema, options.topic)
        self._driver = this_driver()
        self._run = uuid.uuid4().hex
        require_topic(options)
        self._job = None if options.app is not None else ledger_of(options).claim_job(self._run, self._driver)

    @cause_first()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from pyspark_raftlake.sink_task import batch_place, write_app_task, write_job_task

        if self._job is not None:
            return write_job_task(self._options, self._columns, iterator, self._job)
        place = batch_place(self._options, self._run)
        return write_app_task(self._options, self._columns, iterator, place, self._driver)

    @cause_first()
    def commit(self, messages: Messages) -> None:
        if self._job is None:
            commit_app(self._options, messages, self._options.app_version)
            return
        written = _written(messages)
        ledger = ledger_of(self._options)
        ledger.commit_job(self._job, [message.end for message in written if message.end is not None])
        ledger.settle(message.transaction for message in written)
        _log.info("appended %d rows", count_rows(messages))

    @cause_first()
    def abort(self, messages: Messages) -> None:
        if self._job is None:
            abort_app(self._options, messages)
        else:
            ends = [message.end for message in _written(messages) if message.end is not None]
            look_again = ledger_of(self._options).abort_job(self._job, ends)
            if look_again is not None:
                time.sleep(STRAGGLERS_S)
                look_again()
        _log.warning("the query failed; none of its rows is visible")


def commit_app(options: SinkOptions, messages: Messages, number: int) -> None:
    """Make one batch visible, unless it is. Raises SinkFenced, SinkFailed or QuorumUnavailable; nothing is visible then."""
    # Not at the top, as in all that follows: every Python process of Spark imports this package, and few need the client.
    from pyspark_raftlake.ledger import wall_ms
    from raftlake.client.sink_keys import CommittedBatch

    ledger, written = ledger_of(options), _written(messages)
    standings = _standings(written)
    if not standings:
        raise SinkFailed(f"batch {number}: no task has told of what it wrote")
    # Those that began late have found the newest keys. All of them are of one run.
    standing = _newest(standings)
    ends = [message.end for message in written if message.end is not None]
    if any(found.last_batch >= number for found in standings):
        # Spark repeats a batch that it had not noted down.
        ledger.give_up(ends)
        if any(found.is_replanned for found in standings):
            raise SinkFailed(
                f"batch {number} of {standing.app} is visible already, and Spark writes it anew with other rows, since its "
                f"checkpoint does not have it as done. 'raftlake sinks forget {standing.app}' lets it be written: rows of the "
                "batches that were visible come once more"
            )
        _log.info("batch %d of %s is visible already, and was not written again", number, standing.app)
        return
    if len({(found.owner_version, found.batch_version) for found in standings}) > 1:
        # The commit compares what the last task has found, and the first ones may have found an older owner.
        raise SinkFailed(f"batch {number} of {standing.app}: the owner of the sink changed while its tasks ran")
    batch = CommittedBatch(
        batch=number,
        run=standing.run,
        rows=count_rows(messages),
        tasks=len(messages),
        at_ms=wall_ms(),
        topics=_rows_by_topic(written),
    )
    is_news = ledger.commit(standing, batch, ends)
    ledger.settle(message.transaction for message in written)
    _log.info("batch %d of %s: %d rows%s", number, standing.app, batch.rows, "" if is_news else " were visible already")
    # After each batch: an attempt that a lost executor or an older driver began amid it holds readers off its rows.
    aborted = ledger.sweep(standing)
    if aborted:
        _log.info("aborted %d transactions of %s that no task needs", aborted, standing.app)


def abort_app(options: SinkOptions, messages: Messages) -> None:
    """Abort what the tasks have told of, and what those left that Spark has killed, as far as the quorum can be told. Where no
    task has ended Spark tells nothing of the app: what is open is left to the next run, or to its time limit."""
    written = _written(messages)
    standings = _standings(written)
    ends = [message.end for message in written if message.end is not None]
    if not ends and not standings:
        return
    ledger = ledger_of(options)
    ledger.give_up(ends)
    if standings:
        standing = _newest(standings)
        ledger.sweep(standing)
        time.sleep(STRAGGLERS_S)
        ledger.sweep(standing)


def ledger_of(options: SinkOptions) -> Ledger:
    from pyspark_raftlake.ledger import Ledger

    return Ledger(client_of(options.quorum), options.quorum.patience.total_ms)


def require_topic(options: SinkOptions) -> None:
    """ConfigError when the topic of the options does not exist: before any task runs. What the client knows is good enough,
    because Spark makes a writer twice per batch."""
    from pyspark_raftlake.writer import count_partitions

    if options.topic is not None:
        count_partitions(client_of(options.quorum), options.topic)


def this_driver() -> Driver:
    """The process that Spark's driver is: a worker's parents are Spark's daemon, and the JVM."""
    from raftlake.client.sink_keys import Driver

    pid = os.getppid()
    for _ in range(3):
        if _read(f"/proc/{pid}/comm").strip() == "java":
            return Driver(host=socket.gethostname(), pid=pid)
        # The fourth field, behind a name in parentheses that may hold anything.
        parent = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if len(parent) < 2:
            break
        pid = int(parent[1])
    return Driver(host=socket.gethostname(), pid=os.getppid())


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _written(messages: Messages) -> Sequence[Written]:
    """A failed task reports nothing (None)."""
    from pyspark_raftlake.writer import Written

    return [message for message in messages if isinstance(message, Written)]


def _standings(written: Sequence[Written]) -> set[Standing]:
    """What tasks of an app have found of its owner and its last batch."""
    return {message.standing for message in written if message.standing is not None}


def _newest(standings: set[Standing]) -> Standing:
    return max(standings, key=lambda found: (found.owner_version, found.batch_version))


def count_rows(messages: Messages) -> int:
    """Rows that the tasks reported."""
    return sum(message.rows for message in _written(messages))


def _rows_by_topic(written: Sequence[Written]) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for message in written:
        for partition in message.partitions:
            rows[partition.topic] += partition.rows
    return dict(sorted(rows.items()))
