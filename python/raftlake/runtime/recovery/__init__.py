"""`raftlake recover`: one surviving data directory becomes a quorum by itself after a majority of the voters is lost for good.

Reading order:

- `probe`: does a node answer at an address, and which leader does it name?
- `lost_majority`: the judgement whether the majority of a quorum is really lost.
- `key_space`: the quorum's keys as a directory has them, and of which tables they tell.
- `comparison`: what a survivor's logs lack of what the Delta tables show.
- `beginning`: the records that a group begins its new epoch with.
- `recover`: `Recovery`, the plan and its steps on the data directory.
- `tables`, `from_tier`: the plan of a new directory, after the loss of all disks, from what the tables show; how it is made.

Callers: `cli/recover.py` drives a `Recovery`, and `cli/recover_from_tier.py` a restoration. Both read the tables.
`runtime/server.py` refuses a directory with an unfinished recovery (`recover.require_not_pending`). `cli/leader.py` and
`cli/voters.py` use `probe`. The package works on a stopped node: it calls `storage`, and the readers of logs and snapshots in
`replica`.

Invariants:

- `lost_majority` only judges, and `probe` only asks.
- Only the directory of a voter is accepted: a voter by its log, or by `quorum.voters` where the log names no voters.
- A recovery cuts and deletes no record. Its first step needs the cluster id from the operator.
- The plan is durable first, under `recovery-pending`. Each step can be done again, so the next run finishes a killed recovery.
- The new epoch of a group lies far above every epoch that the lost nodes can have reached. Only where the epochs have come to
  an end, a new line of epochs begins behind the records.
"""
