"""The synchronous driver of one node: `ReplicaNode` feeds events to the Raft cores of all groups and performs their actions.

Reading order, by groups of modules:

- The node: `node` (`ReplicaNode` and its turn), `config`, `peer_requests`, `timers`, `deadlines`, `syncer`, `housekeeping`,
  `allowance` (what one turn may cost), `handover` (a graceful stop), `reports`, `describe`.
- One group: `partition` (core, log and waiting clients), `producer_state`, `start_points`, `voter_log`, `intact`, `retention`.
- Which groups: `topics` (the keys of topics), `hosting` (groups opened, closed and found), `hosting_queue`.
- Replication: `fetcher` (follower), `fetch_server` (leader), `fetch_sessions`, `pacing`, `recent_appends`, `control` (RPCs of
  elections), `reads`.
- Snapshots: `snapshots` (when), `snapshot_files`, `snapshot_transfer`, `snapshot_check`.
- Voters: `quorum` (the voters and their addresses), `membership` (the keys of nodes), `voter_changes`, `own_vote`.
- Key-value space: `kv_service`, `kv_room`, `kv_restore`, `forwarding`, `proposals`, `recent_results`, `reserved` (what reserved
  keys mean), `reserved_rules`, `refused_keys`; `opaque` (a quorum whose log is another program's).
- Disks: `disk_watch` (room), `damage` (repair from peers), `alone`.
- Clients: `apis` (a package, one module for each subject), `record_checks`, `check_line` and `later_turns` (work
  beside the turns), `time_searches`.

Callers: `runtime/server.py` and `sim/machine.py` build a `ReplicaNode` and call it. The package calls `raft`, `kv`, `wire`,
`ports` and `errors`. `node` builds the services; most services hold the node and reach each other through it.

Invariants:

- All calls of the node come on one thread; only jobs for `Aside` run elsewhere. Time comes from `Clock` alone, chance from
  `Rng`.
- In each pass of a turn, the election states are saved before any action is performed. Each group's actions keep their order.
- `ReplicaNode.receive` and `ReplicaNode.handle` call `reply` exactly once, now or later.
- A command that was proposed and then lost from sight has an unknown outcome; the node never calls it failed.
"""
