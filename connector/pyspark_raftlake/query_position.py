"""What a driver in Python and its first task do so that the driver can write how far the query is.

Spark tells the id of the query to its tasks alone. So the first task of a run writes its start, under a name that the driver
has made up, and the driver looks for that name. A query that is started again and finds nothing to read has no task: its
position is the one that stands there, and only the time when it was seen gets old.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_raftlake.offsets import Offsets
from pyspark_raftlake.option_names import DESCRIPTION, QUERY_ID, RUN_ID
from pyspark_raftlake.options import Assign, Selection, Subscribe
from pyspark_raftlake.position_keeper import REFRESH_MS, ByTopic, PositionKeeper, nested
from raftlake.errors import RaftlakeError

if TYPE_CHECKING:
    from pyspark_raftlake.position_writer import PositionWriter

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPosition:
    """What the first task of a run writes down for the driver, which does not know the query."""

    writer: str
    reads: str
    host: str
    pid: int
    offsets: ByTopic


def reads(selection: Selection) -> str:
    """What a source reads, in the words that tell it from others (`kv/query_positions.py`)."""
    match selection:
        case Subscribe(topics):
            told = ",".join(topics)
        case Assign(partitions):
            told = ",".join(map(str, sorted(partitions)))
        case _:
            told = selection.pattern
    return f"{selection.option} {told}"


class DriverPosition:
    """Of one source, on its driver."""

    def __init__(self, client: Any, selection: Selection, interval_ms: int) -> None:
        self._client = client
        self._reads = reads(selection)
        self._writer_name = uuid.uuid4().hex
        self._asked_at_ms: float | None = None
        self._keeper = PositionKeeper(self._find, interval_ms)
        self.finished = self._keeper.finished
        self.flush = self._keeper.flush

    def first(self, start: Offsets) -> FirstPosition | None:
        """What a task of the batch that begins here is to write down; None where the query is known, or another task was asked
        a moment ago."""
        now_ms = time.monotonic() * 1000
        is_soon = self._asked_at_ms is not None and now_ms - self._asked_at_ms < REFRESH_MS
        if self._keeper.is_known or is_soon or not self._keeper.is_on:
            return None
        self._asked_at_ms = now_ms
        self._keeper.start()
        return FirstPosition(
            writer=self._writer_name,
            reads=self._reads,
            host=socket.gethostname(),
            pid=os.getpid(),
            offsets=nested(start),
        )

    def _find(self) -> PositionWriter | None:
        from pyspark_raftlake.position_writer import PositionWriter, SourceOfRun, find_source

        found = find_source(self._client.kv, self._writer_name)
        if found is None:
            return None
        query, written = found
        source = SourceOfRun(
            query=query,
            run=written.run,
            name=written.name,
            reads=self._reads,
            host=written.host,
            pid=written.pid,
            writer=written.writer,
        )
        return PositionWriter(self._client.kv, source, lambda: time.monotonic() * 1000)


def write_first(kv: Any, first: FirstPosition, told: Callable[[str], str | None]) -> None:
    """In a task: write down what the driver asked for. `told` are the properties of the task."""
    from pyspark_raftlake.position_writer import PositionWriter, SourceOfRun

    query, run = told(QUERY_ID), told(RUN_ID)
    if not query or not run:
        return
    source = SourceOfRun(
        query=query,
        run=run,
        name=name_in(told(DESCRIPTION) or "", query),
        reads=first.reads,
        host=first.host,
        pid=first.pid,
        writer=first.writer,
    )
    try:
        PositionWriter(kv, source, lambda: 0).claim(first.offsets, time.time_ns() // 1_000_000)
    except RaftlakeError as error:
        _log.warning("how far the query is cannot be written down for `raftlake lag`, and is tried again: %s", error)


def name_in(description: str, query: str) -> str:
    """The name of a query, in front of what Spark tells of its batches; empty without one."""
    return description.rpartition(f"\nid = {query}\n")[0]
