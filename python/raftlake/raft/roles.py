"""What a replica knows only while it plays a role.

One slotted class per role, built by `transitions.py` alone. The durable facts of an election (epoch, known leader, own
vote) belong to the group, not to a role, so no field here is ever "valid only if". Whether a replica is an observer is
a question to the voter set, not a role. The classes are mutable where a role gathers progress (votes, fetches); times
are absolute milliseconds of the injected clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from raftlake.raft.messages import FetchRequest, Request
from raftlake.raft.quorum import Tally
from raftlake.raft.types import NodeId, Offset, OffsetAndEpoch, ReplicaKey, VoterEndpoint


@dataclass(slots=True)
class Outbox:
    """Requests of one kind to several voters: at most one under way to each, failed ones wait until they are due again."""

    in_flight: dict[NodeId, Request] = field(default_factory=dict)
    retry_at_ms: dict[NodeId, int] = field(default_factory=dict)
    #: Failures in a row.
    failures: dict[NodeId, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class SnapshotDownload:
    """The leader's snapshot on its way here."""

    snapshot_id: OffsetAndEpoch
    #: How many bytes of how many are here; the size is not known before the first piece.
    position: int = 0
    size: int = -1
    #: All bytes are here; the driver makes them durable.
    is_complete: bool = False


@dataclass(slots=True)
class BuildingRemoteLogAux:
    """The state before the leader's log on its way here from the remote tier (KIP-405)."""

    #: Where the leader's own snapshot says the same; None where it has told none.
    snapshot_id: OffsetAndEpoch | None = None
    #: The driver is at it; else the last attempt failed.
    is_under_way: bool = False
    #: In a row.
    failures: int = 0
    #: No attempt begins before.
    retry_at_ms: int = 0


@dataclass(slots=True, kw_only=True)
class Unattached:
    """Knows no leader of this epoch that it could follow; fetches from the voters in turn to find one."""

    name: ClassVar[str] = "Unattached"
    election_deadline_ms: int


@dataclass(slots=True, kw_only=True)
class Prospective:
    """Asks the voters whether they would vote for it, in the current epoch (KIP-996 pre-vote)."""

    name: ClassVar[str] = "Prospective"
    election_deadline_ms: int
    tally: Tally
    votes: Outbox = field(default_factory=Outbox)
    #: It may become a candidate, and waits for its turn (`leaps`).
    is_waiting: bool = False


@dataclass(slots=True, kw_only=True)
class Candidate:
    """Bumped the epoch, voted for itself and asks for real votes."""

    name: ClassVar[str] = "Candidate"
    election_deadline_ms: int
    tally: Tally
    #: Somebody refused, so the next attempt has been brought forward.
    is_refused: bool = False
    #: And no voter is left that could still make the difference.
    is_split: bool = False
    votes: Outbox = field(default_factory=Outbox)


@dataclass(slots=True, kw_only=True)
class Follower:
    """Fetches from the leader of this epoch."""

    name: ClassVar[str] = "Follower"
    #: When a voter gives the leader up; observers ignore it.
    fetch_deadline_ms: int
    #: Since when this leader is followed: rounds that ended before say nothing, though they may have been its own.
    since_ms: int
    #: As the leader last told it, also where this log does not reach it yet; -1 before.
    leader_high_watermark: Offset = Offset(-1)
    #: Why `fetch_deadline_ms` stands where it does, for the report of the pre-vote that it starts.
    deadline_reason: str = "fetch timeout"
    #: Whether a fetch succeeded since this leader is followed, and nothing since spoke against it: then pre-votes are refused.
    has_fetched: bool = False
    #: When the leader's connection was lost, or -1: older signs of its life do not count.
    suspected_at_ms: int = -1
    #: It has said that it no longer leads: answers that it gave before, and arrive behind that, are no signs of life.
    has_leader_resigned: bool = False
    #: Set while the state before the leader's log is fetched; no records are fetched meanwhile.
    download: SnapshotDownload | None = None
    #: The same, where that state is in the remote tier. Never both.
    building: BuildingRemoteLogAux | None = None


