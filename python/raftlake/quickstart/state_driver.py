"""A driver of the second tour: a program of its own, `python -m raftlake.quickstart.state_driver FACTS`, which may be killed.

FACTS is JSON. It says where the quorum is, where the checkpoint is, and which directory this driver has. The driver tells what
happens in lines of JSON on its standard output, each with an `event`:

- `written`: the flights are in the topic;
- `running`, with `run`: the query has been started;
- `batch`, with `number` and `rows`: a micro-batch is done;
- `failed`, with `error`: the query ended by an error, and the driver ends with it;
- `statistics`, with `rows`: the answer to a line on its standard input, once all flights went through the query.

It ends with all of its process group when its standard input ends: whoever started it is gone then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from raftlake.quickstart.spark import session_builder, start_statistics, statistics_of, write_flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Tell = Callable[..., None]
POLL_SECONDS = 0.05
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def teller(stream: IO[str]) -> Tell:
    """Writes events to the stream."""

    def tell(event: str, **facts: object) -> None:
        stream.write(json.dumps({"event": event, **facts}) + "\n")
        stream.flush()

    return tell


def own_output() -> IO[str]:
    """The standard output for this program alone: what the JVM and its workers print goes to the standard error instead."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return events


class Input:
    """Standard input, read in a thread: a line is the wish for the end, the end of the input is that of the process group."""

    def __init__(self, stream: IO[str]) -> None:
        self.is_end_wanted = threading.Event()
        self._stream = stream
        threading.Thread(target=self._read, name="state-driver-input", daemon=True).start()

    def _read(self) -> None:
        while self._stream.readline():
            self.is_end_wanted.set()
        os.killpg(os.getpgrp(), signal.SIGKILL)


def open_session(facts: dict[str, Any]) -> SparkSession:
    """With `raftlake://` for checkpoints."""
    from pyspark_raftlake import configure

    builder = configure(session_builder(Path(facts["directory"])), facts["bootstrap"], http=facts["http"])
    return builder.config("spark.sql.streaming.stateStore.providerClass", PROVIDER).getOrCreate()


def text_of(error: BaseException) -> str:
    """Spark's text of an error, and those of its causes: of a fenced task the error that names the owner is a cause."""
    texts = []
    cause: BaseException | None = error
    while cause is not None:
        texts.append(str(cause))
        cause = getattr(cause, "_cause", None)
    return "\n".join(texts)


def follow(query: StreamingQuery, is_end_wanted: threading.Event, tell: Tell) -> bool:
    """Tell of batches until the end is wanted. False where the query failed before."""
    told = -1
    while True:
        wanted = is_end_wanted.wait(POLL_SECONDS)
        if (error := query.exception()) is not None:
            tell("failed", error=text_of(error))
            return False
        for report in query.recentProgress:
            if report["batchId"] > told and report["numInputRows"]:
                told = report["batchId"]
                tell("batch", number=told, rows=report["numInputRows"])
        if wanted:
            return True


def finish(spark: SparkSession, query: StreamingQuery, tell: Tell) -> None:
    """Let all that is there go through the query, and tell its result."""
    try:
        query.processAllAvailable()
    except StreamingQueryException as error:
        tell("failed", error=text_of(error))
        return
    tell("statistics", rows=statistics_of(spark).to_numpy().tolist())
    query.stop()


def main() -> None:
    facts = json.loads(sys.argv[1])
    tell = teller(own_output())
    wishes = Input(sys.stdin)
    spark = open_session(facts)
    if facts["flights"] is not None:
        write_flights(spark, Path(facts["flights"]), facts["bootstrap"], facts["topic"])
        tell("written")
    query = start_statistics(
        spark,
        facts["bootstrap"],
        facts["topic"],
        offsets_per_trigger=facts["offsets_per_trigger"],
        checkpoint=facts["checkpoint"],
    )
    tell("running", run=str(query.runId))
    if follow(query, wishes.is_end_wanted, tell):
        finish(spark, query, tell)
    spark.stop()


if __name__ == "__main__":
    main()
