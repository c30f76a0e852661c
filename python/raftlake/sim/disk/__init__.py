"""The simulated disk of one machine: the log, snapshot and election ports in memory, with what a crash may take away.

Reading order:

- `disk`: `SimulatedDisk` and `MemoryLog`: which bytes are durable, and what a crash brings back.
- `log_image`: one version of a log: its batches, its epochs, and the synced part.
- `snapshot_store`, `start_points`, `aborted_index`: snapshot files; start points; aborted transactions.
- `compaction`: passes over a log, which install compacted segments.
- `decay`: damaged batches of one log: flipped bits and unreadable places.
- `space`: the free bytes of a disk, and the ballast of its node.
- `power`: the moments at which a machine may lose power, the time of a sync, and the use of a log that is closed.
- `observer`: the interface by which the invariants hear of changes on the disk.

Callers: `sim/machine.py` builds a `SimulatedDisk` and gives it to `ReplicaNode` as `LogDirectory` and `ElectionStore`.
`sim/invariants` reads the logs. The package imports `ports`, values of `raft`, and `errors`.

Invariants:

- A crash never cuts a log below its last completed flush, unless a truncation or a reset did.
- A crash leaves each segment as before a pass of compaction, or as after it.
- A crash cuts an unsynced tail at the border of a batch, as recovery does by CRC on a real disk.
- An election state is durable when `ElectionStore.save` returns.
- A finished snapshot never changes. A crash removes an unfinished snapshot, and may bring a deleted one back.
- A crash removes entries of the index of aborted transactions that were not synced.
- Damage changes what the process reads, never what the invariants compare.
"""
