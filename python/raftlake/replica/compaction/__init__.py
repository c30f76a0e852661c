"""Compaction of the logs on this node: of each key the newest record stays (KIP-58, KIP-534).

Reading order:

- `cleanable`: what of a log may be compacted, and how much of that was not yet. Pure.
- `floor`: below which offset tombstones and markers may go, as the leader of the partition knows it.
- `compactor` (`Compactor`): picks one log after the other, gathers what a pass has to know, and begins it.

Every replica compacts its own logs, whoever leads. The work itself is `LogStore.compact`'s: it is done aside, and what becomes
of each batch is told by the pure `wire.compaction`. `docs/protocol/compaction.md` explains the whole.

Invariants:

- A pass touches closed segments below the last stable offset only: all is committed there, and each transaction is decided.
- A tombstone goes only when all voters and registered observers have it in their logs. So none of them brings its key back.
- A node compacts one log at a time.
- A topic that is compacted has no table in the remote tier (`tiering` leaves it out).
"""
