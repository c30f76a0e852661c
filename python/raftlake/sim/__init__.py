"""The deterministic cluster: the production driver over a simulated clock, network and disk, everything drawn from one seed.

Reading order:

- `runner`, `__main__`: `python -m raftlake.sim`, which runs seeds and prints how to repeat a failure.
- `scenario`, `shrink`: a run as a value; the cut of a failing run down to the faults that it needs.
- `cluster`: one run, from a seed to a verdict: faults and traffic, then healing, then the checks at the end.
- `machine`, `node_watch`: one machine with a disk and at most one `ReplicaNode`; what invariants see of that node.
- `view`: what they see of all machines.
- `clock`, `network`: simulated time and drifting clocks; RPCs between nodes as values.
- `tier`: the remote tier of all nodes, whose calls stall or lose their answers; `tier_table`: what its tables show.
- `disk` (a package): logs and election files in memory, with what a crash may take away.
- `faults` (a package): what strikes a run. `clients` (a package): the traffic of a run.
- `invariants` (a package): what the cluster must never show. `oracle`: what clients were promised.
- `histories` (a package): the judgement of recorded histories, such as linearizability.
- `trace`, `tail`: one line for each event; the last lines of each node.
- `coverage`, `report`: the states that runs reached; the summary of many seeds.

Callers: `make test-seeds`, the sweep and the tests. No other package of the product imports this package. `machine` builds each
`ReplicaNode` of `replica`.

Invariants:

- A run is a function of its seed: the same seed writes the same trace, byte for byte.
- Each purpose has a generator of its own (`stream` in `sim/faults/faults.py`). So one more kind of fault leaves the strikes of
  the other kinds alone.
- Only `runner` and `report` know real time, processes and the terminal.
- Events of the same microsecond run in the order in which they were scheduled. No callback runs inside another one.
- A broken promise raises `Violation`. An exception of the driver becomes a `Violation` too.
"""
