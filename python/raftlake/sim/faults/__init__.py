"""The faults of a run: settings drawn from the seed, strikes drawn from the settings, and their effects.

Reading order:

- `faults`: `Settings`, drawn from the seed; each kind of fault is on or off by itself. Its docstring says how to add a kind.
- `strikes`: a fault as one line of text, and `Stage`, what faults can do to a cluster.
- `injector`: the list of all kinds; the strikes of a run, drawn before the run and carried out during it.
- `kinds`: crashes, graceful stops, pauses, partitions, lost connections, slow disks and links, clocks that jump.
- `damage`: damaged records and lost ends of logs.
- `filling`: disks that fill up for a while.
- `forging`: forged requests in high epochs.
- `syncs`: the syncs of one machine: how long each takes, and which fail.

Callers: `sim/cluster.py` implements `Stage` and starts the injector. `sim/machine.py` uses `syncs` and `forging`.
`sim/scenario.py` and `sim/shrink.py` handle lists of strikes.

Invariants:

- All draws come from the seed, each purpose from a generator of its own. So a new kind leaves the strikes of the others alone.
- A strike is data: it can be printed, kept in a file, removed by the shrinker, and replayed.
- Faults that last end by themselves, and all faults end when the cluster heals.
- Only one voter at a time has damaged logs, so the others can repair it.
"""
