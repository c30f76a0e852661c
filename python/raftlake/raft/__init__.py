"""One Raft group as a pure state machine: `RaftGroup.step` takes an event and the time, and returns the actions for the driver.

The package holds the algorithm: elections with pre-vote, replication by Fetch (KIP-595), linearizable reads (KIP-650),
snapshots (KIP-630) and changes of voters (KIP-853). It knows no topic, no file, no socket, no clock, and no content of a data
record.

Reading order:

- `types`, `value`, `config`: epochs, offsets and voter sets; the decorator that declares values; the timing of a group.
- `messages`, `events`, `actions`: what replicas say; what can happen to a group; what the driver is to do, and in which order.
- `core`: `RaftGroup`, the only class that drivers see; it dispatches each event to a handler.
- `state`, `roles`, `transitions`: the state of a group; the state of each role; the one place where roles change.
- `epochs`, `voters`: the leader epochs of a log and the voter sets of a log, each by offset.
- `handlers` (a package): one module for each kind of event.
- `elections`: the way of a voter from silence to leadership, and the requests on that way.
- `fetching`, `outbox`: the next Fetch of a replica that does not lead; one request to several voters until each has answered.
- `quorum`, `progress`, `reads`: the arithmetic of majorities; the high watermark of a leader; proofs for linearizable reads.
- `reconfiguration`, `impairment`: a new voter set at the leader; a replica that has lost synced records.
- `leaps`, `credit`: how far the word of another node may raise the epoch; the budget of epochs over time.
- `invariants`, `trace`: the checks after each step; events and actions as one-line text.

Callers: `replica/hosting/hosting.py` builds each `RaftGroup`, and `replica/node.py` steps it and performs the actions. `ports`,
`storage`, `runtime` and `sim` use the values. The package imports `errors` and nothing else.

Invariants:

- The same events, times and random numbers give the same actions.
- The order of the actions is the order of their effects; `actions` states the whole contract.
- The epoch never goes back. Within an epoch, the leader, once known, and the own vote, once cast, never change.
- The high watermark of a leader counts synced offsets only, and moves only past a record of the leader's own epoch.
- A replica truncates nothing below its high watermark.
- Only `transitions` makes roles and changes the epoch, the leader and the vote.
"""
