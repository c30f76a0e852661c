"""Snapshots (KIP-630): when a node takes them, and how they travel between nodes.

Reading order:

- `snapshots`: `Snapshots` writes the key space in slices, and the snapshot at the log start of a data partition.
- `check`: `SnapshotCheck` reads a file through that a replica asks for a second time.
- `held`: `HeldSnapshots` tells which snapshots replicas are fetching, so that they stay.
- `transfer`: `SnapshotTransfer` sends pieces of files, and takes pieces in.

The format of the files is in `snapshot_files` of the package `partition`, and the state machine's part of it in `raftlake.kv`.

Callers: `turn.housekeeping` asks whether a snapshot is due and lets retention trim. `front` hands FetchSnapshot in.
`turn.actions` hands in what the cores say of snapshots. `hosting` tells of logs that begin anew.

Invariants:

- Nothing is deleted from a log before a snapshot at or above its new start is durable.
- A snapshot that arrives counts only when it is whole and durable.
- No file is read or written as a whole in one turn.
"""
