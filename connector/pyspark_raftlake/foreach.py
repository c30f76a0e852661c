"""The sink's guarantee within a user's function: `foreachBatch` with writes that happen once.

`foreach_batch(function)` wraps the function for `writeStream.foreachBatch`. The function gets a third argument, the `Batch`.
Its `txn_options()` go to each write: Delta and raftlake both leave out a write that they have seen. `Once` marks any other side
effect as done, by a compare-and-set in the quorum. A run that was replaced by a newer one is refused before the function is
called.

Several writes to raftlake in one function need names of their own: an app with a version writes once. For Delta the same name
may go to several tables, since each table notes down its own.
"""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_raftlake.active_query import ActiveQuery
from pyspark_raftlake.connections import client_of
from pyspark_raftlake.errors import SinkFailed
from pyspark_raftlake.ledger import Ledger, wall_ms
from pyspark_raftlake.option_names import FOREACH_RUN, QUERY_ID, RUN_ID, SERVERS, TXN_APP, TXN_VERSION
from pyspark_raftlake.options import Quorum, parse_sink_options
from raftlake.client import sink_keys as keys
from raftlake.client.errors import KvConflict
from raftlake.client.sink_keys import Driver
from raftlake.errors import UnknownOutcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function = Callable[["DataFrame", int, "Batch"], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch of a query, as the function of `foreach_batch` knows it."""

    query: str
    run: str
    number: int
    quorum: Quorum

    def txn_options(self, name: str = "") -> dict[str, str]:
        """Options of a write that is to happen once, for Delta and for raftlake. `name` tells writes to raftlake apart."""
        return txn_options(self.number, self.query, name)

    def once(self, name: str) -> Once:
        """The mark of a side effect of this batch."""
        return Once(quorum=self.quorum, app=self.query, name=name, batch=self.number)


def txn_options(batch_id: int, query: str, name: str = "") -> dict[str, str]:
    """`txnAppId` and `txnVersion` of a write of one batch of a query."""
    return {TXN_APP: f"{query}/{name}" if name else query, TXN_VERSION: str(batch_id)}


def foreach_batch(function: Function, quorum: str | None = None) -> Callable[[DataFrame, int], None]:
    """`function(rows, batch_id, batch)` for `writeStream.foreachBatch`. `quorum` is "host:port,host:port", by default that of
    `configure`. Spark repeats a batch after a failure: what `batch` has marked as done is not done again. The function need not
    read the rows: where the query has state, they are read behind it.

    SinkFenced, before the function is called, where a newer run of the query has begun a batch.
    """
    found = quorum_of(quorum)

    def call(rows: DataFrame, batch_id: int) -> None:
        context = rows.sparkSession.sparkContext
        query, group = context.getLocalProperty(QUERY_ID), context.getLocalProperty(RUN_ID)
        if not query or not group:
            raise SinkFailed("foreach_batch works within a streaming query: writeStream.foreachBatch(foreach_batch(function))")
        active = ActiveQuery(rows.sparkSession, query)
        run = active.run() or group
        process = context._jvm
        pid = int(process.java.lang.ProcessHandle.current().pid()) if process is not None else 0
        driver = Driver(host=socket.gethostname(), pid=pid)
        Ledger(client_of(found), found.patience.total_ms).enter(query, run, query, driver)
        context.setLocalProperty(FOREACH_RUN, run)
        try:
            function(rows, batch_id, Batch(query=query, run=run, number=batch_id, quorum=found))
        finally:
            context.setLocalProperty(FOREACH_RUN, None)  # type: ignore[arg-type]
        active.read_unread(rows)

    return call


def quorum_of(servers: str | None) -> Quorum:
    """That of `configure` where none is named; ConfigError where there is none."""
    return parse_sink_options({} if servers is None else {SERVERS: servers}).quorum


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """Whether a side effect of a batch was done already: a mail, a call of another service.

    `with batch.once("mail") as is_first:` is true for a batch that is not marked, and marks it at the end of the block. A
    driver that is killed amid the block leaves no mark, so the effect may happen once more. `claim` marks first instead: then
    the effect may not happen at all.
    """

    quorum: Quorum
    app: str
    name: str
    batch: int

    def __enter__(self) -> bool:
        return not self.is_done()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None:
            self.claim()

    def is_done(self) -> bool:
        """Whether this batch, or a later one, is marked."""
        return self._look()[0] >= self.batch

    def claim(self) -> bool:
        """Mark the batch as done; True where this call has marked it, False where it was marked before."""
        key = keys.once_key(self.app, self.name)
        mark = {"batch": self.batch, "at_ms": wall_ms(), "by": uuid.uuid4().hex}
        value = json.dumps(mark, separators=(",", ":")).encode()
        while True:
            last, version, found = self._look()
            if found == value:
                # The mark of a try whose answer was lost.
                return True
            if last >= self.batch:
                return False
            try:
                client_of(self.quorum).kv.put(key, value, if_version=version, timeout_ms=self.quorum.patience.total_ms)
                return True
            except (KvConflict, UnknownOutcome):
                continue

    def _look(self) -> tuple[int, int, bytes | None]:
        key = keys.once_key(self.app, self.name)
        found = client_of(self.quorum).kv.get(key, timeout_ms=self.quorum.patience.total_ms)
        return (-1, 0, None) if found is None else (keys.decode_batch(found.value).batch, found.version, found.value)
