"""What the whole cluster must never show, one property per module, each naming its source.

Reading order:

- `base`: the moments at which an invariant is asked, what it sees of the cluster, `InvariantSuite` and `Violation`.
- `committed_log`, `committed_data`: all that was ever committed; every replica holds the same data below its high watermark.
- `monotonic_epoch`, `durable_vote`, `single_leader`, `valid_roles`: epochs never go back; votes are durable before their
  answers; one leader an epoch; only voters campaign.
- `log_matching`, `leader_completeness`: equal offset and epoch mean equal logs before; a leader has all that was committed
  before its epoch.
- `compaction_rules`, `fates`: what compaction may leave out of a log, judged where it is installed; how transactions ended.
- `refetched`: what a replica must be told that has lost its log and fetches it anew.
- `monotonic_high_watermark`, `majority_high_watermark`: no way back; a majority holds everything below it on disk.
- `snapshot_at_log_start`, `snapshot_data`, `leader_never_loads_snapshot`: a trimmed log has a snapshot; a snapshot is the state
  of committed records; no leader resets its log.
- `partition_snapshot`: the snapshot of a partition tells the voters and the producers of the records before it.
- `tier`: what the remote tier, the quorum's keys and the local logs say together.
- `voter_sets`: committed sets that follow each other differ by one voter at most.
- `left_leaders`: a Fetch session of a follower that has left its leader confirms no read.
- `log_starts`: at the end no replica shows what its leader has deleted.
- `told_in_sync`: at the end every node tells clients that all replicas are in sync.
- `awake_majority`, `convergence`: a leader without a majority gives up; at the end all nodes agree.
- `stable_leadership`: no change of leader or epoch, for the tests that arm it.

Callers: `sim/cluster.py` builds the suite with `standard_invariants`. `sim/machine.py` and `sim/node_watch.py` call the
moments. The package reads the logs of `sim/disk`.

Invariants of the package itself:

- An invariant judges from the outside: it never takes the belief of one node about another as a fact.
- The checks are incremental: they look at what changed.
- `CommittedData` comes before the invariants that read the committed log, because it extends that log.
"""

from __future__ import annotations

from raftlake.sim.invariants.awake_majority import AwakeMajority
from raftlake.sim.invariants.base import ClusterView, Invariant, InvariantSuite, ReplicaState, Violation
from raftlake.sim.invariants.committed_data import CommittedData
from raftlake.sim.invariants.committed_log import CommittedLogs
from raftlake.sim.invariants.compaction_rules import CompactionRules
from raftlake.sim.invariants.convergence import Convergence
from raftlake.sim.invariants.durable_vote import DurableVote
from raftlake.sim.invariants.leader_completeness import LeaderCompleteness
from raftlake.sim.invariants.leader_never_loads_snapshot import LeaderNeverLoadsSnapshot
from raftlake.sim.invariants.left_leaders import LeftLeaders
from raftlake.sim.invariants.log_matching import LogMatching
from raftlake.sim.invariants.majority_high_watermark import MajorityHoldsCommitted
from raftlake.sim.invariants.monotonic_epoch import MonotonicEpoch
from raftlake.sim.invariants.monotonic_high_watermark import MonotonicHighWatermark
from raftlake.sim.invariants.partition_snapshot import PartitionSnapshot
from raftlake.sim.invariants.single_leader import SingleLeader
from raftlake.sim.invariants.snapshot_at_log_start import SnapshotAtLogStart
from raftlake.sim.invariants.snapshot_data import SnapshotData
from raftlake.sim.invariants.stable_leadership import StableLeadership
from raftlake.sim.invariants.valid_roles import ValidRoles
from raftlake.sim.invariants.voter_sets import VoterSets


def standard_invariants(view: ClusterView, node_count: int, fetch_timeout_ms: int) -> tuple[list[Invariant], CommittedLogs]:
    """Everything that holds in every run, and the committed logs that the oracle reads at the end."""
    committed = CommittedLogs()
    return [
        MonotonicEpoch(view),
        DurableVote(view),
        SingleLeader(view),
        ValidRoles(view),
        LogMatching(view, committed),
        MonotonicHighWatermark(view),
        # Before the majority check: it extends the committed log that the others read.
        CommittedData(view, committed),
        CompactionRules(view, committed),
        MajorityHoldsCommitted(view, committed),
        VoterSets(view, committed),
        LeaderCompleteness(view, committed),
        SnapshotAtLogStart(view),
        SnapshotData(view, committed),
        PartitionSnapshot(view, committed),
        LeaderNeverLoadsSnapshot(view),
        AwakeMajority(view, fetch_timeout_ms),
        LeftLeaders(view),
        Convergence(view, committed, node_count),
    ], committed


__all__ = [
    "ClusterView", "CommittedLogs", "Invariant", "InvariantSuite", "ReplicaState", "StableLeadership", "Violation",
    "standard_invariants",
]  # fmt: skip
