"""What the nodes say to each other about logs and leadership, and the reads that need a proof of leadership.

Reading order:

- `fetcher`: the follower's side. `Fetchers` has one session with each peer that leads a group of this node.
- `fetch_server`: the leader's side. `FetchServer` holds the rounds of other replicas and answers them at the end of a turn.
- `fetch_sessions`: the incremental sessions (KIP-227) that the leader's side keeps.
- `pacing`: which replica gets new records at once, and which a moment later.
- `in_sync`: which replicas are in sync and which nodes are gone, as clients are told.
- `recent_appends`: what was appended last, kept in memory for the replicas that are about to fetch it.
- `control`: Vote, BeginQuorumEpoch and EndQuorumEpoch, one RPC for all groups of a turn.
- `proofs`: the groups that wait for a proof of leadership.
- `reads`: linearizable reads (KIP-650) at any node.

Callers: `front` hands RPCs in. `turn.actions` hands in what the cores say, and `turn` sends what has gathered.

Invariants:

- A round is answered once. At most one session of a replica waits for a group.
- A read is proven by a round that was sent after the read arrived, counted by `FetchServer.answer_sequence`.
- What is sent waits for the end of the turn, behind the election states of that turn.
"""
