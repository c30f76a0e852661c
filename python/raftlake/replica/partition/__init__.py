"""The state of one Raft group on this node, and the files beside its log.

Reading order:

- `partition`: `Partition` joins the core, the log, the producers and the clients that wait for the high watermark.
- `pending`: appends on their way into the log. `holds`: what transactions ask of them.
- `producer_state`: the sequence numbers of idempotent producers, and what they allow to be appended.
- `transactions`: which transactions are open or undecided, and so where the last stable offset is.
- `start_points`: `LogFacts` knows producers and voters as the log tells them. It writes down what the next start wants to know.
- `auxiliary`: what a replica has to know that begins at some offset, as the remote tier keeps it.
- `voter_log`: control batches that say who votes.
- `snapshot_files`: a snapshot file is made, checked and scanned.
- `intact`: whether bytes of a log are what was written. `wholeness`: whether all of a log came from the leader of one epoch.
- `retention`: which records of a log may be deleted.

Callers: `Engine` holds the partitions. All services work on them.

Invariants:

- `log.end_offset` of a partition is `core.log_end` whenever no action of the group is outstanding.
- Nothing here knows another group, a peer or the engine.
- Bytes that leave the log through `Partition.read_intact` are checked first.
"""
