"""What the replica driver needs from the world, as protocols, and what nodes say to each other, as values.

The package holds the seam between the driver and its two worlds. `storage` and `runtime` implement the protocols with files,
sockets and threads. `sim` implements all but `Aside` in memory, from one seed. So the simulator runs the driver of production
unchanged.

Reading order:

- `driver`: the protocols `LogStore`, `LogDirectory`, `SnapshotStore`, `ElectionStore`, `Network`, `Clock` and `Aside`.
- `tier`: `RemoteTier`, where the copies of closed segments go, and the values of its calls.
- `peer_rpcs`: `GroupId`, and each RPC between nodes with its reply, for one or many groups at once.

Callers: `replica` calls the protocols. `storage`, `runtime` and `sim` implement them. The package imports values of `raft`, and
`errors`.

Invariants:

- The driver calls every method from one thread. Every `done` is called on that thread.
- `ElectionStore.save` returns only when every state is durable.
- After a crash a log is a prefix of the appended batches, at least as long as the last completed flush.
- `Network.send` never raises for a peer that is down. It calls `done` exactly once, and never before it returns.
- A snapshot is invisible until `SnapshotWriter.freeze` has finished it. A finished snapshot never changes.
"""
