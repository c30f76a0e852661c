"""What replicas of one Raft group say to each other, as values.

The Kafka wire forms batch these by topic and partition (KIP-595 "multi-raft"); that wrapping, the cluster id and its
check belong to the driver. Field meanings follow Kafka 4.3.1 (its message schemas). Every response carries the sender's view of
leader and epoch ("we piggyback current leader and epoch information on all responses").
"""

from __future__ import annotations

from typing import Any

from raftlake.errors import ErrorCode
from raftlake.raft.types import (
    ANY_VOTER,
    FIRST_OFFSET,
    NO_DIRECTORY,
    NO_SNAPSHOT,
    UNKNOWN_OFFSET,
    DirectoryId,
    Epoch,
    NodeId,
    Offset,
    OffsetAndEpoch,
    ReplicaKey,
    VoterEndpoint,
    VoterSet,
)
from raftlake.raft.value import value


@value
class VoteRequest:
    """Vote (52). `epoch` is the bumped epoch of a candidate, the *current* epoch of a prospective (pre-vote)."""

    candidate: ReplicaKey
    epoch: Epoch
    log_end: OffsetAndEpoch
    pre_vote: bool
    #: The directory id that the sender thinks the receiver has; unknown with a static voter set.
    voter_directory_id: DirectoryId = NO_DIRECTORY
    #: The voter that the request is meant for, -1 where the sender did not say (Vote v0).
    voter_id: NodeId = ANY_VOTER


@value
class VoteResponse:
    error: ErrorCode
    leader_id: NodeId
    leader_epoch: Epoch
    vote_granted: bool


@value
class BeginQuorumEpochRequest:
    leader_id: NodeId
    leader_epoch: Epoch
    voter_directory_id: DirectoryId = NO_DIRECTORY
    voter_id: NodeId = ANY_VOTER


@value
class BeginQuorumEpochResponse:
    error: ErrorCode
    leader_id: NodeId
    leader_epoch: Epoch


@value
class EndQuorumEpochRequest:
    leader_id: NodeId
    leader_epoch: Epoch
    #: Most caught-up first.
    preferred_candidates: tuple[ReplicaKey, ...]


@value
class EndQuorumEpochResponse:
    error: ErrorCode
    leader_id: NodeId
    leader_epoch: Epoch


@value
class FetchRequest:
    """Fetch (1) of a replica. `fetch_offset` acknowledges everything below it as *synced* on the sender's disk."""

    replica: ReplicaKey
    #: The epoch the sender follows (`CurrentLeaderEpoch`).
    leader_epoch: Epoch
    fetch_offset: Offset
    #: Epoch of the record before `fetch_offset`; 0 for an empty log, never -1.
    last_fetched_epoch: Epoch
    #: The sender's high watermark (KIP-1166); -1 when it knows none. The leader answers at once when its own is higher.
    high_watermark: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = FIRST_OFFSET


@value
class FetchedBatch:
    """One record batch of a fetch response: enough for the core to place it, the bytes themselves left to the driver."""

    base_offset: Offset
    #: Exclusive: one past the batch's last offset.
    end_offset: Offset
    epoch: Epoch
    #: Driver-owned bytes; the core passes them on unread.
    payload: Any
    #: The voters that a control batch sets (KRaftVoters, KIP-853); None for every other batch.
    voters: VoterSet | None = None


@value
class FetchResponse:
    error: ErrorCode
    leader_id: NodeId
    leader_epoch: Epoch
    high_watermark: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = UNKNOWN_OFFSET
    #: "the largest epoch and its end offset such that subsequent records are known to diverge"
    diverging: OffsetAndEpoch | None = None
    #: Set when the asked offset lies before the leader's log: everything below it must come from elsewhere (KIP-630).
    snapshot_id: OffsetAndEpoch | None = None
    batches: tuple[FetchedBatch, ...] = ()
    #: Where the leader's log ended when it answered, be what it sent less; -1 from who does not lead or does not tell (Kafka).
    leader_log_end: Offset = UNKNOWN_OFFSET


@value
class FetchSnapshotRequest:
    """FetchSnapshot (59, KIP-630): the bytes of a snapshot from `position` on."""

    replica: ReplicaKey
    leader_epoch: Epoch
    snapshot_id: OffsetAndEpoch
    position: int


@value
class FetchSnapshotResponse:
    error: ErrorCode
    leader_id: NodeId
    leader_epoch: Epoch
    snapshot_id: OffsetAndEpoch = NO_SNAPSHOT
    #: Bytes of the whole snapshot, and where in it `data` begins.
    size: int = 0
    position: int = 0
    #: Driver-owned bytes; only their number matters to the core.
    data: Any = b""


@value
class AddVoter:
    """AddRaftVoter (80): an observer that has caught up becomes a voter."""

    voter: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...]
    #: Whether the answer waits for the commit (false for a node that adds itself).
    ack_when_committed: bool = True
    #: The kraft.versions that the new voter understands, first and last.
    kraft_versions: tuple[int, int] = (0, 1)


@value
class RemoveVoter:
    """RemoveRaftVoter (81)."""

    voter: ReplicaKey


@value
class UpdateVoter:
    """UpdateRaftVoter (82): a voter tells the leader where it is reached now."""

    voter: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...]
    leader_epoch: Epoch
    kraft_versions: tuple[int, int] = (0, 1)


VoterChange = AddVoter | RemoveVoter | UpdateVoter

Request = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest | FetchSnapshotRequest
Response = VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchResponse | FetchSnapshotResponse
