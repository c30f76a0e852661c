"""What can happen to one Raft group. Nouns and past tense: each event is a fact that the driver reports to `step`.

An event is complete: what the core decides depends on its state, the event and `now_ms` alone.
"""

from __future__ import annotations

from enum import Enum

from raftlake.errors import ErrorCode
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    Response,
    VoterChange,
    VoteRequest,
)
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch, VoterSet
from raftlake.raft.value import value


@value
class Started:
    """The node opened this group's log and election state; the first event, exactly once."""

    #: Added to the wait before the first pre-vote: of a new group, another voter should lead if it can.
    election_delay_ms: int = 0


@value
class DeadlineReached:
    """`now_ms` has reached `next_deadline_ms()`. Harmless when early: the core compares with its own deadlines."""


@value
class RequestReceived:
    """A Vote, BeginQuorumEpoch or EndQuorumEpoch request, answered by exactly one `Respond` with the same `request_id`; or a
    FetchSnapshot request, answered by one `AnswerFetchSnapshot`."""

    request_id: int
    request: VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchSnapshotRequest


@value
class FetchRequestReceived:
    """A replica's Fetch. Answered by one `AnswerFetch` to that replica, now or later; a newer Fetch of the same replica
    replaces a parked one without an answer.

    `follows` is the driver's causal clock: the sender had received an answer that this node sent when its answer
    counter stood at `follows` (0: nothing is known). A read that arrived when the counter stood at s is confirmed only by a
    Fetch with `follows` > s: an older one may have left before the sender voted for somebody else.
    """

    request: FetchRequest
    follows: int


@value
class ReplicaConfirmed:
    """A replica sent a Fetch round that covers this group without changing its position (an incremental fetch session): its
    parked fetch still stands, and is of `leader_epoch`. Counts for check quorum and for reads like a Fetch of that epoch."""

    replica_id: NodeId
    at_ms: int
    follows: int
    leader_epoch: Epoch


@value
class LeaderConfirmed:
    """The leader answered a Fetch round that covers this group and had nothing to say about it (so it still leads)."""

    leader_id: NodeId
    at_ms: int


@value
class ResponseReceived:
    """A peer's answer to `request`, which this core sent. Late and stale ones are told apart by the request inside."""

    source: NodeId
    request: Request
    response: Response


class FailureReason(Enum):
    TIMED_OUT = "timed out"
    DISCONNECTED = "disconnected"
    UNSUPPORTED_VERSION = "unsupported version"


@value
class RequestFailed:
    """No answer will come for `request` to `peer`; nothing is known about whether it arrived."""

    peer: NodeId
    request: Request
    reason: FailureReason


@value
class PeerUnreachable:
    """The connection to `peer` was closed by it or refused: its process is probably gone (promise 4: fast pre-vote)."""

    peer: NodeId


@value
class AppendRequested:
    """The leader's state machine or a client appends `record_count` offsets in one or more batches (one per entry of the
    tuple). Legal only while `is_leader`; the assigned offsets are in the `AppendRecords` action."""

    #: Offsets that each batch occupies, in order.
    record_counts: tuple[int, ...]
    #: Driver-owned, passed through to the action.
    payload: object


@value
class RecordsFlushed:
    """fdatasync covered the log up to `end_offset`. `generation` is the core's `log_generation` when that sync was
    *started*; a sync from before a truncation says nothing about the bytes written since."""

    end_offset: Offset
    generation: int


@value
class ReadRequested:
    """A linearizable read (KIP-650 ReadOffset); answered by one `AnswerRead`. `sequence` is the driver's answer counter
    at arrival, see `FetchRequestReceived.follows`."""

    read_id: int
    sequence: int


@value
class LogStartAdvanced:
    """Retention deleted the prefix of the log: the first offset is now `log_start_offset` (never above the high watermark)."""

    log_start_offset: Offset


@value
class SnapshotTaken:
    """This node finished a snapshot of its own of everything below `snapshot_id.offset`; it is durable and may be named to
    followers. Never above the high watermark, and its epoch is that of the record before it."""

    snapshot_id: OffsetAndEpoch


@value
class SnapshotReceived:
    """What `FinishSnapshot` asked for has been done: the leader's snapshot is durable here. With `is_intact` False it was
    damaged on its way or is not what it says, and has been thrown away."""

    snapshot_id: OffsetAndEpoch
    is_intact: bool
    #: The voters in its header; None for kraft.version 0.
    voters: VoterSet | None = None


@value
class HistoryTiered:
    """The remote tier shows the records of this log from `start_offset` to `end_offset` (exclusive; both -1: nothing). All of
    them are committed. Each replica is told, for any of them may lead next."""

    start_offset: Offset
    end_offset: Offset


@value
class RemoteLogAuxBuilt:
    """What `BuildRemoteLogAux` asked for has been done: the snapshot of everything below `snapshot_id.offset` is durable here,
    made of what the remote tier keeps."""

    #: Of the action that asked. The snapshot holds no record of a later epoch.
    leader_epoch: Epoch
    snapshot_id: OffsetAndEpoch
    #: The voters there; None for kraft.version 0.
    voters: VoterSet | None


@value
class RemoteLogAuxFailed:
    """`BuildRemoteLogAux` came to nothing, and changed nothing."""

    leader_epoch: Epoch
    #: The peer that was asked leads no more, or leads in another epoch: a Fetch tells.
    is_refused: bool = False
    #: This node can use no tier, so that another attempt would come to nothing too.
    is_unusable: bool = False


@value
class VoterChangeRequested:
    """Someone wants the voters changed (KIP-853); answered by one `AnswerVoterChange`, now or when it is committed."""

    request_id: int
    change: VoterChange


@value
class CampaignRequested:
    """Start a pre-vote round now instead of at the election timeout (a new group's first candidate). Ignored unless this
    voter knows no leader."""


@value
class ResignRequested:
    """Graceful stop: hand leadership over with EndQuorumEpoch. A follower or candidate just stops campaigning."""


Event = (
    Started
    | DeadlineReached
    | RequestReceived
    | FetchRequestReceived
    | ReplicaConfirmed
    | LeaderConfirmed
    | ResponseReceived
    | RequestFailed
    | PeerUnreachable
    | AppendRequested
    | RecordsFlushed
    | ReadRequested
    | LogStartAdvanced
    | SnapshotTaken
    | SnapshotReceived
    | HistoryTiered
    | RemoteLogAuxBuilt
    | RemoteLogAuxFailed
    | VoterChangeRequested
    | CampaignRequested
    | ResignRequested
)

__all__ = [
    "AppendRequested", "CampaignRequested", "DeadlineReached", "ErrorCode", "Event", "FailureReason", "FetchRequestReceived",
    "HistoryTiered", "LeaderConfirmed", "LogStartAdvanced", "PeerUnreachable", "ReadRequested", "RecordsFlushed",
    "RemoteLogAuxBuilt", "RemoteLogAuxFailed", "ReplicaConfirmed", "RequestFailed", "RequestReceived", "ResignRequested",
    "ResponseReceived", "SnapshotReceived", "SnapshotTaken", "Started", "VoterChangeRequested",
]  # fmt: skip
