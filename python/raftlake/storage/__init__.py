"""Logs, election state and the identity of a node on real files, in Kafka's own formats.

`FileLogDirectory` and `FileElectionStore` implement `LogDirectory` and `ElectionStore` of `ports`. The package may import
`raft/types.py`, `wire`, `ports` and `errors`; nothing of sockets or the event loop.

Reading order:

- `directory`: `FileLogDirectory`, all logs of one node in one locked directory.
- `meta`, `lock`, `modes`: whose directory it is; one process at a time; files that their owner alone may read.
- `partition`: the directory of a topic partition, which appears and disappears in one step.
- `log`, `segment`: the log of one group; one file of whole batches.
- `index`, `index_files`, `times`: the sparse indexes of a segment; their files; the search for a time.
- `epochs`, `start_points`: the leader epochs of a log; the facts that spare a start the reading of the whole log.
- `aborted_index`: the aborted transactions of a log, a file for each segment that ends some.
- `flusher`, `reserve`, `disposal`: syncs off the driver's thread; blocks set aside for appends; the deletion of large files.
- `scan`, `recovery`, `recovery_points`: batches in a file; the opening of a log after any stop; how far a log is durable.
- `scrub`, `impairment`, `reset`: the search for decay; a log that has lost synced records; a log that begins anew.
- `partial`: a log that does not hold yet all that was committed when it was begun.
- `cleaned`, `log_compaction`: compacted segments, and how they take the place of others; compaction as one log has it.
- `compactor`, `compaction_calls`, `compaction_worker`, `compaction_pass`: a pass in a process of its own; what both tell each
  other; that process; the files of a pass.
- `threads`, `worker_ending`: a thread that may fail to start; how a worker process ended that is gone.
- `noted_starts`: where logs begin for clients, in the midst of a segment perhaps.
- `snapshots`: the `.checkpoint` files (KIP-630).
- `election`, `election_journal`: `FileElectionStore`, with a file for the quorum's log and one for all data partitions.
- `files`, `room`, `descriptors`: the calls of the operating system; the room on the disk, and the ballast; the limit of open
  files, and the spares.
- `dump`: the files as text, for `raftlake dump`.

Callers: `runtime/server.py` builds both stores for a node, and `runtime/recovery` for a stopped one. `runtime/format.py`,
`local` and `cli/node.py` use `meta`, `lock` and `dump`.

Invariants:

- The driver's thread makes all calls, and gets every `done`. Other threads only work on files, as for syncs, snapshots and
  deletions. Compaction works on files in a process of its own.
- A failed sync is reported once and never tried again. A truncation or a reset is durable before it returns.
- Recovery cuts only bytes that can be an unsynced tail. Other broken bytes are `DamagedData`, and recovery cuts nothing then.
- A lost or damaged election state is an error, never epoch 0: a replica that forgot its vote could vote twice.
- An `OSError` leaves this package only as a `StorageError` that names the file.
"""

from __future__ import annotations

from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.meta import MetaProperties, format_directory, read_meta, require_meta, write_meta

__all__ = [
    "FileElectionStore",
    "FileLogDirectory",
    "MetaProperties",
    "format_directory",
    "read_meta",
    "require_meta",
    "write_meta",
]
