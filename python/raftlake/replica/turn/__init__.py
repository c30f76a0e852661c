"""What a node does by itself: the turn that performs what the inputs brought about, and the rounds of the house.

Reading order:

- `turn`: `Turn` saves election states, performs the actions of all groups, lets answers and requests leave, and starts a sync.
- `actions`: `Actions` takes each action of a core to the service that performs it.
- `restart`: `Restarts` starts a group anew whose log is damaged, or whose append found no room.
- `housekeeping`: `Housekeeping` runs by the clock alone: overdue appends, retention, checkpoints, the ticks of services.
- `segment_ages`: `SegmentAges` closes open segments that are as old as their topic says.

Callers: `ReplicaNode.run_turn` runs a turn, and `ReplicaNode.start` the first round of the house.

Invariants:

- In each pass, election states are durable before any action is performed.
- The actions of a group are performed in their order. All that is appended in a turn is one write for each log.
- A group whose log is damaged performs nothing more before it has been started anew.
- A turn ends: what it leaves behind asks for a turn of its own.
"""
