"""What the core asks its driver to do. Imperatives.

The ordering contract, once and for all groups:

1. The list order of the actions of one `step` is the order of their effects, and lists are performed in step order.
2. `SaveElectionState` is *durable* (file and directory synced) before any later action of the same group takes effect.
   A driver may perform it earlier than actions that precede it, and may skip one that a later one of the same turn replaces.
3. `AppendRecords`, `AppendLeaderChange`, `AppendVoters`, `TruncateTo` and `ResetLog` are visible to reads at once and
   durable only when the driver later reports `RecordsFlushed`. The driver starts a sync after each of them by itself.
4. Nothing here waits: an answer that depends on a sync is emitted by the step that receives `RecordsFlushed`.

The simulator may crash a node between any two actions.
"""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.raft.messages import FetchedBatch, FetchRequest, FetchSnapshotRequest, Request, Response
from raftlake.raft.types import ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch, VoterSet
from raftlake.raft.value import value


@value
class SaveElectionState:
    state: ElectionState


@value
class AppendRecords:
    """Leader: write the payload of an `AppendRequested`, first batch at `base_offset`, stamped with `epoch`."""

    base_offset: Offset
    end_offset: Offset
    epoch: Epoch
    payload: object


@value
class AppendFetched:
    """Follower: write batches of a fetch response as they are (their offsets and epochs are already set)."""

    batches: tuple[FetchedBatch, ...]
    #: Of the leader that sent them; the batches may be older.
    leader_epoch: Epoch


@value
class AppendLeaderChange:
    """Leader: write the LeaderChange control record (type 2) as one batch at `offset`; with `initial_voters` it has three
    records: the first leader of a group puts the voters that it began with into the log (KIP-853)."""

    offset: Offset
    epoch: Epoch
    leader_id: NodeId
    voters: tuple[NodeId, ...]
    granting_voters: tuple[NodeId, ...]
    initial_voters: VoterSet | None = None


@value
class AppendVoters:
    """Leader: write the KRaftVoters control record (type 6) as one batch at `offset`, behind a KRaftVersion record (type 5)
    where `kraft_version` is given."""

    offset: Offset
    epoch: Epoch
    voters: VoterSet
    kraft_version: int | None = None


@value
class TruncateTo:
    """Cut the log so that it ends at `end_offset`. Never below the high watermark."""

    end_offset: Offset


@value
class ResetLog:
    """Drop the whole log and begin anew at `start`: the state of everything before it is in the snapshot `start`, which is
    durable here. The state machine becomes what that snapshot says."""

    start: OffsetAndEpoch


@value
class MendReplica:
    """The replica holds again what it had lost: forget, durably, that it was impaired. Nothing waits for it."""


@value
class SendRequest:
    """Send to a peer. A `FetchRequest` replaces an earlier one of this group to the same peer that has not left yet."""

    destination: NodeId
    request: Request


@value
class Respond:
    request_id: int
    response: Response


@value
class AnswerFetch:
    """Complete the fetch of a replica. With `error` NONE and no divergence the driver reads the records itself, from
    `request.fetch_offset` up to the log end (replicas may read above the high watermark)."""

    replica_id: NodeId
    request: FetchRequest
    error: ErrorCode
    leader_id: NodeId
    leader_epoch: Epoch
    high_watermark: Offset
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None


@value
class AnswerFetchSnapshot:
    """Answer a FetchSnapshot. With `error` NONE the driver reads the snapshot itself: SNAPSHOT_NOT_FOUND where it has no such
    one, POSITION_OUT_OF_RANGE outside of it (Kafka's order of checks: these come last)."""

    request_id: int
    request: FetchSnapshotRequest
    error: ErrorCode
    leader_id: NodeId
    leader_epoch: Epoch


@value
class WriteSnapshot:
    """Keep a piece of the leader's snapshot; the one at position 0 begins it. Need not be durable."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: object


@value
class FinishSnapshot:
    """All pieces are written: check them, make the snapshot durable, and report `SnapshotReceived`."""

    snapshot_id: OffsetAndEpoch


@value
class AbandonSnapshot:
    """Throw the pieces away: the leader or its snapshot is no longer the one that they came from."""

    snapshot_id: OffsetAndEpoch


@value
class BuildRemoteLogAux:
    """The records that are missing here are in the remote tier, and no more in the log of `leader_id` (KIP-405). Make of what
    the tier keeps a snapshot of all that lies before that log, and report `RemoteLogAuxBuilt` or `RemoteLogAuxFailed`. Our own
    log is not touched meanwhile."""

    leader_id: NodeId
    leader_epoch: Epoch


@value
class AbandonRemoteLogAux:
    """The leader that it was built for leads no more, or answers otherwise by now."""


@value
class ReleaseFetchRounds:
    """A read waits for proof of leadership: answer at once, even if empty, every Fetch round that is being held, and the next
    one of each replica whose round is not. Parked fetches of the core stay parked."""


@value
class AdvanceHighWatermark:
    """Everything below `high_watermark` is committed: apply it, wake consumers, answer appends."""

    high_watermark: Offset


@value
class AdoptLogStart:
    """The leader says that all below `log_start` is deleted: clients see none of it any more, and its segments may go. Never
    above the high watermark."""

    log_start: Offset


@value
class AnswerRead:
    """`error` NONE: `offset` is an applied offset, proven after the read arrived. Else the leader (if known) is named."""

    read_id: int
    error: ErrorCode
    offset: Offset
    leader_id: NodeId
    leader_epoch: Epoch


@value
class AnswerVoterChange:
    """`error` NONE: the change is committed, or appended where that was enough. `message` is for people."""

    request_id: int
    error: ErrorCode
    message: str
    leader_id: NodeId
    leader_epoch: Epoch


@value
class ReportRole:
    """The role, epoch or known leader changed. For traces, metrics, clients that wait for a leader; `reason` is for people.
    On leaving leadership the driver fails its pending appends as *unknown*."""

    role: str
    epoch: Epoch
    leader_id: NodeId
    reason: str


@value
class ReportRefusedEpoch:
    """`source` named an epoch farther above ours than it may raise it, or cannot lead it; the epoch was not taken in."""

    source: NodeId
    epoch: Epoch
    own_epoch: Epoch


Action = (
    SaveElectionState
    | AppendRecords
    | AppendFetched
    | AppendLeaderChange
    | AppendVoters
    | TruncateTo
    | ResetLog
    | MendReplica
    | SendRequest
    | Respond
    | AnswerFetch
    | AnswerFetchSnapshot
    | WriteSnapshot
    | FinishSnapshot
    | AbandonSnapshot
    | BuildRemoteLogAux
    | AbandonRemoteLogAux
    | ReleaseFetchRounds
    | AdvanceHighWatermark
    | AdoptLogStart
    | AnswerRead
    | AnswerVoterChange
    | ReportRole
    | ReportRefusedEpoch
)
