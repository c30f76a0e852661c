"""The remote tier: history of topics as Delta tables that Spark, DuckDB, polars and delta-rs read without a node.

Each topic has one table. A copy of a closed segment is one Parquet file, which one commit shows as a whole.

Reading order:

- `plan`, `entries`: what is copied next, and what the quorum's keys say of copies. Pure; `replica/tiering` decides by them.
- `calls`: the values that a node and its worker process send each other. A node imports no other module below this line.
- `schema`: the columns and properties of a table, its place, and the test whether a table is ours.
- `remote_segments`: the facts of a copy as JSON, and the file of auxiliary bytes beside it.
- `failures`: errors of stores and of delta-rs as `TierError`, with a reason in one line.
- `store`: files beside a table, in the store of the table.
- `batch_source`: the batches of a copy, in windows that fit into memory.
- `segment_file`: the batches of a segment to one Parquet file, with its statistics.
- `topic_table`: the table of a topic: opened or created, refreshed, read, committed to.
- `table_files`: the files that a table shows, as its log lists them.
- `last_segment`: the newest copy of a lineage, from what the table shows.
- `delta_table`: `DeltaTier`: what `copy` and `claim` do, and how commits of two leaders exclude each other.
- `worker`: the process that makes these calls for a node.
- `ordered_rows`, `reader`: the rows of files in the order of offsets; the history of a topic, read-only.
- `verify`: what `raftlake tier verify` reads of a table, and which `findings` it makes of that by `file_checks`, `row_checks`
  and `key_checks`; `verify_sql`: its checks as SQL. `probe`: a process that opens doubtful files first.

Callers: `replica` imports `plan` and `entries`; `cli` imports `reader`, `verify` and `verify_sql`.
`runtime/tier_process.py` starts `worker` and imports `calls`. The package calls `arrow` and `wire`, and imports values of
`ports`.

Invariants:

- All calls are synchronous, and one process makes one at a time. The loop of a node never waits for a store.
- Each commit compares first: the end of the lineage and the leader epoch are Delta `txn` versions of the snapshot that it is
  based on. delta-rs refuses a commit when another one has set the same `txn` since that snapshot.
- A file is complete in the store before a commit names it. A call that fails leaves files without a commit at most.
- A failure is UNKNOWN as soon as a commit was tried and its fate is not certain.
"""
