"""The remote tier: history of topics as Delta tables that Spark, DuckDB, polars and delta-rs read without a node.

Each topic has one table. A copy of a closed segment is one Parquet file, which one commit shows as a whole.

Reading order:

- `plan`, `retention`, `entries`: what is copied next, which files end, and what the quorum's keys say of that. Pure.
- `lineage`: which copies belong to the history of a leader that an unclean election made. Pure.
- `calls`: the values that a node and its worker process send each other. A node imports no other module below this line.
- `schema`: the columns and properties of a table, its place, and the test whether a table is ours.
- `remote_segments`: the facts of a copy as JSON, and the file of auxiliary bytes beside it.
- `failures`, `store`, `log_damage`, `store_log`: errors in one line; files beside a table; damaged commits; words of delta-rs.
- `batch_source`, `segment_file`: the batches of a copy, in windows that fit into memory, to one Parquet file.
- `foreign_commits`, `wholeness`: what commits of others have done, and whether files hold each offset once. Pure.
- `commit_watch`, `topic_table`: each commit looked at once; the table of a topic: opened or created, read, committed to.
- `table_files`, `last_segment`: the files that a table shows, as its log lists them; the newest copy of a lineage.
- `lineage_files`, `leftovers`: the files of one lineage by their offsets; auxiliary bytes whose rows nothing shows any more.
- `as_left`, `acceptance`, `undo`, `later_version`: whether others have changed a partition, and the ways out of that.
- `commits`, `delta_table`: each commit once; what `copy`, `claim`, `delete` and `drop` do.
- `adoption`, `adoption_files`, `superseded`: what `adopt` does, which files go and come, and where those are that went.
- `ordered_rows`, `time_ranges`, `reader`: rows in the order of offsets, times of row groups; a topic's history, read-only.
- `batch_reads`, `known_copies`: the rows of a lineage to its batches; which copy holds an offset, and what lies beside it.
- `table_reads`: the calls that only read; `lineage_facts`: what a table tells of a lineage; `time_search`: where a time begins.
- `inventory`: what all tables tell, as the values of `told`: for recoveries.
- `worker`: the process that makes these calls for a node. A node has two: one for its leaders, one that reads.
- `verify`: what `raftlake tier verify` reads of a table, and which `findings` it makes of that by `file_checks`, `row_checks`
  and `key_checks`; `verify_sql`: its checks as SQL. `probe`: a process that opens doubtful files first.

Callers: `replica` imports `plan`, `retention` and `entries`; `cli` imports `reader`, `inventory`, `undo`, `verify`,
`verify_sql`, `store_log`. `runtime/tier_process.py` starts `worker` and imports `calls`. The package calls `arrow` and `wire`,
and imports values of `ports`.

Invariants:

- All calls are synchronous, and one process makes one at a time. The loop of a node never waits for a store.
- Each commit compares first: the end of the lineage and the leader epoch are Delta `txn` versions of the snapshot that it is
  based on. delta-rs refuses a commit when another one has set the same `txn` since that snapshot.
- A file is complete in the store before a commit names it. A call that fails leaves files without a commit at most.
- A failure is UNKNOWN as soon as a commit was tried and its fate is not certain.
- What is read of a table is checked: pages by their checksums, batches by the CRCs that they had in the log.
"""
