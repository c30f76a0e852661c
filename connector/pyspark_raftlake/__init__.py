"""raftlake's Spark connector: `format("raftlake")` for read, readStream, write and writeStream.

Spark imports the packages on its Python path with a name that begins with `pyspark_`, and takes their `DefaultSource`. Nothing
has to be registered; the Python of the driver and of each worker has to have this package. Importing it is cheap, because every
Python process of Spark does so: the client and the codecs are loaded by what uses them.

Reading order:

- `source`: `DefaultSource`, which Spark loads by name, and the readers that Spark drives.
- `session`: `configure`, which names the quorum once for a Spark session; `attach`, for checkpoints of a session that runs.
- `live_state`: `state`, the state of a running query as a table.
- `jvm`: the jar with the file system `raftlake://`, and the settings under which Spark finds it.
- `option_names`, `raw_options`, `options`, `schema`: the vocabulary of options; options as frozen values; the columns of source
  and sink.
- `offsets`, `positions`: offsets and their JSON; positions that users name, turned into offsets.
- `log_view`, `topic_ids`: where the partitions of a query begin and end, asked for each plan; which topic has a name now.
- `tables`, `history_view`, `seam`: the Delta tables of topics; a query of them alone; which offsets come from them.
- `planning`, `ranges`, `pushdown`, `data_loss`: the offsets of each batch; the cut into tasks; filters; lost data.
- `topic_notes`: which topic a query has read under a name, over its restarts.
- `query_position`, `position_keeper`, `position_writer`: how far a query is, told to the quorum; when, and by which run.
- `reader`, `table_reader`: on an executor, one range of offsets as Arrow record batches, from the log or from a table.
- `sink`, `sink_task`: the writers that Spark hands to its tasks, exactly once; one task of a write.
- `ledger`: owners and batches of sinks in the quorum, and the one command that commits a batch.
- `writer`, `partitioner`: on an executor, Arrow record batches into the log; the partition of each row.
- `foreach`, `active_query`: the same guarantee within `foreachBatch`; its query, as Spark has it.
- `connections`, `patience`, `worker_memory`: one client for each quorum and process; its outages; a Python worker's memory.
- `errors`, `cause_first`: every error of the connector, worded in one place; its cause in front of the stack.

Callers: Spark, in its Python processes on the driver and on the executors. The package calls `client`, `arrow`, `wire`,
`tier.reader` and `errors` of raftlake, and no node code.

Invariants:

- Raw options end at `options`: unknown, contradictory and unsupported options are refused by name.
- What crosses to executors is small and frozen; connections are made where they are used.
- A batch that Spark replays from its checkpoint gets the same ranges again.
- Each offset of a range is read from one source, and each source stands in for the other.
- A range is yielded whole, or its task fails. Only with `failOnDataLoss` false may the beginning of a range be missing.
- All rows of a batch become visible by one command of the quorum, once: tasks write under transactions of their own.
- A question about topics and offsets is asked again while the quorum is away, as long as the options say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_raftlake.live_state import state
from pyspark_raftlake.session import attach, configure
from pyspark_raftlake.source import DefaultSource

if TYPE_CHECKING:
    from pyspark_raftlake.foreach import Once, foreach_batch, txn_options

__all__ = ["DefaultSource", "Once", "attach", "configure", "foreach_batch", "state", "txn_options"]

_LATE = ("Once", "foreach_batch", "txn_options")


def __getattr__(name: str) -> Any:
    """What loads the client is imported when it is asked for."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_raftlake import foreach

    return getattr(foreach, name)
