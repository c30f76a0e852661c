"""When closed segments are copied to the remote tier (KIP-405), by whom, and how consumers read them again.

Reading order:

- `tiering`: the service. It closes open segments whose records wait too long, and keeps a `led` for each partition that this
  node leads.
- `remote_log`: one offset space over the table and the local log, as the quorum's keys tell it.
- `led`: one led partition. Who copies, who reads back and who removes take turns. `adopter` goes first after a recovery.
- `current_keys`: a leader has the quorum's keys before it judges a table by them.
- `step`: what these have in common. `copier` makes copies, `checker` reads them back, `remover` is total retention.
- `holder`: local disks keep what they have while another program has changed the table.
- `gone_topics`: the leader of the metadata log empties the tables of deleted topics.
- `rebuild`: the keys of a partition made anew from its table, up to the log of its leader (`local_start`).
- `words`: what stands in the way, for operators and for clients that are refused.
- `remote_log_aux`: the state of a follower whose leader's log begins behind its own, from what the tier keeps.
- `remote_reads`: batches before the local log, for Fetch: a line of calls, and `pieces`, the cache of what they gave.
- `remote_aborted`: which transactions are aborted among them, by `piece_transactions`.
- `remote_searches`: ListOffsets by time over table and log.
- `read_tally`: what the reads and searches came to. `unreadable`: what they could not give, for operators.

Callers: `node` wires the services, housekeeping ticks `tiering`, and `apis` reads. The package calls the key-value service, the
port `RemoteTier` and the pure modules `tier.entries`, `tier.plan` and `tier.retention`.

Invariants:

- Only records below the high watermark are copied.
- Local disks let go only of what the table gave back as it was written, or what total retention has ended.
- A step acts on the keys as this node has applied them: a compare-and-set on the partition's key. These keys are never older
  than the leadership.
- A partition has one call under way at a time. A step that is closed has no effect any more.
- Consumers get from the table only what the keys tell of, below the high watermark.
- No read waits for the store: an answer comes later, as an input of its own.
- A node without a tier has no led partitions here, and closes no segments for them.
"""
