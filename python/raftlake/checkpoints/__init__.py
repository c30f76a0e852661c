"""Checkpoints of Spark's streaming queries at `raftlake://`, as data: shown, copied, rewound, moved, deleted. No JVM is needed.

    with raftlake.Client("10.0.0.1:9092") as client:
        checkpoints = Checkpoints(client)
        checkpoints.fork("raftlake://orders/main", "raftlake://orders/trial", batch=120)

Reading order:

- `api`: `Checkpoints`, all that callers use; `raftlake checkpoints` prints what it gives.
- `location`, `node`: the names of files and their values in the key space, in the format of the Java file system.
- `layout`: how Spark lays out a checkpoint; which files a batch needs. Pure.
- `space`, `owner`: transactions whose outcome is known; the owner key.
- `blobs`, `log_blobs`: large files outside of the key space, in directories and in the quorum.
- `mark`: what stands in the place of `metadata` while a checkpoint is changed.
- `tree`, `writer`: the files of a checkpoint, read, and changed by their owner.
- `changelog_topics`, `changelog_file`, `lz4_blocks`: changes of state, read from topics and written as Spark's files.
- `sources`, `logged`, `directory`: the selection of a copy, checked, with its state; checkpoints in local directories.
- `steps`, `copies`, `changes`, `facts`: what the commands do.

Callers: `cli.checkpoints`, programs and notebooks. The package calls `client`, `kv.commands` and `errors`, and no node code.

Invariants:

- Each change is a transaction that compares the owner key. So an older run, or an older command, changes nothing any more.
- While a checkpoint is not whole, a mark stands in the place of `metadata`, and Spark starts no query there.
- A command that was broken off ends its work when it is given again.
- Nothing is copied, and nothing rewound, that a query could not go on from.
"""

from __future__ import annotations

from raftlake.checkpoints.api import Checkpoints
from raftlake.checkpoints.changes import Changed
from raftlake.checkpoints.copies import Copied

__all__ = ["Changed", "Checkpoints", "Copied"]
