"""One Raft group: `step(event, now_ms) -> actions`. The only class that drivers see.

Owns the dispatch from events to handlers and the read-only view of the group; decides nothing itself. Pure and
synchronous: no I/O, no clock, no randomness but the given `Rng`; the same events give the same actions. After each step
the cheap invariants are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from raftlake.raft import reads, transitions
from raftlake.raft.actions import Action
from raftlake.raft.config import RaftConfig
from raftlake.raft.epochs import EpochHistory
from raftlake.raft.events import (
    AppendRequested,
    CampaignRequested,
    DeadlineReached,
    Event,
    FetchRequestReceived,
    HistoryTiered,
    LeaderConfirmed,
    LogStartAdvanced,
    PeerUnreachable,
    ReadRequested,
    RecordsFlushed,
    RemoteLogAuxBuilt,
    RemoteLogAuxFailed,
    ReplicaConfirmed,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    SnapshotReceived,
    SnapshotTaken,
    Started,
    VoterChangeRequested,
)
from raftlake.raft.handlers import (
    append,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_response,
    fetch_snapshot,
    lifecycle,
    remote_log_aux,
    timers,
    vote,
)
from raftlake.raft.handlers import voters as voter_changes
from raftlake.raft.invariants import check
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    VoteRequest,
)
from raftlake.raft.roles import Follower, Leader, ReplicaProgress
from raftlake.raft.state import GroupState
from raftlake.raft.trace import describe
from raftlake.raft.types import (
    FIRST_OFFSET,
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

Handler = Callable[[GroupState, Any, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One line of DescribeQuorum. Times are milliseconds of the core's clock, -1 for never; both -1 for the leader itself."""

    key: ReplicaKey
    #: Exclusive, -1 where no fetch of this epoch has come.
    log_end: Offset
    last_fetch_ms: int
    last_caught_up_ms: int
    is_voter: bool


class RaftGroup(GroupState):
    """One replica of one group. The attributes of `GroupState` are its read-only view."""

    __slots__ = ()

    def __init__(
        self,
        config: RaftConfig,
        local: ReplicaKey,
        voters: VoterSet | VoterHistory,
        *,
        epochs: Sequence[tuple[Epoch, Offset]],
        log_start: Offset,
        log_end: Offset,
        election: ElectionState | None,
        snapshot_id: OffsetAndEpoch | None = None,
        rng: Rng,
        now_ms: int,
        impairment: Impairment | None = None,
        bootstrap_peers: tuple[NodeId, ...] = (),
        told_log_start: Offset = FIRST_OFFSET,
        shares_log_start: bool = True,
    ) -> None:
        """`epochs` is the log's leader-epoch list; the log from `log_start` to `log_end` (exclusive) counts as synced. `voters`
        are those that the log says, with the static ones behind them, or the static ones alone. The newest snapshot, if any,
        ends within the log: what it covers was committed. `bootstrap_peers` are asked for the leader as long as this replica is
        no voter: they stand for addresses, their numbers are negative. `told_log_start` is the last `AdoptLogStart` that is
        remembered. With `shares_log_start` False the replicas delete each for itself, as snapshots allow."""
        voter_history = voters if isinstance(voters, VoterHistory) else VoterHistory(voters)
        super().__init__(config, local, voter_history, EpochHistory(epochs, log_start, log_end), log_end, rng, impairment)
        self.bootstrap_peers = bootstrap_peers
        self.told_log_start = min(told_log_start, log_end)
        self.shares_log_start = shares_log_start
        if snapshot_id is not None:
            fetch_snapshot.take_up(self, snapshot_id)
        transitions.restore(self, election, now_ms)
        check(self)

    def step(self, event: Event, now_ms: int) -> list[Action]:
        """Apply one event; perform the returned actions in their order (the contract is in `actions.py`)."""
        actions: list[Action] = []
        self.actions = actions
        HANDLERS[event.__class__](self, event, now_ms)
        check(self)
        return actions

    def next_deadline_ms(self) -> int | None:
        """When to report `DeadlineReached` next, None for never. May move either way with each step."""
        return timers.next_deadline_ms(self)

    @property
    def is_serving_leader(self) -> bool:
        """Leads and has committed an entry of its own epoch: only then its high watermark covers all acknowledged appends."""
        return self.is_leader and self.high_watermark > self.epoch_start_offset

    @property
    def hears_leader(self) -> bool:
        """Leads, or has heard of its leader since their connection was last lost."""
        return self.is_leader or (isinstance(self.role, Follower) and self.role.has_fetched)

    def epoch_end(self, epoch: Epoch) -> OffsetAndEpoch:
        """OffsetForLeaderEpoch: the largest epoch <= `epoch` with its end offset; (-1, -1) where this log cannot say."""
        if epoch > self.history.last_epoch and epoch != self.epoch:
            return OffsetAndEpoch(Offset(-1), Epoch(-1))
        end = self.history.floor_end(epoch, self.log_end)
        return end if self.history.has_epoch(end.epoch) else OffsetAndEpoch(Offset(-1), Epoch(-1))

    def has_caught_up(self, applied: Offset) -> bool:
        """Whether what lies below `applied` includes all that anybody had seen to be committed when this replica started: it
        covers a record of the current epoch, and all that this epoch's leader spoke of first. A replica that stays a few
        records behind its leader has caught up, too."""
        if self.is_leader:
            return applied > self.epoch_start_offset
        return 0 <= self.first_told_high_watermark <= applied and self.history.epoch_before(applied) == self.epoch

    def snapshot_at(self, offset: Offset) -> OffsetAndEpoch:
        """The id of a snapshot of everything below `offset`; InvariantViolation unless all of that is committed here."""
        snapshot_id = OffsetAndEpoch(offset, self.history.epoch_before(offset))
        fetch_snapshot.require_position(self, snapshot_id)
        return snapshot_id

    def replica_progress(self) -> tuple[ReplicaStatus, ...]:
        """What DescribeQuorum says of each replica: voters by id, then observers by id. Empty unless leading."""
        leader = self.role
        if not isinstance(leader, Leader):
            return ()
        # A leader that removed itself is listed as the observer that it is about to be.
        me = self.is_voter
        own = ReplicaStatus(key=self.local, log_end=self.log_end, last_fetch_ms=-1, last_caught_up_ms=-1, is_voter=me)
        voters = [own] * me + [_status(progress, is_voter=True) for progress in leader.voters.values()]
        observers = [own] * (not me) + [_status(progress, is_voter=False) for progress in leader.observers.values()]
        return (*sorted(voters, key=_replica_id), *sorted(observers, key=_replica_id))


