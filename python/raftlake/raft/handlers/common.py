"""What all responses and all voter-only requests have in common.

Owns the reaction to another replica's leader and epoch, which every message carries (Kafka's maybeHandleCommonResponse
and validateVoterOnlyRequest).
"""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.raft import elections, leaps
from raftlake.raft.roles import Follower
from raftlake.raft.state import GroupState
from raftlake.raft.types import ANY_VOTER, EPOCH_MAX, NO_DIRECTORY, NO_LEADER, DirectoryId, Epoch, NodeId


def validate_voter_only_request(group: GroupState, remote_id: NodeId, epoch: Epoch, now_ms: int) -> ErrorCode:
    """FENCED_LEADER_EPOCH for an old epoch, INVALID_REQUEST for one far above ours and for a remote without an id or with ours,
    else NONE."""
    if epoch < group.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if remote_id < 0 or remote_id == group.local.id or epoch > EPOCH_MAX:
        return ErrorCode.INVALID_REQUEST
    if leaps.may_enter(group, epoch, remote_id, now_ms, is_answer=False):
        return ErrorCode.NONE
    if group.is_leader and remote_id not in group.other_voters and leaps.may_ask(group, epoch, now_ms):
        # Nothing else asks it: a voter that was removed, say, which cannot follow a lower epoch than its own.
        elections.ask_epoch(group, remote_id)
    return ErrorCode.INVALID_REQUEST


def validate_leaders_request(group: GroupState, leader_id: NodeId, epoch: Epoch, now_ms: int) -> ErrorCode:
    """The same for what only a leader sends. Who can lead no epoch of ours has none to tell. (A voter set in the log may be
    newer than our copy of it.)"""
    if epoch > group.epoch and not group.is_followable(leader_id):
        leaps.report(group, epoch, leader_id)
        return ErrorCode.INVALID_REQUEST
    return validate_voter_only_request(group, leader_id, epoch, now_ms)


def is_for_us(group: GroupState, voter_id: NodeId, directory_id: DirectoryId) -> bool:
    """Whether the voter that the sender meant is this replica; a sender may leave id or directory out (Vote v0)."""
    return voter_id in (ANY_VOTER, group.local.id) and directory_id in (NO_DIRECTORY, group.local.directory_id)


def heard_from_leader(group: GroupState, role: Follower, now_ms: int) -> None:
    """The leader answered a Fetch or FetchSnapshot: it lives and leads."""
    group.fetch_failures = 0
    group.failed_elections = 0
    if role.has_leader_resigned:
        return
    role.has_fetched = True
    role.suspected_at_ms = -1
    role.fetch_deadline_ms = now_ms + group.config.fetch_timeout_ms
    role.deadline_reason = "fetch timeout"


def handle_common_response(
    group: GroupState, error: ErrorCode, leader_id: NodeId, epoch: Epoch, source: NodeId, now_ms: int
) -> bool:
    """React to leader, epoch and the errors that mean the same everywhere; True when nothing else is to be done."""
    if epoch < group.epoch or epoch > EPOCH_MAX or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
        return True
    if epoch > group.epoch and leader_id == group.local.id:
        _rise_above_own_epoch(group, epoch, source, now_ms)
        return True
    if not leaps.may_enter(group, epoch, source, now_ms, is_answer=True):
        return True
    if epoch > group.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        elections.learn_leader(group, epoch, leader_id, f"response of replica {source}", now_ms)
        return True
    if leader_id != NO_LEADER and group.leader_id == NO_LEADER:
        is_consistent = elections.learn_leader(group, epoch, leader_id, f"response of replica {source}", now_ms)
        # The transition may have made the request obsolete; a fetch response goes on, for it may bring the first records.
        return error is not ErrorCode.NONE or not is_consistent
    return False


def _rise_above_own_epoch(group: GroupState, epoch: Epoch, source: NodeId, now_ms: int) -> None:
    """A voter believes that we lead an epoch above ours: a forged message, or our disk was lost. We must not take that epoch
    up, for we may have voted in it; in the next one neither we nor that voter are stuck."""
    following = Epoch(epoch + 1)
    if following <= EPOCH_MAX and leaps.may_enter(group, following, source, now_ms, is_answer=True):
        elections.detach(group, following, f"response of replica {source}: it follows us in epoch {epoch}", now_ms)
