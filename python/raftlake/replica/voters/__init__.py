"""Who votes, and where nodes are reached: what changes it, and how a quorum is described.

Reading order:

- `cluster_identity`: `ClusterIdentity` knows the cluster's id, and refuses what is of another cluster.
- `membership`: `Membership` writes and reads the keys of nodes and of the cluster.
- `changes`: `VoterChanges` takes changes of voters to the cores, and brings all groups after the quorum's log (KIP-853).
- `own_vote`: `OwnVote` asks the leader about this node's own vote.
- `describe`: `Describer` describes a group's quorum for people and tools.

The voters as this node knows them are `Quorum`, further down: most services ask it.

Callers: `front` asks whether an RPC is of another cluster. `turn.housekeeping` calls each `tick`. `apis` asks for changes and
for descriptions. `turn.actions` hands in the answers of the cores.

Invariants:

- The core decides about a change of voters. Nothing here counts votes.
- A group follows the committed voters of the quorum's log, never an older set.
- An endpoint counts when the leader has reached it.
"""
