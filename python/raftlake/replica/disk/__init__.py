"""The disk of this node: room, syncs, and damage.

Reading order:

- `watch`: `DiskWatch` knows how much room this node and the other voters have, and what is refused for want of it.
- `syncer`: `LogSyncer` starts one sync for all logs that were written.
- `findings`: `Findings` notes the damage that reads come upon, until the next turn.
- `alone`: `Solitude` judges whether a node with a damaged log is the only voter. Then nothing may be cut.
- `damage`: `DamageControl` sets damaged records aside and knows which groups are impaired.
- `scrub`: `Scrub` reads closed segments, so that damage is found in time.

Callers: `hosting` opens groups through `DamageControl.opening`. `turn` starts the groups anew that `Findings` names. All who
read logs read them under `Findings.guarded`.

Invariants:

- A failed sync is never tried again; it ends the node.
- A node that votes alone cuts nothing from its log.
- A full disk stops what would grow the log. Elections, deletions and reads go on.
"""