def _status(progress: ReplicaProgress, *, is_voter: bool) -> ReplicaStatus:
    return ReplicaStatus(
        key=progress.key,
        log_end=progress.end_offset,
        last_fetch_ms=progress.fetched_at_ms if progress.has_fetched else -1,
        last_caught_up_ms=progress.caught_up_at_ms,
        is_voter=is_voter,
    )


def _replica_id(status: ReplicaStatus) -> int:
    return status.key.id


def _on_request(group: GroupState, event: RequestReceived, now_ms: int) -> None:
    REQUEST_HANDLERS[event.request.__class__](group, event.request_id, event.request, now_ms)


def _on_response(group: GroupState, event: ResponseReceived, now_ms: int) -> None:
    RESPONSE_HANDLERS[event.request.__class__](group, event.source, event.request, event.response, now_ms)


def _on_request_failed(group: GroupState, event: RequestFailed, now_ms: int) -> None:
    FAILURE_HANDLERS[event.request.__class__](group, event, now_ms)


HANDLERS: dict[type, Handler] = {
    Started: lifecycle.on_started,
    DeadlineReached: timers.on_deadline_reached,
    RequestReceived: _on_request,
    FetchRequestReceived: fetch.on_fetch_request,
    ReplicaConfirmed: fetch.on_replica_confirmed,
    LeaderConfirmed: fetch_response.on_leader_confirmed,
    ResponseReceived: _on_response,
    RequestFailed: _on_request_failed,
    PeerUnreachable: lifecycle.on_peer_unreachable,
    AppendRequested: append.on_append_requested,
    RecordsFlushed: append.on_records_flushed,
    ReadRequested: reads.on_read_requested,
    LogStartAdvanced: append.on_log_start_advanced,
    SnapshotTaken: fetch_snapshot.on_snapshot_taken,
    SnapshotReceived: fetch_snapshot.on_snapshot_received,
    HistoryTiered: remote_log_aux.on_history_tiered,
    RemoteLogAuxBuilt: remote_log_aux.on_built,
    RemoteLogAuxFailed: remote_log_aux.on_failed,
    VoterChangeRequested: voter_changes.on_voter_change_requested,
    CampaignRequested: lifecycle.on_campaign_requested,
    ResignRequested: lifecycle.on_resign_requested,
}

REQUEST_HANDLERS: dict[type, Callable[[GroupState, int, Any, int], None]] = {
    VoteRequest: vote.on_vote_request,
    BeginQuorumEpochRequest: begin_quorum_epoch.on_begin_request,
    EndQuorumEpochRequest: end_quorum_epoch.on_end_request,
    FetchSnapshotRequest: fetch_snapshot.on_fetch_snapshot_request,
}

RESPONSE_HANDLERS: dict[type, Callable[[GroupState, Any, Any, Any, int], None]] = {
    VoteRequest: vote.on_vote_response,
    BeginQuorumEpochRequest: begin_quorum_epoch.on_begin_response,
    EndQuorumEpochRequest: end_quorum_epoch.on_end_response,
    FetchRequest: fetch_response.on_fetch_response,
    FetchSnapshotRequest: fetch_snapshot.on_fetch_snapshot_response,
}

FAILURE_HANDLERS: dict[type, Handler] = {
    VoteRequest: vote.on_vote_failed,
    BeginQuorumEpochRequest: begin_quorum_epoch.on_begin_failed,
    EndQuorumEpochRequest: end_quorum_epoch.on_end_failed,
    FetchRequest: fetch_response.on_fetch_failed,
    FetchSnapshotRequest: fetch_response.on_fetch_failed,
}

__all__ = ["RaftGroup", "ReplicaStatus", "describe"]
