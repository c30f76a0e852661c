"""The synchronous driver of one node: it feeds events to the Raft cores of all groups and performs their actions.

Reading order, from the ground up. Each floor imports only floors above it in this list:

- `config` (what a node is told at start), `timers`, `opaque` (a quorum whose log is another program's).
- `configs`: what a topic says over the node's settings. Pure.
- `partition`: the state of one group, and the files of its log that are not the log itself.
- `engine` (`Engine`): the groups, the time, how a core is stepped, and what the coming turn has to do. Knows no service.
- `quorum` (the voters and their addresses), `reports` (roles and refused epochs, for all who listen), `producer_care`
  (what is done with all producer ids of the node) and `refused_for_good` (requests of clients that cannot succeed).
- `transaction_entry` and `transaction_index` (what the keys of transactions mean), `reserved` and `reserved_rules` (what all
  keys below `/raftlake/` mean), `names` (what a topic's name or id stands for).
- `disk`: room, syncs, damage.
- `replication` (what nodes say to each other), `aside` (work beside the turns), `handover` (a graceful stop).
- `kv`: the key-value space, its proposals and its limits. `snapshots`: of the key space and of data partitions.
- `hosting` (which groups there are), `voters` (who votes, and where nodes are reached), `tiering` (what is copied to the
  remote tier) and `record_deletion` (what follows once records are deleted).
- `transactions`: the coordinator of all transactional producers.
- `compaction`: which log is compacted when, and what a pass may remove.
- `services` (`Services`: what client APIs may call), then `apis` (one module for each subject) and `turn`.
- `front` (`Front`: everything from outside comes in here) and `node` (`ReplicaNode`: builds and wires all of it).

A service takes the engine and the siblings that it names. No service takes the node. Three calls run upwards, all wired by
`node`: `Engine.confirm_peers` before a deadline strikes, `Engine.closed` when a group is no longer hosted, and the way of
`OwnVote` to the API that answers its request where this node leads.

Callers: `runtime/server.py` and `sim/machine.py` build a `ReplicaNode` and call it. The package calls `raft`, `kv`, `wire`,
`ports`, `errors` and the pure modules of `tier`.

Invariants:

- All calls of the node come on one thread; only jobs for `Aside` run elsewhere. Time comes from `Clock` alone, chance from
  `Rng`.
- In each pass of a turn, the election states are saved before any action is performed. Each group's actions keep their order.
- `ReplicaNode.receive` and `ReplicaNode.handle` call `reply` exactly once, now or later.
- A command that was proposed and then lost from sight has an unknown outcome; the node never calls it failed.
"""
