"""The one state machine: a key-value space with versions, compare-and-set, transactions, prefix lists and a watch history.

The package is pure: commands come in (`commands`), results go out (`machine`). The package knows nothing of Raft, sockets or
HTTP. The driver feeds it the committed records of `__cluster_metadata-0`, in order, once each. The version of a key is the log
offset of the record that changed the key last.

Reading order:

- `commands`: the transactions that a client may ask for, and their bytes in a log record.
- `keys`: the names of the reserved keys below `/raftlake/`.
- `strict_json`: reading the JSON of reserved keys, alike on all nodes.
- `lenient_json`: reading the JSON of keys of users, whatever stands there.
- `query_positions`: keys of users that `client` and `runtime` know: how far streaming queries are.
- `machine`: `StateMachine` applies committed commands and answers reads.
- `keyspace`: the keys and their entries, in leaves of neighbouring keys; a leaf that a frozen view shares is copied before a
  change.
- `ranges`: what a command says of all keys with a prefix, and how many these may be.
- `rules`: the judge of puts to reserved keys; the caller brings the judge along.
- `history`: the recent changes, for watchers, bounded by count and by bytes.
- `quota`: the room that is left for one more command, with the commands under way counted at their worst.
- `frozen`, `snapshot`, `restoration`: the space at one offset in slices; the bytes of a snapshot; the way back from a snapshot.

Callers: `replica/kv/service.py` owns the `StateMachine` of a node, and `runtime/http` reads it. `client` imports `commands`,
`lenient_json` and `query_positions` alone. `runtime/recovery` reads the keys of a stopped node. `sim` replays committed logs.
The package imports `errors` and nothing else.

Invariants:

- The state is a function of the applied records alone: nodes that have applied up to the same offset hold the same keys.
- No bytes of a record make `StateMachine.apply` raise. A record that is no command changes no key.
- `history` holds every change above its floor. A question for an older change raises `Compacted` instead of leaving a gap.
- A `FrozenView` hands out each row of its moment exactly once, in the order of keys.
- `Restoration.require_complete` returns only when every entry that the header announced is there.
"""
