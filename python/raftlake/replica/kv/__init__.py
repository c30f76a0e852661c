"""The key-value space of this node: its proposals, what is applied, and the limits.

Reading order:

- `state`: `KvState` is the state machine as far as it is applied here.
- `service`: `KvService` proposes commands, applies what is committed, and reads.
- `outcomes`: what becomes of a proposal.
- `proposals`: `ProposalGate` says who may write which key; `tier_gate`: what nodes may write of the remote tier.
- `room`: `KvRoom` knows the quota of the space and the limit of partitions.
- `forwarding`: the way of a proposal to the leader.
- `refused_keys`: `RefusedKeys` counts and logs entries that mean nothing.
- `recent_results`: the results of the commands that were applied last.
- `restore`: the state on its way back from a snapshot.

Callers: `apis` and the HTTP front propose and read. `turn.actions` hands in each high watermark of the metadata log. `hosting`
and `voters` listen for changes (`KvService.listeners`) and read the keys.

Invariants:

- A command's fate is decided when it is applied, and is the same on all nodes.
- A proposal that may have been appended is never tried again. Its outcome is unknown.
- Limits refuse before a command is proposed. What is applied never depends on a setting.
"""
