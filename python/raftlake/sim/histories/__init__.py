"""Histories that clients recorded, judged by the answers and the final log, without a look into the nodes.

Reading order:

- `linearizability`: the search for one legal order of operations (Wing and Gong, with Lowe's memo); it does not know the
  meaning of operations.
- `kv`: gets and conditional changes of keys, as a model for that search.
- `log`: appends, reads and proven ends of one partition, checked against the final log.
- `listing`: lists of keys, checked against all changes in the log.
- `transactions`: transactions over several partitions, checked against the markers in the final logs.
- `keyed`: a compacted topic: full reads, and what replicas hold in the end, checked against all that was committed.

Callers: `sim/clients/history.py` uses `kv`, and `sim/oracle.py` uses `listing`. The soak of real processes (`tests/soak`)
judges its records with `kv` and `log`. The package imports `kv/commands.py`, `kv/machine.py`, and `Violation` of
`sim/invariants`.

Invariants:

- An operation without an answer is optional: it took effect at some time after its invocation, or never.
- An operation that failed for sure is not part of the search.
- Only the order of times counts; operations with equal times overlap.
- Each append has a value of its own: a record is known again by its value.
- The functions are pure. The same history gives the same verdict.
"""
