"""The state of one Raft group, shared by the handlers of one step.

Owns the attributes and the smallest questions about them; it decides nothing. `transitions.py` alone writes `role`,
`epoch`, `leader_id` and `voted_key`. A step's handlers append to `actions`, whose order is the order of effects.
"""

from __future__ import annotations

from raftlake.raft.actions import Action
from raftlake.raft.config import RaftConfig
from raftlake.raft.credit import EpochCredit
from raftlake.raft.epochs import EpochHistory
from raftlake.raft.messages import FetchRequest, FetchSnapshotRequest
from raftlake.raft.roles import Leader, Role
from raftlake.raft.types import (
    FIRST_OFFSET,
    NO_DIRECTORY,
    NO_LEADER,
    UNKNOWN_OFFSET,
    ElectionState,
    Epoch,
    Impairment,
    NodeId,
    Offset,
    OffsetAndEpoch,
    ReplicaKey,
    Rng,
    VoterSet,
)
from raftlake.raft.voters import VoterHistory


class GroupState:
    """Plain attributes, because every step of every group reads them."""

    __slots__ = (
        "actions",
        "bootstrap_peers",
        "config",
        "credit",
        "election",
        "epoch",
        "failed_elections",
        "fetch_failures",
        "fetch_in_flight",
        "fetch_peer",
        "fetch_retry_at_ms",
        "flushed_end",
        "high_watermark",
        "impairment",
        "history",
        "is_leader",
        "is_resigning",
        "is_voter",
        "leader_id",
        "local",
        "log_end",
        "log_generation",
        "log_start",
        "next_fetch_peer",
        "other_voters",
        "rng",
        "role",
        "role_name",
        "shares_log_start",
        "snapshot_id",
        "told_epochs",
        "first_told_high_watermark",
        "told_high_watermark",
        "told_log_start",
        "tiered_end",
        "tiered_start",
        "voted_key",
        "voter_history",
        "voters",
    )

    role: Role
    role_name: str

    def __init__(
        self,
        config: RaftConfig,
        local: ReplicaKey,
        voters: VoterHistory,
        history: EpochHistory,
        log_end: Offset,
        rng: Rng,
        impairment: Impairment | None = None,
    ) -> None:
        self.config = config
        self.local = local
        self.rng = rng
        #: Who votes, by the log; `voters`, `is_voter` and `other_voters` follow from its newest set, committed or not.
        self.voter_history = voters
        self.use_latest_voters()

        self.epoch = Epoch(0)
        #: By how much the epoch may rise, and who has answered to be how far above ours (`leaps`).
        self.credit = EpochCredit()
        self.told_epochs: dict[NodeId, Epoch] = {}
        #: The leader of `epoch` if known. A resigned leader says that it knows none.
        self.leader_id: NodeId = NO_LEADER
        self.voted_key: ReplicaKey | None = None
        #: What is on disk, or will be once the actions emitted so far are performed.
        self.election = ElectionState()
        self.is_leader = False
        #: Asked to stop: still votes and follows, never campaigns again.
        self.is_resigning = False
        #: Synced records are lost: follows, but neither votes nor campaigns until it has them again.
        self.impairment = impairment
        #: Elections lost in a row, the exponent of the wait before the next attempt.
        self.failed_elections = 0

        self.history = history
        self.log_start = history.log_start
        self.log_end = log_end
        #: The log found at start was recovered and synced.
        self.flushed_end = log_end
        #: Counts truncations; tells syncs from before one apart from later ones.
        self.log_generation = 0
        #: Exclusive. Everything before the log start was committed once.
        self.high_watermark = self.log_start

        #: What the leader of this epoch last said to be committed, be it here or not; -1 before it has.
        self.told_high_watermark = Offset(-1)
        #: What that leader said first. It covers all that anybody had seen to be committed when this replica started.
        self.first_told_high_watermark = Offset(-1)
        #: The latest log start that a leader has told, up to our high watermark; 0 where none did. What lies below is deleted.
        self.told_log_start = FIRST_OFFSET
        self.shares_log_start = True
        #: The newest finished snapshot here (KIP-630), never the bootstrap one.
        self.snapshot_id: OffsetAndEpoch | None = None

        #: What of this log the remote tier shows: from here to there (exclusive), -1 where nothing.
        self.tiered_start = self.tiered_end = UNKNOWN_OFFSET

        self.fetch_in_flight: FetchRequest | FetchSnapshotRequest | None = None
        self.fetch_peer: NodeId = NO_LEADER
        self.fetch_retry_at_ms: int | None = None
        self.fetch_failures = 0
        self.next_fetch_peer = 0

        #: Addresses to look for the leader at, as negative numbers.
        self.bootstrap_peers: tuple[NodeId, ...] = ()

        self.actions: list[Action] = []

    def use_latest_voters(self) -> None:
        """The newest set of the log counts from the moment it is appended, and until it is cut away."""
        self.voters: VoterSet = self.voter_history.latest
        #: A voter under another directory id is another replica that happens to have our number (KIP-853).
        self.is_voter = self.voters.has(self.local)
        self.other_voters = tuple(voter for voter in self.voters.ids if voter != self.local.id)

    def may_stand(self) -> bool:
        """Whether this replica may be elected. So may one whose removal it has not seen committed: the others may need it, as
        it may be the only one that has all that is committed (Ongaro's thesis, 4.2.2)."""
        if self.is_voter:
            return True
        history = self.voter_history
        removed_at = history.latest_offset
        return removed_at is not None and removed_at >= self.high_watermark and history.previous.has(self.local)

    @property
    def is_alone(self) -> bool:
        """The only voter, with all that it ever synced: nobody else can lead."""
        return not self.other_voters and self.is_voter and self.impairment is None

    def is_followable(self, leader_id: NodeId) -> bool:
        """Whether `leader_id` may be followed when others say that it leads. Where voters are in the log, our copy of it may
        be older than the leader; voters that stay static are the only ones who can lead."""
        if leader_id in self.voters:
            return True
        return leader_id >= 0 and self.config.voters_in_log and self.local.directory_id != NO_DIRECTORY

    @property
    def log_end_position(self) -> OffsetAndEpoch:
        """The log end and the epoch of the last record: how up-to-date this log is."""
        return OffsetAndEpoch(self.log_end, self.history.last_epoch)

    @property
    def synced_position(self) -> OffsetAndEpoch:
        """What is sure to be in this log after a crash. Only this may be claimed in an election: a candidate that lost its tail
        after a voter granted it for that tail is granted again when it asks again in the same epoch."""
        return OffsetAndEpoch(self.flushed_end, self.history.epoch_before(self.flushed_end))

    def cut_log(self, end: Offset) -> None:
        """The log ends at `end` now; syncs that began before say nothing about it any more."""
        self.log_end = end
        self.flushed_end = min(self.flushed_end, end)
        self.told_log_start = min(self.told_log_start, end)
        self.log_generation += 1
        if self.voter_history.truncate_to(end):
            self.use_latest_voters()

    @property
    def epoch_start_offset(self) -> Offset:
        """Where the epoch of this leader begins. Only a leader has one."""
        leader = self.role
        assert isinstance(leader, Leader)
        return leader.epoch_start_offset

    @property
    def announced_high_watermark(self) -> Offset:
        """What a leader tells its replicas: unknown until an entry of its own epoch is committed. A new leader may know less
        than they do, and Kafka's Raft ends its process at a high watermark below the one that it knows."""
        leader = self.role
        if isinstance(leader, Leader) and self.high_watermark <= leader.epoch_start_offset:
            return UNKNOWN_OFFSET
        return self.high_watermark

    @property
    def begins_in_tier(self) -> bool:
        """Whether the remote tier holds what lies before the log, without a gap."""
        return 0 <= self.tiered_start < self.log_start <= self.tiered_end

    @property
    def shown_log_start(self) -> Offset:
        """Where the log here begins: at its first record that is not deleted."""
        return max(self.log_start, self.told_log_start)

    @property
    def announced_log_start(self) -> Offset:
        """What a leader tells its replicas: where log and remote tier together begin (KIP-405)."""
        # In one piece: each answer to a Fetch asks several times.
        tiered_start, log_start, told = self.tiered_start, self.log_start, self.told_log_start
        if 0 <= tiered_start < log_start <= self.tiered_end:
            return tiered_start
        return told if told > log_start else log_start

    def random_election_timeout_ms(self) -> int:
        """Uniform in [T, 2T), as Kafka draws it."""
        return self.config.election_timeout_ms + self.rng.randrange(self.config.election_timeout_ms)

    def jitter_bound_ms(self) -> int:
        """election_jitter_ms_max, doubled for each election lost in a row (up to T)."""
        return min(self.config.election_jitter_ms_max << min(self.failed_elections, 16), self.config.election_timeout_ms)

    def random_jitter_ms(self) -> int:
        """Uniform in [1, jitter_bound_ms]."""
        return 1 + self.rng.randrange(self.jitter_bound_ms())

    def random_short_jitter_ms(self) -> int:
        """Uniform in [1, election_jitter_ms_max], whatever was lost before."""
        return 1 + self.rng.randrange(self.config.election_jitter_ms_max)
