"""The handlers of a Raft group: one module for each kind of event, RPC or timer.

A handler is a function. Its first argument is the state of the group, its last one the time. The handler changes the state and
appends actions to it. The driver performs the actions after the step.

Reading order:

- `lifecycle`: the first step of a group, lost connections, and the requests to campaign or to resign.
- `timers`: every deadline of a group, and what the passing of time does to each role.
- `common`: the checks and reactions that the handlers of requests and responses share.
- `vote`: Vote with pre-vote (KIP-996), at the voter and at the replica that campaigns.
- `begin_quorum_epoch`, `end_quorum_epoch`: the announcement of a new leader; the farewell of a leader that steps down.
- `append`: records that clients append, that the disk has synced, or that retention has deleted.
- `fetch`, `fetch_response`: Fetch at the leader; Fetch at the replica that follows.
- `fetch_snapshot`: FetchSnapshot (KIP-630) at both sides.
- `remote_log_aux`: the same where the remote tier holds what is before the leader's log (KIP-405).
- `voters`: AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter (KIP-853) at the leader.

Callers: `raft/core.py`, whose tables map each event, request and response to a handler. The handlers call the moves that
several handlers share, such as `raft/elections.py`, `raft/fetching.py` and `raft/progress.py`. `raft/reads.py` handles reads
itself.

Invariants:

- A real vote is in a `SaveElectionState` before its answer. A pre-vote is never stored.
- A leader sends BeginQuorumEpoch only after its LeaderChange record is synced.
- Only a Fetch of the leader's own epoch, at a position in the leader's log, moves the progress of a replica.
- A replica handles a Fetch response in a fixed order: leader and epoch, divergence, records, high watermark.
- A replica resets its log only to a snapshot that is durable and lies above the high watermark.
- A leader makes one change of voters at a time, by one voter.
"""