class ReplicaProgress:
    """What a leader knows of one other replica. A plain slotted class: it is written on every fetch."""

    __slots__ = (
        "caught_up_at_ms",
        "end_offset",
        "endorsed",
        "fetched_at_ms",
        "follows",
        "has_fetched",
        "key",
        "leader_end_at_fetch",
        "lost_at_ms",
        "told_log_start",
    )

    def __init__(self, key: ReplicaKey, now_ms: int) -> None:
        self.key = key
        #: Its synced log end as its last valid fetch in this epoch said, -1 before the first.
        self.end_offset = Offset(-1)
        #: Time of its last sign of life; a new leader gives everyone the benefit of a fresh timeout.
        self.fetched_at_ms = now_ms
        #: When a connection to it was last lost, -1 for never.
        self.lost_at_ms = -1
        #: When it last had everything that the leader had, -1 for never in this epoch.
        self.caught_up_at_ms = -1
        self.leader_end_at_fetch = Offset(-1)
        #: The log start of the last answer to it, -1 where it may not have got one.
        self.told_log_start = Offset(-1)
        #: The largest causal clock that came with a fetch of this epoch (see `FetchRequestReceived.follows`).
        self.follows = 0
        #: It knows that we lead: by a BeginQuorumEpoch answer or a fetch in our epoch.
        self.endorsed = False
        #: A fetch of our epoch came from it, so it follows us.
        self.has_fetched = False


@dataclass(slots=True, kw_only=True)
class PendingChange:
    """A change of voters that is in the log and not committed."""

    #: Whom to answer; None where the answer did not wait for the commit.
    request_id: int | None
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class PendingRead:
    """A linearizable read that waits for its proof."""

    read_id: int
    sequence: int
    #: At its arrival.
    high_watermark: Offset


@dataclass(slots=True, kw_only=True)
class Leader:
    """Elected in this epoch; its log is the truth."""

    name: ClassVar[str] = "Leader"
    #: Where its epoch begins; what is committed beyond covers all that was committed before.
    epoch_start_offset: Offset
    granting_voters: tuple[NodeId, ...]
    #: The other voters, ascending by id.
    voters: dict[NodeId, ReplicaProgress]
    #: Replicas that fetch without a vote, oldest first.
    observers: dict[NodeId, ReplicaProgress] = field(default_factory=dict)
    #: Fetches that wait for something to say, by replica.
    parked: dict[NodeId, FetchRequest] = field(default_factory=dict)
    #: Reads that wait for their proof, in the order of arrival.
    pending_reads: list[PendingRead] = field(default_factory=list)
    #: The newest read for which fetch rounds were released.
    released_sequence: int = -1
    begins: Outbox = field(default_factory=Outbox)
    #: The LeaderChange record is synced here, so BeginQuorumEpoch may be sent.
    has_begun: bool = False
    #: Never later than the true deadlines; recomputed when reached, so that a fetch need not touch them.
    check_quorum_deadline_ms: int
    heartbeat_deadline_ms: int
    pending_change: PendingChange | None = None
    #: The voters are static and shall be put into the log: what each has told of itself so far.
    learns_voters: bool = False
    learned_voters: dict[NodeId, tuple[ReplicaKey, tuple[VoterEndpoint, ...]]] = field(default_factory=dict)
    #: Something about the voters waits for the high watermark; spares the hot path a look at all of it.
    watches_commits: bool = False
    #: The set without us is committed: our work is done.
    resigns: bool = False


@dataclass(slots=True, kw_only=True)
class Resigned:
    """Led this epoch and gave it up: neither leads, votes nor follows in it any more (KAFKA-10527, KAFKA-18379)."""

    name: ClassVar[str] = "Resigned"
    election_deadline_ms: int
    #: Most caught-up first; empty after a restart.
    preferred_candidates: tuple[ReplicaKey, ...]
    ends: Outbox = field(default_factory=Outbox)
    #: Voters that answered EndQuorumEpoch.
    acknowledged: dict[NodeId, None] = field(default_factory=dict)


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned
